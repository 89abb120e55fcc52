"""What a run says: lines from the events that Snakemake hands to its logger plugins."""

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake
from snakemake.exceptions import LockException
from snakemake.logging import DefaultFormatter, LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from commands import job_texts, terminal
from teleport.running.files import write_json

NAME = "train/aaaaaaaaaaaa"
MANIFEST = f"results/stages/{NAME}/manifest.json"
EVALUATE = [f"evaluate/{letter * 12}" for letter in "bc"]
SCORES = {EVALUATE[1]: ("episode 2, seed 7 · tele, twin", "RR@10", EVALUATE[0])}
AGAIN = "finished stages and saved work stay; run the same command again to continue"


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


@pytest.fixture
def start(tmp_path, monkeypatch):
    """A function: a logger whose handler is the plugin, in an empty folder; `.stream` has what it has written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal, "PLANNED", terminal.Planned(lambda stages: f"costs of {sorted(stages)}", SCORES))
    handlers = []

    def made(dry=False, stream=None):
        logger, stream = logging.Logger("snakemake"), stream or io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        settings = SimpleNamespace(stdout=False, nocolor=False, dryrun=dry)
        handler = LoggerPluginRegistry().get_plugin("teleport").log_handler(settings, None)
        handler.setFormatter(DefaultFormatter({"reason"}, False))
        logger.addHandler(handler)
        handlers.append(handler)
        logger.stream, logger.handler = stream, handler
        return logger

    monkeypatch.setattr(terminal.gc, "disable", lambda: None)
    yield made
    for handler in handlers:
        handler.defect = None
        handler.close()


@pytest.fixture
def logger(start):
    return start()


def begin(logger, jobid, message, output=MANIFEST, log="results/logs/x.log"):
    said = {"event": LogEvent.JOB_INFO, "jobid": jobid, "rule_msg": message, "output": [output], "log": [log]}
    logger.info("", extra=said | {"shellcmd": "run", "reason": ""})


def end(logger, jobid):
    logger.info("", extra={"event": LogEvent.JOB_FINISHED, "job_id": jobid})


def planned(logger, **stats):
    total = {"total": sum(stats.values())}
    logger.info("Job stats:\ntotal", extra={"event": LogEvent.RUN_INFO, "stats": stats | total})


def of_snakemake(logger, text, level=logging.INFO):
    """A line that Snakemake itself says, by the file that it comes from."""
    logger.handle(logging.LogRecord("x", level, f"{Path(snakemake.__file__).parent}/workflow.py", 1, text, (), None))


def lines(logger):
    """What was printed, as on a machine that is not busy."""
    return re.sub(r"done in 0\.\d s", "done in 0.0 s", logger.stream.getvalue()).splitlines()


def later(logger, seconds):
    """As if all jobs had begun so many seconds ago."""
    for job in logger.handler.running.values():
        job.started -= seconds


def wait_for(logger, text):
    limit = time.monotonic() + 20
    while text not in logger.stream.getvalue():
        assert time.monotonic() < limit, logger.stream.getvalue()
        time.sleep(0.02)


def report(done, total, rate, age=0):
    said = {"done": done, "total": total, "unit": "steps", "rate": rate, "time": time.time() - age}
    write_json(f"results/resume/{NAME}/progress.json", said)


def score(name, value):
    write_json(f"results/stages/{name}/manifest.json", {"facts": {"means": {"RR@10": value}}})


def test_a_job_has_a_line_at_its_begin_and_at_its_end_and_some_between(logger, monkeypatch):
    monkeypatch.setattr(terminal, "LOOK_SECONDS", 0.02)
    planned(logger, train=1, merge=2, all=1)
    begin(logger, 5, "train, episode 1 · tele", log=f"results/logs/{NAME}.log")
    time.sleep(0.2)
    assert "far" not in logger.stream.getvalue(), "it has just begun"
    later(logger, 8)
    wait_for(logger, "train, episode 1 · tele: 8 s so far; 0 of 3 jobs\n")
    report(30, 300, 2.0)
    later(logger, 120)
    wait_for(logger, "train, episode 1 · tele: 30/300 steps, 2 steps/s, 2 min left; 0 of 3 jobs\n")
    end(logger, 5)
    logger.warning("Something else")
    assert lines(logger) == [
        "3 jobs: 1 train, 2 merge",
        f"train, episode 1 · tele  results/logs/{NAME}.log",
        "train, episode 1 · tele: 8 s so far; 0 of 3 jobs",
        "train, episode 1 · tele: 30/300 steps, 2 steps/s, 2 min left; 0 of 3 jobs",
        "train, episode 1 · tele: done in 2 min, 1 of 3 jobs",
        "Something else",
    ]


def test_what_snakemake_itself_tells_of_each_step_is_left_to_its_log_once_jobs_run(logger):
    of_snakemake(logger, "Building DAG of jobs...")
    planned(logger, train=1)
    of_snakemake(logger, "Select jobs to execute...")
    of_snakemake(logger, "a warning of Snakemake", logging.WARNING)
    logger.info("what another Snakefile says")
    begin(logger, 5, "train")
    logger.handler.close()
    assert [line.split()[0] for line in lines(logger)] == ["1", "a", "what", "train"]


def test_where_no_job_runs_it_is_shown(logger):
    of_snakemake(logger, "Nothing to be done (all requested files are present and up to date).")
    logger.handler.close()
    assert lines(logger) == ["Nothing to be done (all requested files are present and up to date)."]


def begin_host(logger, message=None, log=()):
    """A job of another workflow, which runs no shell command, begins."""
    files = {"input": [], "log": list(log), "benchmark": None, "wildcards": {}, "resources": {}, "local": True}
    said = {"event": LogEvent.JOB_INFO, "jobid": 3, "rule_msg": message, "rule_name": "host", "output": ["host.txt"]}
    said |= files | {"reason": "", "priority": 0, "threads": 1, "is_checkpoint": False, "is_handover": False}
    logger.info("", extra=said | {"shellcmd": None, "printshellcmd": False, "indent": False})


@pytest.mark.parametrize(("message", "log"), [(None, []), ("of the host", []), ("of the host", ["logs/host.log"])])
def test_a_job_of_another_workflow_looks_as_snakemake_shows_it(logger, message, log):
    """One that has this one as a module, also where a job runs no shell command, or has a message and a log."""
    planned(logger, host=1, train=1)
    begin_host(logger, message, log)
    shown = "Job 3: of the host" if message else "rule host:\n    output: host.txt\n"
    assert shown in logger.stream.getvalue()
    logger.info("Finished jobid: 3 (Rule: host)", extra={"event": LogEvent.JOB_FINISHED, "job_id": 3})
    assert lines(logger)[-1] == "Finished jobid: 3 (Rule: host)"
    begin(logger, 5, "train")
    end(logger, 5)
    assert lines(logger)[-1] == "train: done in 0.0 s, 2 of 2 jobs"


def test_so_does_its_failure_with_its_cause(logger):
    begin(logger, 5, "train")
    begin_host(logger)
    logger.error("ValueError in file x", extra={"event": LogEvent.ERROR, "exception": "RuleException"})
    said = {"event": LogEvent.JOB_ERROR, "jobid": 3, "rule_name": "host", "rule_msg": None, "output": ["host.txt"]}
    said |= {"input": [], "log": [], "conda_env": None, "shellcmd": None, "aux": {}, "indent": False}
    logger.error("Error in rule host, jobid: 3", extra=said)
    logger.handler.close()
    said = lines(logger)
    assert "ValueError in file x" in said and "Error in rule host:" in said and "    output: host.txt" in said
    assert said[-1] == f"1 failed: {AGAIN}" and not [line for line in said if line.startswith("failed")]


def test_a_target_of_ours_is_not_shown(logger):
    said = {"event": LogEvent.JOB_INFO, "rule_msg": "all results", "output": [], "shellcmd": None}
    logger.info("", extra=said)
    assert not logger.stream.getvalue(), "it runs nothing"


def test_the_first_report_of_a_job_comes_within_ten_seconds():
    assert terminal.FIRST_SECONDS + terminal.LOOK_SECONDS < 10


def test_what_an_earlier_attempt_reported_is_not_said(logger, monkeypatch):
    monkeypatch.setattr(terminal, "LOOK_SECONDS", 0.02)
    report(30, 300, 2.0, age=100)
    begin(logger, 5, "train")
    later(logger, 8)
    wait_for(logger, "train: 8 s so far; 0 jobs\n")
    assert "30/300" not in logger.stream.getvalue()


def test_a_cluster_s_queue_is_not_said_to_run(logger, monkeypatch):
    monkeypatch.setattr(terminal, "LOOK_SECONDS", 0.02)
    logger.info("", extra={"event": LogEvent.RESOURCES_INFO, "nodes": 8})
    begin(logger, 5, "train")
    later(logger, 100)
    time.sleep(0.3)
    assert logger.stream.getvalue() == "train  results/logs/x.log\n"
    later(logger, 200)
    time.sleep(0.1)  # nothing is due because nothing was said
    report(3, 300, 0.0)
    wait_for(logger, "train: 3/300 steps; 0 jobs\n")


def test_what_a_job_waits_for_is_said_once(logger, monkeypatch):
    monkeypatch.setattr(terminal, "LOOK_SECONDS", 0.02)
    write_log(Path("results/logs/x.log"), "12:00:00 waiting: for process 7\n")
    begin(logger, 5, "train")
    later(logger, 8)
    wait_for(logger, "train waits: for process 7\n")
    time.sleep(0.1)
    assert logger.stream.getvalue().count("waits: ") == 1


def test_a_shard_reports_beside_its_manifest():
    shard = "results/shards/encode/aaaaaaaaaaaa/2-of-4"
    assert str(job_texts.report_folder(f"{shard}/manifest.json")) == shard
    assert str(job_texts.report_folder(MANIFEST)) == f"results/resume/{NAME}"


def test_the_warnings_of_a_stage_come_at_its_end(start):
    logger = start(stream=Screen())
    begin(logger, 5, "train")
    write_json(MANIFEST, {"provenance": {"warnings": ["the schedule ends after 6", "more than a tenth"]}})
    end(logger, 5)
    assert lines(logger)[2:] == [
        "\033[33mwarning: the schedule ends after 6 (train)\033[0m",
        "\033[33mwarning: more than a tenth (train)\033[0m",
    ]
    begin(logger, 6, "table main", "results/tables/main.csv")
    end(logger, 6)
    assert lines(logger)[-1] == "table main: done in 0.0 s, 2 jobs"


def test_a_warning_about_the_collection_comes_once_and_one_about_a_stage_every_time(logger):
    for number, name in enumerate(("check/aaa", "check/bbb", "merge/ccc", "merge/ddd")):
        manifest = f"results/stages/{name}/manifest.json"
        begin(logger, number, name, manifest)
        write_json(Path(manifest), {"provenance": {"warnings": [f"2 queries of a {name[:5]}"]}})
        end(logger, number)
    warnings = [line for line in lines(logger) if line.startswith("warning: ")]
    assert [line.partition("(")[2] for line in warnings] == ["check/aaa)", "merge/ccc)", "merge/ddd)"]


@pytest.mark.parametrize(("before", "change"), [(0.5, " (+0.029)"), (0.5291, " (+0.000)"), (None, "")])
def test_the_end_of_an_episode(logger, before, change):
    score(EVALUATE[1], 0.529)
    if before is not None:
        score(EVALUATE[0], before)
    begin(logger, 5, "evaluate-test", f"results/stages/{EVALUATE[1]}/manifest.json")
    end(logger, 5)
    assert logger.stream.getvalue().endswith(f"\nepisode 2, seed 7: RR@10 0.529{change} · tele, twin\n")


def test_a_torn_manifest_says_nothing(logger):
    path = f"results/stages/{EVALUATE[1]}/manifest.json"
    write_json(path, {})
    Path(path).write_text(json.dumps({"facts": {}}))
    begin(logger, 5, "evaluate-test", path)
    end(logger, 5)
    assert lines(logger) == ["evaluate-test  results/logs/x.log", "evaluate-test: done in 0.0 s, 1 jobs"]


@pytest.mark.parametrize(
    "outputs", [[], ["results/tables/main.csv"], ["results/stages/merge/0123456789ab/manifest.json"]]
)
def test_a_job_that_is_no_evaluation_has_no_score(outputs):
    """A rule without outputs, such as `published_checkpoints`, has no manifest that could be read."""
    assert job_texts.score_line(SCORES, outputs) is None


def fail(logger, jobid, log):
    said = {"event": LogEvent.JOB_ERROR, "jobid": jobid, "rule_name": "train", "rule_msg": "train", "log": [str(log)]}
    logger.error(
        "Error", extra=said | {"shellcmd": "run_stage.py --spec", "aux": {"external_jobid": "17"}, "indent": False}
    )


def write_log(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


KILLED = "12:00:00 step 3\nerror: the process was killed by signal 9. Run fewer jobs at once.\n"
REFUSED = "12:00:00 attempt 1\nerror: data/x.tsv, line 3: no text. Add one.\n"
BUG = "Traceback (most recent call last):\n  File x\nValueError: invalid literal\nerror: ValueError: invalid literal\n"
CAUSES = {
    REFUSED: ("data/x.tsv, line 3: no text. Add one.", "more in"),
    KILLED: ("the process was killed by signal 9. Run fewer jobs at once.", "more in"),
    BUG: ("ValueError: invalid literal", "the traceback of this defect is in"),
    "": ("its log is empty", "more in"),
}


@pytest.mark.parametrize("text", CAUSES)
def test_a_failed_job_says_why_once_and_neither_command_nor_guess(logger, tmp_path, text):
    log = write_log(tmp_path / "results/logs/x.log", text)
    begin(logger, 5, "train, episode 1 · tele")
    said = {"event": LogEvent.ERROR, "exception": "RuleException"}
    logger.error("CalledProcessError in file x:\nCommand 'run_stage.py --spec' returned 1", extra=said)
    fail(logger, 5, log)
    logger.handler.close()
    why, rest = CAUSES[text]
    assert lines(logger)[1:] == [
        f"failed: train, episode 1 · tele: {why}",
        f"  {rest} {log}",
        "  external_jobid: 17",
        f"1 failed: {AGAIN}",
    ]


def test_a_run_whose_retries_succeed_ends_as_one_that_succeeded(logger, tmp_path):
    begin(logger, 5, "train")
    fail(logger, 5, write_log(tmp_path / "x.log", REFUSED))
    begin(logger, 5, "train")
    end(logger, 5)
    logger.handler.close()
    assert sum(line.startswith("failed: train") for line in lines(logger)) == 1
    assert AGAIN not in lines(logger)[-1]


def test_what_a_failed_group_has_finished_is_not_called_failed(logger, tmp_path):
    begin(logger, 5, "encode")
    write_json(tmp_path / MANIFEST, {})
    fail(logger, 5, write_log(tmp_path / "x.log", "encode done in 54.0 s\n"))
    assert not [line for line in lines(logger) if line.startswith("failed")]


def test_an_error_of_snakemake_s_own_is_not_left_out_after_a_failure(logger, tmp_path):
    begin(logger, 5, "train")
    fail(logger, 5, write_log(tmp_path / "x.log", REFUSED))
    logger.error("OSError: [Errno 28] full", extra={"event": LogEvent.ERROR, "exception": "OSError"})
    assert lines(logger)[-2] == "OSError: [Errno 28] full" and lines(logger)[-1].startswith("error: ")


def test_an_error_of_the_system_has_no_traceback_and_a_defect_has_one(logger):
    text = "InputFunctionException in rule train:\nError:\n  {}\nTraceback:\n  File 'rules/common.smk', line 1"
    for error, shown in (("PermissionError: [Errno 13] Permission denied: 'results/x'", False), ("KeyError: 0", True)):
        logger.error(text.format(error), extra={"event": LogEvent.ERROR, "exception": "InputFunctionException"})
        found = lines(logger)
        assert f"  {error}" in found and ("Traceback:" in found) == shown
        assert found[-1].startswith("error: access is refused") != shown


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN])
def handled(logger, request):
    """The logger, whose process takes signals as a run does, also one in the background of a script, whose shell has
    SIGINT ignored. Snakemake's own handlers are noted."""
    own = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    logger.finished = []
    signal.signal(signal.SIGTERM, lambda *given: logger.finished.append(given[0]))
    signal.signal(signal.SIGINT, request.param)
    terminal.end_as_asked()
    yield logger
    for number, handler in own.items():
        signal.signal(number, handler)


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(handled, tmp_path):
    begin(handled, 5, "train, episode 1 · tele")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    fail(handled, 5, write_log(tmp_path / "x.log", "SIGTERM: state saved\n"))
    handled.handler.close()
    assert lines(handled)[1:] == ["interrupted: stages save their work and end", f"interrupted: {AGAIN}"]


