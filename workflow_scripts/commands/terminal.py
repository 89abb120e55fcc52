"""The messages while the workflow runs: Snakemake's logger plugin `teleport`.

A job has a line when it begins, with its kind, episode, experiments and log, one when it ends, with its time and how
many jobs are done, and some in between when it takes long. A failure is shown with its cause. A dry run lists its jobs
and ends with what they cost. Jobs without a `message:` or a `log:`, such as those of another workflow that has this one
as a module, and everything else look as Snakemake shows them. Snakemake's own log in .snakemake/log has all of it.
"""

import gc
import os
import re
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import psutil
import snakemake
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from commands.job_texts import how_far, is_check, outcome, reason, report_folder, score_line, warnings_of
from commands.status import read_report, read_text
from teleport.refusal import Refusal
from teleport.report.words import duration, number
from teleport.running.artefact import PROGRESS
from teleport.running.files import OF_THE_SYSTEM
from teleport.settings.yaml_mapping import read_mapping

FIRST_SECONDS = 8.0  # of a job, until its first line on progress
LINE_SECONDS = 120.0, 600.0  # between two lines about a job: at least and at most; in between as long as it has run
LOOK_SECONDS = 1.0  # between two looks at the reports of jobs
MOST_JOBS = 200  # that a dry run lists
SNAKEMAKE = str(Path(snakemake.__file__).parent)
SILENT = (LogEvent.JOB_STARTED, LogEvent.PROGRESS, LogEvent.RESOURCES_INFO)
CONFIGFILE = "--configfile", "--configfiles"
LOGS = "results/logs/"  # of our rules
LOCKED = "Directory cannot be locked"  # in the message of a run, or a dry run, that meets a lock
NO_RULE = re.compile("No rule to produce (.+) [(]if you use")  # in the message of a run with an unknown target
OF_A_FAILED_JOB = ("RuleException", "CalledProcessError")  # they have the shell command and no cause
RED, YELLOW = 31, 33


@dataclass
class Planned:
    """The facts of the plan that the Snakefile passes on. costs: function of the names of stages that returns a
    sentence; scores: {evaluate stage: (its label, its measure, the evaluate stage of the episode before)}."""

    costs: object = None
    scores: dict = field(default_factory=dict)


PLANNED = Planned()
handler = None  # the LogHandler of this process


@dataclass
class Running:
    """A running job. folder: where its stage reports; due: seconds from `started` to the next line; waits: the
    reason of a wait, from its log."""

    message: str
    outputs: list
    folder: Path
    log: str | None = None
    started: float = field(default_factory=time.time)
    due: float = FIRST_SECONDS
    waits: str = ""


def require_configfiles(words):
    """End the process with a sentence if a configuration that a command line (its words) names holds no mapping.
    Snakemake, which reads it next, answers a typo with a traceback, or names no file."""
    for place, word in enumerate(words):
        option, _, joined = word.partition("=")
        if option in CONFIGFILE:
            following = takewhile(lambda each: not each.startswith("-"), words[place + 1 :])
            for name in [joined] if joined else following:
                try:
                    read_mapping(name)
                except Refusal as error:
                    sys.exit(f"error: --configfile: {error}")


