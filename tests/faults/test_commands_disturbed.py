"""The commands that write files are killed and interrupted, run again, and leave what an undisturbed run leaves."""

import contextlib
import json
import re
import shutil
import signal
from typing import NamedTuple

import pytest
import yaml
from campaign import sample
from fault_world import MINED, SPLITS

from teleport.plan.plan import Plan
from teleport.report.rows import analysis_tables, in_folder, measured_tables
from teleport.running.artefact import Artefact
from teleport.running.files import sha256_file

pytestmark = pytest.mark.faults
TELE, OUTPUT, PAGE = "results/experiments/tele", "given/out", "page of now.html"


class Command(NamedTuple):
    """Arguments of manage.py; its standard input (text); the paths that are not there before it is first run; the file
    that Snakemake removes when its job has failed."""

    arguments: list
    input: str = ""
    makes: tuple = ()
    output: str = ""


def listed(folder):
    """{path below a folder: what tells its content} of all files, links and folders."""
    return {str(path.relative_to(folder)): content_of(path) for path in folder.rglob("*")}


def content_of(path):
    """What tells the content of a file or a link; True of a folder. The entries of a PDF have no order, and a page of
    what is finished now says when that was."""
    if path.is_symlink():
        return path.readlink()
    if path.suffix == ".pdf":
        return sorted(path.read_bytes().split(b"\n"))
    if path.name == PAGE:
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", path.read_text())
    return path.is_dir() or sha256_file(path)


def commands_of(folder):
    """{name: Command} for the stages below a folder, in which this process is."""
    (folder / "mined.yaml").write_text(yaml.safe_dump(MINED))
    (folder / "few.yaml").write_text(yaml.safe_dump(MINED | {"experiments": {"tele": {}}}))
    (folder / "given").mkdir()
    for name, role in (("corpus", "corpus"), ("queries", "queries.train"), ("qrels", "qrels.train")):
        shutil.copy(folder / f"data/toy/{role}.tsv", folder / f"given/{name}.tsv")
    beir = folder / "given/beir"
    (beir / "qrels").mkdir(parents=True)
    texts = [line.split("\t") for line in (folder / "data/toy/corpus.tsv").read_text().splitlines()]
    rows = [{"_id": row[0], "title": row[1], "text": row[2]} for row in texts]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": f"q{n}", "text": texts[n][2]} for n in SPLITS["train"]]
    (beir / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"q{n}\td{n}\t1\n" for n in SPLITS["train"])
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)

    plan = Plan.of_files(["mined.yaml"])
    (table,), (analyses,) = measured_tables(plan).items(), analysis_tables(plan).items()
    page = in_folder("report", plan.config)
    encoded = next(stage for stage in plan.stages.values() if stage.kind == "encode").name
    suffixes = ("csv", "md", "tex", "sources.csv")
    made = [f"results/tables/{each[0]}.{suffix}" for each in (table, analyses) for suffix in suffixes]
    exported = {
        f"export of a {kind}": Command(["export", f"{TELE}/episode-1/{link}", OUTPUT], makes=(OUTPUT,))
        for kind, link in (("pool", "merge"), ("run", "evaluate-test"), ("checkpoint", "train"))
    }
    return {
        "link": Command(["link", "mined.yaml"], "", (TELE,)),
        "tables": Command(["tables", "mined.yaml"], "", tuple(made)),
        "page": Command(["report", "mined.yaml"], "", (page,)),
        "report in one file": Command(["report", "mined.yaml", "--share", PAGE], "", (PAGE,)),
        "figures": Command(["figures", "mined.yaml"], "", ("results/figures",)),
        **exported,
        "delete_vectors": Command(["delete_vectors", "--output", f"results/stages/{encoded}"], output="deleted.json"),
        "prune": Command(["prune", "--delete", "few.yaml"], makes=("results/experiments", "results/tables")),
        "new": Command(["new", "mine", "given"], makes=("config", "data/mine-divided")),
        "new, BEIR": Command(["new", "mine", "given/beir"], makes=("config", "data/mine-divided")),
    }


NAMES = ["link", "tables", "page", "report in one file", "figures", "export of a pool", "export of a run"]
NAMES += ["export of a checkpoint", "delete_vectors", "prune", "new", "new, BEIR"]


