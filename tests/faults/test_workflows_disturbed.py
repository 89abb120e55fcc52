"""Whole workflows: killed from outside, several on one results folder, under strange paths, and remedies followed."""

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from killer import SAVE_OFTEN, running_stages
from toy import World, finished  # noqa: F401

pytestmark = [pytest.mark.faults, pytest.mark.slow]
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


def differences(world, sound):
    """What differs from an undisturbed workflow, or was left behind (list of str)."""
    found, expected = world.digests(), sound.digests()
    different = [name for name in expected if found.get(name) != expected[name]]
    parts = [str(path) for path in world.folder.glob("results/stages/**/*.part")]
    return different + parts + [str(path) for path in world.folder.glob("results/resume/*/*")]


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("target", ["job", "shell", "snakemake", "group"])
def test_killed_from_outside(finished, tmp_path, campaign, target, name):  # noqa: F811
    draw = random.Random(f"{target} {name}")
    world = finished.copy(tmp_path / "world")
    world.forget(3)
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
                os.killpg(process.pid, SIGNALS[name])
            else:
                os.kill({"job": job, "shell": parent(job), "snakemake": process.pid}[target], SIGNALS[name])
    output = process.communicate(timeout=300)[0]
    wait_for_stages(world.folder)
    world.snakemake("--unlock")
    world.snakemake()
    wrong = differences(world, finished)
    if "KeyboardInterrupt" in output:
        wrong = output[-500:]
    campaign.note(f"{name} to {target} of a workflow", target, wrong, f"{after:.2f} s")


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
    wrong = [output[-500:] for output in outputs if "Traceback" in output] or differences(world, finished)
    campaign.note("workflows on one results folder", f"{number}, {'the same' if same else 'others'}", wrong, options)


STRANGE = 'it\'s $(touch hacked) `touch hacked` "é"; touch hacked #'


@pytest.mark.parametrize("name", [STRANGE, "two\nlines", "%s \\ *"])
def test_a_folder_of_any_name(finished, tmp_path, campaign, name):  # noqa: F811
    world = World.create(tmp_path / name)
    world.snakemake()
    hacked = list(tmp_path.rglob("hacked"))
    campaign.note("a folder with a strange name", name, hacked or differences(world, finished))


def test_a_folder_that_snakemake_cannot_read_is_named(tmp_path):
    world = World.create(tmp_path / "a {x}")
    text = world.snakemake("-n", check=False)
    assert "a {x} has braces, which Snakemake takes for names of wildcards." in text and "Traceback" not in text


KINDS = ["collection", "check", "pretrained", "tokens", "lexical_index", "bm25", "encode", "index", "retrieve", "merge"]
KINDS += ["train", "evaluate"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_remedy_of_a_damaged_file_helps(finished, tmp_path, campaign, kind):  # noqa: F811
    """What `make verify` says of a file with a flipped byte is done to the letter."""
    world, draw = finished.copy(tmp_path / "world"), random.Random(kind)
    folder = world.folder / "results/stages" / draw.choice([n for n in world.manifests() if n.startswith(f"{kind}/")])
    path = draw.choice([path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"])
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1
    path.write_bytes(content)
    verify = [world.command()[0], "workflow_scripts/manage.py", "verify"]
    said = subprocess.run(verify, cwd=world.folder, capture_output=True, text=True)
    assert said.returncode == 1 and said.stderr == ""
    remedy = re.search(r"Run the workflow again with (--forcerun) (\S+):", said.stdout)
    world.snakemake(*remedy.groups())
    said = subprocess.run(verify, cwd=world.folder, capture_output=True, text=True)
    campaign.note(
        "a remedy followed", kind, said.stdout if said.returncode else differences(world, finished), path.name
    )
