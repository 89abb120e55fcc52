"""The status table, from resume folders as running, killed and torn stages leave them."""

import json
import os
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from commands import edited
from commands.status import duration, render, unfinished
from paths import REPOSITORY
from teleport.report.words import by_kind
from teleport.running.artefact import is_finished
from teleport.running.job import Job
from teleport.running.run import begin_attempt

STAGE = """
import sys
from pathlib import Path
from teleport.running.job import Job
from teleport.running.run import begin_attempt
spec = {"kind": "train", "key": sys.argv[1], "code": "c", "settings": {}, "inputs": {}}
job = Job(spec, root=Path(sys.argv[2]))
begin_attempt(job)
job.progress(10, 40, "steps")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(tmp_path):
    """A process that runs the machinery of a stage called train/aaaaaaaaaaaa below `tmp_path`, and then waits."""
    command = [sys.executable, "-c", STAGE, "a" * 12, str(tmp_path)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "ready\n"
    yield started
    started.kill()
    started.communicate()


def only(root, **moments):
    (stage,) = unfinished(lambda name: f"label of {name}", root, **moments)
    return stage


def test_a_running_stage_and_its_end(process, tmp_path):
    stage = only(tmp_path)
    assert (stage.name, stage.label) == ("train/aaaaaaaaaaaa", "label of train/aaaaaaaaaaaa")
    assert (stage.host, stage.process, stage.attempt) == (os.uname().nodename, process.pid, 1)
    assert (stage.done, stage.total, stage.unit, stage.state) == (10, 40, "steps", "runs")
    assert 0 <= stage.age < 30
    process.communicate("")
    assert only(tmp_path).state == "stopped"


def test_a_stage_of_another_user_runs_though_proc_hides_it(stages, tmp_path, monkeypatch):
    """As on a cluster whose /proc is mounted with hidepid=2."""
    history = stages.make("train").resume / "history.log"
    history.write_text(f"2001-09-09T01:46:40Z host {os.uname().nodename} process {2**30}\n")  # at 1e9
    assert only(tmp_path).state == "stopped", "there is no such process"
    monkeypatch.setattr(os, "kill", MagicMock(side_effect=PermissionError))
    assert [only(tmp_path, now=1e9 + age).state for age in (599, 601)] == ["runs", "silent"]


def attempt_elsewhere(job, moment):
    """Another attempt of a job, on another host, begun at `moment` (seconds since 1970)."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    with open(job.resume / "history.log", "a") as file:
        file.write(f"{begun} host node-7 process 77\n")


def report(job, moment, rate=2.0):
    progress = {"done": 30, "total": 90, "unit": "texts", "rate": rate, "time": moment}
    (job.resume / "progress.json").write_text(json.dumps(progress))


def test_shards_that_run_elsewhere_and_that_wait_for_the_others(stages, tmp_path):
    spec = {"kind": "encode", "key": "k" * 12, "code": "c", "settings": {}, "inputs": {}}
    for shard in ("1-of-2", "2-of-2"):
        job = Job(spec | {"shard": shard}, root=tmp_path)
        job.open_resume()
        attempt_elsewhere(job, 1e9)
        report(job, 1e9 + 100)
    (job.resume / "manifest.json").write_text("{}")
    first, second = unfinished(lambda name: f"label of {name}", tmp_path, now=1e9 + 130)
    assert {first.name, second.name} == {f"encode/{'k' * 12}"} and first.label == f"label of {first.name}, shard 1-of-2"
    assert (first.state, second.state) == ("runs", "finished") and first.host == "node-7"
    assert "30/90 texts" in render([first, second], {"encode": (0, 1)})


def test_a_stage_elsewhere_is_silent_after_ten_minutes(stages, tmp_path):
    job = stages.make("encode")
    attempt_elsewhere(job, 1e9)
    report(job, 1e9 + 100)
    assert [only(tmp_path, now=1e9 + 100 + age).state for age in (599, 601)] == ["runs", "silent"]
    assert only(tmp_path, now=1e9 + 130).age == 30


def test_the_last_attempt_counts_and_an_earlier_one_s_rate_does_not(stages, tmp_path):
    job = stages.make("encode")
    begin_attempt(job)
    report(job, 1e9 + 100)
    attempt_elsewhere(job, 1e9 + 200)
    stage = only(tmp_path, now=1e9 + 210)
    assert (stage.host, stage.process, stage.attempt) == ("node-7", 77, 2)
    assert (stage.done, stage.rate, stage.age) == (30, 0.0, 10)


