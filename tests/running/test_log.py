"""How often a stage says how far it is: in its log for a person, and in the file that the terminal reads."""

import json
import logging
import shutil
import time

from commands.job_texts import how_far
from teleport.running import log as log_module
from teleport.running.log import Progress
from teleport.running.provenance import provenance
from teleport.running.run import begin_attempt, has_work


def test_the_log_has_a_line_in_ten_seconds_and_the_file_is_two_seconds_old_at_most(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "teleport")
    progress, path, reported = Progress(tmp_path / "progress.json"), tmp_path / "progress.json", []
    for second in range(26):  # ten texts a second
        monkeypatch.setattr(time, "monotonic", lambda second=second: float(second))
        progress(10 * second, 250, "texts")
        reported.append(json.loads(path.read_text())["done"])
    assert all(0 <= 10 * second - done <= 10 for second, done in enumerate(reported))
    assert reported[:6] == [0, 0, 20, 20, 40, 40] and reported[-1] == 250
    assert [message.split(",")[0] for message in caplog.messages] == [
        "0/250 texts", "100/250 texts", "200/250 texts", "250/250 texts"
    ]  # fmt: skip
    assert caplog.messages[1] == "100/250 texts, 10.0 texts/s, 15 s left"


def test_what_has_no_known_total_has_a_rate_in_the_log_alone(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "teleport")
    progress = Progress(tmp_path / "progress.json")
    for second in range(11):
        monkeypatch.setattr(time, "monotonic", lambda second=second: float(second))
        progress(10 * second, 0, "passages")
    assert caplog.messages == ["0 passages, 0.0 passages/s", "100 passages, 10.0 passages/s"]
    report = json.loads((tmp_path / "progress.json").read_text())
    assert report["rate"] == 0 and how_far(report) == "100 passages"


def test_each_warning_is_kept_once_for_the_manifest(monkeypatch, stages):
    monkeypatch.setattr(log_module, "warnings", [])
    logger = logging.Logger("teleport")
    logger.addHandler(log_module.Kept(logging.WARNING))
    logger.info("no warning")
    for _ in range(2):
        logger.warning("%d queries have no negative", 3)
    assert log_module.warnings == ["3 queries have no negative"]
    assert provenance(stages.make("train"), 0.0, 1)["warnings"] == log_module.warnings


def test_warnings_of_a_killed_attempt_reach_the_manifest_of_the_one_that_continues(monkeypatch, stages):
    kept, logger, job = log_module.Kept(logging.WARNING), logging.Logger("teleport"), stages.make("train")
    monkeypatch.setattr(log_module, "kept", kept)
    logger.addHandler(kept)

    def attempt(job, text):
        monkeypatch.setattr(log_module, "warnings", [])  # a new process
        begin_attempt(job)
        logger.warning(text)
        return provenance(job, 0.0, 1)["warnings"]

    assert attempt(job, "of a part that is finished") == ["of a part that is finished"]
    assert not has_work(job.resume), "warnings alone are no work"
    assert attempt(job, "of another machine") == ["of another machine"], "nothing was left, all is done again"
    (job.resume / "part.npy").touch()
    assert attempt(job, "of the rest") == ["of another machine", "of the rest"]
    job.code = "edited"
    assert attempt(job, "of all") == ["of all"], "other code continues nothing"
    shutil.rmtree(job.resume)
    logger.warning("after the end")
    assert not job.resume.exists(), "a finished stage has no such folder, and gets none"
