"""What a run of the workflow says: a line per job, how far long ones are, and how well each episode did.

`Terminal` takes the place of the handler by which Snakemake writes to the terminal. A line for a job has its kind,
episode, experiments, seed and log. Of a job that goes on, the first report comes after `FIRST_SECONDS`: a bar that is
drawn anew on a terminal, plain lines ever further apart elsewhere. Warnings, errors and all else that is not named here
are written as Snakemake writes them, and its own log in .snakemake/log has everything.
"""

import shutil
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from snakemake.logging import ColorizingTextHandler, LogEvent, get_event

from commands.status import duration, read_report
from teleport.runtime.artefact import MANIFEST, STAGES
from teleport.runtime.files import read_saved
from teleport.runtime.job import RESUME

FIRST_SECONDS = 8.0
LINE_SECONDS = 120.0, 600.0  # between two lines about a job: at least and at most; in between as long as it has run
REDRAWN_SECONDS = 1.0
BAR = 20  # characters
ERASE = "\r\033[K"
NOT_SAID = (LogEvent.JOB_STARTED, LogEvent.PROGRESS)
CHATTER = ("Select jobs", "Using shell", "Building DAG", "Conda environments: ignored", "Group jobs: inactive")


@dataclass
class Running:
    """A job that runs. folder: where its stage reports to; due: seconds after `started` when the next line is."""

    message: str
    output: str
    folder: Path
    started: float = field(default_factory=time.time)
    due: float = FIRST_SECONDS


