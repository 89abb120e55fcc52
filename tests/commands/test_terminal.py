"""What a run says: lines to a file, a bar on a terminal, as Snakemake's logger hands over its events."""

import io
import json
import logging
import time

import pytest
from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter, LogEvent

from commands import dry_run, job_texts, terminal
from commands.forecast.left import Left, job_of
from commands.forecast.schedule import Job
from commands.snakemake_internals import replace_terminal_handler
from teleport.running.files import write_json

NAME = "train/aaaaaaaaaaaa"
EVALUATE = [f"evaluate/{letter * 12}" for letter in "bc"]
SCORES = {EVALUATE[1]: ("episode 2, seed 7 · tele, twin", "RR@10", EVALUATE[0])}


class Screen(io.StringIO):
    """A terminal of 60 columns."""

    def isatty(self):
        return True


@pytest.fixture
def logger(tmp_path, monkeypatch):
    """A logger as Snakemake sets it up, in an empty folder, and seconds that pass fast; `.stream` has what was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    made = logging.Logger("snakemake")

    def start(stream):
        handler = ColorizingTextHandler(stream=stream, formatter=DefaultFormatter({"reason"}, False))
        handler.name = "DefaultStreamHandler"
        handler.addFilter(DefaultFilter(set(), False, False, False, False))
        made.addHandler(handler)
        made.stream, made.left = stream, None
        replace_terminal_handler(made, lambda usual: terminal.Terminal(usual, SCORES, lambda: made.left))
        return made

    yield start
    for handler in made.handlers:
        handler.close()


def begin(logger, jobid, message, output, log="results/logs/x.log"):
    said = {"event": LogEvent.JOB_INFO, "jobid": jobid, "rule_msg": message, "output": [output], "log": [log]}
    logger.info("", extra=said | {"shellcmd": "run"})


def end(logger, jobid):
    logger.info("", extra={"event": LogEvent.JOB_FINISHED, "job_id": jobid})


def later(logger, seconds):
    """As if all jobs had begun so many seconds ago."""
    for job in logger.handlers[0].running.values():
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


def test_lines_to_a_file(logger, monkeypatch):
    monkeypatch.setattr(terminal, "REDRAWN_SECONDS", 0.02)
    logger = logger(io.StringIO())
    logger.info("Select jobs to execute...")
    logger.info("stats", extra={"event": LogEvent.RUN_INFO, "stats": {"train": 1, "merge": 2, "all": 1, "total": 4}})
    begin(logger, 5, "train, episode 1 · tele", f"results/stages/{NAME}/manifest.json", f"results/logs/{NAME}.log")
    time.sleep(0.2)
    assert "far" not in logger.stream.getvalue(), "it has just begun"
    later(logger, 8)
    wait_for(logger, "train, episode 1 · tele: 8 s so far; 0 of 3 jobs\n")
    report(30, 300, 2.0)
    later(logger, 120)
    wait_for(logger, "train, episode 1 · tele: 30/300 steps, 2 steps/s, 2 min left; 0 of 3 jobs\n")
    end(logger, 5)
    logger.warning("Something else")
    assert logger.stream.getvalue() == (
        "3 jobs: 1 train, 2 merge\n"
        f"train, episode 1 · tele  results/logs/{NAME}.log\n"
        "train, episode 1 · tele: 8 s so far; 0 of 3 jobs\n"
        "train, episode 1 · tele: 30/300 steps, 2 steps/s, 2 min left; 0 of 3 jobs\n"
        "train, episode 1 · tele: done in 2 min, 1 of 3 jobs\n"
        "Something else\n"
    )


def test_the_first_report_of_a_job_comes_within_ten_seconds():
    assert terminal.FIRST_SECONDS + terminal.REDRAWN_SECONDS < 10


def test_what_an_earlier_attempt_reported_is_not_said(logger, monkeypatch):
    monkeypatch.setattr(terminal, "REDRAWN_SECONDS", 0.02)
    logger = logger(io.StringIO())
    report(30, 300, 2.0, age=100)
    begin(logger, 5, "train", f"results/stages/{NAME}/manifest.json")
    later(logger, 8)
    wait_for(logger, "train: 8 s so far; 0 jobs\n")
    assert "30/300" not in logger.stream.getvalue()


def test_a_bar_on_a_terminal_gives_way_to_lines(logger, monkeypatch):
    monkeypatch.setattr(terminal, "REDRAWN_SECONDS", 0.02)
    logger = logger(Screen())
    begin(logger, 5, "train, episode 1 · tele", f"results/stages/{NAME}/manifest.json")
    report(150, 300, 2.0)
    later(logger, 8)
    bar = "\r\033[K[##########..........] train, episode 1 · tele: 150/300 ste"
    wait_for(logger, bar)
    assert len(bar) - len("\r\033[K") == 59, "it never wraps"
    assert logger.stream.getvalue().endswith(bar), "it is drawn again when it has changed"
    begin(logger, 6, "merge", "results/stages/merge/dddddddddddd/manifest.json")
    assert "\r\033[Kmerge  results/logs/x.log\n" in logger.stream.getvalue()


def test_a_cluster_s_queue_is_not_said_to_run(logger, monkeypatch):
    monkeypatch.setattr(terminal, "REDRAWN_SECONDS", 0.02)
    logger = logger(io.StringIO())
    logger.info("", extra={"event": LogEvent.RESOURCES_INFO, "nodes": 8})
    begin(logger, 5, "train", f"results/stages/{NAME}/manifest.json")
    later(logger, 100)
    time.sleep(0.3)
    assert logger.stream.getvalue() == "train  results/logs/x.log\n"
    later(logger, 200)
    time.sleep(0.1)  # nothing is due because nothing was said
    report(3, 300, 0.0)
    wait_for(logger, "train: 3/300 steps; 0 jobs\n")


def test_a_shard_reports_beside_its_manifest():
    shard = "results/shards/encode/aaaaaaaaaaaa/2-of-4"
    assert str(job_texts.report_folder(f"{shard}/manifest.json")) == shard
    assert str(job_texts.report_folder(f"results/stages/{NAME}/manifest.json")) == f"results/resume/{NAME}"


@pytest.mark.parametrize(("before", "change"), [(0.5, " (+0.029)"), (None, "")])
def test_the_end_of_an_episode(logger, before, change):
    logger = logger(io.StringIO())
    score(EVALUATE[1], 0.529)
    if before is not None:
        score(EVALUATE[0], before)
    begin(logger, 5, "evaluate-test", f"results/stages/{EVALUATE[1]}/manifest.json")
    end(logger, 5)
    assert logger.stream.getvalue().endswith(f"\nepisode 2, seed 7: RR@10 0.529{change} · tele, twin\n")


def test_a_torn_manifest_says_nothing(logger):
    logger = logger(io.StringIO())
    score(EVALUATE[1], 0.529)
    path = f"results/stages/{EVALUATE[1]}/manifest.json"
    with open(path, "w") as file:
        file.write(json.dumps({"facts": {}}))
    begin(logger, 5, "evaluate-test", path)
    end(logger, 5)
    assert logger.stream.getvalue() == ("evaluate-test  results/logs/x.log\nevaluate-test: done in 0.0 s\n")


@pytest.mark.parametrize("output", ["", "results/tables/main.csv", "results/stages/merge/0123456789ab/manifest.json"])
def test_a_job_that_is_no_evaluation_has_no_score(output):
    """A rule without outputs, such as `published_checkpoints`, has no manifest that could be read."""
    assert job_texts.score_line(SCORES, output) is None


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
    "": ("it said nothing", "more in"),
}


@pytest.mark.parametrize("text", CAUSES)
def test_a_failed_job_says_why_once_and_neither_command_nor_guess(logger, tmp_path, text):
    logger, log = logger(io.StringIO()), write_log(tmp_path / "results/logs/x.log", text)
    begin(logger, 5, "train, episode 1 · tele", f"results/stages/{NAME}/manifest.json")
    fail(logger, 5, log)
    logger.error("RuleException:\nCalledProcessError in file x:\nCommand 'run_stage.py --spec' returned 1")
    logger.error("At least one job did not complete successfully.")
    logger.handlers[0].close()
    why, rest = CAUSES[text]
    assert logger.stream.getvalue().splitlines()[1:] == [
        f"failed: train, episode 1 · tele: {why}",
        f"  {rest} {log}",
        "  external_jobid: 17",
        "1 failed: what is finished stays, what was saved goes on, by the same command again",
    ]


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(logger, tmp_path):
    logger = logger(io.StringIO())
    begin(logger, 5, "train, episode 1 · tele", f"results/stages/{NAME}/manifest.json")
    logger.info("Terminating processes on user request, this might take some time.")
    fail(logger, 5, write_log(tmp_path / "x.log", "SIGTERM: state saved\n"))
    logger.handlers[0].close()
    assert logger.stream.getvalue().splitlines()[1:] == [
        "interrupted: stages save their work and end",
        "interrupted: what is finished stays, what was saved goes on, by the same command again",
    ]


def test_sigterm_is_told_of_as_well_but_not_what_snakemake_says_after_a_failure(logger):
    asked = logger(io.StringIO())
    asked.info("stats", extra={"event": LogEvent.RUN_INFO, "stats": {"train": 1, "merge": 1, "all": 1, "total": 3}})
    begin(asked, 5, "train", f"results/stages/{NAME}/manifest.json")
    asked.info("Will exit after finishing currently running jobs (scheduler).")
    end(asked, 5)
    asked.handlers[0].close()
    assert asked.stream.getvalue().splitlines()[2:] == [
        "asked to end: the jobs that run are finished first",
        "train: done in 0.0 s",
        "interrupted after 1 of 2 jobs: what is finished stays, what was saved goes on, by the same command again",
    ]


def test_after_a_failure_nobody_is_said_to_have_asked(logger, tmp_path):
    told = logger(io.StringIO())
    begin(told, 5, "train", f"results/stages/{NAME}/manifest.json")
    fail(told, 5, write_log(tmp_path / "x.log", REFUSED))
    told.info("Will exit after finishing currently running jobs (scheduler).")
    told.handlers[0].close()
    assert "asked" not in told.stream.getvalue() and "1 failed: " in told.stream.getvalue()


def test_a_job_says_how_long_it_took_and_how_many_are_done(logger):
    logger = logger(io.StringIO())
    logger.info("stats", extra={"event": LogEvent.RUN_INFO, "stats": {"train": 3, "total": 3}})
    for jobid, seconds in ((5, 0), (6, 100)):
        begin(logger, jobid, f"train {jobid}", f"results/stages/{NAME}/manifest.json")
        later(logger, seconds)
        end(logger, jobid)
    assert logger.stream.getvalue().splitlines()[2::2] == [
        "train 5: done in 0.0 s",
        "train 6: done in 2 min, 2 of 3 jobs",
    ]


LEFT = Left({NAME: Job(60.0), "merge/dddddddddddd": Job(600.0, (NAME,))}, {})


def test_the_time_left_is_that_of_all_jobs_and_follows_how_long_those_took_that_ended(logger):
    logger = logger(io.StringIO())
    logger.left = LEFT
    logger.info("stats", extra={"event": LogEvent.RUN_INFO, "stats": {"train": 1, "merge": 1, "total": 2}})
    begin(logger, 5, "train", f"results/stages/{NAME}/manifest.json")
    later(logger, 126)  # and not 60
    end(logger, 5)
    assert logger.stream.getvalue().endswith("train: done in 2 min, 1 of 2 jobs, about 15 min left\n")
    begin(logger, 6, "merge", "results/stages/merge/dddddddddddd/manifest.json")
    later(logger, 900)
    end(logger, 6)
    assert logger.stream.getvalue().endswith("merge: done in 15 min, 2 of 2 jobs\n")


def test_the_time_left_of_what_runs():
    """A job's own rate counts more than the forecast; what runs now begins nothing later."""
    assert LEFT.seconds({}, {}) == 660
    assert LEFT.seconds({}, {NAME: (20.0, None)}) == 640
    assert LEFT.seconds({}, {NAME: (20.0, 5.0)}) == 605
    assert LEFT.seconds({NAME: 60.0}, {"merge/dddddddddddd": (700.0, None)}) == 0
    assert LEFT.seconds({NAME: 60.0, "merge/dddddddddddd": 600.0}, {}) == 0
    both = Left({"a": Job(10.0, (), {"cores": 1}), "b": Job(10.0, (), {"cores": 2})}, {"cores": 2})
    assert both.seconds({}, {"b": (4.0, None)}) == 16


