"""Whole workflows: killed from outside, several on one results folder, under strange paths, and remedies followed."""

import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from campaign import CASES
from fault_world import steady
from killer import SAVE_OFTEN, running_stages
from test_artefacts_damaged import WAYS
from toy import World, finished  # noqa: F401

from teleport.plan.plan import Plan

pytestmark = [pytest.mark.faults, pytest.mark.slow]
# Ctrl-C before the first line of a stage: docs/reliability.md names it. Any other traceback of one is wrong.
UNBEGUN = re.compile(r'run_stage\.py", line 0, in <module>\nKeyboardInterrupt$', re.MULTILINE)
SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT}


def parent(process):
    """The id of the parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def wait_for_stages(folder):
    """Wait until no process of a stage is left in a folder."""
    limit = time.monotonic() + 120
    while running_stages(folder):
        assert time.monotonic() < limit, "a stage runs for ever"
        time.sleep(0.05)


def told(world):
    """{kind/key/file: SHA-256} of all artefacts, and {kind/key: facts} but for times and attempts."""
    return world.digests() | {name: steady(manifest["facts"]) for name, manifest in world.manifests().items()}


def differences(world, expected):
    """What differs from what an undisturbed workflow has `told`, or was left behind (list of str)."""
    found = told(world)
    different = [name for name in expected if found.get(name) != expected[name]]
    parts = [str(path) for path in world.folder.glob("results/stages/**/*.part")]
    return different + parts + [str(path) for path in world.folder.glob("results/resume/*/*")]


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("target", ["job", "shell", "snakemake", "group"])
def test_killed_from_outside(finished, tmp_path, campaign, target, name):  # noqa: F811
    """Counted when the workflow's status says that something was interrupted; else it is tried again."""
    draw, fault = random.Random(f"{target} {name}"), f"SIG{name} to a part of a workflow"
    for attempt in range(5):
        world = finished.copy(tmp_path / f"world{attempt}")
        world.forget(3)
        status, output, after = signalled(world, draw, target, SIGNALS[name])
        wait_for_stages(world.folder)
        world.snakemake("--unlock")
        world.snakemake()
        wrong = differences(world, told(finished))
        if "KeyboardInterrupt" in UNBEGUN.sub("", output):
            wrong = output[-500:]
        if status or wrong:
            return campaign.note(fault, target, wrong, f"{after:.2f} s")
        shutil.rmtree(world.folder)
    campaign.note(fault, target, "nothing was interrupted, five times")


def signalled(world, draw, target, number):
    """Run a workflow and send a signal to a part of it; returns (its status, what it said, after how many seconds)."""
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = world.command("--set-resources", *SAVE_OFTEN)
    process = subprocess.Popen(command, cwd=world.folder, start_new_session=True, **quiet)
    after = draw.uniform(0, 6)
    time.sleep(after)
    while process.poll() is None and not (stages := running_stages(world.folder)):
        time.sleep(0.02)
    if process.poll() is None:
        job = draw.choice(sorted(stages.values()))
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it has ended just now
            if target == "group":
                os.killpg(process.pid, number)
            else:
                os.kill({"job": job, "shell": parent(job), "snakemake": process.pid}[target], number)
    output = process.communicate(timeout=300)[0]
    return process.returncode, output, after


OTHER = {"experiments": {"other": {"label": "Other", "negatives": {"alpha": 0.25}}}}
TOGETHER = [(2, True, []), (2, True, ["--nolock"]), (3, True, ["--nolock"]), (2, False, ["--nolock"])]
TOGETHER += [(3, False, ["--nolock"])]