class LogHandler(LogHandlerBase):
    """Writes to the terminal. A defect in it costs no result: it is shown with its traceback, Snakemake's own lines
    follow, the run goes on and ends with status 1."""

    writes_to_stream, writes_to_file, needs_rulegraph = True, False, False
    has_filter, has_formatter = False, False  # Snakemake's own

    def __post_init__(self):
        global handler
        require_configfiles(sys.argv)
        handler, settings = self, self.common_settings
        self.stream, self.dry = sys.stdout if settings.stdout else sys.stderr, settings.dryrun
        self.coloured = self.stream.isatty() and not settings.nocolor
        self.lock_of_stream, self.defect = threading.RLock(), None
        self.running, self.made, self.stages, self.on_cluster = {}, [], set(), False
        self.others = {}  # {job: its rule} of the running jobs that look as Snakemake shows them
        self.listed, self.counted, self.total, self.ended = 0, False, 0, 0
        self.has_failed, self.failed_jobs = False, set()  # whether a job ever did; those that no retry has made since
        self.of_checks = set()  # warnings about the collection, which several experiments check
        self.interrupted, self.ending = False, False
        self.held = []  # Snakemake's messages on its own steps: shown at the end of a call that runs and plans no jobs
        self.thread, self.over = None, threading.Event()
        if self.dry:
            gc.disable()  # jobs stay until the end: to look for garbage among thousands takes a third of the time

    def emit(self, record):
        if not self.sound(self.write_record, record):
            self.write(self.format(record))

    def sound(self, function, *arguments):
        """Call a function, unless there was a defect before. Returns whether there is still none (bool)."""
        if self.defect is None:
            try:
                function(*arguments)
            except Exception as error:
                self.defect = error
                self.write("".join(traceback.format_exception(error)))
        return self.defect is None

    def write(self, text, colour=None):
        """Write a line."""
        if text:
            text = f"\033[{colour}m{text}\033[0m" if colour and self.coloured else text
            with self.lock_of_stream, suppress(BrokenPipeError):  # the reader has closed, such as `head`
                self.stream.write(f"{text}\n")
                self.stream.flush()

    def write_record(self, record):
        """Write a log record, each kind of event in another form."""
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            self.list_job(record) if self.dry else self.begin(record)
        elif event == LogEvent.JOB_FINISHED:
            self.end(record)
        elif event == LogEvent.JOB_ERROR:
            self.failed(record)
        elif event == LogEvent.RUN_INFO:
            self.count(record)
        elif event == LogEvent.RESOURCES_INFO and hasattr(record, "nodes"):
            self.on_cluster = True
        elif LOCKED in str(record.msg):
            self.write(f"error: {locked_text()}", RED)
        elif missing := NO_RULE.search(str(record.msg)):
            self.held = []
            self.write(f"error: {no_target_text(missing[1])}", RED)
        elif event is None and record.levelname == "INFO" and record.pathname.startswith(SNAKEMAKE):
            self.held += [self.format(record)]
        elif event not in SILENT and not self.is_repeated(record, event):
            known = {OF_THE_SYSTEM[code] for code in OF_THE_SYSTEM if f"[Errno {code}]" in str(record.msg)}
            text = self.format(record)
            text = text.partition("\nTraceback:")[0] if known else text  # Snakemake's own log has it
            self.write(text, {"WARNING": YELLOW, "ERROR": RED}.get(record.levelname))
            for what, remedy in known:  # errors of Snakemake itself, before or between jobs
                self.write(f"error: {what}; {remedy}.")

    def is_repeated(self, record, event):
        """Whether a record only repeats that a job has failed, with its shell command, or that a person has ended the
        run. Snakemake sends the first before JOB_ERROR, for which `failed` prints the cause, and names no job: it may
        be the cause of one that is not ours."""
        failed = (self.running or self.has_failed) and getattr(record, "exception", None) in OF_A_FAILED_JOB
        return event == LogEvent.ERROR and (self.interrupted or (failed and not self.others))

    def count(self, record):
        """Print once how many jobs a run or dry run has."""
        if not self.counted:
            rules = {rule: jobs for rule, jobs in record.stats.items() if rule != "total" and is_counted(rule)}
            self.total = sum(rules.values())
            counts = ", ".join(f"{jobs} {rule}" for rule, jobs in rules.items())
            jobs = f"{number(self.total, 'job')}: {counts}"
            self.write(self.format(record) if self.dry else jobs)
        self.counted = True

    def list_job(self, record):
        """Print the line of a job in a dry run."""
        if is_target(record):
            return
        if not is_ours(record):
            self.write(self.format(record))
            return
        self.listed += 1
        self.stages |= {"/".join(Path(path).parts[-3:-1]) for path in record.output[:1]}
        if self.listed <= MOST_JOBS:
            self.write(f"Job {record.jobid}: {' '.join(record.rule_msg.split())}")

    def begin(self, record):
        """Print the line of a job that has started, and watch it from now on."""
        if is_target(record):
            return
        if not is_ours(record):
            self.others[record.jobid] = record.rule_name
            self.write(self.format(record))
            return
        message, outputs = " ".join(record.rule_msg.split()), list(map(str, record.output))
        self.write(f"{message}  {', '.join(record.log)}")
        folder = report_folder(outputs[0] if outputs else "")
        self.running[record.jobid] = Running(message, outputs, folder, next(iter(record.log), None))
        if self.thread is None:
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()

    def end(self, record):
        """Print the line of a job that has ended, the warnings of its stage, and the score of an episode's
        evaluation."""
        self.failed_jobs.discard(record.job_id)
        if rule := self.others.pop(record.job_id, None):
            self.ended += is_counted(rule)
            self.write(self.format(record))
        if job := self.running.pop(record.job_id, None):
            self.ended += 1
            self.made += job.outputs
            self.write(f"{job.message}: done in {duration(time.time() - job.started, 1)}, {self.of_all()}")
            warnings = [warning for warning in warnings_of(job.outputs) if warning not in self.of_checks]
            for warning in warnings:
                self.write(f"warning: {warning} ({job.message})", YELLOW)
            if is_check(job.outputs):
                self.of_checks.update(warnings)
            self.write(score_line(PLANNED.scores, job.outputs))

    def of_all(self):
        return f"{self.ended} of {self.total} jobs" if self.total else f"{self.ended} jobs"

    def failed(self, record):
        """Print once why a job has failed, and where the rest of its messages is."""
        job, other = self.running.pop(record.jobid, None), self.others.pop(record.jobid, None)
        if self.interrupted or (job and has_finished(job)):
            return
        self.has_failed = True
        self.failed_jobs.add(record.jobid)
        if other:
            self.write(self.format(record), RED)
            return
        message, log = job.message if job else record.rule_name, next(iter(record.log), None)
        why, defect = reason(log)
        rest = "the traceback of this defect is in" if defect else "more in"
        details = [f"{rest} {log}"] if log else []
        details += [f"{name}: {value}" for name, value in (getattr(record, "aux", None) or {}).items()]  # of a cluster
        self.write("\n  ".join([f"failed: {message}: {why}", *details]), RED)

    def watch(self):
        """Print the progress of jobs, until the handler is closed."""
        while not self.over.wait(LOOK_SECONDS):
            self.sound(self.look)

    def look(self):
        """Print the progress of jobs that have run for a while, and what they wait for, when that is due."""
        for job in list(self.running.values()):
            if (spent := time.time() - job.started) < FIRST_SECONDS:
                continue
            self.say_what_it_waits_for(job)
            if spent >= job.due and (progress := self.progress_of(job, spent)):
                job.due = spent + min(max(spent, LINE_SECONDS[0]), LINE_SECONDS[1])
                self.write(f"{job.message}: {progress}; {self.of_all()}")

    def say_what_it_waits_for(self, job):
        """Print, once, what a job waits for, such as a lock of another process, if the last line of its log says so."""
        last = (read_text(Path(job.log)).splitlines() if job.log else [])[-1:]
        waits = "".join(last).partition(" waiting: ")[2]
        if waits and waits != job.waits:
            self.write(f"{job.message} waits: {waits}")
        job.waits = waits

    def progress_of(self, job, spent):
        """The progress of a job (text); "" on a cluster before its first report, since it may still be queued."""
        report = read_report(job.folder / PROGRESS)
        if report["unit"] and report["time"] >= job.started:  # else an earlier attempt's
            return how_far(report)
        return "" if self.on_cluster else f"{duration(spent)} so far"

    def asked_to_end(self, by_sigterm):
        """Note that a person or a scheduler ends the run: by SIGTERM after the jobs that run, by Ctrl-C (SIGINT) at
        once."""
        self.ending |= by_sigterm
        self.interrupted |= not by_sigterm
        if by_sigterm:
            at_once = f"Ctrl-C, or kill -INT {os.getpid()}, ends them at once"
            self.write(f"asked to end: running jobs finish first; {at_once}")
        else:
            self.write("interrupted: stages save their work and end")

    def close(self):
        if self.over.is_set():
            return
        self.over.set()
        if self.thread is not None:
            self.thread.join()
        self.sound(self.say_the_end)
        super().close()
        if self.defect:
            sys.exit(1)  # Snakemake drops every other error of `close`

    def say_the_end(self):
        """Print the costs of a dry run's jobs; or the verdicts on a run's results, or the next step after a bad end."""
        for text in [] if self.counted else self.held:
            self.write(text)
        if self.dry and self.listed:
            if self.listed > MOST_JOBS:
                named = "name results/experiments/NAME, or a folder below it, to see those of one experiment"
                self.write(f"and {number(self.listed - MOST_JOBS, 'more job')}: {named}")
            self.write("This was a dry run: nothing has run.")
            self.write(PLANNED.costs and PLANNED.costs(self.stages))
        elif self.interrupted or self.failed_jobs or self.ending:
            failed = len(self.failed_jobs)
            what = f"{failed} failed" if failed and not self.interrupted else "interrupted"
            what += f" after {self.of_all()}" if self.total else ""
            self.write(f"{what}: finished stages and saved work stay; run the same command again to continue")
        elif self.made:
            for line in outcome(self.made):
                self.write(line)