@pytest.mark.parametrize(
    ("output", "name"),
    [(f"results/stages/{NAME}/manifest.json", NAME), ("results/tables/main.csv", "results/tables"), ("", "/")]
    + [("results/shards/encode/aaaaaaaaaaaa/2-of-4/manifest.json", "encode/aaaaaaaaaaaa/2")],
)
def test_what_a_forecast_calls_a_job(output, name):
    assert job_of(output) == name


def test_a_dry_run_lists_jobs_without_hashes_and_ends_with_what_it_would_cost(logger, monkeypatch):
    monkeypatch.setattr(dry_run, "MOST_JOBS", 2)
    monkeypatch.setattr(terminal, "Terminal", lambda usual, *_: dry_run.DryRun(usual, lambda s: f"{sorted(s)}"))
    logger = logger(io.StringIO())
    stats = {"event": LogEvent.RUN_INFO, "stats": {"train": 3, "total": 3}}
    logger.info("stats", extra=stats)
    for jobid in (5, 6, 7):
        begin(logger, jobid, f"train {jobid}", f"results/stages/train/{jobid}/manifest.json")
    logger.info("stats", extra=stats)
    logger.info("Reasons:\n    (check individual jobs above for details)")
    logger.info("This was a dry-run (flag -n). The order of jobs does not reflect the order of execution.")
    lines = logger.stream.getvalue().splitlines()
    assert lines[-5:-3] == ["Job 5: train 5", "Job 6: train 6"] and lines[-3].startswith("and 1 more jobs: ")
    assert lines[-2].startswith("This was a dry-run")
    assert lines[-1] == "['train/5', 'train/6', 'train/7']" and "Reasons" not in logger.stream.getvalue()


