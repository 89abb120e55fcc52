"""What a borrowed GPU is asked first: every measurement in order of worth, a line of JSON each.

    python bench/gpu_campaign.py [--small] [--folder results/campaign] [--only tests train ...]
    python bench/gpu_campaign.py --hardware NAME        # the line for config/hardware.yaml, from the lines of JSON
    python bench/gpu_campaign.py --page                 # the table of docs/gpu.md, from the same lines

A step is a command of its own with at most --minutes; one that fails or takes longer does not stop the rest. Lines are
appended to FOLDER/campaign.jsonl, so a campaign that was cut off goes on with --only and the names that it lacks.
--small takes tiny sizes: a rehearsal of the campaign itself, also without a GPU, whose figures say nothing of speed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import yaml

from campaign_page import write_page
from rounds import REPOSITORY
from teleport.running.provenance import git_commit, hardware, versions

BENCH, TAIL = REPOSITORY / "bench", 2000  # characters of the output of a step that are kept where it fails
MARCO, DIM = 8_841_823, 768
NO_GPU = "no GPU: figures are of the CPU"
SEARCHING = "search", "calibrate", "live"
SHARE = 0.6  # of the free memory that vectors may take, beside which the page cache has to hold them


def passages_that_fit(folder):
    """How many vectors of 768 numbers are searched: MS MARCO's, or what memory and disk of `folder` have room for."""
    from teleport.running.memory import free_bytes

    room = min(SHARE * free_bytes(), 0.9 * shutil.disk_usage(folder).free)
    return min(MARCO, int(room / (4 * DIM)))


def gpu_tests():
    """The files with tests for a GPU; those of others may need what is not installed on a borrowed machine."""
    return sorted(str(p) for p in (REPOSITORY / "tests").rglob("test_*.py") if "pytest.mark.gpu" in p.read_text())


def steps(folder, small):
    """{name: arguments of Python}, by worth. JSON of benchmarks goes to FOLDER/NAME.json."""

    def bench(script, *arguments, big="", little=""):
        return [str(BENCH / f"{script}.py"), *arguments, *(little if small else big).split()]

    base, rounds = [] if small else ["--bert-base"], "--rounds 1 "
    tiny, here = "--passages 64 --queries 2 --negatives 2 ", ["--folder", str(folder)]
    many = "" if small else str(passages_that_fit(folder))
    named = {
        "tests": ["-m", "pytest", "-m", "gpu", "-rf", "--durations=5", "-p", "no:cacheprovider", *gpu_tests()],
        "train": bench("train", *base, big="--queries 8 --negatives 31", little=f"{rounds}{tiny}--steps 2"),
        "search": bench(
            "search", "--alone", *here,
            big=f"--passages {many} --queries 65536", little=f"{rounds}--passages 2000 --queries 20 --dim 32",
        ),
        "calibrate": bench("calibrate", "--bert-base", little="--scale 1 --layers 1"),
        "encode": bench("encode", "--alone", *base, big="--passages 65536", little=f"{rounds}--passages 32"),
        "live": bench(
            "live", *base, *here, "--parts", "0",
            big=f"--passages {many} --queries 32", little=f"{rounds}--passages 500 --queries 2",
        ),
        "live-pq": bench(
            "live", *base, big="--passages 500000 --queries 32 --parts 96", little=f"{rounds}--passages 500 --queries 2"
        ),
        "ways": bench("step", *base, big="--queries 8 --negatives 31", little=rounds + tiny),
    }  # fmt: skip
    for name, command in named.items():
        command += [] if name == "tests" else ["--json", str(folder / f"{name}.json")]
    return named


def lacking(name, on_gpu):
    """What a step lacks here (text), or None: faiss searches where there is no GPU, and learns PQ's codes."""
    if find_spec("faiss") is None and (name == "live-pq" or name in SEARCHING and not on_gpu):
        return "left out: faiss is not installed"


def take(name, command, folder, minutes):
    """Run a step; returns its line (dict). All processes of one that takes too long are ended."""
    figures, log, started = folder / f"{name}.json", folder / f"{name}.log", time.time()
    figures.unlink(missing_ok=True)
    paths = [str(BENCH), str(REPOSITORY / "workflow_scripts"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with open(log, "w") as output:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            status = "done" if process.wait(60 * minutes) == 0 else f"failed with status {process.returncode}"
        except subprocess.TimeoutExpired:
            status = f"ended after {minutes:g} minutes"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    text = log.read_text(errors="replace")
    line = {"step": name, "status": status, "seconds": round(time.time() - started, 1), "command": command}
    if figures.is_file():
        line["figures"] = json.loads(figures.read_text())
    if name == "tests":
        line["figures"] = {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", text)}
    return line if status == "done" else line | {"tail": text[-TAIL:]}


def machine():
    """(what every line says of the machine and the code, whether there is a GPU)."""
    import torch

    return {"hardware": hardware(), "versions": versions(), "commit": git_commit()}, torch.cuda.is_available()


def campaign(chosen, folder, minutes):
    """Take the steps {name: command}, append their lines to FOLDER/campaign.jsonl; returns the names of those that
    were not done."""
    about, on_gpu = machine()
    if not on_gpu:
        print(NO_GPU)
        about["note"] = NO_GPU
    missed = []
    for name, command in chosen.items():
        lack = lacking(name, on_gpu)
        line = {"step": name, "status": lack, "seconds": 0.0} if lack else take(name, command, folder, minutes)
        line |= about
        with open(folder / "campaign.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        missed += [] if lack or line["status"] == "done" else [name]
        print(
            f"{name}: {line['status']}" + ("" if lack else f", {line['seconds']:.0f} s, {folder / name}.log"),
            flush=True,
        )
    return missed


def hardware_entry(path, name):
    """The entry `name` for config/hardware.yaml (text), from the last calibration among the lines of a file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    found = [line["figures"] for line in lines if line["step"] == "calibrate" and "figures" in line]
    if not found:
        sys.exit(f"error: {path} has no finished calibration: python bench/gpu_campaign.py --only calibrate")
    return yaml.safe_dump({name: found[-1]}, sort_keys=False, width=120)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Every measurement that a borrowed GPU is asked, in order of worth.")
    parser.add_argument("--small", action="store_true", help="tiny sizes: a rehearsal of the campaign itself")
    parser.add_argument("--folder", type=Path, default=Path("results/campaign"), help="where lines, logs and traces go")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="these steps alone")
    parser.add_argument("--minutes", type=float, default=6, help="the most that a step may take; default: 6")
    parser.add_argument("--hardware", metavar="NAME", help="print the entry NAME for config/hardware.yaml, and end")
    parser.add_argument("--page", action="store_true", help="put the lines into docs/gpu.md as a table, and end")
    arguments = parser.parse_args(arguments)
    if arguments.page:
        write_page(arguments.folder / "campaign.jsonl")
        return 0
    if arguments.hardware:
        print(hardware_entry(arguments.folder / "campaign.jsonl", arguments.hardware), end="")
        return 0
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    named = steps(folder, arguments.small)
    if unknown := set(arguments.only or []) - named.keys():
        parser.error(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(named)}")
    chosen = {name: command for name, command in named.items() if name in (arguments.only or named)}
    missed = campaign(chosen, folder, arguments.minutes)
    print(f"lines: {folder / 'campaign.jsonl'}" + (f"; not done: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