def test_sigterm_is_told_of_and_handed_to_snakemake_in_a_thread(handled):
    planned(handled, train=1, merge=1, all=1)
    begin(handled, 5, "train")
    signal.raise_signal(signal.SIGTERM)
    limit = time.monotonic() + 20
    while not handled.finished and time.monotonic() < limit:
        time.sleep(0.01)
    assert handled.finished == [signal.SIGTERM]
    end(handled, 5)
    handled.handler.close()
    assert lines(handled)[2:] == [
        f"asked to end: running jobs finish first; Ctrl-C, or kill -INT {os.getpid()}, ends them at once",
        "train: done in 0.0 s, 1 of 2 jobs",
        f"interrupted after 1 of 2 jobs: {AGAIN}",
    ]


@pytest.mark.parametrize("level", [logging.ERROR, logging.INFO])
def test_a_lock_that_a_kill_left_is_told_from_one_in_use(logger, tmp_path, level):
    """Snakemake's own text says neither; a dry run only notes the lock."""
    said = f"LockException:\n{LockException()}"
    of_snakemake(logger, said, level)
    (tmp_path / "snakemake").write_text("import time; print(1, flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "snakemake"], cwd=tmp_path, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        of_snakemake(logger, said, level)
        other.kill()
    left, used = lines(logger)
    assert "left by a run that was killed: run `.venv/bin/snakemake --unlock`, then the same command." in left
    assert used == f"error: Snakemake's process {other.pid} works in {tmp_path}: wait for its end."


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        ("config/own.yaml", "write --configfile config/own.yaml."),
        ("own", "write --configfile config/own.yaml."),
        ("config/other.yaml", "no rule makes config/other.yaml. Name a table"),
    ],
)
def test_a_target_that_is_a_configuration_is_led_to_its_option(logger, tmp_path, target, remedy):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/own.yaml").touch()
    of_snakemake(logger, "Building DAG of jobs...")
    error = f"MissingRuleException:\nNo rule to produce {target} (if you use input functions make sure …)."
    of_snakemake(logger, error, logging.ERROR)
    logger.handler.close()
    (line,) = lines(logger)
    assert line.startswith("error: ") and remedy in line


