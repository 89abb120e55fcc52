"""What a run of the workflow says: a line per job, how far long ones are, and how well each episode did.

`Terminal` takes the place of the handler by which Snakemake writes to the terminal. A job has a line when it begins,
with its kind, episode, experiments, seed and log, and one when it is done. Of one that goes on, the first report comes
after `FIRST_SECONDS`: a bar that is drawn anew on a terminal, plain lines ever further apart elsewhere. Warnings,
errors and all else that is not named here are written as Snakemake writes them, and its own log in .snakemake/log has
everything.
"""

import shutil
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from commands.forecast.left import job_of
from commands.job_texts import how_far, reason, report_folder, score_line
from commands.snakemake_internals import LogEvent, TerminalHandler, get_event
from commands.status import duration, read_report, read_text
from teleport.running.artefact import PROGRESS
from teleport.running.files import OF_THE_SYSTEM

FIRST_SECONDS = 8.0
LINE_SECONDS = 120.0, 600.0  # between two lines about a job: at least and at most; in between as long as it has run
REDRAWN_SECONDS = 1.0
LEFT_SECONDS = 10.0  # between two looks at how long the whole run still takes, unless a job ends
BAR = 20  # characters
ERASE = "\r\033[K"
NOT_SAID = (LogEvent.JOB_STARTED, LogEvent.PROGRESS)
CHATTER = ("Select jobs", "Using shell", "Building DAG", "Conda environments: ignored", "Group jobs: inactive")
CHATTER += ("Exiting because a job execution failed",)
CHATTER += ("Removing output files of failed job", "Shutting down, this might take some time")
# What `failed` says better: these have the shell command, and name no cause.
TOLD = ("CalledProcessError in file", "At least one job did not complete successfully")
INTERRUPTED, ENDING = "Terminating processes on user request", "Will exit after finishing"  # on Ctrl-C, on SIGTERM


@dataclass
class Running:
    """A job that runs. folder: where its stage reports to; due: seconds after `started` when the next line is; waits:
    for what, as it was said."""

    message: str
    output: str
    folder: Path
    log: str | None = None
    started: float = field(default_factory=time.time)
    due: float = FIRST_SECONDS
    waits: str = ""


