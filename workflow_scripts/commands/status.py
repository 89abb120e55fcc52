"""Which stages run, and where: read from the resume folders of running and killed stages and shards. No process is
queried.

Such a folder has `history.log`, a line per attempt with host and process, and `progress.json`, the last report; either
may be missing or torn at any moment. A finished stage has none; a finished shard keeps it, with a manifest, until the
shards are joined.
"""

import calendar
import json
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from teleport.refusal import Refusal
from teleport.report.words import SEED_COLUMNS, duration, of_seed
from teleport.running.artefact import HISTORY, MANIFEST, PROGRESS, is_finished
from teleport.running.files import lives
from teleport.running.job import RESUME, SHARDS

ATTEMPT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z? host (\S+) process (\d+)")
SILENT_SECONDS = 600  # without a report for this long, a stage on another host counts as silent
COLUMNS = ["stage", "what", "state", "host", "process", "attempt", "done", "rate", "left", "last report"]


@dataclass(frozen=True)
class Unfinished:
    """A stage, or a shard of one, that runs or was killed.

    age: seconds since its last report or start; rate: units per second, 0 if unknown; state: "finished", "runs",
    "stopped" (its process is gone; the next run continues it), "silent" or "unknown" (nothing readable)
    """

    name: str
    label: str
    host: str
    process: int
    attempt: int
    done: int
    total: int
    unit: str
    rate: float
    age: float
    state: str


def unfinished(label, root=Path("."), now=None):
    """[Unfinished] of every stage and shard with a resume folder below `root`, by name; label: kind/key → text."""
    now = time.time() if now is None else now
    stages = [(folder, folder.parts[-2:], "") for folder in sorted((root / RESUME).glob("*/*"))]
    shards = [(path, path.parts[-3:-1], f", shard {path.name}") for path in sorted((root / SHARDS).glob("*/*/*"))]
    folders = [(folder, "/".join(parts), shard) for folder, parts, shard in stages + shards if folder.is_dir()]
    stages = [read_unfinished(folder, name, label(name) + shard, now) for folder, name, shard in folders]
    return sorted(stages, key=lambda stage: stage.name)


def unfinished_of(plan):
    """`unfinished`, labelled as messages call the stages of a plan."""
    return unfinished(lambda name: plan.label(name) if name in plan.stages else "not of this configuration")


def read_unfinished(folder, name, label, now):
    """The `Unfinished` of one resume folder; missing or torn files in it count as unknown."""
    attempts = ATTEMPT.findall(read_text(folder / HISTORY))
    moment, host, process = attempts[-1] if attempts else (None, "?", "0")
    try:
        started = calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%S"))
    except (TypeError, ValueError, OverflowError):  # no attempt, or a damaged line
        started = 0.0
    report = read_report(folder / PROGRESS)
    if (reported := report.pop("time")) < started:
        report["rate"] = 0.0  # an earlier attempt's
    last = max(started, reported)
    age = max(0.0, now - last) if last else float("inf")
    if (folder / MANIFEST).is_file():
        state = "finished"
    elif host == os.uname().nodename and int(process) and ((command := command_of(process)) or not lives(process)):
        state = "runs" if name.split("/")[1] in command else "stopped"
    else:
        state = "unknown" if age == float("inf") else "silent" if age > SILENT_SECONDS else "runs"
    return Unfinished(name, label, host, int(process), len(attempts), age=age, state=state, **report)


def command_of(process):
    """The command line of a process, by its id as text; "" if there is none, or if /proc hides it."""
    return read_text(Path("/proc") / process / "cmdline")


def read_text(path):
    """The text of a file, or "" if it is missing or unreadable: it may vanish in between."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_report(path):
    """A stage's last report, as `Progress` writes it, with zeros if there is none."""
    zeros = {"done": 0, "total": 0, "rate": 0.0, "time": 0.0, "unit": ""}
    text = read_text(path)
    try:
        report = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return zeros
    if not isinstance(report, dict) or any(type(report.get(key)) is not type(zeros[key]) for key in zeros):
        return zeros
    return {key: report[key] for key in zeros}


def seeds_table(plan):
    """Finished episodes, with their training and evaluations, and stages of every experiment and seed, as text."""
    lines, done = [SEED_COLUMNS], cache(is_finished)
    for trajectory in chain(*plan.trajectories.values()):
        needed = [{stage.name for stage in (e.train, *e.runs.values())} for e in trajectory.episodes[1:]]
        stages = {row.stage.name for row in trajectory.rows}
        lines.append(of_seed(trajectory.name, trajectory.seed, needed, stages, done))
    return "\n".join(columns(lines))


def left(plan):
    """Return a sentence on the forecast time of the unfinished stages, or on why there is no forecast."""
    from commands.edited import edited_sentence
    from commands.forecast.forecast import Forecast
    from commands.forecast.hardware import read_hardware

    edited = edited_sentence(plan)
    try:
        name, hardware = read_hardware()
        forecast = Forecast(plan, hardware)
    except Refusal as error:
        return "; ".join([f"left: no forecast, because {error}", *edited])
    if not forecast.left:
        return edited[0] if edited else "nothing is left to run"
    seconds = Counter()
    for each in forecast.left.values():
        seconds[each.kind] += each.seconds
    by_kind = ", ".join(f"{kind} {duration(spent)}" for kind, spent in seconds.most_common())
    missing = dict.fromkeys(f"without {each.cost.lacks}" for each in forecast.left.values() if each.cost.lacks)
    time = f"{duration(sum(seconds.values()))} on {name}, one job after another"
    return "; ".join([f"left by the forecast: {time} ({by_kind})", *missing, *edited])


def columns(rows, align=str.ljust):
    """Rows of text cells as aligned lines, the first column to the left, the others aligned by `align`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([row[0].ljust(widths[0]), *map(align, row[1:], widths[1:])] for row in rows)
    return ["  ".join(cells).rstrip() for cells in lines]


def render(stages, counts):
    """The table of unfinished stages and a line about the plan, as text for a terminal."""
    lines = columns([COLUMNS, *map(cells, stages)]) if stages else ["nothing runs"]
    done, planned = (sum(column) for column in zip(*counts.values(), strict=True))
    by_kind = ", ".join(f"{kind} {d}/{n}" for kind, (d, n) in counts.items())
    return "\n".join([*lines, f"{done} of {planned} stages finished: {by_kind}"])


def done_of(done, total, unit):
    """ "120/300 steps", or "120 steps" if the total is unknown."""
    return f"{done}/{total} {unit}" if total else f"{done} {unit}"


def cells(stage):
    """An `Unfinished` as text cells, in the order of COLUMNS."""
    left = duration((stage.total - stage.done) / stage.rate) if stage.rate and stage.state == "runs" else "-"
    done = done_of(stage.done, stage.total, stage.unit) if stage.unit else "-"
    rate = f"{stage.rate:.4g}/s" if stage.rate else "-"
    age = f"{duration(stage.age)} ago" if stage.age < float("inf") else "-"
    who = [stage.host, str(stage.process or "?"), str(stage.attempt or "?")]
    return [stage.name, stage.label, stage.state, *who, done, rate, left, age]
