"""The rules of question answering: positives found by answer match, negatives without an answer."""

import json

import numpy as np
import pytest

from plain_answers import plain_holds, plain_tokens
from teleport.arrays import Ragged
from teleport.negatives import positives
from teleport.negatives.export import Wanted, export_pool
from teleport.negatives.known_positives import have_answers, pool_has_answers
from teleport.negatives.sources import momentum, random
from teleport.reader import positives_of_job, read_answers
from teleport.running.artefact import MANIFEST, Artefact
from teleport.running.files import write_json
from teleport.search.retrieve import lookahead_anchors
from teleport.settings.section import Part

WORDS = ["red", "green", "blue", "grey", "black"]


class Questions:
    """30 questions (two of three without a judged positive) over 80 passages of two words, and their retrievals."""

    def __init__(self, world, depth=4):
        rng = np.random.default_rng(4)
        self.world, self.stages, self.texts = world, world.stages, [" ".join(rng.choice(WORDS, 2)) for _ in range(80)]
        self.answers = [[str(word) for word in rng.choice([*WORDS, "white"], rng.integers(1, 3))] for _ in range(30)]
        self.given = [rng.choice(80, 2, replace=False).tolist() if q % 3 == 0 else [] for q in range(30)]
        self.lists = np.stack([rng.choice(80, depth, replace=False) for _ in range(30)]).astype(np.int32)
        self.lists[::7, 2:] = -1
        judgments = [(q, p, 1) for q, given in enumerate(self.given) for p in given]
        corpus = {"doc_id": [f"d{n}" for n in range(80)], "title": [" ".join(WORDS)] * 80, "text": self.texts}
        ids = [f"q{n}" for n in range(30)]
        self.collection = world.collection(ids, judgments, answers=self.answers, **corpus)
        self.queries = world.retrieval(self.lists)

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

    def merge(self, inputs=(), counts=(("query", 99),), **settings):
        return self.world.merge(self.collection, dict(counts), {"query": self.queries}, inputs, **settings)


@pytest.fixture
def questions(world):
    return Questions(world)


def lists_of(ragged):
    return [ragged[row].tolist() for row in range(len(ragged))]


def test_positives_are_given_or_the_best_ranked_passage_with_an_answer(questions, stages):
    job = questions.positives()
    reader = stages.make("train", inputs={"collection": questions.collection, "positives": job})
    found = positives_of_job(reader, "train")
    assert (found.offsets.dtype, found.values.dtype) == (np.int64, np.int32)
    expected = questions.expected()
    assert lists_of(found) == expected
    without = sum(not some for some in expected)
    assert Artefact(job.folder).facts == {"given": 10, "found": 20 - without, "without": without}
    assert 2 < without < 15, "all three cases occur"
    judged = positives_of_job(stages.make("train", inputs={"collection": questions.collection}), "train")
    assert lists_of(judged) == questions.given


def test_found_positives_are_lookahead_anchors(questions, stages):
    reader = stages.make("retrieve", inputs={"collection": questions.collection, "positives": questions.positives()})
    rows, lines = lookahead_anchors(positives_of_job(reader, "train"), "first")
    expected = {query: some[0] for query, some in enumerate(questions.expected()) if some}
    assert dict(zip(rows.tolist(), lines.tolist(), strict=True)) == expected


def test_whatever_has_an_answer_is_no_negative_and_nothing_else_is_removed(questions):
    job = questions.merge(remove="answers")
    lists = [[p for p in ids if p >= 0] for ids in questions.lists.tolist()]
    assert job.passages == [[p for p in ids if not questions.holds(q, p)] for q, ids in enumerate(lists)]
    judged = questions.merge()
    assert judged.passages == [[p for p in ids if p not in questions.given[q]] for q, ids in enumerate(lists)]


def test_a_judged_passage_without_an_answer_can_be_a_negative(questions):
    query = next(q for q, given in enumerate(questions.given) if any(not questions.holds(q, p) for p in given))
    passage = next(p for p in questions.given[query] if not questions.holds(query, p))
    questions.lists[query, 0] = passage
    questions.lists[query, 1:][questions.lists[query, 1:] == passage] = -1
    questions.queries = questions.world.retrieval(questions.lists)
    job = questions.merge(remove="answers")
    assert passage in job.passages[query]