def test_a_dry_run_lists_jobs_without_hashes_and_ends_with_what_it_would_cost(start, monkeypatch):
    monkeypatch.setattr(terminal, "MOST_JOBS", 2)
    logger = start(dry=True)
    planned(logger, train=3)
    for jobid in (5, 6, 7):
        begin(logger, jobid, f"train {jobid}", f"results/stages/train/{jobid}/manifest.json")
    planned(logger, train=3)
    of_snakemake(logger, "Reasons:\n    (check individual jobs above for details)")
    logger.handler.close()
    assert lines(logger)[:4] == ["Job stats:", "total", "Job 5: train 5", "Job 6: train 6"]
    assert lines(logger)[4].startswith("and 1 more job: ")
    assert lines(logger)[5:] == ["This was a dry run: nothing has run.", "costs of ['train/5', 'train/6', 'train/7']"]


def test_a_defect_of_the_terminal_costs_no_result_and_does_not_vanish(logger, monkeypatch):
    """Snakemake's own lines follow, the run goes on, and ends with status 1."""
    monkeypatch.setattr(terminal, "report_folder", lambda output: int("bug"))
    begin(logger, 5, "train")
    logger.info("Something else")
    end(logger, 5)
    with pytest.raises(SystemExit, match="1"):
        logger.handler.close()
    said = logger.stream.getvalue()
    assert said.count("Traceback (most recent call last):") == 1 and "Something else" in said
    assert "ValueError: invalid literal for int() with base 10: 'bug'" in said
    logger.handler.close()  # again, by Python's own end


def test_nor_does_one_in_the_thread_that_looks(logger, monkeypatch):
    monkeypatch.setattr(terminal, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(terminal.LogHandler, "look", lambda self: int("bug"))
    begin(logger, 5, "train")
    wait_for(logger, "ValueError: invalid literal for int() with base 10: 'bug'")
    with pytest.raises(SystemExit, match="1"):
        logger.handler.close()