@pytest.mark.parametrize(("number", "same", "options"), TOGETHER)
def test_several_on_one_results_folder(finished, tmp_path, campaign, number, same, options):  # noqa: F811
    """With Snakemake's own lock one of them works; without it the locks of the stages keep them apart."""
    world = finished.copy(tmp_path / "world")
    world.forget(3)
    *command, _ = world.command(*options)
    commands = []
    for place in range(number):
        config = world.config if same or not place else world.config | {"name": f"other{place}"} | OTHER
        (world.folder / f"{place}.yaml").write_text(yaml.safe_dump(config))
        commands.append([*command, f"{place}.yaml"])
    quiet = {"cwd": world.folder, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [subprocess.Popen(command, **quiet) for command in commands]
    outputs = [process.communicate(timeout=900)[0] for process in processes]
    for process, command in zip(processes, commands, strict=True):
        if process.returncode:  # told by Snakemake to wait, or to run again
            subprocess.run([*command, "--unlock"], check=True, **quiet)
            subprocess.run(command, check=True, **quiet)
    wrong = [output[-500:] for output in outputs if "Traceback" in output] or differences(world, told(finished))
    campaign.note("workflows on one results folder", f"{number}, {'the same' if same else 'others'}", wrong, options)


RACED = ["check", "lexical_index", "index"]  # kinds that are made within a second
FEW = {"name": "few", "episodes": [{}], "negatives": {"pool": 8}}


@pytest.fixture(scope="module")
def raced(finished, tmp_path_factory):  # noqa: F811
    """A world with two configurations: (it, what it has `told`, a command of each configuration, the stages that
    both commands make, the merge of the second configuration that its command makes, too)."""
    world = finished.copy(tmp_path_factory.mktemp("raced") / "world")
    *command, first = world.command("--nolock")
    (world.folder / "few.yaml").write_text(yaml.safe_dump(world.config | FEW))
    with contextlib.chdir(world.folder):
        plan, few = (Plan.of_files([name]).stages.values() for name in (first, "few.yaml"))
    shared = sorted({s.name for s in plan if s.kind in RACED} & {s.name for s in few})
    alone = [stage.name for stage in few if stage.kind == "merge"]
    commands = []
    for config, names in ((first, shared), ("few.yaml", shared + alone)):
        commands.append([*command, config, "--", *(f"results/stages/{name}/manifest.json" for name in names)])
        subprocess.run(commands[-1], cwd=world.folder, check=True, capture_output=True)
    return world, told(world), commands, shared, alone


@pytest.mark.parametrize("case", range(max(1, CASES * 13 // 100)))
def test_several_that_want_the_same_few_stages(raced, campaign, case):
    """Two workflows, in every sixth case three, of the same or of different configurations, begun at random moments."""
    world, expected, commands, shared, alone = raced
    draw = random.Random(f"race {case}")
    number, same = 2 if case % 6 else 3, draw.random() < 0.5
    for name in draw.sample(shared, draw.randint(1, len(shared))) + ([] if same else alone):
        (world.folder / "results/stages" / name / "manifest.json").unlink()
        if case % 2:  # in the other cases the finished result is there to be taken
            (world.folder / "results/stages" / name / "finished.json").unlink()
    quiet = {"cwd": world.folder, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    begun = []
    for place in range(number):
        begun.append(subprocess.Popen(commands[0 if same else place % 2], **quiet))
        time.sleep(draw.uniform(0, 1))
    outputs = [process.communicate(timeout=900)[0] for process in begun]
    again = [process.args for process in begun if process.returncode]  # what they read was just being made again
    for command in again:
        subprocess.run(command, check=True, **quiet)
    wrong = [output[-500:] for output in outputs if "Traceback" in output] or differences(world, expected)
    kinds = [set(re.findall(r"results/logs/(\S+)\.log", output)) for output in outputs]
    both = len(set.intersection(*kinds))
    case, of = f"{both} begun by all, {len(again)} run again", "the same" if same else "others"
    campaign.note(f"{number} workflows that want the same stages", of, wrong, case)


STRANGE = 'it\'s $(touch hacked) `touch hacked` "é"; touch hacked #'


@pytest.mark.parametrize("name", [STRANGE, "two\nlines", "%s \\ *"])
def test_a_folder_of_any_name(finished, tmp_path, campaign, name):  # noqa: F811
    world = World.create(tmp_path / name)
    world.snakemake()
    hacked = list(tmp_path.rglob("hacked"))
    campaign.note("a folder with a strange name", name, hacked or differences(world, told(finished)))


def test_a_folder_that_snakemake_cannot_read_is_named(tmp_path):
    world = World.create(tmp_path / "a {x}")
    text = world.snakemake("-n", check=False)
    assert "a {x} has braces, which Snakemake reads as wildcards." in text and "Traceback" not in text


KINDS = ["corpus", "split", "check", "pretrained", "tokens", "lexical_index", "bm25", "encode", "index", "retrieve"]
KINDS += ["merge", "train", "evaluate"]


@pytest.mark.parametrize(("kind", "way"), list(zip(KINDS, itertools.cycle(WAYS))))
def test_the_remedy_of_a_damaged_file_helps(finished, tmp_path, campaign, kind, way):  # noqa: F811
    """What `teleport verify` says is done to the letter. A check has no file but its manifest."""
    world, draw = finished.copy(tmp_path / "world"), random.Random(kind)
    folder = world.folder / "results/stages" / draw.choice([n for n in world.manifests() if n.startswith(f"{kind}/")])
    files = sorted(json.loads((folder / "manifest.json").read_text())["files"])
    path = folder / draw.choice(files or ["manifest.json"])
    way(path, draw, [world.folder / "data/toy/corpus.tsv"])
    verify = [world.command()[0], "workflow_scripts/manage.py", "verify"]
    said = subprocess.run(verify, cwd=world.folder, capture_output=True, text=True)
    assert said.returncode == 1 and not re.sub(r"^[\d:]+ \d+/\d+ MB, .*\n", "", said.stderr, flags=re.MULTILINE)
    remedy = re.search(r"Run the workflow again with (--forcerun) (\S+):", said.stdout)
    world.snakemake(*remedy.groups())
    said = subprocess.run(verify, cwd=world.folder, capture_output=True, text=True)
    campaign.note(
        "a remedy followed", kind, said.stdout if said.returncode else differences(world, told(finished)), path.name
    )