def has_finished(job):
    """Whether a `Running` job has made its first file: Snakemake reports a group as failed with all of its jobs."""
    with suppress(OSError, IndexError):
        return Path(job.outputs[0]).stat().st_mtime >= job.started
    return False


def is_target(record):
    """Whether a job is one of our targets, such as `all`, and runs nothing."""
    return bool(record.rule_msg) and not record.shellcmd and not record.output


def is_ours(record):
    """Whether a job has lines of our form: each rule of ours that runs something has a message and a log in LOGS."""
    return bool(record.rule_msg and record.log) and str(record.log[0]).startswith(LOGS)


def is_counted(rule):
    """Whether the jobs of a rule (its name) count among those of a run: targets do not."""
    return rule != "all" and "/" not in rule


def no_target_text(name):
    """Return the text on a target that no rule makes, with the remedy."""
    files = [name, f"config/{name}.yaml"]
    if file := next((each for each in files if each.endswith((".yaml", ".yml")) and os.path.isfile(each)), None):
        return f"{name} is no file of results. To take it as the configuration, write --configfile {file}."
    return f"no rule makes {name}. Name a table or another file below results, results/experiments/NAME, or nothing."


def locked_text():
    """Return the text on who has locked this folder, another Snakemake or one that was killed, with the remedy."""
    ours, here = {os.getpid(), *(process.pid for process in psutil.Process().parents())}, os.getcwd()
    for process in psutil.process_iter(["cmdline", "cwd"]):
        program = [Path(argument).name for argument in (process.info["cmdline"] or [])[:3]]
        if "snakemake" in program and process.info["cwd"] == here and process.pid not in ours:
            return f"Snakemake's process {process.pid} works in {here}: wait for its end."
    return (
        f"{here} is locked, and no Snakemake of this machine works there. If none of another machine does, the lock is "
        "left by a run that was killed: run `.venv/bin/snakemake --unlock`, then the same command."
    )


def end_as_asked():
    """For `onstart`: print that SIGTERM or SIGINT ends the run. SIGINT is sent on to the jobs: Ctrl-C reaches them by
    itself, and a second one changes nothing, but `kill -INT` reaches Snakemake alone, which would wait for them.
    Snakemake's handler of SIGTERM takes a lock which the interrupted thread may hold, and would wait for ever; in a
    thread of its own it gets that lock."""
    finish = signal.getsignal(signal.SIGTERM)

    def end(*given):
        threading.Thread(target=finish, args=given, daemon=True).start()
        if handler is not None:
            handler.asked_to_end(by_sigterm=True)

    def interrupt(*given):
        if handler is not None:
            handler.asked_to_end(by_sigterm=False)
        for job in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # it has ended
                job.send_signal(signal.SIGINT)
        signal.default_int_handler(*given)

    if callable(finish):
        signal.signal(signal.SIGTERM, end)
    # The shell of a script starts what it puts in the background with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN):
        signal.signal(signal.SIGINT, interrupt)