@pytest.mark.parametrize("count", [99, 80])  # more than the last pool has, whichever way it was resolved
def test_a_positive_found_later_leaves_the_momentum_negatives(questions, count):
    """In Episode 1 it was a negative, because another passage was the positive then."""
    first, found = questions.merge(), questions.positives()
    inputs, counts = {"positives": found, "momentum": first}, {"query": count, "momentum": count}
    job = questions.merge(inputs, counts, episode=2)
    expected = questions.expected()
    assert sum(p in known for pool, known in zip(first.passages, expected, strict=True) for p in pool) > 5
    without = [[p for p in pool if p not in known] for pool, known in zip(first.passages, expected, strict=True)]
    assert job.passages == [2 * pool for pool in without]  # the lists are as in Episode 1, and shorter than the counts


@pytest.mark.parametrize("earlier", ["judged", "answers"])
def test_answers_leave_the_last_pool_too_and_one_that_has_none_is_not_searched(questions, monkeypatch, earlier):
    """What stays keeps its first episode and rank."""
    first, searched = questions.merge(remove=earlier), []
    monkeypatch.setattr(momentum, "pool_has_answers", lambda *given: searched.append(1) or pool_has_answers(*given))
    inputs, counts = {"momentum": first}, {"query": 99, "momentum": 99}
    job = questions.merge(inputs, counts, episode=2, remove="answers")
    new, old = ([[(p, e, r) for p, _, e, r, _ in pool] for pool in of.pools] for of in (job, first))
    without = [[item for item in pool if not questions.holds(q, item[0])] for q, pool in enumerate(old)]
    assert [[item for item in pool if item[1] == 1] for pool in new] == without
    assert len(searched) == (earlier == "judged") == (without != old), "not vacuous"


def test_answers_leave_random_negatives_too(questions):
    for count in (20, 3):  # the corpus is offered whole, and drawn from
        job = questions.merge(counts={"random": count}, remove="answers")
        assert not any(questions.holds(q, p) for q, pool in enumerate(job.passages) for p in pool)
        plain = questions.merge(counts={"random": count})
        assert sum(questions.holds(q, p) for q, pool in enumerate(plain.passages) for p in pool) > 5  # not vacuous
        given = [p in questions.given[q] for q, pool in enumerate(job.passages) for p in pool]
        assert count == 3 or any(given), "a judged passage without an answer is a negative like another"


def test_answers_are_looked_for_in_the_random_passages_of_a_part_alone(questions, monkeypatch):
    looked = []
    spy = lambda job, passages, rows: looked.append(rows.tolist()) or have_answers(job, passages, rows)  # noqa: E731
    monkeypatch.setattr(random, "have_answers", spy)
    whole, part = (
        questions.merge(counts={"random": 3}, remove="answers", part=part) for part in (None, Part(number=1, of=3))
    )
    assert looked == [[*range(30)], [*range(10, 20)]]
    assert part.passages == [pool if 10 <= q < 20 else [] for q, pool in enumerate(whole.passages)]


def test_ranks_of_the_pool_are_those_of_the_retrieval(questions):
    job = questions.merge(remove="answers")
    offsets, passages, ranks = (np.load(job.folder / f"{name}.npy") for name in ("offsets", "passages", "ranks"))
    assert questions.lists[Ragged(offsets, passages).rows, ranks - 1].tolist() == passages.tolist()


def test_the_export_has_the_positives_that_the_pool_was_made_with(questions, tmp_path):
    job, found = questions.merge(remove="answers"), questions.positives()
    path = job.folder / MANIFEST
    manifest = json.loads(path.read_text()) | {"inputs": {"positives": f"positives/{found.key}"}}
    write_json(path, manifest)
    collection = Artefact(questions.collection.folder)
    export_pool(Artefact(job.folder), collection, collection, tmp_path, Wanted())
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    exported = {line["query_id"]: [p["docid"] for p in line["positive_passages"]] for line in lines}
    expected = {
        f"q{q}": [f"d{p}" for p in ids] for q, ids in enumerate(questions.expected()) if ids and job.passages[q]
    }
    assert exported == expected and len(expected) < 30


def test_answers_of_queries_are_read_in_their_order(questions):
    assert read_answers(Artefact(questions.collection.folder), "train") == questions.answers
