"""A stage that several jobs or processes make together, of which one is killed, ends in the same bits.

Two processes that train on CPUs, and passages that are encoded in two shards, which a third job joins.
"""

import contextlib
import random
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import yaml
from campaign import sample
from fault_world import CONFIG, MINED, SPLITS, steady
from test_commands_disturbed import listed

from collection_world import random_passages, write_folder
from teleport.plan.plan import Plan
from teleport.running.artefact import MANIFEST, read_manifest
from teleport.running.run import FINISHED

pytestmark = pytest.mark.faults
ROWS = 2100  # of more than one block, which is the least that a shard has
JOBS = {
    "train, two processes": [["--processes", "2"]],
    "encode, two shards": [["--shard", "1-of-2"], ["--shard", "2-of-2"], ["--shards", "2"]],
}


class Together:
    """A copy of a `FaultWorld` with the stages of `JOBS`, made once by nobody disturbed.

    `stages`: {name: Stage}; `calls`: {name: how many calls of each of its jobs change a file}; `sound`: {name: what is
    below the stage's folder, its files and facts}.
    """

    def __init__(self, world, folder):
        self.world, self.folder, self.sound, self.calls = world, folder, {}, {}
        for name in ("results", "data"):
            shutil.copytree(world.folder / name, folder / name, symlinks=True)
        make_wide(folder / "data/wide")
        wide = {"collection": {"source": "folder", "path": "data/wide"}, "encoder": CONFIG["encoder"], "episodes": []}
        wide |= {"experiments": {"wide": {}}, "evaluation": {"splits": ["test"], "depth": 10, "measures": ["RR@10"]}}
        (folder / "wide.yaml").write_text(yaml.safe_dump(wide))
        (folder / "mined.yaml").write_text(yaml.safe_dump(MINED))
        with contextlib.chdir(folder):
            plans = [Plan.of_files([name]).stages.values() for name in ("mined.yaml", "wide.yaml")]
        watched = next(stage for stage in plans[0] if stage.kind == "train" and "dev" in stage.inputs)
        another = watched.settings.model_copy(update={"seed": watched.settings.seed + 1})  # which nothing reads
        encode = next(stage for stage in plans[1] if stage.kind == "encode")
        self.stages = dict(zip(JOBS, (replace(watched, settings=another), encode), strict=True))
        for stage in encode.inputs.values():
            for each in (*stage.inputs.values(), stage):
                if not (folder / "results/stages" / each.name / MANIFEST).exists():
                    answer = world.run(each, folder=str(folder))
                    assert answer["status"] == 0, answer["output"]
        self.rest = self.others()

    def make(self, name, number, **request):
        """Run job `number` of a stage; returns how it ended, see stage_server.py."""
        return self.world.run(self.stages[name], *JOBS[name][number], folder=str(self.folder), **request)

    def others(self):
        """What is below results and belongs to no stage of `JOBS` (set of paths)."""
        stays = ("locks", *(f"stages/{stage.name}" for stage in self.stages.values()))
        empty = {folder for root in ("shards", "resume") for folder in (root, f"{root}/encode", f"{root}/train")}
        return {path for path in listed(self.folder / "results") if not path.startswith(stays)} - empty

    def made(self, name):
        """What is below the folder of a stage, and its facts."""
        folder = self.folder / "results/stages" / self.stages[name].name
        facts = steady(read_manifest(folder, "", "")["facts"])
        if "shards" in facts:
            facts["shards"] = [steady(shard) | {"process": None} for shard in facts["shards"]]
        files = {path: content for path, content in listed(folder).items() if path not in (MANIFEST, FINISHED)}
        return files | {"facts": facts}

    def forget(self, name, keep_files=False):
        folder = self.folder / "results/stages" / self.stages[name].name
        if keep_files:
            (folder / MANIFEST).unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def undisturbed(self, name):
        """How many calls that change a file each job of a stage makes."""
        if name not in self.calls:
            answers = [self.make(name, number, point=10**9) for number in range(len(JOBS[name]))]
            assert not any(answer["status"] for answer in answers), answers
            self.sound[name], self.calls[name] = self.made(name), [answer["calls"] for answer in answers]
        return self.calls[name]

    def finish(self, name, disturbed):
        """What is wrong after Snakemake runs job `disturbed` again, and those whose manifest is not there."""
        folder = self.folder / "results/shards" / self.stages[name].name
        for number, (option, value) in enumerate(JOBS[name]):
            if option == "--shard" and number != disturbed and (folder / value / MANIFEST).exists():
                continue
            answer = self.make(name, number)
            if answer["status"]:
                return answer["output"][-700:]
        made, sound = self.made(name), self.sound[name]
        different = [path for path in made.keys() | sound.keys() if made.get(path) != sound.get(path)]
        return different + sorted(self.others() ^ self.rest)


def make_wide(folder):
    """A collection of short passages, of more than one block."""
    texts = random_passages(np.random.default_rng(1), ROWS, 2, 4)
    passages = [(f"d{n}", "", " ".join(words)) for n, words in enumerate(texts)]
    queries = {split: [(f"q{n}", " ".join(texts[n])) for n in numbers] for split, numbers in SPLITS.items()}
    judgments = {split: [(row, n, 1) for row, n in enumerate(numbers)] for split, numbers in SPLITS.items()}
    write_folder(folder, passages, queries, judgments)


@pytest.fixture(scope="module")
def together(fault_world, tmp_path_factory):
    if not fault_world.sees_calls:
        pytest.skip("this system hands no system calls to another process (seccomp's user notification, x86-64)")
    return Together(fault_world, tmp_path_factory.mktemp("together"))


@pytest.mark.parametrize("name", JOBS)
def test_one_of_several_jobs_killed_in_the_place_of_any_call(together, campaign, name):
    """At odd calls the job is killed, at even ones the process whose call it is: with one process they are the same."""
    points = [(job, point) for job, calls in enumerate(together.undisturbed(name)) for point in range(1, calls + 1)]
    draw = random.Random(name)
    for job, point in sample(points, 50, name):
        together.forget(name, keep_files=draw.random() < 0.5)
        for before in range(job):
            together.make(name, before)
        answer = together.make(name, job, point=point, caller=point % 2 == 0)
        wrong = together.finish(name, job)
        told = answer["status"] == 1 and "was killed by signal 9" in answer["output"]  # by the job, of its process
        if answer["status"] != -signal.SIGKILL and not told:
            wrong = f"status {answer['status']}: {answer['output'][-500:]}"
        campaign.note("killed in the place of a call", name, wrong, [JOBS[name][job], point, answer["last"]])
