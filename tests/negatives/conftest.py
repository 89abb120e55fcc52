"""A small world for the negatives: collections, retrievals and merges in a temporary results folder."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from teleport.arrays import CHUNK_OFFSETS, Run, save_array
from teleport.negatives import merge, score
from teleport.negatives.budget import FIELDS
from teleport.negatives.pool import read_pool
from teleport.running.artefact import Artefact
from teleport.settings.negatives import Negatives
from teleport.settings.pool import Draw, ScoreSettings
from teleport.settings.registry import ANCHORS, CANDIDATES, POSITIVES, SOURCES, compared, merge_loads, score_loads


class World:
    def __init__(self, stages):
        self.stages = stages

    def collection(self, query_ids, judgments, positive_grade=1, num_passages=100, **columns):
        """judgments: (query row, passage row, grade) triples; columns: doc_id, title, text of the corpus, `queries`
        (texts) and `answers` (a list of each query), where a test needs others than made-up ones. Passages after the
        first 100 have no text."""
        job = self.stages.make("collection")
        numbers = range(len(columns.get("text", range(min(num_passages, 100)))))
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
        return self.stages.finish(
            job,
            {
                "positive_grade": positive_grade,
                "num_passages": len(numbers) if "text" in columns else num_passages,
                "queries": len(query_ids),
            },
        )

    def retrieval(self, ids, rows=None, scores=None):
        """A retrieve stage with lists `ids` [L, D]; scores fall with the rank and differ between lists, where none are
        given. The job's `lists` are (query row, ids, scores) each."""
        ids = np.array(ids, np.int32)
        rows = np.arange(len(ids)) if rows is None else np.array(rows)
        if scores is None:
            scores = np.arange(len(ids))[:, None] - np.arange(ids.shape[1]) / 64
        scores = np.array(scores, np.float32)
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

    def score(self, pool, inputs, of="queries", sources=None):
        """A score stage as the plan makes it: of the candidates of `sources` of a settings.Pool and the positives."""
        names = pool.sources if sources is None else sources
        draws = {name: draw for name, draw in pool.sources.items() if name in names}
        settings = ScoreSettings.taken_from(pool, keep_duplicates=True, sources=draws, of=of)
        read = {name: job for name, job in inputs.items() if not name.startswith(("scores.", "anchors."))}
        job = self.stages.make("score", settings, read)
        job.loads = score_loads(settings)
        return self.stages.finish(job, score.run(job))

    def merge(self, collection, counts, lists, inputs=(), ranks=(), draws=(), **settings):
        """Run the stage, and before it the score stages that its settings ask for; `counts` is {source: n}, in the
        order of the pool, `lists` {source: the job that it reads}, `draws` {source: its draw}, else uniform; inputs:
        the `vectors` of the miner, where scores are compared.

        Returns the finished job, with its pools (tuples of passage, names of sources, first episode, rank, score) and
        facts as attributes.
        """
        ranks, draws, vectors = dict(ranks), dict(draws), dict(inputs).pop("vectors", None)
        settings.setdefault("draws", draws)
        own = {name: settings.pop(name) for name in ("seed", "episode", "part") if name in settings}
        negatives = Negatives(**settings)
        sources = {
            name: Draw(
                count=count, place=place, ranks=ranks.get(name), draw=negatives.draw_of(name),
                scored=SOURCES[name].scored,
            )
            for place, (name, count) in enumerate(counts.items())
        }  # fmt: skip
        pool = negatives.of_pool(**{"seed": 42, "episode": 1, "sources": sources} | own)
        inputs = {"collection": collection} | dict(lists) | {n: i for n, i in dict(inputs).items() if n != "vectors"}
        if vectors and (pairs := compared(pool).get("miner")):
            read = inputs | {"queries": vectors, "passages": vectors}
            unknown = [name for name, draw in sources.items() if name in pairs[CANDIDATES] and not draw.scored]
            if unknown or POSITIVES in pairs:
                inputs["scores.miner"] = self.score(pool, read, sources=unknown)
            if ANCHORS in pairs:
                inputs["anchors.miner"] = self.score(pool, read, of="positives", sources=pairs[CANDIDATES])
        job = self.stages.make("merge", pool.model_dump(mode="json"), inputs)
        job.loads = merge_loads(pool)
        self.stages.finish(job, merge.run(job))
        read = read_pool(lambda name: job.folder / name)
        assert {name: getattr(read.items, name).dtype for name in FIELDS} == FIELDS
        columns = {name: getattr(read.items, name).tolist() for name in FIELDS}
        columns["sources"] = [
            "+".join(name for name, bit in read.bits.items() if bits & bit) for bits in columns["sources"]
        ]
        flat = list(zip(*columns.values(), strict=True))
        job.pools = [flat[start:stop] for start, stop in zip(read.offsets, read.offsets[1:], strict=False)]
        job.passages = [[item[0] for item in pool] for pool in job.pools]
        job.merge_facts = Artefact(job.folder).facts
        return job


@pytest.fixture
def world(stages):
    return World(stages)
