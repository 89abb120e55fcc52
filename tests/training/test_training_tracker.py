"""The curves as TensorBoard events: beside the artefacts, no step twice, and nothing without the package."""

import sys
import types

import pytest

from teleport.training import train
from training_world import World, die_at

STEPS = 6


class Writer:
    """Stands for torch.utils.tensorboard.SummaryWriter: a line per scalar in a file of its own, like an event file."""

    number = 0

    def __init__(self, log_dir, flush_secs):
        Writer.number += 1
        self.path, self.lines = log_dir / f"events.{Writer.number}", []

    def add_scalar(self, name, value, step):
        self.lines.append(f"{step}\t{name}\t{value!r}\n")

    def close(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(self.lines))


@pytest.fixture
def installed(monkeypatch):
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)


def events(job):
    """[(step, name, value)] of all event files of a training."""
    files = sorted((job.folder.parents[2] / "tensorboard" / job.key).iterdir())
    lines = [line.split("\t") for file in files for line in file.read_text().splitlines()]
    return [(int(step), name, float(value)) for step, name, value in lines]


def written(job):
    """[(step, name, value)] of losses.tsv, without what is not a number."""
    (_, *names), *lines = (line.split("\t") for line in (job.folder / "losses.tsv.part").read_text().splitlines())
    cells = [(int(step), *cell) for step, *values in lines for cell in zip(names, map(float, values), strict=True)]
    return [cell for cell in cells if cell[2] == cell[2]]


@pytest.mark.parametrize(("save_every", "before"), [(0, {1, 2, 3, 4}), (1e9, {1, 2, 3})])
def test_a_killed_training_has_every_step_once(stages, installed, monkeypatch, save_every, before):
    """It goes on where it was, or begins again; what was not read yet is not written."""
    job = World(stages).job({"steps": STEPS}, save_every=save_every)
    die_at(job, 4, monkeypatch)
    assert {step for step, _, _ in events(job)} == before
    train.run(job)
    assert len(written(job)) > STEPS * 5 and events(job) == written(job)


def test_the_dev_curve_is_among_the_events(stages, installed, monkeypatch):
    world = World(stages)
    job = world.job(**world.watched(training={"steps": STEPS, "evaluate_every": 2}))
    die_at(job, 4, monkeypatch)
    train.run(job)
    dev = [line.split("\t") for line in (job.folder / "dev.tsv.part").read_text().splitlines()[1:]]
    assert [int(step) for step, *_ in dev] == [0, 2, 4, 6]
    found = [event for event in events(job) if event[1].startswith("dev ")]
    assert [(step, value) for step, _, value in found] == [(int(step), float(score)) for step, score, *_ in dev]


def test_without_the_package_nothing_is_written(stages, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    job = World(stages).job({"steps": STEPS})
    train.run(job)
    assert len(written(job)) > STEPS * 5 and not (job.folder.parents[2] / "tensorboard").exists()


def test_the_events_of_the_package_itself(stages):
    pytest.importorskip("tensorboard", reason="the package tensorboard, an optional extra, is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    job = World(stages).job({"steps": STEPS})
    train.run(job)
    read = EventAccumulator(str(job.folder.parents[2] / "tensorboard" / job.key)).Reload()
    found = [(event.step, event.value) for event in read.Scalars("loss")]
    assert found == [(step, pytest.approx(value)) for step, name, value in written(job) if name == "loss"]
