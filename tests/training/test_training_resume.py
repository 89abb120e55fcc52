"""A training that dies and continues ends in the same bits as one that does not."""

import json
import os
import resource
import signal
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError, safe_open

from teleport.encoder import precision
from teleport.report import figures
from teleport.running.files import NO_ROOM, of_the_system, sha256_file
from teleport.training import loop, resume, train
from teleport.training.dual_encoder import Trainer
from teleport.training.selection import Selection
from teleport.training.step_metrics import COLUMNS, StepMetrics
from training_world import World, facts_of, losses_of

STEPS = 12


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the code under test catches it."""


@pytest.fixture
def world(stages):
    return World(stages)


def kill_at(monkeypatch, step_to_die):
    """From now on, the attempt dies when it reaches this step (1, 2, ...)."""
    whole_step = Trainer.step

    def step(self, step):
        if step + 1 == step_to_die:
            raise Killed
        return whole_step(self, step)

    monkeypatch.setattr(Trainer, "step", step)


def attempt(job, monkeypatch, step_to_die):
    """One attempt that is killed at a step."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_at(patch, step_to_die)
        train.run(job)


def artefacts(job, side="."):
    """The digest of the weights, and the curves: every column of every step."""
    curves = (job.folder / "losses.tsv").read_text()
    return sha256_file(job.folder / "checkpoint" / side / "model.safetensors"), curves


def saved_step(job):
    with safe_open(job.resume / resume.FILE, framework="pt") as file:
        return file.get_slice("curves").get_shape()[0]


@pytest.mark.ci(2)
@pytest.mark.parametrize("deaths", [[2], [6], [12], [3, 9], [4, 4, 5]])
def test_interrupted_and_resumed_equals_uninterrupted(world, monkeypatch, deaths):
    whole = world.finished(world.job({"steps": STEPS}))
    job = world.job({"steps": STEPS}, save_every=0)
    for death in deaths:
        attempt(job, monkeypatch, death)
        assert saved_step(job) == death - 1
    resumed = world.finished(job)
    facts = facts_of(resumed)
    assert facts["resumed_from"] == deaths[-1] - 1 > 0
    assert facts["attempts"] == 1 + len(set(deaths))  # an attempt that dies before it saves leaves no trace
    assert artefacts(resumed) == artefacts(whole)
    for count in ("real_tokens", "first_loss", "last_loss"):
        assert facts[count] == facts_of(whole)[count]


def test_untied_encoders_resume_too(stages, monkeypatch):
    world = World(stages, tied=False)
    whole = world.finished(world.job())
    job = world.job(save_every=0)
    attempt(job, monkeypatch, 7)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 6
    for side in ("query", "passage"):
        assert artefacts(resumed, side) == artefacts(whole, side)


def test_dropout_is_active(world, stages):
    """Without it, the tests above would not show that its randomness survives an interruption."""
    without = World(stages, dropout=0.0)
    losses = [losses_of(w.finished(w.job({"steps": 1})))[1] for w in (world, without)]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("broken", ["seeding", "moments"])
def test_guard_these_tests_see_what_they_should(world, monkeypatch, broken):
    """Without seeding dropout by the step, or with Adam's moments lost, a resumed run must differ."""
    whole = world.finished(world.job())
    job = world.job(save_every=0)
    if broken == "seeding":
        monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    attempt(job, monkeypatch, 7)
    if broken == "moments":
        load = resume.load_state

        def load_weights_only(folder, encoders, optimizer, *others):
            state = load(folder, encoders, optimizer, *others)
            optimizer.state.clear()
            return state

        monkeypatch.setattr(train, "load_state", load_weights_only)
    assert artefacts(world.finished(job))[0] != artefacts(whole)[0]


def test_a_kill_while_saving_leaves_the_previous_state(world, monkeypatch):
    whole = world.finished(world.job())
    job = world.job(save_every=0)
    replace, saves = os.replace, []

    def replace_or_die(source, target):
        if os.path.basename(target) == resume.FILE:
            saves.append(target)
            if len(saves) == 5:
                raise Killed
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(resume.os, "replace", replace_or_die)
        train.run(job)
    assert (job.resume / f"{resume.FILE}.part").exists() and saved_step(job) == 4
    with open(job.resume / f"{resume.FILE}.part", "r+b") as file:
        file.truncate(100)
    resumed = world.finished(job)
    assert facts_of(resumed)["resumed_from"] == 4
    assert artefacts(resumed) == artefacts(whole)


