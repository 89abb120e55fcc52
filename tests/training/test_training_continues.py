"""Two segments of a training are one run of the same length, bit for bit, wherever the second one was killed."""

import os
import signal

import pytest
from safetensors import safe_open

from teleport.running.files import sha256_file
from teleport.training import resume, train
from teleport.training.dual_encoder import Trainer
from training_world import World, facts_of

STEPS, FIRST = 12, 7  # an epoch has 5 steps
RUN = {"continues": True, "steps": STEPS}
VARIANTS = {
    "AdamW": {},
    "AdamW with decay, in micro-batches": {"weight_decay": 0.01, "accumulate": 2},
    "LAMB": {"optimizer": "lamb", "learning_rate": 0.03},
    "LAMB with gradient caching": {"optimizer": "lamb", "learning_rate": 0.03, "gradient_caching": True},
    "queries alone": {"trains": ["query"]},
}


def files(job):
    """{name: digest} of the weights and moments."""
    return {str(p.relative_to(job.folder)): sha256_file(p) for p in sorted(job.folder.rglob("*.safetensors"))}


def lines(job):
    return (job.folder / "losses.tsv").read_text().splitlines()[1:]


def first_segment(world, inputs=None, **training):
    return world.finished(world.job(RUN | {"stop_after_steps": FIRST} | training, inputs=inputs))


def second_segment(world, before, inputs=None, save_every=1e9, **training):
    """The job of Episode 2, which goes on with the training of Episode 1."""
    inputs = (inputs or {}) | {"checkpoint": before, "continued": before}
    return world.job(RUN | training, save_every, inputs, episode=2, run_episode=1)


@pytest.fixture
def world(stages):
    return World(stages)


@pytest.mark.ci(2)
@pytest.mark.parametrize("variant", VARIANTS)
def test_two_segments_are_one_run(world, variant):
    """With dropout; 12 steps are two epochs and more, so positives and negatives have moved on."""
    training = VARIANTS[variant]
    frozen = world.frozen("passage") if "trains" in training else {}
    whole = world.finished(world.job(RUN | training, inputs=frozen))
    first = first_segment(world, frozen, **training)
    second = world.finished(second_segment(world, first, frozen, **training))
    assert files(second) == files(whole) and "optimizer.safetensors" in files(whole)
    assert lines(first) + lines(second) == lines(whole)
    assert [line.split("\t")[0] for line in lines(second)] == [str(n) for n in range(FIRST + 1, STEPS + 1)]
    assert files(first) != files(whole)


def test_three_segments_are_one_run(world):
    whole = world.finished(world.job(RUN))
    job = first_segment(world, stop_after_steps=4)
    for stop_after in (4, None):
        job = world.finished(second_segment(world, job, stop_after_steps=stop_after))
    assert files(job) == files(whole)


def test_facts_say_which_steps_a_segment_did(world):
    first = first_segment(world)
    second = world.finished(second_segment(world, first, stop_after_steps=4))
    names = ("first_step", "end_step", "steps", "schedule_steps", "stopped_early", "resumed_from")
    assert [facts_of(first)[name] for name in names] == [0, 7, 7, 12, True, 0]
    assert [facts_of(second)[name] for name in names] == [7, 11, 4, 12, True, 0]


@pytest.mark.ci(1)
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize("death", ["kill", "SIGTERM"])
def test_a_second_segment_that_dies_continues_with_the_same_bits(world, monkeypatch, optimizer, death):
    training = {"optimizer": optimizer, "learning_rate": 0.01}
    whole = world.finished(world.job(RUN | training))
    job = second_segment(world, first_segment(world, **training), save_every=0 if death == "kill" else 1e9, **training)
    step, before = Trainer.step, signal.getsignal(signal.SIGTERM)

    def dying(self, number):
        if number == 8 and death == "kill":
            raise KeyboardInterrupt
        if number == 7 and death == "SIGTERM":
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, number)

    with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, SystemExit)):
        patch.setattr(Trainer, "step", dying)
        train.run(job)
    signal.signal(signal.SIGTERM, before)
    resumed = world.finished(job)
    assert (facts_of(resumed)["resumed_from"], facts_of(resumed)["first_step"]) == (8, FIRST)
    assert files(resumed) == files(whole) and lines(resumed) == lines(whole)[FIRST:]


def test_with_moments_a_schedule_of_its_own_begins(world):
    """ANCE without --single_warmup: at a refresh the schedule starts again, and the optimiser's moments go on."""
    moments = {"continues": "moments", "steps": 5, "optimizer": "lamb", "learning_rate": 0.03}
    first = world.finished(world.job(moments))
    second = world.finished(world.job(moments, inputs={"checkpoint": first, "continued": first}, episode=2))
    fresh = world.finished(world.job(moments, inputs={"checkpoint": first}, episode=2))
    assert [line.split("\t")[:2] for line in lines(second)] == [line.split("\t")[:2] for line in lines(first)]
    assert lines(second)[:2] == lines(fresh)[:2]  # the first rate is 0: the same batches, weights and gradients
    assert lines(second)[2:] != lines(fresh)[2:] and files(second) != files(fresh)
    assert (facts_of(second)["first_step"], facts_of(second)["end_step"]) == (0, 5)
    with safe_open(second.folder / "optimizer.safetensors", framework="pt") as file:
        assert file.metadata() == {"steps": "5"}


@pytest.mark.parametrize("lost", ["moments", "step", "run"])
def test_guard_these_tests_see_what_they_should(world, monkeypatch, lost):
    """Without the moments, the step or the seed of the run, the second segment is another one."""
    whole, first = world.finished(world.job(RUN)), first_segment(world)
    job = second_segment(world, first, stop_after_steps=STEPS - FIRST)

    def load(path, encoders, optimizer):
        steps = resume.load_moments(path, encoders, optimizer)
        if lost == "moments":
            optimizer.state.clear()
        return 0 if lost == "step" else steps

    monkeypatch.setattr(train, "load_moments", load)
    if lost == "run":
        inputs = {"checkpoint": first, "continued": first}
        job = world.job(RUN, inputs=inputs, episode=2, run_episode=2)
    assert files(world.finished(job)) != files(whole)


def test_the_moments_are_those_of_trained_parameters_with_the_number_of_steps(world):
    first = first_segment(world)
    with safe_open(first.folder / "optimizer.safetensors", framework="pt") as file:
        names = {name.split("/", 1)[0] for name in file.keys()}  # noqa: SIM118 - not a dict
        assert file.metadata() == {"steps": str(FIRST)}
    assert names == {"step", "exp_avg", "exp_avg_sq"}


def test_other_trainings_keep_no_moments(world):
    assert "optimizer.safetensors" not in files(world.finished(world.job({"steps": 2})))


def test_episodes_that_continue_draw_by_their_run_and_others_by_themselves(world):
    """Episode 2 of a run of its own has the batches of a fresh training with its number."""
    fresh = world.finished(world.job({"steps": 3}, episode=2))
    run = world.finished(world.job({"steps": 3, "continues": True}, episode=3, run_episode=2))
    other = world.finished(world.job({"steps": 3}, episode=3))
    assert lines(fresh) == lines(run) != lines(other)
