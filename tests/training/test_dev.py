"""The dev set of a training: its pool, its curve, the step that is selected, and a kill in the midst."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import training_world
from teleport.refusal import Refusal
from teleport.running.files import sha256_file
from teleport.settings.training import Dev
from teleport.training import resume, train
from teleport.training.dev import draw_pool, open_dev, refuse_unanswerable
from teleport.training.dev_queries import draw_queries
from teleport.training.parallel import Processes
from teleport.training.selection import averaged, best_of, is_exhausted
from training_world import World, die_at, facts_of, losses_of, make_trainer

BEST = {"select": "dev", "steps": 12, "learning_rate": 0.05}  # a rate at which the last step is not the best


@pytest.fixture
def world(stages):
    return World(stages)


def curve_of(job):
    """[[step, score as text]] of a finished train job."""
    header, *lines = [line.split("\t") for line in (job.folder / "dev.tsv").read_text().splitlines()]
    assert header == ["step", "dev RR@10"]
    return [[int(step), score] for step, score in lines]


def weights(job):
    return sha256_file(job.folder / "checkpoint" / "model.safetensors")


def artefacts(job):
    """Everything that a watched training leaves, but for the settings in the card."""
    card = (job.folder / "checkpoint" / "README.md").read_text().replace(job.key, "")
    return weights(job), curve_of(job), (job.folder / "losses.tsv").read_text(), card


def literal_best(curve):
    """The step of the best score by a plain loop."""
    best, step = -1.0, None
    for number, score in curve:
        if float(score) > best:
            best, step = float(score), number
    return step


# The pool.
def test_positives_and_neighbours_take_turns_by_rank_and_random_passages_fill_the_pool():
    positives, neighbours = [[7], [3, 9]], [[1, 7, 4], [3, 2, 8]]
    # first positives 7 3, first neighbours 1 (3), second positive 9, second neighbours (7) 2, then 4 8
    for size, expected in ((3, {1, 3, 7}), (4, {1, 3, 7, 9}), (5, {1, 2, 3, 7, 9}), (6, {1, 2, 3, 4, 7, 9})):
        pool = draw_pool(positives, neighbours, 1000, size + 4, 4, np.random.default_rng(0))
        assert expected < set(pool.tolist()) and len(pool) == size + 4 and all(a < b for a, b in pairwise(pool))
    pool = draw_pool(positives, neighbours, 1000, 60, 4, np.random.default_rng(0))
    assert {1, 2, 3, 4, 7, 8, 9} < set(pool.tolist()) and len(pool) == 60
    again, other = (draw_pool(positives, neighbours, 1000, 60, 4, np.random.default_rng(seed)) for seed in (0, 1))
    assert pool.tolist() == again.tolist() != other.tolist()


def test_a_small_collection_is_the_pool():
    pool = draw_pool([[7]], [[1, 2]], 10, 60, 4, np.random.default_rng(0))
    assert pool.tolist() == list(range(10))


def test_a_pool_without_a_place_for_each_query_is_refused():
    positives = [np.array([row, 50 + row]) for row in range(8)]
    dev = Dev(split="dev", passages=6, random=2)
    pool = draw_pool([own.tolist() for own in positives], [[]] * 8, 100, 6, 2, np.random.default_rng(1))
    assert not {4, 5, 6, 7, 54, 55, 56, 57} & set(pool.tolist()), "the draw would show nothing"
    with pytest.raises(Refusal, match="8 queries of dev 4 .* 6 passages"):
        refuse_unanswerable(positives, pool, dev)
    room = draw_pool([own.tolist() for own in positives], [[]] * 8, 100, 10, 2, np.random.default_rng(1))
    refuse_unanswerable(positives, room, dev)


def test_a_training_on_such_a_pool_does_not_begin(world):
    with pytest.raises(Refusal, match=r"training.dev: .*\d+ queries of dev \d+ .* 3 passages"):
        opened(world, dev={"passages": 3, "random": 2})


def test_dev_queries_are_some_of_those_with_a_positive():
    lengths = np.array([1, 0, 2, 1, 0, 5])
    assert draw_queries(lengths, 9, np.random.default_rng(0)).tolist() == [0, 2, 3, 5]
    drawn = {tuple(draw_queries(lengths, 2, np.random.default_rng(seed)).tolist()) for seed in range(9)}
    assert len(drawn) > 2 and all(len(rows) == 2 and rows[0] < rows[1] and not {1, 4} & set(rows) for rows in drawn)


# The equations of the selection.
def test_the_best_is_the_highest_score_of_the_earliest_step():
    assert best_of([[0, 0.3], [5, 0.5], [10, 0.5], [15, 0.4]]) == [5, 0.5]
    assert best_of([[0, 0.5], [5, 0.5]]) == [0, 0.5]


def test_patience_counts_evaluations_without_gain():
    curve = [[0, 0.3], [5, 0.5], [10, 0.5], [15, 0.4], [20, 0.5]]
    assert [is_exhausted(curve[:n], 2) for n in range(6)] == [False, False, False, False, True, True]
    assert not is_exhausted(curve, 4) and not is_exhausted(curve, None) and is_exhausted(curve, 3)


def test_averaged_weights_by_a_plain_loop():
    trained, start = torch.tensor([[1.0, -2.0], [0.5, 3.0]]), torch.tensor([[0.0, 2.0], [0.25, 3.0]])
    found = averaged({"w": trained}, {"w": start}, 0.25)["w"]
    for row in range(2):
        for column in range(2):
            assert found[row, column] == 0.75 * trained[row, column] + 0.25 * start[row, column]
    odd = torch.rand(1000)
    assert torch.equal(averaged({"w": odd}, {"w": odd}, 0.3)["w"], odd)  # step 0 is where training started


# The curve.
def test_scores_by_a_plain_loop_over_the_vectors_of_the_checkpoint(world):
    dev = opened(world, dev={"queries": 6})
    read = world.stages, world.inputs["checkpoint"], world.inputs["tokens"]
    both = [training_world.make_vectors(*read, of) for of in ("queries.dev", "passages")]
    queries, passages = np.load(both[0].folder / "queries.dev.npy"), np.load(both[1].folder / "passages.npy")
    values = []
    for query in dev.rows_Q.tolist():
        ranked = sorted(
            dev.passages_P.tolist(), key=lambda passage: (-float(queries[query] @ passages[passage]), passage)
        )
        rank = ranked.index(query + 20) + 1
        values.append(1 / rank if rank <= 10 else 0.0)
    assert dev.score() == pytest.approx(np.mean(values), abs=1e-12) and 0 < np.mean(values) < 1
    assert len(dev.rows_Q) == 6 and len(dev.passages_P) == 24 and set(dev.rows_Q + 20) <= set(dev.passages_P)


def test_a_query_s_own_text_comes_last(world):
    dev = opened(world, dev={"queries": 6})
    wrong_QP = dev.passages_P != dev.rows_Q[:, None] + 20
    assert replace(dev, own_QP=wrong_QP).score() == 1 > dev.score()


def opened(world, **options):
    """The dev set of a job, with the encoders that its training starts from."""
    job = world.job(**world.watched(**options))
    trainer = make_trainer(job)
    trainer.encoders.eval()
    return open_dev(job, trainer)


@pytest.mark.parametrize("side", ["query", "passage"])
def test_a_frozen_side_scores_as_a_trained_one_does(world, side):
    (trained,) = {"query", "passage"} - {side}
    frozen = opened(world, training={"trains": [trained]}, inputs=world.frozen(side))
    assert frozen.score() == opened(world).score() > 0


def test_a_passage_scores_by_its_best_chunk(world):
    dev = opened(world, chunks=3, max_passage_tokens=8)
    with torch.inference_mode():
        queries, chunks, offsets = dev.vectors(dev.queries), dev.vectors(dev.passages), dev.passages.offsets
    assert len(chunks) == offsets[-1] > len(dev.passages_P)
    values = []
    for row, query in enumerate(dev.rows_Q.tolist()):
        best = {}
        for place, passage in enumerate(dev.passages_P.tolist()):
            best[passage] = max(float(queries[row] @ chunk) for chunk in chunks[offsets[place] : offsets[place + 1]])
        rank = sorted(best, key=lambda passage: (-best[passage], passage)).index(query + 20) + 1
        values.append(1 / rank if rank <= 10 else 0.0)
    assert dev.score() == pytest.approx(np.mean(values), abs=1e-12) and 0 < np.mean(values) < 1


@pytest.mark.parametrize("size", [2, 5])
def test_processes_share_the_encoding(world, size):
    """Each encodes as many texts as the others, and end to end they are all."""
    dev, parts = opened(world), []

    class Listening(Processes):
        def gather(self, vectors):
            parts.append(vectors)
            return vectors

    with torch.inference_mode():
        alone = dev.vectors(dev.passages)
        for rank in range(size):
            replace(dev, processes=Listening(rank, size)).vectors(dev.passages)
    assert len({len(part) for part in parts}) == 1 and len(parts) == size
    np.testing.assert_allclose(torch.cat(parts)[: len(alone)].numpy(), alone, rtol=1e-5, atol=1e-6)


def test_watching_changes_no_bit_of_the_training(world):
    plain = world.finished(world.job())
    watched = world.finished(world.job(**world.watched()))
    assert weights(watched) == weights(plain) and losses_of(watched) == losses_of(plain)
    assert [step for step, _ in curve_of(watched)] == [0, 3, 6, 9, 12]
    assert not (plain.folder / "dev.tsv").exists() and "dev" not in facts_of(plain)
    facts = facts_of(watched)
    assert facts["selected_step"] == 12 and facts["dev"]["share"] > 0
    assert (facts["dev"]["queries"], facts["dev"]["passages"], facts["dev"]["evaluations"]) == (8, 24, 5)
    assert "Weights:" not in (watched.folder / "checkpoint/README.md").read_text()


@pytest.mark.slow
def test_the_last_step_is_evaluated_too_and_steps_count_on_in_a_later_segment(world):
    run = {"continues": True, "steps": 12, "evaluate_every": 4}
    first = world.finished(world.job(**world.watched(training=run | {"stop_after_steps": 7})))
    inputs = {"checkpoint": first, "continued": first}
    options = {"episode": 2, "run_episode": 1}
    second = world.finished(world.job(**world.watched(training=run, inputs=inputs, **options)))
    assert [step for step, _ in curve_of(first)] == [0, 4, 7]
    assert [step for step, _ in curve_of(second)] == [7, 11, 12]
    assert curve_of(first)[-1] == curve_of(second)[0]


# The selection.
def test_the_best_step_is_what_a_training_that_stops_there_ends_with(world):
    best = world.finished(world.job(**world.watched(training=BEST)))
    facts, step = facts_of(best), literal_best(curve_of(best))
    assert facts["selected_step"] == step and 0 < step < 12, curve_of(best)  # else this test would show little
    stopped = world.finished(world.job(BEST | {"select": "last", "stop_after_steps": step}))
    assert weights(best) == weights(stopped)
    again = world.finished(world.job(**world.watched(inputs={"checkpoint": best})))
    assert curve_of(again)[0][1] == dict(curve_of(best))[step] == str(facts["dev"]["score"])
    card = (best.folder / "checkpoint/README.md").read_text()
    assert f"- Weights: those of step {step}, the best of 5 evaluations up to step 12: dev RR@10 " in card


def test_a_training_that_only_hurts_publishes_where_it_started(world):
    hurt = world.finished(world.job(**world.watched(training=BEST | {"learning_rate": 1.0})))
    assert facts_of(hurt)["selected_step"] == 0 == literal_best(curve_of(hurt))
    assert weights(hurt) == weights(world.inputs["checkpoint"])


def test_patience_ends_a_training(world):
    hurt = BEST | {"learning_rate": 1.0, "patience": 2}
    job = world.finished(world.job(**world.watched(training=hurt)))
    facts, curve = facts_of(job), curve_of(job)
    assert [step for step, _ in curve] == [0, 3, 6] and facts["steps"] == 6 and facts["stopped_early"]
    assert len(losses_of(job)[1]) == 6 and weights(job) == weights(world.inputs["checkpoint"])


@pytest.mark.parametrize("select", ["dev", pytest.param("last", marks=pytest.mark.slow)])
def test_what_is_averaged_is_what_is_evaluated(world, select):
    training = BEST | {"average_with_start": 0.5, "select": select}
    job = world.finished(world.job(**world.watched(training=training)))
    step = facts_of(job)["selected_step"]
    trained = world.finished(world.job(BEST | {"select": "last", "stop_after_steps": step or 1}))
    start, end, made = (
        load_file(each.folder / "checkpoint/model.safetensors") for each in (world.inputs["checkpoint"], trained, job)
    )
    for name, tensor in made.items():
        torch.testing.assert_close(tensor, (start[name] + end[name]) / 2 if step else start[name])
    again = world.finished(world.job(**world.watched(inputs={"checkpoint": job})))
    assert curve_of(again)[0][1] == dict(curve_of(job))[step] and step
    assert "0.5 of them are the weights that training started from" in (job.folder / "checkpoint/README.md").read_text()


# A kill in the midst.
CASES = [
    {"average_with_start": 0.5, "patience": 2},
    pytest.param({}, marks=pytest.mark.slow),
    pytest.param({"select": "last", "average_with_start": 0.25}, marks=pytest.mark.slow),
    pytest.param({"patience": 1}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_killed_training_selects_the_same_step_and_the_same_bits(world, monkeypatch, case):
    training = BEST | case
    whole = world.finished(world.job(**world.watched(training=training)))
    job = world.job(**world.watched(training=training), save_every=0)
    last = facts_of(whole)["end_step"]
    for step in (2, 6 if last > 7 else 3, last - 1):  # in between, just after an evaluation, and before the last one
        die_at(job, step, monkeypatch)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == last - 1
    assert artefacts(resumed) == artefacts(whole)


@pytest.mark.slow
def test_guard_without_the_best_weights_in_the_resume_state_the_bits_would_differ(world, monkeypatch):
    """The best step lies before the kill, so what becomes the checkpoint is in the state alone."""
    whole = world.finished(world.job(**world.watched(training=BEST)))
    job = world.job(**world.watched(training=BEST), save_every=0)
    die_at(job, 11, monkeypatch)
    assert facts_of(whole)["selected_step"] < 11
    load = resume.load_state

    def load_the_last_as_the_best(folder, encoders, *others):
        state = load(folder, encoders, *others)
        state.best = {name: tensor.clone() for name, tensor in encoders.state_dict().items()}
        return state

    monkeypatch.setattr(train, "load_state", load_the_last_as_the_best)
    assert weights(world.finished(job)) != weights(whole)


def test_a_live_search_is_watched_as_any_training(world):
    found = world.finished(world.job(**world.watched(**world.live(training={"steps": 4}))))
    assert [step for step, _ in curve_of(found)] == [0, 3, 4]