def use_terminal(logger, scores):
    """Have `logger`, Snakemake's, write to the terminal by a `Terminal`; a plugin that does so already stays.

    scores: {evaluate stage: (its label, its measure, the evaluate stage of the episode before)}
    """
    for usual in [handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"]:
        logger.removeHandler(usual)
        logger.addHandler(Terminal(usual, scores))


class Terminal(ColorizingTextHandler):
    """Writes to the stream of the handler `usual`, in its colours and with its filters; scores: as `use_terminal`."""

    def __init__(self, usual, scores):
        super().__init__(usual.nocolor, usual.stream, usual.formatter)
        self.filters, self.name = usual.filters, usual.name
        self.scores, self.running, self.on_cluster = scores, {}, False
        self.bar, self.drawn, self.thread, self.over = self.can_color_tty(), "", None, threading.Event()

    def emit(self, record):
        event = get_event(record)
        if event == LogEvent.JOB_INFO and record.rule_msg:
            self.begin(record)
        elif event == LogEvent.JOB_INFO and not record.shellcmd:
            return  # a target, which runs nothing
        elif event == LogEvent.JOB_FINISHED:
            self.end(record.job_id)
        elif event == LogEvent.RUN_INFO:
            self.write(jobs_line(record.stats))
        elif event == LogEvent.RESOURCES_INFO:
            self.on_cluster |= hasattr(record, "nodes")
        elif event not in NOT_SAID and not (event is None and str(record.msg).startswith(CHATTER)):
            if event == LogEvent.JOB_ERROR:
                self.running.pop(record.jobid, None)
            self.write("")
            super().emit(record)

    def write(self, text):
        """Write a line, or erase the bar for what comes next."""
        with self._output_lock:
            self.stream.write((ERASE if self.drawn else "") + (f"{text}\n" if text else ""))
            self.stream.flush()
            self.drawn = ""

    def begin(self, record):
        message, log = " ".join(record.rule_msg.split()), ", ".join(record.log)
        self.write(f"{message}  {log}")
        output = str(record.output[0]) if record.output else ""
        self.running[record.jobid] = Running(message, output, report_folder(output))
        if self.thread is None:
            self.thread = threading.Thread(target=self.watch, daemon=True)
            self.thread.start()

    def end(self, jobid):
        job = self.running.pop(jobid, None)
        if job and (line := score_line(self.scores, job.output)):
            self.write(line)

    def watch(self):
        """Say how far the jobs are, until the handler is closed."""
        while not self.over.wait(REDRAWN_SECONDS):
            jobs = [job for job in list(self.running.values()) if time.time() - job.started >= FIRST_SECONDS]
            if self.bar:
                self.draw(jobs)
                continue
            for job in jobs:
                spent = time.time() - job.started
                if spent >= job.due:
                    job.due = spent + min(max(spent, LINE_SECONDS[0]), LINE_SECONDS[1])
                    if said := self.said(job):
                        self.write(f"{job.message}: {said}")

    def said(self, job):
        """How far a job is (text); nothing while it waits in the queue of a cluster, perhaps."""
        report = read_report(job.folder / "progress.json")
        if report["time"] >= job.started and report["total"]:
            return how_far(report)
        return "" if self.on_cluster else f"{duration(time.time() - job.started)} so far"

    def draw(self, jobs):
        """Draw the bar of the job that has run longest, cut to the width of the terminal."""
        said = [(job, text) for job in jobs if (text := self.said(job))]
        text = ""
        if said:
            job, far = min(said, key=lambda each: each[0].started)
            others = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
            text = f"{bar(read_report(job.folder / 'progress.json'))} {job.message}: {far}{others}"
        text = text[: shutil.get_terminal_size().columns - 1]
        with self._output_lock:
            if text != self.drawn:
                self.stream.write(ERASE + text)
                self.stream.flush()
                self.drawn = text

    def close(self):
        self.over.set()
        if self.thread is not None:
            self.thread.join()
            self.write("")
        super().close()


def jobs_line(stats):
    """How many jobs there are, by rule; stats: {rule: number} with their total."""
    parts = ", ".join(f"{number} {rule}" for rule, number in stats.items() if rule not in ("total", "all"))
    return f"{stats['total']} job{'s' if stats['total'] > 1 else ''}: {parts}"


def report_folder(output):
    """Where the stage of a job reports to, by its first output; a shard reports beside its manifest."""
    folder = Path(output).parent
    return RESUME / folder.relative_to(STAGES) if folder.is_relative_to(STAGES) else folder


def how_far(report):
    """A stage's report as text: "120/300 steps, 2.1 steps/s, 85 s left"."""
    text = f"{report['done']}/{report['total']} {report['unit']}"
    if not report["rate"]:
        return text
    left = duration((report["total"] - report["done"]) / report["rate"])
    return f"{text}, {report['rate']:.3g} {report['unit']}/s, {left} left"


def bar(report):
    """The share of a report that is done, drawn; empty where nothing was reported."""
    done = BAR * report["done"] // report["total"] if report["total"] else 0
    return f"[{'#' * done}{'.' * (BAR - done)}]"


def episode_scores(plan):
    """The `scores` of `use_terminal`: after each episode, by the first measure of the first split."""
    splits, found = plan.config.evaluation.splits, {}
    for split in splits[:1]:
        measure = plan.config.evaluation.measures_of(split)[0]
        for trajectory in (trajectory for of_seeds in plan.trajectories.values() for trajectory in of_seeds):
            for before, after in pairwise(trajectory.runs):
                label = plan.label(after[split].name).removeprefix(f"evaluate-{split}, ")
                found.setdefault(after[split].name, (label, measure, before[split].name))
    return found


def score_line(scores, output):
    """ "episode 1: RR@10 0.529 (+0.053) · ance-tele" for the manifest of an episode's evaluation; None for another."""
    label, measure, before = scores.get("/".join(Path(output).parts[-3:-1]), (None, None, None))
    score = label and mean_of(Path(output), measure)
    if score is None:
        return None
    episode, dot, users = label.partition(" · ")
    earlier = mean_of(STAGES / before / MANIFEST, measure)
    change = "" if earlier is None else f" ({score - earlier:+.3f})"
    return f"{episode}: {measure} {score:.3f}{change}{dot}{users}"


def mean_of(manifest, measure):
    """The mean of a measure in the manifest of an evaluation; None where it is not there."""
    return read_saved(manifest).get("facts", {}).get("means", {}).get(measure)