def test_the_time_zone_of_the_other_machine_does_not_matter(stages, tmp_path, monkeypatch):
    job = stages.make("encode")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    begin_attempt(job)
    monkeypatch.undo()
    time.tzset()
    report(job, moment := time.time() + 5)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="login"))
    stage = only(tmp_path, now=moment + 700)
    assert (stage.rate, stage.age, stage.state) == (2.0, 700, "silent")


@pytest.mark.parametrize("text", ["", '{"done": 3', "[1]", '{"done": null}', "\0\0"])
def test_a_torn_or_missing_report_is_no_report(stages, tmp_path, text):
    job = stages.make("encode")
    attempt_elsewhere(job, 1e9)
    (job.resume / "progress.json").write_text(text)
    stage = only(tmp_path, now=1e9 + 5)
    assert (stage.done, stage.total, stage.rate, stage.age, stage.state) == (0, 0, 0.0, 5, "runs")
    (job.resume / "progress.json").unlink()
    assert only(tmp_path, now=1e9 + 5) == stage


def test_a_torn_or_missing_history_is_unknown(stages, tmp_path):
    job = stages.make("encode")
    (job.resume / "history.log").write_text("2026-01-01T00:00:00 host nod")
    stage = only(tmp_path)
    assert (stage.host, stage.process, stage.attempt, stage.state) == ("?", 0, 0, "unknown")
    assert "unknown" in render([stage], {"encode": (0, 1)})


def test_an_impossible_date_counts_as_none(stages, tmp_path):
    job = stages.make("encode")
    (job.resume / "history.log").write_text("2026-13-41T25:00:00 host node-7 process 77\n")
    stage = only(tmp_path)
    assert (stage.host, stage.process, stage.attempt, stage.state) == ("node-7", 77, 1, "unknown")


def test_finished_stages_are_counted_by_their_manifests(stages, tmp_path):
    done, other = stages.finish(stages.make("train")), stages.make("train")
    names = [f"train/{job.key}" for job in (done, other)] + ["merge/cccccccccccc"]
    assert by_kind(names, partial(is_finished, root=tmp_path)) == {"train": (1, 2), "merge": (0, 1)}


def test_the_table_is_aligned_and_says_what_is_left(stages, tmp_path):
    job = stages.make("encode")
    attempt_elsewhere(job, 1e9)
    report(job, 1e9 + 100, rate=0.5)
    lines = render(unfinished(str, tmp_path, now=1e9 + 140), {"encode": (1, 2), "train": (0, 3)}).splitlines()
    assert lines[1].split("  ")[0] == f"encode/{job.key}"
    assert lines[1][lines[0].index("state") :].split("  ")[0] == "runs"
    assert lines[1][lines[0].index("left") :].startswith("2 min  ")
    assert lines[1].endswith("40 s ago")
    assert lines[2] == "1 of 5 stages finished: encode 1/2, train 0/3"
    assert render([], {"encode": (0, 1)}).startswith("nothing runs\n0 of 1 ")


def test_durations():
    assert [duration(s) for s in (40, 720, 11_100)] == ["40 s", "12 min", "3 h 05 min"]


def test_stages_of_older_code_are_planned_where_snakemake_knows_their_code(monkeypatch):
    """In a copy of the results without its metadata it plans none of them."""
    monkeypatch.setattr(edited, "edited_stages", lambda plan: {"train/a"})
    (said,) = edited.edited_sentence(None)
    assert "made 1 finished stage, or what they read: the next run plans those that .snakemake/metadata records" in said


def test_the_command_answers_fast_for_the_embedded_default_and_loads_no_torch(tmp_path):
    script = REPOSITORY / "workflow_scripts/manage.py"
    config = REPOSITORY / "config/config.yaml"
    code = f"""
import runpy, sys
sys.argv = ["manage.py", "status", {str(config)!r}]
try:
    runpy.run_path({str(script)!r}, run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print({{"torch", "pandas", "numpy"}} & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert lines[0] == "nothing runs" and lines[1].startswith("0 of ") and lines[-1] == "set()"
