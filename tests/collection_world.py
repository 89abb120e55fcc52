"""Small collections for all tests: random text, a finished collection stage, a folder of files, judgments, runs."""

import json

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ir_measures.util import QrelsConverter

from teleport.arrays import Run
from teleport.collection.corpus import CORPUS
from teleport.collection.split import ANSWERS, QUERIES

WORDS = [f"word{i}" for i in range(400)]
ROW_GROUP = None  # passages in a row group of corpus.parquet, None: all


def random_passages(rng, number, shortest, longest):
    """`number` lists of `shortest` to `longest` - 1 random words."""
    return [list(rng.choice(WORDS, rng.integers(shortest, longest))) for _ in range(number)]


def make_collection(stages, passages, queries, judgments=None, answers=None, settings=None, **facts):
    """A finished collection stage, in the form that `collection` writes but without its checks.

    passages: (id, title, text) of each, or their number (d0, d1, …)
    queries: {split: (id, text) of each, or their number (q0, q1, …)}
    judgments: {split: (query row, passage row, grade) of each}; answers: {split: {query id: list of answers}}
    facts: instead of those of these counts, and positive_grade, which is 1
    """
    job = stages.make("collection", settings)
    passages = [(f"d{i}", "", "") for i in range(passages)] if isinstance(passages, int) else passages
    pq.write_table(columns(passages, CORPUS), job.output("corpus.parquet"), row_group_size=ROW_GROUP)
    splits = {}
    for split, texts in queries.items():
        texts = [(f"q{i}", f"q{i}") for i in range(texts)] if isinstance(texts, int) else texts
        judged = (judgments or {}).get(split, [])
        splits[split] = {"queries": len(texts), "judgments": len(judged)}
        pq.write_table(columns(texts, QUERIES), job.output(f"queries.{split}.parquet"))
        rows = np.array(judged, np.int32).reshape(-1, 3)
        table = {"query_id": [texts[row][0] for row in rows[:, 0]], "doc_id": [passages[row][0] for row in rows[:, 1]]}
        table |= {"grade": rows[:, 2], "query": rows[:, 0], "passage": rows[:, 1]}
        pq.write_table(pa.table(table), job.output(f"qrels.{split}.parquet"))
    for split, lists in (answers or {}).items():
        splits[split]["answers"] = len(lists)
        pq.write_table(columns(lists.items(), ANSWERS), job.output(f"answers.{split}.parquet"))
    return stages.finish(job, {"num_passages": len(passages), "splits": splits, "positive_grade": 1} | facts)


def columns(rows, schema):
    """The table of a schema that has these rows."""
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * len(schema), schema=schema)


def write_folder(folder, passages, queries, judgments):
    """The same as files, in the form of the source `folder`. Everything is listed, nothing is a number."""
    folder.mkdir(parents=True)
    write_lines(folder / "corpus.tsv", passages)
    for split, texts in queries.items():
        judged = [(texts[query][0], 0, passages[passage][0], grade) for query, passage, grade in judgments[split]]
        write_lines(folder / f"queries.{split}.tsv", texts)
        write_lines(folder / f"qrels.{split}.tsv", judged)


def write_lines(path, rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def write_dataset(folder, table, files=2):
    """A dataset as `save_to_disk` of `datasets` writes it: streams of Arrow's, named in state.json."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{files:05}.arrow" for number in range(files)]
    step = -(-len(table) // files)
    for number, name in enumerate(names):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table.slice(number * step, step))
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def read_judgments(path):
    """{query id: {passage id: grade}} of a file of judgments in TREC's form."""
    return QrelsConverter(ir_measures.read_trec_qrels(str(path))).as_dict_of_dict()


def make_run(stages, ids, scores=None, rows=None):
    """A finished retrieval of the lists `ids` [L, D]; scores fall with the rank, rows are 0, 1, … unless given."""
    ids = np.array(ids, np.int32)
    scores = np.broadcast_to(-np.arange(ids.shape[1]), ids.shape) if scores is None else scores
    rows = np.arange(len(ids)) if rows is None else rows
    job = stages.make("retrieve")
    Run(ids, np.array(scores), np.array(rows)).write(job)
    return stages.finish(job)
