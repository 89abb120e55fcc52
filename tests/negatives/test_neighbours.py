"""Other miners, through the stages that the plan makes: their own width and tokenizer, and several united."""

import importlib
import json

import numpy as np
import pytest

from collection_world import random_passages, write_folder
from encoder_world import source_folder
from stages import Stages, facts_of
from teleport.arrays import Ragged, Run
from teleport.negatives.pool import read_pool
from teleport.negatives.retrieved import Retrieval
from teleport.negatives.sources.neighbours import United
from teleport.plan.kinds import KINDS
from teleport.plan.plan import Plan
from teleport.settings import read as config

TRAIN, DEPTH = 12, 8
TEACHERS = {"theirs": {"experiment": "theirs"}}
EXPERIMENTS = {
    "mined": {
        "mining": {"checkpoint": {"external": "theirs"}},
        "negatives": {"counts": {"query": 4, "random": 2}, "draw": "top", "filters": {"max_score": 1e9}},
        "training": {"loss": {"kind": "kl", "scores": "miner"}},
    },
    "united": {
        "teachers": TEACHERS,
        "negatives": {"counts": {"neighbours": {"count": 6, "by": ["miner", "theirs"]}}, "draw": "top"},
    },
}


class Made:
    """The finished jobs of a plan's stages, each made when it is asked for. own, theirs: float64 [Q, P], the scores by
    each encoder's vectors"""

    def __init__(self, root):
        self.stages, self.jobs = Stages(root), {}
        texts = [" ".join(words) for words in random_passages(np.random.default_rng(4), 40, 5, 12)]
        queries = {
            "train": [(f"q{n}", texts[n][:15]) for n in range(TRAIN)],
            "test": [(f"t{n}", texts[n + 20]) for n in range(3)],
        }
        judged = {"train": [(n, n, 1) for n in range(TRAIN)], "test": [(n, n + 20, 1) for n in range(3)]}
        write_folder(root / "own", [(f"d{n}", "", text) for n, text in enumerate(texts)], queries, judged)
        theirs = {"folder": str(source_folder(root / "theirs", "roberta", hidden_size=48))}
        raw = {
            "collection": {"source": "folder", "path": str(root / "own")},
            "encoder": {"checkpoint": {"folder": str(source_folder(root / "start"))}, "pooling": "mean"},
            "training": {"steps": 2, "batch_queries": 4, "negatives_per_query": 2, "precision": "fp32"},
            "mining": {"depth": DEPTH},
            "episodes": [{}],
            "external": {"theirs": {"encoder": {"checkpoint": theirs, "pooling": "mean"}}},
            "experiments": EXPERIMENTS,
            "evaluation": {"splits": ["test"]},
        }
        self.plan = Plan(*config.load(raw))
        self.own, self.theirs = (self.scores("mined", 0), self.scores("theirs", 0))

    def job(self, planned):
        """The finished job of a planned `Stage`, and of all that it reads."""
        if planned.name not in self.jobs:
            inputs = {role: self.job(read) for role, read in planned.inputs.items()}
            run = importlib.import_module(KINDS[planned.kind].module).run
            others = {"loads": planned.loads, "origins": planned.origins}
            self.jobs[planned.name] = self.stages.run(run, planned.kind, planned.settings, inputs, **others)
        return self.jobs[planned.name]

    def scores(self, name, episode):
        vectors = self.plan.trajectories[name][0].episodes[episode].vectors
        sides = [np.load(self.job(stage).folder / file) for stage, file in (
            (vectors.queries("train"), "queries.train.npy"), (vectors.passages, "passages.npy"))]  # fmt: skip
        return sides[0].astype(np.float64) @ sides[1].T.astype(np.float64)

    def pool(self, name):
        """(names of sources, passages, sources, scores), of the negatives of each query (lists of arrays)."""
        job = self.job(self.plan.trajectories[name][0].pools[0])
        pool = read_pool(lambda file: job.folder / file)
        cuts = pool.offsets[1:-1]
        items = (np.split(np.asarray(getattr(pool.items, key)), cuts) for key in ("passages", "sources", "scores"))
        return pool.bits, *items


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("miners"))


def nearest(scores, row):
    """The passages of a query but its positive, best first, among its DEPTH nearest."""
    return [passage for passage in np.argsort(-scores[row], kind="stable")[:DEPTH].tolist() if passage != row]


def test_negatives_and_their_scores_are_those_of_the_miner(made):
    bits, passages, sources, scores = made.pool("mined")
    compared = 0
    for row in range(TRAIN):
        found = passages[row][sources[row] == bits["query"]].tolist()
        assert sorted(found) == sorted(nearest(made.theirs, row)[:4])
        compared += sorted(found) != sorted(nearest(made.own, row)[:4])
        np.testing.assert_allclose(scores[row], made.theirs[row, passages[row]], atol=1e-4)  # random ones, too
        assert not np.allclose(scores[row], made.own[row, passages[row]], atol=1e-2)
    assert compared > TRAIN / 2, "the two encoders agree: nothing was tested"


def test_the_own_encoder_is_trained_on_them_and_learns_from_the_scores_of_the_miner(made):
    (trajectory,) = made.plan.trajectories["mined"]
    train = made.job(trajectory.trains[0])
    assert facts_of(train)["steps"] == 2
    assert json.loads((train.folder / "checkpoint/config.json").read_text())["hidden_size"] == 32
    score = made.job(trajectory.trains[0].inputs["scores.miner"])
    values = np.load(score.folder / "scores.npy")
    offsets, passages = (np.load(score.folder / f"{name}.npy") for name in ("offsets", "passages"))
    rows = np.repeat(np.arange(TRAIN), np.diff(offsets))
    np.testing.assert_allclose(values, made.theirs[rows, passages], atol=1e-4)


def test_several_miners_give_the_neighbours_of_each(made):
    bits, passages, _, scores = made.pool("united")
    assert list(bits) == ["neighbours"]
    both = 0
    for row in range(TRAIN):
        candidates = nearest(made.own, row) + nearest(made.theirs, row)
        both += len(set(candidates)) < len(candidates)
        best = sorted(made.own[row, candidates], reverse=True)[:6]
        np.testing.assert_allclose(sorted(scores[row], reverse=True), best, atol=1e-4)
        np.testing.assert_allclose(scores[row], made.own[row, passages[row]], atol=1e-4)
    assert both, "no passage was found by both"


def test_lists_lie_end_to_end_literally():
    known = Ragged(np.array([0, 1, 1]), np.array([2], np.int32))
    runs = [([[1, 2, -1], [3, 4, 5]], [0, 1]), ([[2, 6, 7], [4, -1, -1]], [0, 1])]
    lists = [Run(np.array(ids, np.int32), np.zeros((2, 3), np.float32), np.array(rows)) for ids, rows in runs]
    united = United([Retrieval(run, known) for run in lists])
    assert united.widths_Q.tolist() == [6, 6]
    block = united.block(0, 2)
    assert block.depth == 3 and block.scores_QS is None
    there = [[True, False, False, False, True, True], [True, True, True, True, False, False]]
    assert block.there_QS.tolist() == there and block.passages_QS[1, :4].tolist() == [3, 4, 5, 4]
    assert block.counted(block.there_QS)[0].tolist() == [1, 1, 1, 0, 1, 2], "ranks are counted in each list"
    assert block.positions(np.array([0, 2, 3, 5])).tolist() == [1, 3, 1, 3]