class Desk:
    """A copy of the stages of a `FaultWorld`, with all that the commands make; each runs in a fresh copy of it.

    `commands`: as in `commands_of`; `done`: {name: (files before it, after it, how many calls change a file)}.
    """

    def __init__(self, world, folder):
        self.world, self.sound, self.folder, self.done = world, folder / "sound", folder / "at work", {}
        for name in ("results", "data"):
            shutil.copytree(world.folder / name, self.sound / name, symlinks=True)
        with contextlib.chdir(self.sound):
            self.commands = commands_of(self.sound)
        for name in ("link", "tables"):
            self.run(self.commands[name], folder=str(self.sound))

    def run(self, command, **request):
        """Run a command in the fresh copy; returns how it ended, see stage_server.py."""
        request = {"folder": str(self.folder), "arguments": command.arguments, "input": command.input} | request
        return self.world.answer(self.world.ask(script="manage.py", **request))

    def fresh(self, command):
        """A copy in which nothing is there that the command makes."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.sound, self.folder, symlinks=True)
        for path in command.makes:
            path = self.folder / path
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def undisturbed(self, name):
        """(files before a command, after it, number of its calls)."""
        if name not in self.done:
            command = self.commands[name]
            self.fresh(command)
            before = listed(self.folder)
            answer = self.run(command, point=10**9)
            assert answer["status"] == 0, answer["output"]
            self.done[name] = before, listed(self.folder), answer["calls"]
        return self.done[name]

    def half_made(self, name):
        """What is neither as before a command nor as after it, but under the name of a part (list of str)."""
        before, after, _ = self.undisturbed(name)
        found = listed(self.folder)
        torn = [path for path in found if found[path] not in (before.get(path), after.get(path), True)]
        lost = [path for path in before.keys() & after.keys() if path not in found]
        parts = [path for path in found if ".part" in path]
        for manifest in self.folder.glob("results/stages/*/*/manifest.json"):
            Artefact(manifest.parent).verify()
        return [path for path in torn if path not in parts] + lost, parts

    def finish(self, name):
        """What is wrong after a disturbed command is run again."""
        command, after = self.commands[name], self.undisturbed(name)[1]
        answer = self.run(command)
        whole = answer["status"] == 1 and re.search(r" (exists|is there) already\. ", answer["output"])
        if answer["status"] and not whole:
            return answer["output"][-700:]
        found = listed(self.folder)
        return sorted(path for path in found.keys() | after.keys() if found.get(path) != after.get(path))


@pytest.fixture(scope="module")
def desk(fault_world, tmp_path_factory):
    if not fault_world.sees_calls:
        pytest.skip("this system hands no system calls to another process (seccomp's user notification, x86-64)")
    return Desk(fault_world, tmp_path_factory.mktemp("desk"))


def with_last(calls, points):
    """Some points of so many calls, and the last three, in order."""
    return sorted({*points, *range(max(1, calls - 2), calls + 1)})


@pytest.mark.ci(0)
@pytest.mark.parametrize("name", NAMES)
def test_commands_killed_in_the_place_of_any_call_that_changes_a_file(desk, campaign, name):
    """Also in the place of each of the last three, which give a result its name and remove what is left."""
    command, calls = desk.commands[name], desk.undisturbed(name)[2]
    for point in with_last(calls, sample(range(1, calls + 1), 20, name)):
        desk.fresh(command)
        answer = desk.run(command, point=point)
        wrong = desk.half_made(name)[0]
        if command.output and point % 2:
            (desk.folder / command.arguments[-1] / command.output).unlink(missing_ok=True)
        wrong = wrong or desk.finish(name)
        if answer["status"] != -signal.SIGKILL:
            wrong = f"status {answer['status']}: {answer['output'][-500:]}"
        campaign.note("a command killed in the place of a call", name, wrong, [point, answer["last"]])


@pytest.mark.ci(0)
@pytest.mark.parametrize("name", NAMES)
def test_commands_interrupted_at_any_call_that_changes_a_file(desk, campaign, name):
    """Ctrl-C: the command says so, and leaves no part of a file; also at each of the last three calls."""
    command, calls = desk.commands[name], desk.undisturbed(name)[2]
    for point in with_last(calls, sample(range(1, calls + 1), 40, f"interrupted {name}")):
        desk.fresh(command)
        answer = desk.run(command, point=point, signal=signal.SIGINT)
        wrong = sum(desk.half_made(name), []) or desk.finish(name)
        if answer["status"] != 1 or not answer["output"].rstrip().split("\n")[-1].startswith("interrupted: "):
            wrong = f"status {answer['status']}: {answer['output'][-500:]}"
        campaign.note("a command interrupted (SIGINT) at a call", name, wrong, [point, answer["last"]])