def test_a_full_disk_keeps_the_previous_state_and_is_told_as_such(world, monkeypatch):
    """Files of this process may not reach the size of a state, which safetensors reports as it does a full disk."""
    whole = world.finished(world.job())
    job = world.job(save_every=0)
    attempt(job, monkeypatch, 3)
    limits, size = resource.getrlimit(resource.RLIMIT_FSIZE), (job.resume / resume.FILE).stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
    try:
        with pytest.raises(SafetensorError) as error:
            train.run(job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert of_the_system(error.value) == NO_ROOM and saved_step(job) == 2
    assert artefacts(world.finished(job)) == artefacts(whole)


@pytest.fixture
def restored_sigterm():
    before = signal.getsignal(signal.SIGTERM)
    yield before
    signal.signal(signal.SIGTERM, before)


def test_without_sigterm_its_handler_is_put_back(restored_sigterm):
    with resume.sigterm() as received:
        assert signal.getsignal(signal.SIGTERM) is not restored_sigterm
    assert not received and signal.getsignal(signal.SIGTERM) is restored_sigterm


@pytest.mark.usefixtures("restored_sigterm")
def test_sigterm_saves_and_exits_with_143(world, monkeypatch):
    whole = world.finished(world.job())
    job = world.job(save_every=1e9)
    step = Trainer.step

    def step_with_signal(self, number):
        if number == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, number)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(Trainer, "step", step_with_signal)
        train.run(job)
    assert stopped.value.code == 143
    os.kill(os.getpid(), signal.SIGTERM)  # another one, until the process has ended, does nothing
    assert saved_step(job) == 5 and not job.outputs
    resumed = world.finished(job)
    assert (facts_of(resumed)["resumed_from"], facts_of(resumed)["attempts"]) == (5, 2)
    assert artefacts(resumed) == artefacts(whole)


def test_state_is_saved_every_so_many_seconds(world, monkeypatch):
    """A step and a ranking of dev queries take a second each here. Both count for the saving, steps alone for the
    facts."""
    saves, now = [], [0]

    def in_a_second(function):
        def slower(*arguments):
            now[0] += 1
            return function(*arguments)

        return slower

    monkeypatch.setattr(loop, "save_state", lambda folder, state, *_: saves.append(state.step))
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Trainer, "step", in_a_second(Trainer.step))
    train.run(world.job(save_every=3))
    assert saves[:3] == [3, 6, 9]
    saves.clear()
    monkeypatch.setattr(Selection, "evaluate", in_a_second(Selection.evaluate))
    facts = train.run(world.job(save_every=3, **world.watched()))
    assert facts["train_seconds"] == facts["steps"] < now[0] and facts["dev"]["evaluations"] > 1
    assert saves[0] < 3


