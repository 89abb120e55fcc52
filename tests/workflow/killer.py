"""Kills the stages of a workflow that runs, as a machine that fails would."""

import os
import random
import signal
import threading
import time
from pathlib import Path

SAVE_OFTEN = [f"{rule}:save_every=0" for rule in ("encode", "retrieve", "train")]


def running_stages(folder):
    """{kind/key: process id} of the stage processes that run in `folder`."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if len(words) > 3 and words[1].endswith(b"run_stage.py") and (process / "cwd").readlink() == folder:
                *_, kind, key, _ = words[2].decode().split("/")
                found[f"{kind}/{key}"] = int(process.name)
        except (OSError, ValueError):
            continue  # it ended meanwhile, or is not ours
    return found


class Killer(threading.Thread):
    """Kills the process of every stage once: training after its first saved step, others at a random moment.

    chance: that of a training to be killed, at each look (50 a second) at one that has saved a step
    """

    def __init__(self, folder, durations, chance=1.0):
        super().__init__(daemon=True)
        self.folder, self.durations, self.chance = folder, durations, chance
        self.random, self.moments, self.killed, self.over = random.Random(7), {}, {}, False

    def run(self):
        while not self.over:
            for name, process in running_stages(self.folder).items():
                if name not in self.killed and self.is_due(name):
                    os.kill(process, signal.SIGKILL)
                    self.killed[name] = time.monotonic()
            time.sleep(0.02)

    def is_due(self, name):
        if name.startswith("train/"):
            saved = (self.folder / "results/resume" / name / "state.safetensors").exists()
            return saved and self.random.random() < self.chance
        now = time.monotonic()
        # Some end too soon to wait, and any may take half the time that it took on a busier machine.
        share = 0.0 if name.split("/")[0] in ("check", "index") else self.random.uniform(0, 0.5)
        return now >= self.moments.setdefault(name, now + share * self.durations[name.split("/")[0]])


def durations_of(world):
    """{kind: seconds of the first stage of that kind} in a finished `World`."""
    durations = {}
    for name, manifest in world.manifests().items():
        durations.setdefault(name.split("/")[0], manifest["provenance"]["wall_seconds"])
    return durations
