"""What a person reads in a terminal: how far a run is, how a dry run ends, and when a run ends badly its cause."""

import contextlib
import ctypes
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml
from killer import running_stages
from toy import World

from teleport.plan.plan import Plan

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and capabilities of Linux")
SECONDS = 120  # that a run may take here
KIND = "lexical_index"  # the stage that is disturbed: it loads no torch
MODULE = "workflow_scripts/teleport/search/lexical_index.py"
AGAIN = "finished stages and saved work stay; run the same command again to continue"
DROP_CAPABILITY, OVERRIDE = 24, 1  # prctl(2), capabilities(7): root then may write only where others may


class Run:
    """A run of the workflow in a pseudo-terminal of its own; `text` has its bytes, without colours."""

    def __init__(self, world, limit=lambda: None, arguments=("--until", KIND)):
        process, self.terminal = pty.fork()
        if not process:
            os.chdir(world.folder)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever runs the tests in the background ignores it
            limit()
            command = world.command(*arguments)
            os.execvpe(command[0], command, os.environ | world.environment | {"TERM": "xterm", "COLUMNS": "120"})
        self.process, self.text = process, ""

    def read(self, until=lambda: False):
        """Read until `until()`, or to the end of the run."""
        limit = time.monotonic() + SECONDS
        while not until():
            assert time.monotonic() < limit, f"it takes too long:\n{self.text}"
            if select.select([self.terminal], [], [], 0.05)[0]:
                try:
                    self.text += re.sub(r"\x1b\[\d*m", "", os.read(self.terminal, 65536).decode(errors="replace"))
                except OSError:  # the run has ended
                    break

    def end(self, succeeds=False):
        """Read to the end; returns the last ten lines as they are shown."""
        self.read()
        os.close(self.terminal)
        assert (os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1]) == 0) == succeeds, self.text
        lines = self.text.replace("\r\n", "\n").splitlines()
        return "\n".join([line.rpartition("\r")[2].replace("\x1b[K", "") for line in lines][-10:])


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A world whose corpus and splits are made."""
    world = World.create(tmp_path_factory.mktemp("begun") / "world")
    world.snakemake("--until", "split")
    return world


@pytest.fixture
def world(begun, tmp_path):
    return begun.copy(tmp_path / "world")


@contextlib.contextmanager
def waiting(world):
    """A run whose stage waits for a lock, which is held within the block: (the run, the name of the stage)."""
    (world.folder / "toy.yaml").write_text(yaml.safe_dump(world.config))
    with contextlib.chdir(world.folder):
        (name,) = (name for name in Plan.of_files(["toy.yaml"]).stages if name.startswith(KIND))
    lock, log = (world.folder / "results" / path for path in (f"locks/{name}", f"logs/{name}.log"))
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run = Run(world)
        run.read(lambda: log.exists() and "waiting" in log.read_text())
        yield run, name


def signalled(world, number):
    with waiting(world) as (run, name):
        os.kill(running_stages(world.folder)[name], number)
        return run, run.end()


def killed(world):
    return signalled(world, signal.SIGKILL)


def ended(world):
    return signalled(world, signal.SIGTERM)


def interrupted(world):
    with waiting(world) as (run, _):
        os.write(run.terminal, b"\x03")
        return run, run.end()


def interrupted_alone(world):
    """SIGTERM says how to end at once, and does so: Snakemake sends SIGINT on to the job, which else would wait on."""
    with waiting(world) as (run, _):
        os.kill(run.process, signal.SIGTERM)
        run.read(lambda: "at once" in run.text)
        os.kill(int(re.search(r"kill -INT (\d+)", run.text)[1]), signal.SIGINT)
        return run, run.end()


def left_locked(world):
    """The next run after a kill."""
    with waiting(world) as (run, name):
        os.kill(run.process, signal.SIGKILL)
        os.kill(running_stages(world.folder)[name], signal.SIGKILL)
        run.end()
    return begin(world)


def locked(world):
    with waiting(world) as (run, _):
        run.read(lambda: "waits: " in run.text)
        os.write(run.terminal, b"\x03")
        return run, run.end()


def begin(world, limit=lambda: None):
    run = Run(world, limit)
    return run, run.end()


def read_only(world):
    """The plan has made the folder of every stage already."""
    stages = world.folder / "results/stages"
    for folder in [stages, *filter(Path.is_dir, stages.rglob("*"))]:
        folder.chmod(0o500)
    return begin(world, lambda: ctypes.CDLL(None).prctl(DROP_CAPABILITY, OVERRIDE, 0, 0, 0))


def read_only_for_the_plan(world):
    """The plan makes the folder of the stage anew."""
    shutil.rmtree(world.folder / "results/stages" / KIND)
    return read_only(world)


def damaged_artefact(world):
    (path,) = world.folder.glob("results/stages/corpus/*/corpus.parquet")
    path.write_bytes(path.read_bytes()[:-100])
    return begin(world)


def missing_file(world):
    (world.folder / "data/toy/corpus.tsv").unlink()
    return begin(world)


def bad_line(world):
    shutil.rmtree(world.folder / "results/stages")
    with open(world.folder / "data/toy/corpus.tsv", "a") as file:
        file.write("one column\n")
    return begin(world)


def no_checkpoint(world):
    world.config["encoder"]["checkpoint"]["folder"] = "data/none"
    return begin(world)


def edit(world, line):
    """Have the stage begin with a line of code."""
    path = world.folder / MODULE
    path.write_text(path.read_text().replace("def run(job):\n", f"def run(job):\n    {line}\n", 1))


def edited(world, line):
    """A run in which the stage begins with a line of code."""
    edit(world, line)
    return begin(world)


def full_disk(world):
    """The limit is the stage's alone: Snakemake writes copies of the rules, which are as large as what a stage writes
    here."""
    return edited(world, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))")


def little_memory(world):
    return edited(world, "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); np.ones(2**30)")


def defect(world):
    return edited(world, "{}['nowhere']")


FAILED = f"failed: {KIND} · BM25: "
LOG = rf"more in results/logs/{KIND}/\w+\.log"
CAUSES = {
    killed: (rf"{FAILED}the process was killed by signal 9, SIGKILL: .* not by the kernel\.\n +{LOG}\n", AGAIN),
    interrupted: ("interrupted: stages save their work and end", AGAIN),
    interrupted_alone: ("interrupted: stages save their work and end", AGAIN),
    left_locked: (r"error: .* is locked", "--unlock`, then the same comma"),
    bad_line: (r"failed: corpus .*: data/toy/corpus.tsv, line 241: column count 1, expected 3", AGAIN),
    ended: (rf"{FAILED}the process was ended by signal 15, SIGTERM: .*\n +{LOG}\n", AGAIN),
    locked: (f"BM25 waits: another process works on {KIND}/.*; wait for it, or stop it", AGAIN),
    full_disk: (rf"{FAILED}no room left on the disk \(.*free some disk space \(.*\n +{LOG}\n", AGAIN),
    read_only: (rf"{FAILED}access is refused \(.*Permission denied: 'results/stages/{KIND}/.*\n +{LOG}\n", AGAIN),
    read_only_for_the_plan: (r"Permission denied: 'results/stages", "error: access is refused"),
    damaged_artefact: (rf"{FAILED}.*corpus.parquet has \d+ bytes, .* torn or edited", "--forcerun results/stages/corp"),
    missing_file: (r"\nerror: .*, line 2: collection.path: data/toy has no corpus.tsv", "Name the corpus's folder."),
    no_checkpoint: (r"\nerror: .*, line 6: encoder.checkpoint.folder: .*data/none", "Give the path of a checkpoint."),
    little_memory: (rf"{FAILED}there is not enough memory \(Unable to .*run fewer jobs at once.*\n +{LOG}\n", AGAIN),
    defect: (rf"{FAILED}KeyError: 'nowhere'\n +the traceback of this defect is in results/logs/{KIND}/", AGAIN),
}
IN_CI = [killed, interrupted, bad_line]


@pytest.mark.ci(0)
@pytest.mark.parametrize(
    "disturb", [pytest.param(each, marks=[] if each in IN_CI else pytest.mark.slow) for each in CAUSES]
)
def test_the_last_ten_lines_name_the_cause_once_and_how_to_go_on(world, disturb):
    run, lines = disturb(world)
    cause, remedy = CAUSES[disturb]
    assert re.search(cause, lines) and remedy in lines, lines
    assert len(re.findall(cause, run.text.replace("\r\n", "\n"))) == 1, run.text
    for noise in ("memory ran out", "--code ", "CalledProcessError", "Traceback", "Shutting down"):
        assert noise not in run.text, run.text


@pytest.mark.ci(0)
def test_a_long_job_says_how_far_it_is_and_when_it_is_done(world):
    edit(world, 'import time; [(job.progress(n, 30, "texts"), time.sleep(0.5)) for n in range(31)]')
    run = Run(world)
    run.end(succeeds=True)
    line = r"\nlexical_index · BM25: \d+/30 texts, [\d.]+ texts/s, \d+ s left; 0 of \d+ jobs\r"
    assert re.search(line, run.text), run.text
    assert re.search(r"lexical_index · BM25: done in \d+ s, 1 of \d+ jobs", run.text), run.text


@pytest.mark.ci(1)
def test_a_dry_run_ends_with_hours_disk_and_what_is_there_already(world):
    run = Run(world, arguments=("-n",))
    last = run.end(succeeds=True).splitlines()[-1]
    costs = r"forecast: about \d+ (s|min|h.*) on \S+, one job after another, and [\d.]+ GB of disk"
    found = re.fullmatch(rf"{costs}; finished already: (\d+) of (\d+) stages", last)
    assert found and 0 < int(found[2]) < int(found[3]), run.text
    jobs = re.findall(r"Job \d+: .*", run.text)
    assert len(jobs) > 20 and run.text.count("Job stats:") == 1 and "Reasons:" not in run.text