def test_what_is_saved_is_a_copy_that_a_later_step_does_not_change(tmp_path):
    """The thread writes it when the weights, moments and curves have gone on."""
    module, waiting = torch.nn.Linear(2, 2), []
    optimizer = torch.optim.AdamW(module.parameters())
    state = resume.TrainingState("float32 on cpu", curves=[[1.0]])

    def step():
        optimizer.zero_grad()
        module(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return {
            name: tensor.clone() for name, tensor in (module.state_dict() | resume.moments(module, optimizer)).items()
        }

    before = step()
    resume.save_state(tmp_path, state, module, optimizer, SimpleNamespace(submit=lambda *call: waiting.append(call)))
    after = step()
    state.curves.append([2.0])
    for write, *arguments in waiting:
        write(*arguments)
    assert not before["weight"].equal(after["weight"]) and not before["exp_avg/weight"].equal(after["exp_avg/weight"])
    again = resume.load_state(tmp_path, module, optimizer, "float32 on cpu")
    found = module.state_dict() | resume.moments(module, optimizer)
    assert again.curves == [[1.0]] and [name for name, tensor in before.items() if not found[name].equal(tensor)] == []


def test_seconds_accumulate_over_attempts(world, monkeypatch):
    job = world.job(save_every=0)
    attempt(job, monkeypatch, 7)
    with safe_open(job.resume / resume.FILE, framework="pt") as file:
        before = json.loads(file.metadata()["state"])["seconds"]
    assert before > 0
    ones = torch.ones(len(COLUMNS))
    monkeypatch.setattr(Trainer, "step", lambda self, step: StepMetrics(step, self.data.batch(step), ones))
    facts = facts_of(world.finished(job))
    assert facts["train_seconds"] > before == facts["earlier_seconds"]
    assert facts_of(world.finished(world.job()))["earlier_seconds"] == 0


def test_the_cost_of_a_resumed_training_has_the_earlier_attempts(world, monkeypatch):
    """Of steps and of dev rankings, beside the seconds of the last process, which the table adds."""
    job = world.job(save_every=0, **world.watched())
    attempt(job, monkeypatch, 7)
    with safe_open(job.resume / resume.FILE, framework="pt") as file:
        state = json.loads(file.metadata()["state"])
    assert state["dev_seconds"] > 0
    world.finished(job)
    manifest = json.loads((job.folder / "manifest.json").read_text())
    manifest["provenance"] = {"wall_seconds": 1000.0}
    cost = figures.seconds(SimpleNamespace(manifest=manifest, facts=manifest["facts"]))
    assert cost == 1000 + state["seconds"] + state["dev_seconds"]


def test_nothing_saved_means_a_fresh_start(world):
    state = resume.load_state(world.job().resume, None, None, "float32 on cpu")
    assert (state.step, state.attempts, state.curves, state.computed) == (0, 0, [], "float32 on cpu")


@pytest.mark.ci(1)
@pytest.mark.parametrize("now", ["float32 on cpu", "bfloat16 on cuda", "bfloat16 on cpu, compiled"])
def test_a_training_does_not_go_on_in_another_precision_or_on_another_kind_of_device(world, monkeypatch, now):
    """With precision "auto" the machine decides it; the manifest could name only one of the two."""
    job = world.job({"precision": "auto"}, save_every=0)
    monkeypatch.setattr(precision, "faster_in_bf16", lambda device: True)
    attempt(job, monkeypatch, 3)
    before = (job.resume / resume.FILE).read_bytes()
    with monkeypatch.context() as patch:
        if now == "float32 on cpu":
            patch.setattr(precision, "faster_in_bf16", lambda device: False)
        else:
            patch.setattr(train, "load_state", lambda *others: resume.load_state(*others[:3], now))
        with pytest.raises(ValueError) as error:
            train.run(job)
    message = f"has 2 steps computed in bfloat16 on cpu, this machine would go on in {now}. Run the workflow again on"
    assert message in str(error.value) and f"delete the folder {job.resume} " in str(error.value)
    assert (job.resume / resume.FILE).read_bytes() == before
    facts = facts_of(world.finished(job))
    assert (facts["resumed_from"], facts["precision"], facts["device"]) == (2, "bfloat16", "cpu")


def record_order(monkeypatch):
    """A list that gets ("step", n), ("read", n) and ("save", steps in the state) as they happen."""
    events, step, finish, save = [], Trainer.step, Trainer.finish, loop.save_state

    def recording_step(self, number):
        events.append(("step", number))
        return step(self, number)

    def recording_finish(self, metrics):
        events.append(("read", metrics.step))
        return finish(self, metrics)

    def recording_save(folder, state, *others):
        events.append(("save", state.step))
        save(folder, state, *others)

    monkeypatch.setattr(Trainer, "step", recording_step)
    monkeypatch.setattr(Trainer, "finish", recording_finish)
    monkeypatch.setattr(loop, "save_state", recording_save)
    return events


def test_a_loss_is_read_after_the_next_step_has_begun(world, monkeypatch):
    events = record_order(monkeypatch)
    train.run(world.job({"steps": 3}))
    assert events == [("step", 0), ("step", 1), ("read", 0), ("step", 2), ("read", 1), ("read", 2)]


def test_all_losses_are_read_before_a_state_is_saved(world, monkeypatch):
    """So weights that a loss beyond all numbers has ruined are never saved: here that of step 3."""
    events = record_order(monkeypatch)
    with pytest.raises(ValueError, match="stopped at step 3"):
        train.run(world.job({"learning_rate": 1e30}, save_every=0))
    assert events == [
        ("step", 0), ("read", 0), ("save", 1), ("step", 1), ("read", 1), ("save", 2), ("step", 2), ("read", 2),
    ]  # fmt: skip
