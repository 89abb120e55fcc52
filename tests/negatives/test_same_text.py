"""Copies of known positives under other ids, and a query's own text, are no negatives where a setting says so."""

import json

import numpy as np
import pytest

from teleport.negatives import relabel, scores_file
from teleport.negatives.pool import read_pool
from teleport.reader import positives_of, read_positives, with_same_text
from teleport.running.artefact import Artefact
from teleport.running.files import sha256_file
from teleport.settings.negatives import Negatives
from teleport.settings.pool import RelabelSettings
from teleport.settings.registry import RELABELLINGS
from teleport.training.data import read_training_set
from training_world import settings as train_settings

TEXTS = ["a cat", "two dogs", "A  CAT", "an emu", "who runs", "two dogs", "a fox", "Who runs", "a hen", "a cow"]
QUERIES = ["what sleeps", "who runs", "what barks"]
POSITIVES = [[0], [3], [1, 6]]  # whose copies are 2; none, but 4 and 7 are the query itself; 5
KNOWN = [{0, 2}, {3, 4, 7}, {1, 5, 6}]
ANSWERS = ["emu", "hen", "cow"]


@pytest.fixture
def collection(stages, tmp_path):
    return given(stages, tmp_path / "given", POSITIVES)


def given(stages, folder, positives):
    """The collection of TEXTS and QUERIES with some positives of each query."""
    folder.mkdir()
    (folder / "corpus.tsv").write_text("".join(f"d{n}\t{text}\n" for n, text in enumerate(TEXTS)))
    (folder / "queries.train.tsv").write_text("".join(f"q{n}\t{text}\n" for n, text in enumerate(QUERIES)))
    judged = [(query, passage) for query, own in enumerate(positives) for passage in own]
    (folder / "qrels.train.tsv").write_text("".join(f"q{query} 0 d{passage} 1\n" for query, passage in judged))
    answers = [json.dumps({"id": f"q{n}", "answers": [answer]}) for n, answer in enumerate(ANSWERS)]
    (folder / "answers.train.jsonl").write_text("\n".join(answers) + "\n")
    return stages.collection({"source": "folder", "path": str(folder)})


def test_known_passages_have_all_copies(collection):
    train = collection.split("train")
    known = with_same_text(Artefact(collection["corpus"].folder), train, "train", read_positives(train, "train"))
    assert [known[row].tolist() for row in range(3)] == [sorted(own) for own in KNOWN]
    assert known.values.dtype == np.int32


@pytest.mark.parametrize("same_text", [False, True])
def test_a_pool_has_no_copy_of_a_positive(world, collection, same_text):
    """All passages that may be drawn are; without the setting copies are among them."""
    job = world.merge(collection, {"random": 200}, {}, keep_duplicates=False, same_text=same_text)
    known = KNOWN if same_text else map(set, POSITIVES)
    assert [set(pool) for pool in job.passages] == [set(range(len(TEXTS))) - own for own in known]


@pytest.mark.parametrize("same_text", [False, True])
def test_where_answers_alone_are_removed_a_query_draws_its_own_text_only_without_the_setting(
    world, collection, same_text
):
    """Judged passages and their copies can be negatives there."""
    settings = {"keep_duplicates": False, "same_text": same_text, "remove": "answers"}
    job = world.merge(collection, {"random": 200}, {}, **settings)
    removed = [{n for n, text in enumerate(TEXTS) if answer in text} for answer in ANSWERS]
    own = [set(), {4, 7}, set()] if same_text else [set()] * 3
    assert [set(pool) for pool in job.passages] == [
        set(range(len(TEXTS))) - has - text for has, text in zip(removed, own, strict=True)
    ]


@pytest.mark.parametrize("same_text", [False, True])
def test_no_query_of_a_batch_brings_a_copy_of_the_positive_of_another(stages, tmp_path, same_text):
    """With `distinct_positives` alone, without a mask; passage 2 is a copy of 0."""
    collection = given(stages, tmp_path / "copies", [[0], [3], [2]])
    training = {"distinct_positives": True, "negatives_per_query": 0, "batch_queries": 2}
    job = stages.make("train", train_settings(training, same_text=same_text), {"collection": collection})
    data = read_training_set(job, seed=1)
    batches = {frozenset(data.batch(step).queries_Q.tolist()) for step in range(20)}
    assert batches == {frozenset((0, 1)), frozenset((1, 2))} | (set() if same_text else {frozenset((0, 2))})


