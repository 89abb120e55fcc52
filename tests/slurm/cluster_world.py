"""A toy world whose workflow is submitted to the cluster by profiles/slurm, and what a test does to it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

from test_kill import running_stages

from teleport.plan.plan import Plan

# How a test looks after its jobs: quickly, and without an accounting database.
LOOKING = ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"]
LOOKING += ["--seconds-between-status-checks", "1", "--latency-wait", "5"]
# As many threads as a local run with two cores, so that both give the same bits.
THREADS = ["--set-threads", *(f"{rule}=2" for rule in ("tokens", "encode", "retrieve", "train"))]

SAVE_EVERY_STEP = "train:save_every=0"


def wait_for(condition, seconds=240):
    """What `condition` returns once it is true. Raises AssertionError when it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{condition} did not come true in {seconds} s")


class ClusterWorld:
    """A toy world (`.world`) whose workflow is submitted to the cluster by profiles/slurm."""

    def __init__(self, world, cluster):
        self.world, self.cluster, self.folder, self.process = world, cluster, world.folder, None
        with contextlib.chdir(world.folder):
            stages = Plan.of_files(["toy.yaml"]).stages.values()
        self.training = next(stage.name for stage in stages if stage.kind == "train")

    def submit(self, *arguments):
        """Start Snakemake in the background; its output goes to run.log."""
        profile = ["--workflow-profile", "profiles/slurm", *LOOKING, *THREADS]
        command = [sys.executable, "-m", "snakemake", *profile, "--configfile", "toy.yaml", *arguments]
        environment = self.cluster.variables | {"HF_HUB_OFFLINE": "1", "TELEPORT_CPU": "1"}
        with open(self.folder / "run.log", "w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A shell's background commands ignore Ctrl-C, and so would what they start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def train(self, *resources):
        """Submit the training alone, with `resources` instead of the profile's."""
        options = ["--set-resources", *resources] if resources else []
        self.submit(*options, "--", f"results/stages/{self.training}/manifest.json")

    def catch(self):
        """Stop (SIGSTOP) the training right after it has saved a state for the first time; returns its process."""
        state = self.folder / "results/resume" / self.training / "state.safetensors"

        def caught():
            process = running_stages(self.folder).get(self.training)
            if process and state.exists():
                os.kill(process, signal.SIGSTOP)
                return process

        return wait_for(caught)

    def finish(self, status=0, seconds=600):
        """Wait for what was submitted. Raises AssertionError with its last words when it ends otherwise."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        assert self.process.poll() == status, self.log()[-4000:]

    def log(self):
        return (self.folder / "run.log").read_text()

    def jobs(self):
        """The Slurm jobs submitted from this world: [{field: value}], in order; `Comment` names rule or group."""
        return [job for job in self.cluster.jobs().values() if job["WorkDir"] == str(self.folder)]


def run_until(rule, before, folder):
    """A copy of the world `before` in a folder, after a local run up to a rule. All splits are built: a job requests
    what its forecast says once the size of the collection is known."""
    world = before.copy(folder / "world")
    world.config = before.config
    world.snakemake("--until", "split")
    world.snakemake("--until", rule)
    return world


def rules(job):
    """The rules of a Slurm job, as the executor's comment has them."""
    return re.match(r"rule_(?:mining_[0-9a-f]{12}_)?(.+?)(?:_wildcards_|$)", job["Comment"])[1].split("_")


def assert_continued(world, undisturbed):
    """The training went on from a saved step in a second attempt, and ended with the bits of a `World`."""
    manifest, expected = (w.manifests()[world.training] for w in (world.world, undisturbed))
    assert manifest["provenance"]["attempt"] == 2 and 0 < manifest["facts"]["resumed_from"] < 60
    assert expected["provenance"]["attempt"] == 1
    assert manifest["files"] == expected["files"]
