"""The train stage as run_stage.py runs it with two processes: what it writes, saves, resumes, and how it dies."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_training_parallel import spec_of, without_gpu  # noqa: F401

from paths import REPOSITORY
from stages import spec_file
from teleport.running.code import stage_code
from teleport.running.files import sha256_file
from teleport.training import train
from training_world import World

RUN_STAGE = str(REPOSITORY / "workflow_scripts/run_stage.py")
pytestmark = pytest.mark.slow  # loading torch and transformers for every process takes its time


class StageRuns:
    """Runs a train job by run_stage.py, as the rule does, in the folder of its results."""

    def __init__(self, stages, job):
        self.root, self.job = stages.root, job

    def command(self, processes, *arguments):
        spec = spec_of(self.job)
        code = stage_code("train", spec.get("loads", {}))
        several = ["--processes", str(processes)]
        return [sys.executable, RUN_STAGE, spec_file(self.root, spec), "--code", code, *several, *arguments]

    def start(self, command):
        return subprocess.Popen(command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, processes=2):
        result = subprocess.run(self.command(processes), cwd=self.root, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr[-3000:]
        return result.stderr

    def start_and_wait_for_state(self, processes=2):
        process = self.start(self.command(processes, "--save-every", "0"))
        for _ in range(3000):
            if (self.job.resume / "state.safetensors").exists():
                return process
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.01)
        raise AssertionError("no state was saved")

    @property
    def manifest(self):
        return json.loads((self.job.folder / "manifest.json").read_text())

    def losses(self):
        return [line.split("\t")[2] for line in (self.job.folder / "losses.tsv").read_text().splitlines()[1:]]

    def children(self, process):
        """{rank: process id} of the processes that a process has started."""
        tasks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        environments = {int(task): Path(f"/proc/{task}/environ").read_bytes().split(b"\0") for task in tasks}
        return {
            int(value[14:]): task
            for task, values in environments.items()
            for value in values
            if value.startswith(b"TELEPORT_RANK=")
        }


STEPS = 300  # enough for a signal to arrive in the midst of them
MANY = {"steps": STEPS, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed training by two processes, with dropout."""
    from stages import Stages

    stages = Stages(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        runs = StageRuns(stages, World(stages).job(MANY))
        runs.log = runs.finish()
    return runs


def test_the_first_process_alone_writes_log_and_manifest(whole):
    assert whole.manifest["facts"]["processes"] == 2 and len(whole.losses()) == STEPS
    assert whole.manifest["facts"]["last_loss"] < 0.7 * whole.manifest["facts"]["first_loss"]
    assert whole.log.count(f"step {STEPS}: loss") == 1 and whole.log.count("attempt 1") == 1
    assert not list((whole.root / "results/resume").glob(f"train/{whole.job.key}"))


def test_without_dropout_the_stage_gives_the_losses_of_one_process(stages):
    world = World(stages, dropout=0.0)
    two, one = (StageRuns(stages, world.job({"steps": 12, "learning_rate": 1e-4})) for _ in range(2))
    two.finish(2)
    facts = train.run(one.job)
    losses = [float(line.split("\t")[2]) for line in one.job.outputs["losses.tsv"].read_text().splitlines()[1:]]
    np.testing.assert_allclose([float(loss) for loss in two.losses()], losses, rtol=1e-5)
    assert two.manifest["facts"]["real_tokens"] == facts["real_tokens"]


def test_dev_queries_are_ranked_by_all_processes_as_by_one_and_a_kill_changes_nothing(stages):
    world, training = World(stages, dropout=0.0), {"steps": STEPS, "learning_rate": 1e-4, "select": "dev"}
    options = world.watched({"passages": 25}, training=training | {"evaluate_every": 50, "average_with_start": 0.25})
    killed, whole, one = (StageRuns(stages, world.job(**options)) for _ in range(3))
    whole.finish(2)
    one.finish(1)
    process = killed.start_and_wait_for_state()
    process.terminate()
    assert process.communicate(timeout=60)[0].count("SIGTERM: state saved") == 1
    killed.finish(2)
    curves = [(runs.job.folder / "dev.tsv").read_text() for runs in (killed, whole, one)]
    assert curves[0] == curves[1] == curves[2] and len(curves[0].splitlines()) == 8
    assert len({line.split("\t")[1] for line in curves[0].splitlines()}) > 3
    weights = [sha256_file(runs.job.folder / "checkpoint/model.safetensors") for runs in (killed, whole)]
    assert weights[0] == weights[1]


def test_processes_draw_different_dropout(stages):
    """The first draws as a single process does, the second otherwise, so the loss is another one."""
    world = World(stages, dropout=0.3)
    two, one = (StageRuns(stages, world.job({"steps": 1})) for _ in range(2))
    two.finish(2)
    one.finish(1)
    assert float(two.losses()[0]) != pytest.approx(float(one.losses()[0]), rel=1e-4)


def terminate_twice(process, children):
    """As Slurm does, which signals every process of a job."""
    process.terminate()
    time.sleep(0.01)
    process.terminate()


def press_ctrl_c(process, children):
    """As a terminal does."""
    for number in [*children, process.pid]:
        os.kill(number, signal.SIGINT)


@pytest.mark.parametrize("stop", [terminate_twice, press_ctrl_c])
def test_sigterm_and_ctrl_c_save_once_and_the_resumed_training_has_the_same_bits(stages, whole, stop):
    runs = StageRuns(stages, World(stages).job(MANY))
    process = runs.start_and_wait_for_state()
    stop(process, runs.children(process).values())
    log = process.communicate(timeout=60)[0]
    assert process.returncode == 143, log
    assert log.count("SIGTERM: state saved after step") == 1 and "Traceback" not in log
    runs.finish()
    facts = runs.manifest["facts"]
    assert facts["resumed_from"] == int(re.search(r"saved after step (\d+)", log)[1]) > 0
    assert facts["attempts"] == 2 and runs.losses() == whole.losses()
    weights = [sha256_file(r.job.folder / "checkpoint/model.safetensors") for r in (runs, whole)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_the_stage_soon_and_the_next_attempt_resumes(stages, whole, rank):
    runs = StageRuns(stages, World(stages).job(MANY))
    process = runs.start_and_wait_for_state()
    children = runs.children(process)
    assert sorted(children) == [0, 1]
    killed = time.monotonic()
    os.kill(children[rank], signal.SIGKILL)
    log = process.communicate(timeout=60)[0]
    assert time.monotonic() - killed < 30
    assert process.returncode == 1 and f"error: process {rank} of 0 to 1 was killed by signal 9" in log
    assert not (runs.job.folder / "manifest.json").exists()
    runs.finish()
    assert runs.manifest["facts"]["resumed_from"] > 0 and runs.losses() == whole.losses()


def test_a_second_start_waits_and_takes_what_the_first_has_made(stages, whole):
    runs = StageRuns(stages, World(stages).job(MANY))
    first = runs.start_and_wait_for_state()
    log = runs.finish()
    assert first.wait(60) == 0 and runs.manifest["facts"]["attempts"] == 1 and runs.losses() == whole.losses()
    assert "waiting: another process" in log and "is finished: another process" in log


def test_a_loss_that_is_not_finite_is_reported_by_a_stage_of_two(stages):
    runs = StageRuns(stages, World(stages).job({"learning_rate": 1e30}))
    process = runs.start(runs.command(2))
    log = process.communicate(timeout=120)[0]
    assert process.returncode == 1 and "Traceback" not in log
    assert re.search(r"error: training stopped at step 3: loss nan.*query-\d\d.*Lower", log)


def test_other_stages_run_in_one_process(stages):
    runs = StageRuns(stages, World(stages).job())
    command = runs.command(2)
    command[2] = spec_file(stages.root, spec_of(runs.job) | {"kind": "encode"})
    result = subprocess.run(command, cwd=stages.root, capture_output=True, text=True)
    assert result.returncode == 1 and "error: a stage of kind encode runs in one process" in result.stderr
