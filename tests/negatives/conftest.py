"""A small world for the negatives: collections, retrievals and merges in a temporary results folder."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teleport.arrays import CHUNK_OFFSETS, Run, save_array
from teleport.negatives import merge
from teleport.negatives.pool import FIELDS
from teleport.running.artefact import Artefact
from teleport.settings.negatives import Negatives
from teleport.settings.pool import Draw
from teleport.settings.registry import SOURCES, merge_loads


class World:
    def __init__(self, stages):
        self.stages = stages

    def collection(self, query_ids, judgments, positive_grade=1, num_passages=100, **columns):
        """judgments: (query row, passage row, grade) triples; columns: doc_id, title, text of the corpus, `queries`
        (texts) and `answers` (a list of each query), where a test needs others than made-up ones."""
        job = self.stages.make("collection")
        numbers = range(len(columns.get("text", range(num_passages))))
        corpus = {name: columns.get(name, [f"{name}{n}" for n in numbers]) for name in ("doc_id", "title", "text")}
        pq.write_table(pa.table(corpus), job.output("corpus.parquet"))
        queries = {"query_id": query_ids, "text": columns.get("queries", [f"text of {name}" for name in query_ids])}
        pq.write_table(pa.table(queries), job.output("queries.train.parquet"))
        qrels = np.array(judgments, np.int32).reshape(-1, 3).T
        qrels = dict(zip(("query", "passage", "grade"), qrels, strict=True))
        pq.write_table(pa.table(qrels), job.output("qrels.train.parquet"))
        if "answers" in columns:
            answers = {"query_id": query_ids, "answers": columns["answers"]}
            pq.write_table(pa.table(answers), job.output("answers.train.parquet"))
        return self.stages.finish(job, {"positive_grade": positive_grade, "num_passages": len(numbers)})

    def retrieval(self, ids, rows=None):
        """A retrieve stage with lists `ids` [L, D]; scores fall with the rank and differ between lists. The job's
        `lists` are (query row, ids, scores) each."""
        ids = np.array(ids, np.int32)
        rows = np.arange(len(ids)) if rows is None else np.array(rows)
        scores = (np.arange(len(ids))[:, None] - np.arange(ids.shape[1]) / 64).astype(np.float32)
        job = self.stages.make("retrieve")
        Run(ids, scores, rows).write(job)
        self.stages.finish(job)
        job.lists = list(zip(rows.tolist(), ids.tolist(), scores.tolist(), strict=True))
        return job

    def vectors(self, **sides):
        """An encode stage with `queries` [Q, dim] and `passages` [P, dim], by `offsets` chunks of passages."""
        job = self.stages.make("encode")
        save_array(job.output("queries.train.npy"), np.array(sides["queries"], np.float32))
        save_array(job.output("passages.npy"), np.array(sides["passages"], np.float32))
        if "offsets" in sides:
            save_array(job.output(CHUNK_OFFSETS), sides["offsets"])
        return self.stages.finish(job)

    def merge(self, collection, counts, lists, inputs=(), ranks=(), **settings):
        """Run the stage; `counts` is {source: n}, in the order of the pool, `lists` {source: the job that it reads}.

        Returns the finished job, with its pools (tuples of `FIELDS`) and facts as attributes.
        """
        ranks = dict(ranks)
        draws = {n: Draw(count=count, flag=SOURCES[n].flag, ranks=ranks.get(n)) for n, count in counts.items()}
        inputs = {"collection": collection} | dict(lists) | dict(inputs)
        own = {name: settings.pop(name) for name in ("seed", "episode", "part") if name in settings}
        pool = Negatives(**settings).of_pool(**{"seed": 42, "episode": 1, "sources": draws} | own)
        job = self.stages.make("merge", pool.model_dump(mode="json"), inputs)
        job.loads = merge_loads(pool)
        self.stages.finish(job, merge.run(job))
        columns = {name: np.load(job.folder / f"{name}.npy") for name in FIELDS}
        assert {name: column.dtype for name, column in columns.items()} == FIELDS
        offsets = np.load(job.folder / "offsets.npy")
        flat = list(zip(*(columns[name].tolist() for name in FIELDS), strict=True))
        job.pools = [flat[start:stop] for start, stop in zip(offsets, offsets[1:], strict=False)]
        job.passages = [[item[0] for item in pool] for pool in job.pools]
        job.merge_facts = Artefact(job.folder).facts
        return job


@pytest.fixture
def world(stages):
    return World(stages)