class Terminal(TerminalHandler):
    """Writes in the place of Snakemake's handler `usual`.

    scores: {evaluate stage: (its label, its measure, the evaluate stage of the episode before)}; left: function that
    gives a `forecast.left.Left`, or None as long as none can be told; it is asked once jobs run. A defect in it costs
    no result: it is shown with its traceback, Snakemake's own lines follow, the run goes on and ends with status 1.
    """

    def __init__(self, usual, scores, left):
        super().__init__(usual)
        self.scores, self.running, self.on_cluster = scores, {}, False
        self.make_left, self.left = left, None
        self.took, self.end_of_run, self.looked = {}, 0.0, 0.0  # of ended jobs; when all will have, as seen when
        self.total, self.ended, self.failures, self.interrupted, self.ending = 0, 0, 0, False, False
        self.drawn, self.thread, self.over, self.defect = "", None, threading.Event(), None

    def emit(self, record):
        if not self.sound(self.tell, record):
            super().emit(record)

    def sound(self, function, *arguments):
        """Call a function, unless there was a defect before; whether there is none (bool)."""
        if self.defect is None:
            try:
                function(*arguments)
            except Exception as error:
                self.defect = error
                self.write("".join(traceback.format_exception(error)))
        return self.defect is None

    def tell(self, record):
        """Write what a log record says, each event in its own form; what has none as Snakemake does."""
        event = get_event(record)
        if event is None and str(record.msg).startswith(INTERRUPTED):
            self.interrupted = True
            self.write("interrupted: stages save their work and end")
        elif event is None and str(record.msg).startswith(ENDING):
            if not (self.failures or self.ending):  # after a failure Snakemake says the same
                self.ending = True
                self.write("asked to end: the jobs that run are finished first")
        elif event == LogEvent.JOB_INFO and record.rule_msg:
            self.begin(record)
        elif event == LogEvent.JOB_INFO and not record.shellcmd:
            return  # a target, which runs nothing
        elif event == LogEvent.JOB_FINISHED:
            self.end(record.job_id)
        elif event == LogEvent.RUN_INFO:
            rules = ", ".join(f"{n} {rule}" for rule, n in record.stats.items() if rule not in ("total", "all"))
            self.total = record.stats["total"] - record.stats.get("all", 0)  # which runs nothing
            self.write(f"{self.total} job{'s' if self.total > 1 else ''}: {rules}")
        elif event == LogEvent.RESOURCES_INFO:
            self.on_cluster |= hasattr(record, "nodes")
        elif event == LogEvent.JOB_ERROR:
            self.failed(record)
        elif event not in NOT_SAID and not (event is None and str(record.msg).startswith(CHATTER)):
            if any(text in str(record.msg) for text in TOLD):
                return
            self.write("")
            super().emit(record)
            for what, remedy in {OF_THE_SYSTEM[code] for code in OF_THE_SYSTEM if f"[Errno {code}]" in str(record.msg)}:
                self.write(f"error: {what}; {remedy}.")  # what Snakemake met itself, before or between jobs

    def write(self, text):
        """Write a line, or erase the bar for what comes next."""
        with self.lock_of_stream:
            self.stream.write((ERASE if self.drawn else "") + (f"{text}\n" if text else ""))
            self.stream.flush()
            self.drawn = ""

    def begin(self, record):
        """A job has started: its line, and from now on it is watched."""
        message, output = " ".join(record.rule_msg.split()), str(record.output[0]) if record.output else ""
        self.write(f"{message}  {', '.join(record.log)}")
        self.running[record.jobid] = Running(message, output, report_folder(output), next(iter(record.log), None))
        if self.thread is None:
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()

    def end(self, jobid):
        """A job has ended: its line, and the score of an episode's evaluation."""
        if job := self.running.pop(jobid, None):
            self.ended += 1
            self.took[job_of(job.output)] = spent = time.time() - job.started
            self.looked = 0.0
            # Of the whole run only after long ones: to ask takes a look at every job, of which there may be thousands.
            rest = f", {self.of_all()}" if spent >= FIRST_SECONDS else ""
            self.write(f"{job.message}: done in {duration(spent, 1)}{rest}")
            if line := score_line(self.scores, job.output):
                self.write(line)

    def of_all(self):
        """ "12 of 31 jobs, about 2 min left", of the whole run; only the count where the time cannot be told."""
        now, text = time.time(), f"{self.ended} of {self.total} jobs" if self.total else f"{self.ended} jobs"
        if now - self.looked >= LEFT_SECONDS:
            self.looked, self.left = now, self.left or self.make_left()
            running = {}
            for job in list(self.running.values()):
                report = self.report(job)
                own = (report["total"] - report["done"]) / report["rate"] if report["rate"] else None
                running[job_of(job.output)] = now - job.started, own
            self.end_of_run = now + (self.left.seconds(dict(self.took), running) if self.left else 0)
        return f"{text}, about {duration(self.end_of_run - now)} left" if self.end_of_run > now + 1 else text

    def failed(self, record):
        """Say why a job has failed, once, and where the rest of what it said is."""
        job = self.running.pop(record.jobid, None)
        if self.interrupted:
            return
        message, log = job.message if job else record.rule_name, next(iter(record.log), None)
        why, defect = reason(log)
        rest = "the traceback of this defect is in" if defect else "more in"
        told = [f"{rest} {log}"] if log else []
        told += [f"{name}: {value}" for name, value in (getattr(record, "aux", None) or {}).items()]  # of a cluster
        self.write("\n  ".join([f"failed: {message}: {why}", *told]))
        self.failures += 1

    def watch(self):
        """Say how far the jobs are, until the handler is closed."""
        while not self.over.wait(REDRAWN_SECONDS):
            self.sound(self.look)

    def look(self):
        """Say how far the jobs are that have run for a while: on the bar, or in lines when these are due."""
        jobs = [job for job in list(self.running.values()) if time.time() - job.started >= FIRST_SECONDS]
        for job in jobs:
            self.say_what_it_waits_for(job)
        if self.draws:
            self.draw(jobs)
            return
        for job in jobs:
            spent = time.time() - job.started
            if spent >= job.due and (said := self.said(job)):
                job.due = spent + min(max(spent, LINE_SECONDS[0]), LINE_SECONDS[1])
                self.write(f"{job.message}: {said}; {self.of_all()}")

    def say_what_it_waits_for(self, job):
        """Where the last line of a job's log is what it waits for, such as a lock of another process: once."""
        last = (read_text(Path(job.log)).splitlines() if job.log else [])[-1:]
        waits = "".join(last).partition(" waiting: ")[2]
        if waits and waits != job.waits:
            self.write(f"{job.message} waits: {waits}")
        job.waits = waits

    def report(self, job):
        """The last report of a job; zeros where there is none since it was begun."""
        report = read_report(job.folder / PROGRESS)
        return report if report["time"] >= job.started else dict.fromkeys(report, 0)

    def said(self, job):
        """How far a job is (text); nothing while it waits in the queue of a cluster, perhaps."""
        if (report := self.report(job))["unit"]:
            return how_far(report)
        return "" if self.on_cluster else f"{duration(time.time() - job.started)} so far"

    def draw(self, jobs):
        """Draw the bar of the job that has run longest and how far the whole run is, cut to the terminal's width."""
        text, shown = "", [(job, said) for job in jobs if (said := self.said(job))]
        if shown:
            job, said = min(shown, key=lambda pair: pair[0].started)
            others = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
            report = self.report(job)
            done = BAR * report["done"] // (report["total"] or 1)
            bar = f"[{'#' * done}{'.' * (BAR - done)}] " if report["total"] else ""
            text = f"{bar}{job.message}: {said}{others}"
        if self.running and self.total:
            text = "; ".join(filter(None, (text, self.of_all())))
        text = text[: shutil.get_terminal_size().columns - 1]
        with self.lock_of_stream:
            if text != self.drawn:
                self.stream.write(ERASE + text)
                self.stream.flush()
                self.drawn = text

    def close(self):
        if self.over.is_set():
            return
        self.over.set()
        self.sound(self.say_how_to_go_on)
        super().close()
        if self.defect:
            sys.exit(1)  # Snakemake drops every other error of `close`

    def say_how_to_go_on(self):
        if self.thread is not None:
            self.thread.join()
            self.write("")
        if self.interrupted or self.failures or self.ending:
            what = f"{self.failures} failed" if self.failures and not self.interrupted else "interrupted"
            what += f" after {self.ended} of {self.total} jobs" if self.total else ""
            self.write(f"{what}: what is finished stays, what was saved goes on, by the same command again")