@pytest.mark.parametrize("same_text", [False, True])
def test_a_mask_knows_the_copies(stages, collection, same_text):
    """Those of other queries in the batch."""
    training = {"masks": ["known_positives"], "negatives_per_query": 0, "batch_queries": 2}
    job = stages.make("train", train_settings(training, same_text=same_text), {"collection": collection})
    data = read_training_set(job, seed=1)
    known = KNOWN if same_text else map(set, POSITIVES)
    assert [set(data.known_positives(row).tolist()) for row in range(3)] == list(known)
    assert [data.positives[row].tolist() for row in range(3)] == POSITIVES, "what is trained on stays"


@pytest.fixture
def relabelled(world, tmp_path):
    """A function of `same_text`: (collection, relabel stage). Passage 0 becomes a positive of query 0, and its copy 2,
    the positive of query 1, has no verdict; 5 is a copy of 1, the positive of query 2."""

    def make(same_text):
        folder, verdicts = tmp_path / f"{same_text}", tmp_path / "verdicts.tsv"
        collection = given(world.stages, folder, [[8], [2], [1]])
        verdicts.write_text("q0\td0\t1\nq2\td0\t0\n")
        settings = {"path": str(verdicts), "sha256": sha256_file(verdicts)}
        judge = world.stages.run(scores_file.run, "scores_file", settings, {"collection": collection})
        lists = {"query": world.retrieval([[0, 2, 3, 1], [0, 1, 3, 9], [0, 3, 2, 9]])}
        pool = world.merge(collection, {"query": 4}, lists, same_text=same_text)
        chosen = Negatives(relabel={"kind": "rlhn", "scores": "judge", "from_score": 0.5}).relabel
        inputs = {"collection": collection, "negatives": pool, "scores.judge": judge}
        loads = {"relabel": RELABELLINGS["rlhn"].module}
        job = world.stages.run(relabel.run, "relabel", RelabelSettings(relabel=chosen), inputs, loads=loads)
        return collection, job

    return make


@pytest.mark.parametrize("same_text", [False, True])
def test_no_copy_of_a_new_positive_stays_a_negative_of_its_query(relabelled, same_text):
    _, job = relabelled(same_text)
    pool, facts = read_pool(lambda name: job.folder / name), Artefact(job.folder).facts
    negatives = [pool.items.passages[a:b].tolist() for a, b in zip(pool.offsets, pool.offsets[1:], strict=False)]
    assert positives_of(None, Artefact(job.folder), "train")[0].tolist() == [8, 0]
    assert negatives[0] == ([3, 1] if same_text else [2, 3, 1])
    assert negatives[2] == [0, 3, 2, 9], "of another query the two are negatives like others"
    assert facts["relabelled"] == {"dropped": int(same_text), "positive": 1, "query dropped": 0}


@pytest.mark.parametrize("same_text", [False, True])
def test_a_mask_knows_the_copies_of_what_is_trained_on_without_a_judgment(world, relabelled, same_text):
    """A positive by a verdict, or one judged below relevant_grade."""
    collection, job = relabelled(same_text)
    training = {"masks": ["known_positives"], "negatives_per_query": 0, "batch_queries": 2}
    for inputs, settings, known in (
        ({"positives": job}, {}, [{8, 0, 2}, {2, 0, 4, 7}, {1, 5}]),
        ({}, {"relevant_grade": 2}, [{8}, {2, 0, 4, 7}, {1, 5}]),
    ):
        settings = train_settings(training, same_text=same_text, **settings)
        data = read_training_set(world.stages.make("train", settings, {"collection": collection} | inputs), seed=1)
        if not same_text:
            known = [{8, 0} if inputs else {8}, {2}, {1}]
        assert [set(data.known_positives(row).tolist()) for row in range(3)] == known


def test_papers_go_by_ids_and_own_collections_by_text():
    """The key of a pool that does not ask for it is as before."""
    from paths import REPOSITORY
    from teleport.settings.negatives import Negatives
    from teleport.settings.yaml_mapping import read_mapping

    assert "same_text" not in Negatives().model_dump() and Negatives(same_text=True).model_dump()["same_text"] is True
    own = read_mapping(REPOSITORY / "config/own-data.yaml")["negatives"]
    assert own == {"same_text": True}
    for name in ("marco", "nq", "triviaqa", "marco-doc", "config"):
        assert "same_text" not in (REPOSITORY / f"config/{name}.yaml").read_text()