def test_a_defect_of_the_terminal_costs_no_result_and_does_not_vanish(logger, monkeypatch):
    """Snakemake's own lines follow, the run goes on, and ends with status 1."""
    logger = logger(io.StringIO())
    monkeypatch.setattr(terminal, "report_folder", lambda output: int("bug"))
    begin(logger, 5, "train", f"results/stages/{NAME}/manifest.json")
    logger.info("Something else")
    end(logger, 5)
    with pytest.raises(SystemExit, match="1"):
        logger.handlers[0].close()
    said = logger.stream.getvalue()
    assert said.count("Traceback (most recent call last):") == 1 and "Something else" in said
    assert "ValueError: invalid literal for int() with base 10: 'bug'" in said
    logger.handlers[0].close()  # again, by Python's own end


def test_nor_does_one_in_the_thread_that_draws(logger, monkeypatch):
    monkeypatch.setattr(terminal, "REDRAWN_SECONDS", 0.02)
    monkeypatch.setattr(terminal.Terminal, "look", lambda self: int("bug"))
    logger = logger(io.StringIO())
    begin(logger, 5, "train", f"results/stages/{NAME}/manifest.json")
    wait_for(logger, "ValueError: invalid literal for int() with base 10: 'bug'")
    with pytest.raises(SystemExit, match="1"):
        logger.handlers[0].close()
