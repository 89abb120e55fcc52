"""Time of answer matching against the plain implementation of the tests, in one run, on one core.

    python bench/answers.py data/openqa-wiki/corpus.tsv.gz NQ-open.dev.jsonl

Every question gets the best 100 passages of BM25 and is matched against them: by the library, all questions at once,
and by the plain implementation, a sample of the questions, each passage tokenised once as well. Both must agree.
"""

import argparse
import gzip
import json
import sys
import tempfile
import time
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "workflow_scripts"), str(REPOSITORY / "tests" / "unit")]

from plain_answers import plain_holds, plain_tokens  # noqa: E402

from teleport.evaluation.answers import find_answers  # noqa: E402

DEPTH, ROUNDS, SAMPLE = 100, 3, 200


def read_lines(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


def retrieve(texts, questions):
    """Passage rows int32 [Q, DEPTH] by BM25."""
    bm25 = bm25s.BM25()
    bm25.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    ids_QK, _ = bm25.retrieve(bm25s.tokenize(questions, show_progress=False), k=DEPTH, show_progress=False)
    return ids_QK.astype(np.int32)


def plain(texts, ids_QK, answers_Q):
    """bool [Q, K] by the plain implementation."""
    tokens = {row: plain_tokens(texts[row]) for row in np.unique(ids_QK).tolist()}
    found = []
    for ids, answers in zip(ids_QK.tolist(), answers_Q, strict=True):
        wanted = [plain_tokens(answer) for answer in answers]
        found.append([any(plain_holds(tokens[row], answer) for answer in wanted) for row in ids])
    return np.array(found)


def timed(function, *arguments):
    """(result, processor seconds)."""
    started = time.process_time()
    result = function(*arguments)
    return result, time.process_time() - started


def main():
    parser = argparse.ArgumentParser(description="Time answer matching against the plain implementation.")
    parser.add_argument("corpus", type=Path, help="corpus.tsv[.gz]: id, title, text")
    parser.add_argument("questions", type=Path, help='JSON lines with "question" and "answer" or "answers"')
    arguments = parser.parse_args()
    texts = [line.split("\t")[2] for line in read_lines(arguments.corpus)]
    records = [json.loads(line) for line in read_lines(arguments.questions)]
    answers_Q = [record.get("answers") or record["answer"] for record in records]
    ids_QK = retrieve(texts, [record["question"] for record in records])
    sample = np.linspace(0, len(records) - 1, min(SAMPLE, len(records))).astype(int)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.parquet")
        pq.write_table(pa.table({"text": texts}), corpus)
        for _ in range(ROUNDS):
            found_QK, seconds = timed(find_answers, corpus, ids_QK, answers_Q)
            expected, plain_seconds = timed(plain, texts, ids_QK[sample], [answers_Q[row] for row in sample])
            if (found_QK[sample] != expected).any():
                sys.exit("error: the two implementations differ")
            rate, plain_rate = ids_QK.size / seconds, expected.size / plain_seconds
            ratios.append(rate / plain_rate)
            print(f"{len(ids_QK):,} x {DEPTH} passages ({len(np.unique(ids_QK)):,} distinct): {seconds:.2f} s")
            print(f"  {rate:,.0f} pairs/s; plain {plain_rate:,.0f} pairs/s; ratio {ratios[-1]:.1f}")
    print(f"median ratio {np.median(ratios):.1f}; {found_QK.mean():.3f} of the pairs hold an answer")


if __name__ == "__main__":
    main()
