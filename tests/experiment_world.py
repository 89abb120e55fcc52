"""A finished experiment in miniature, made in this process: two checkpoints that search, and a pool of negatives."""

import csv
import shutil

import numpy as np
import pytest

import collection_world
from encoder_world import encode_all, make_pretrained, make_tokens, source_folder
from stages import Stages
from teleport.evaluation import evaluate
from teleport.negatives.pool import Items, PoolWriter
from teleport.report.links import INDEX
from teleport.search import index, retrieve

ENCODE = {"max_query_tokens": 16, "max_passage_tokens": 12, "chunks": 1}
ENCODE |= {"vectors": "fp32", "precision": "fp32"}
COLUMNS = ["seed", "episode", "stage", "kind", "key", "folder"]
SCORED = 1 / 64  # the score of a negative, times its row


class ExperimentWorld:
    """results/experiments/NAME of seeds with an episode each. words: so many texts as there are passages; a query of
    `test` is a part of the passage of its number"""

    def __init__(self, stages, name="mine/tuned", seeds=(42,), chunks=1, passages=30, pooling="mean"):
        self.stages, self.name, self.root, rng = stages, name, stages.root, np.random.default_rng(2)
        words = collection_world.random_passages(rng, passages, 6, 14)
        self.texts = [" ".join(each) for each in words]
        ids = [(f"d{i}", f"title {i}" if i % 2 else "", text) for i, text in enumerate(self.texts)]
        self.queries = [" ".join(each[:3]) for each in words[:8]]
        splits = {"train": self.queries[:5], "test": self.queries[5:]}
        queries = {split: [(f"{split}{i}", text) for i, text in enumerate(own)] for split, own in splits.items()}
        judged = {"train": [(i, i, 1) for i in range(5)], "test": [(i, i + 5, 1) for i in range(3)]}
        self.collection = collection_world.make_collection(stages, ids, queries, judged, corpus_digest="c0ffee")
        self.chunks, self.rows = chunks, []
        pretrained = make_pretrained(stages, source_folder(stages.root / "start"), pooling=pooling)
        self.tokens = make_tokens(stages, self.collection, pretrained, query_prefix="the ", title="space")
        for split in splits:
            self.row(42, 0, f"split-{split}", self.collection)
        self.start = self.episode(42, 0, pretrained)
        for seed in seeds:
            if seed != seeds[0]:
                self.rows += [[seed, *row[1:]] for row in self.rows if row[:2] == [seeds[0], 0]]
            self.pool = self.row(seed, 1, "merge", self.merge())
            self.trained = self.episode(seed, 1, self.train(seed, pretrained))
        (stages.root / "results/experiments" / name).mkdir(parents=True)
        self.write_index()

    def write_index(self):
        with open(self.root / "results/experiments" / self.name / INDEX, "w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows([COLUMNS, *self.rows])

    def row(self, seed, episode, link, job):
        self.rows.append([seed, episode, link, job.kind, job.key, f"results/stages/{job.kind}/{job.key}"])
        return job

    def train(self, seed, pretrained):
        """A train stage with weights of its own."""
        import torch
        from safetensors.torch import load_file, save_file

        job = self.stages.make("train", {"seed": seed})
        checkpoint, generator = job.output("checkpoint"), torch.Generator().manual_seed(seed)
        shutil.copytree(pretrained.folder / "checkpoint", checkpoint)
        path = checkpoint / "model.safetensors"
        weights = load_file(path)
        moved = {name: each + 0.1 * torch.randn(each.shape, generator=generator) for name, each in weights.items()}
        save_file(moved, path, metadata={"format": "pt"})
        return self.stages.finish(job)

    def merge(self):
        """A pool: of each training query two negatives, one by two sources; the last query has none."""
        inputs = {"collection": self.collection, "query": self.start["mined"]}
        job = self.stages.make("merge", {}, inputs)
        writer = PoolWriter(job.output, ["query", "bm25"])
        negatives = np.array([[10 + q, 20 + q] for q in range(4)], np.int32)
        sources = np.broadcast_to(np.array([1, 3], np.uint16), negatives.shape)
        ranks = np.broadcast_to(np.array([1, 7], np.int32), negatives.shape)
        scores = negatives.astype(np.float32) * np.float32(SCORED)
        items = Items(negatives, sources, np.ones_like(negatives, np.uint8), ranks, scores)
        writer.append(np.array([2, 2, 2, 2, 0]), Items(*(each.ravel() for each in items)))
        writer.close()
        filters = {"dropped": {"query": {"max_score": 4}}}
        facts = {"queries": 5, "negatives": 8, "empty_queries": 1, "drawn": {"query": 8}, "filters": filters}
        return self.stages.finish(job, facts)

    def episode(self, seed, number, checkpoint):
        """Encode, index, search and evaluate with a checkpoint."""
        run, world = self.stages.run, {"collection": self.collection}
        self.row(seed, number, checkpoint.kind, checkpoint)
        inputs = world | {"tokens": self.tokens, "checkpoint": checkpoint}
        encoded = encode_all(self.stages, ENCODE | {"chunks": self.chunks}, inputs)
        for of, job in encoded.items():
            self.row(seed, number, f"encode-{of}", job)
        flat = self.row(seed, number, "index", run(index.run, "index", {}, {"passages": encoded["passages"]}))
        inputs = world | {"passages": encoded["passages"], "index": flat}
        mined, searched = (
            run(
                retrieve.run,
                "retrieve",
                {"of": "queries", "split": split, "depth": 10},
                inputs | {"queries": encoded[f"queries.{split}"]},
            )
            for split in ("train", "test")
        )
        settings = {"split": "test", "measures": ["RR@10", "R@5"]}
        evaluated = run(evaluate.run, "evaluate", settings, world | {"run": searched})
        self.row(seed, number, "search-test", searched)
        self.row(seed, number, "evaluate-test", evaluated)
        return {"encode": encoded["passages"], "mined": mined, "search": searched, "evaluate": evaluated}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One world for the tests of a file that change nothing in it."""
    return ExperimentWorld(Stages(tmp_path_factory.mktemp("experiment")))


@pytest.fixture
def world(made, monkeypatch):
    """The world that is shared, where a person stands in its folder."""
    monkeypatch.chdir(made.root)
    return made
