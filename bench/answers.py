"""Answer matching against the plain implementation of the tests, in processor seconds.

    PYTHONPATH=tests python bench/answers.py data/openqa-wiki/corpus.tsv.gz NQ-open.dev.jsonl

Every question is matched against BM25's best 100 passages. The library matches all questions at once, and both match a
sample of them; the plain implementation also tokenises each passage once. Both must agree. With --copies, corpus and
questions are repeated that many times, the retrieved passages are spread over the copies, and one process is compared
with --threads of them, by the wall clock.
"""

import json
import tempfile
import time
from pathlib import Path
from statistics import median

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plain_answers import plain_holds, plain_tokens
from rounds import interleaved, parser, report
from teleport.answers import find_answers
from teleport.records import lines

PLAIN, STAGE, WHOLE = "plain implementation, sample", "stage, sample", "stage, all questions"


def retrieve(texts, questions, depth):
    """Passage rows int32 [Q, depth] by BM25."""
    bm25 = bm25s.BM25()
    bm25.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    ids_QK, _ = bm25.retrieve(bm25s.tokenize(questions, show_progress=False), k=depth, show_progress=False)
    return ids_QK.astype(np.int32)


def plain(texts, ids_QK, answers_Q):
    """bool [Q, K] by the plain implementation."""
    tokens = {row: plain_tokens(texts[row]) for row in np.unique(ids_QK).tolist()}
    found = []
    for ids, answers in zip(ids_QK.tolist(), answers_Q, strict=True):
        wanted = [plain_tokens(answer) for answer in answers]
        found.append([any(plain_holds(tokens[row], answer) for answer in wanted) for row in ids])
    return np.array(found)


def by_processes(texts, ids_QK, answers_Q, copies, threads, folder):
    """{figure: number} of matching answers in `copies` of a corpus, by one process and by several."""
    corpus = folder / "copies.parquet"
    pq.write_table(pa.table({"text": pa.array(texts * copies)}), corpus, row_group_size=65536)
    ids_QK = np.tile(ids_QK, (copies, 1))
    ids_QK = (ids_QK + len(texts) * np.random.default_rng(0).integers(copies, size=ids_QK.shape)).astype(np.int32)
    ways = {
        number: lambda number=number: find_answers(corpus, ids_QK, answers_Q * copies, number)
        for number in (1, threads)
    }
    found = {number: run() for number, run in ways.items()}
    seconds = {number: median(taken) for number, taken in interleaved(ways, 3).items()}
    figures = {f"passages/s, {number} processes": len(np.unique(ids_QK)) / taken for number, taken in seconds.items()}
    return figures | {"pairs_that_differ_by_processes": int((found[1] != found[threads]).sum())}


def main(arguments=None):
    made = parser("Answer matching against the plain implementation.", depth=100, sample=200, copies=1)
    made.add_argument("corpus", type=Path, help="corpus.tsv[.gz]: id, title, text")
    made.add_argument("questions", type=Path, help='JSON lines with "question" and "answer" or "answers"')
    arguments = made.parse_args(arguments)
    texts = [text.split("\t")[2] for _, text in lines(arguments.corpus)]
    records = [json.loads(text) for _, text in lines(arguments.questions)]
    answers_Q = [record.get("answers") or record["answer"] for record in records]
    ids_QK = retrieve(texts, [record["question"] for record in records], arguments.depth)
    sample = np.linspace(0, len(records) - 1, min(arguments.sample, len(records))).astype(int)
    some = ids_QK[sample], [answers_Q[row] for row in sample]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.parquet")
        pq.write_table(pa.table({"text": texts}), corpus)
        variants = {
            PLAIN: lambda: plain(texts, *some),
            STAGE: lambda: find_answers(corpus, *some),
            WHOLE: lambda: find_answers(corpus, ids_QK, answers_Q),
        }
        found = {name: run() for name, run in variants.items()}
        seconds = interleaved(variants, arguments.rounds, time.process_time)
        copied = {}
        if arguments.copies > 1:
            copied = by_processes(texts, ids_QK, answers_Q, arguments.copies, arguments.threads, Path(folder))
    whole = seconds.pop(WHOLE)
    figures = {
        "pairs_that_differ": int((found[STAGE] != found[PLAIN]).sum() + (found[WHOLE][sample] != found[PLAIN]).sum()),
        "pairs_with_an_answer": float(found[WHOLE].mean()),
        "all_pairs": ids_QK.size,
        "distinct_passages": len(np.unique(ids_QK)),
        "seconds_of_all_pairs": median(whole),
    } | copied
    report("answers", seconds, (PLAIN,), some[0].size, "pairs", arguments, **figures)


if __name__ == "__main__":
    main()
