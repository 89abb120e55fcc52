"""Several collections in one training: shares of batches by weight, nothing of one in a batch of another."""

import numpy as np
import pytest

import training_world
from stages import roles_of
from teleport.arrays import Ragged
from teleport.refusal import Refusal
from teleport.seed import derive_seed
from teleport.training import train
from teleport.training.data import read_training_set
from teleport.training.several import turns
from training_world import World, die_at, facts_of, texts

STEPS = 10
TRAINING = {"steps": STEPS, "masks": ["known_positives"]}


@pytest.fixture
def world(stages, monkeypatch):
    """A world with the inputs of a second collection, of other texts and pools: `also`."""
    made, (queries, passages) = World(stages), texts()
    others = [200 - ids for ids in queries], [200 - ids for ids in passages[::-1]]  # words from w1 on
    monkeypatch.setattr(training_world, "texts", lambda: others)
    monkeypatch.setattr(training_world, "dev_texts", lambda: others[0][:12])
    roles = {"collection": training_world.make_collection(stages), "tokens": training_world.make_tokens(stages)}
    roles["negatives"] = training_world.make_negatives(stages, sizes=np.arange(20) % 5 + 3, first=30)
    made.also = {f"also-1.{role}": job for role, job in roles_of(roles).items()}
    return made


def several(world, training=None, weights=(0.3,), **others):
    return world.job(TRAINING | (training or {}), inputs=world.also, also=list(weights), **others)


@pytest.mark.parametrize("weights", [[0.7, 0.3], [0.5, 0.2, 0.3], [0.01, 0.99]])
def test_each_collection_has_its_share_of_the_batches_at_every_moment(weights):
    numbers, batches = turns(weights, 1000)
    for number, weight in enumerate(weights):
        mine = numbers == number
        np.testing.assert_array_equal(batches[mine], np.arange(mine.sum()))
        assert np.abs(np.cumsum(mine) - weight * np.arange(1, 1001)).max() < 1
        assert mine.sum() == pytest.approx(1000 * weight, abs=1)
    np.testing.assert_array_equal(turns(weights, 100)[0], numbers[:100])


def test_no_batch_mixes_collections_and_negatives_are_of_the_own_pool(world):
    job = several(world)
    trainer = train.make_trainer(job, read_training_set(job, 7), STEPS, 7)
    pools = [Ragged.open(*(job.input(f"{role}negatives", f"{name}.npy") for name in ("offsets", "passages")))
             for role in ("", "also-1.")]  # fmt: skip
    seen, foreign = [], 0
    for step in range(STEPS):
        batch = trainer.step(step).batch
        number = trainer.turn(step)[0]
        part = trainer.parts[number]
        assert (trainer.data, trainer.queries, trainer.passages) == (part.data, part.queries, part.passages)
        assert trainer.masks[0].keywords["data"] is part.data, "known positives are those of the own collection"
        for row, query in enumerate(batch.queries_Q):
            assert batch.passages_P[batch.positive_columns_Q[row]] in part.data.positives[query]
            own = set(batch.passages_P[batch.own_columns_QN[row]])
            assert own <= set(pools[number][query])
            foreign += not own <= set(pools[1 - number][query])
        seen.append(number)
    assert foreign > 10, "the pools are the same: this test would show nothing"
    assert seen.count(1) == 3 and trainer.parts[1].queries.tokens is not trainer.parts[0].queries.tokens
    first, second = (part.passages.tokens for part in trainer.parts)
    assert not np.array_equal(first.values, second.values)


def test_known_positives_are_counted_in_the_batches_of_both_collections(world):
    """By pairs of a collection and a query: equal rows of two collections are two queries."""
    job = several(world, {"masks": [], "batch_queries": 8}, weights=[0.5])
    facts, seed = train.run(job), derive_seed(job.settings.seed, "train", 1)
    trainer, numbers = train.make_trainer(job, read_training_set(job, seed), STEPS, seed), {}
    for step in range(STEPS):
        collection, own_step = trainer.turn(step)
        batch = trainer.data_of(step).batch(own_step)
        for query in batch.queries_Q.tolist():
            known = {query, 59} | ({query + 20} if query % 2 == 0 else set())
            others = sum(passage in known for passage in batch.passages_P.tolist()) - 1
            numbers.setdefault((collection, query), []).append(others)
    assert len(numbers) > 30
    assert facts["queries_with_known_positives_in_batch"] == sum(map(any, numbers.values())) / len(numbers)
    assert facts["known_positives_in_batch"] == pytest.approx(np.mean(sum(numbers.values(), [])))


def all_bits(job):
    paths = sorted((job.folder / "checkpoint").rglob("*.safetensors"))
    return [(job.folder / "losses.tsv").read_bytes(), *(path.read_bytes() for path in paths)]


def test_killed_and_resumed_ends_in_the_same_bits(world, monkeypatch):
    whole = world.finished(several(world))
    job = several(world, save_every=0)
    die_at(job, 6, monkeypatch)
    resumed = train.run(job)
    assert resumed["resumed_from"] == 6
    world.stages.finish(job, resumed)
    assert all_bits(job) == all_bits(whole)
    alone = world.finished(world.job(TRAINING))
    assert all_bits(alone) != all_bits(whole)


def test_the_manifest_and_the_card_name_the_other_collection(world):
    job = world.finished(several(world))
    (also,) = facts_of(job)["also"]
    assert also == {"queries": 20, "queries_without_negatives": 0, "queries_without_positives": 0, "steps": 3}
    card = (job.folder / "checkpoint/README.md").read_text()
    assert "- Also trained on: tsv, 60 passages, corpus digest `c0ffee`, 0.3 of the batches" in card
    assert "also" not in facts_of(world.finished(world.job(TRAINING)))


def test_too_few_queries_in_the_other_collection_are_refused(world):
    world.also["also-1.negatives"] = training_world.make_negatives(world.stages, sizes=[9] * 3 + [0] * 17)
    with pytest.raises(Refusal, match="`also`, collection 1: training.batch_queries is 4, .* 3 "):
        train.run(several(world))
