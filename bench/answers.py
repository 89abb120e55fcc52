"""Answer matching by one process and by several: passages a second, by the wall clock.

    python bench/answers.py data/openqa-wiki/corpus.tsv.gz NQ-open.dev.jsonl

Every question is matched against BM25's best 100 passages, spread over --copies of the corpus.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rounds import interleaved, parser, report
from teleport.answers import find_answers
from teleport.records import lines

ONE = "stage, one process"


def retrieve(texts, questions, depth):
    """Passage rows int32 [Q, depth] by BM25."""
    bm25 = bm25s.BM25()
    bm25.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    ids_QK, _ = bm25.retrieve(bm25s.tokenize(questions, show_progress=False), k=depth, show_progress=False)
    return ids_QK.astype(np.int32)


def main(arguments=None):
    made = parser("Answer matching by one process and by several.", depth=100, copies=10)
    made.add_argument("corpus", type=Path, help="corpus.tsv[.gz]: id, title, text")
    made.add_argument("questions", type=Path, help='JSON lines with "question" and "answer" or "answers"')
    arguments = made.parse_args(arguments)
    texts = [text.split("\t")[2] for _, text in lines(arguments.corpus)]
    records = [json.loads(text) for _, text in lines(arguments.questions)]
    answers_Q = [record.get("answers") or record["answer"] for record in records] * arguments.copies
    ids_QK = retrieve(texts, [record["question"] for record in records], arguments.depth)
    ids_QK = np.tile(ids_QK, (arguments.copies, 1))
    ids_QK += len(texts) * np.random.default_rng(0).integers(arguments.copies, size=ids_QK.shape, dtype=np.int32)
    with TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.parquet")
        pq.write_table(pa.table({"text": texts * arguments.copies}), corpus, row_group_size=65536)
        ways = {ONE: 1, f"stage, {arguments.threads} processes": arguments.threads}
        variants = {
            name: lambda number=number: find_answers(corpus, ids_QK, answers_Q, number) for name, number in ways.items()
        }
        figures = {"pairs_with_an_answer": float(variants[ONE]().mean())}
        seconds = interleaved(variants, arguments.rounds)
    report("answers", seconds, (ONE,), len(np.unique(ids_QK)), "passages", arguments, **figures)


if __name__ == "__main__":
    main()
