"""What runs where, read from the resume folders that running and killed stages keep: no process is asked, none waits.

A stage's resume folder has `history.log`, one line per attempt with host and process, and `progress.json`, its last
report. Both may be missing or torn at any moment; a finished stage has no resume folder, but a manifest. The shards of
an encoding have folders of the same kind, with a manifest when they are finished, until they are joined.
"""

import json
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from teleport.runtime.artefact import MANIFEST, STAGES
from teleport.runtime.job import RESUME, SHARDS

ATTEMPT = re.compile(r"(\S+) host (\S+) process (\d+)")
SILENT_SECONDS = 600  # without a report for so long, a stage on another host counts as silent
COLUMNS = ["stage", "what", "state", "host", "process", "attempt", "done", "rate", "left", "last report"]


@dataclass(frozen=True)
class Unfinished:
    """A stage, or a shard of one, that runs or was killed.

    age: seconds since it was heard of; rate: units per second, 0 if unknown
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
    """Every stage with a resume folder below `root`, and every shard, by name; label: from `kind/key` to text."""
    now = time.time() if now is None else now
    folders = sorted(path for path in (root / RESUME).glob("*/*") if path.is_dir())
    stages = [read_unfinished(folder, name_of(folder), label(name_of(folder)), now) for folder in folders]
    for folder in sorted(path for path in (root / SHARDS).glob("*/*/*") if path.is_dir()):
        name = name_of(folder.parent)
        stages.append(read_unfinished(folder, name, f"{label(name)}, shard {folder.name}", now))
    return sorted(stages, key=lambda stage: stage.name)


def name_of(folder):
    """A stage's name, "kind/key", from its folder."""
    return f"{folder.parent.name}/{folder.name}"


def read_unfinished(folder, name, label, now):
    """The `Unfinished` of one resume folder; what is missing or torn in it counts as unknown."""
    attempts = ATTEMPT.findall(read_text(folder / "history.log"))
    started, host, process = attempts[-1] if attempts else ("", "?", 0)
    report = read_report(folder / "progress.json")
    heard = [moment for moment in (local_seconds(started), report["time"]) if moment]
    age = max(0.0, now - max(heard)) if heard else float("inf")
    if report["time"] < local_seconds(started):
        report["rate"] = 0.0  # an earlier attempt's
    reported = {key: report[key] for key in ("done", "total", "unit", "rate")}
    state = state_of(name.split("/")[1], host, int(process), age)
    if (folder / MANIFEST).is_file():
        state = "finished"
    return Unfinished(name, label, host, int(process), len(attempts), age=age, state=state, **reported)


def read_text(path):
    """The text of a file, or none when it is missing or unreadable: it may vanish while one looks."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_report(path):
    """A stage's last report, as `Progress` writes it, with zeros for what is not there."""
    try:
        report = json.loads(read_text(path))
        numbers = {key: float(report[key]) for key in ("done", "total", "rate", "time")}
        return numbers | {"done": int(numbers["done"]), "total": int(numbers["total"]), "unit": str(report["unit"])}
    except (ValueError, KeyError, TypeError):
        return {"done": 0, "total": 0, "rate": 0.0, "time": 0.0, "unit": ""}


def local_seconds(text):
    """The seconds since 1970 of a time as history.log has it (local); 0 for anything else."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0.0


def state_of(key, host, process, age):
    """ "runs", "stopped" (its process is gone; the next run continues it), "silent" or "unknown" (nothing readable)."""
    if host == os.uname().nodename and process:
        return "runs" if key in read_text(Path("/proc") / str(process) / "cmdline") else "stopped"
    if age == float("inf"):
        return "unknown"
    return "silent" if age > SILENT_SECONDS else "runs"


def finished(names, root=Path(".")):
    """{kind: (finished stages, all stages)} of the stages `names` ("kind/key"), in their order."""
    names = list(names)
    every = Counter(name.split("/")[0] for name in names)
    done = Counter(name.split("/")[0] for name in names if (root / STAGES / name / MANIFEST).is_file())
    return {kind: (done[kind], number) for kind, number in every.items()}


def by_seed(plan, root=Path(".")):
    """[(experiment, seed, finished episodes, all episodes, finished stages, all stages)] of a plan.

    An episode is finished when its training and evaluations are.
    """
    rows = []
    for name, trajectories in plan.trajectories.items():
        for trajectory in trajectories:
            stages = {row.stage.name for row in trajectory.rows}
            done = {stage for stage in stages if (root / STAGES / stage / MANIFEST).is_file()}
            pairs = zip(trajectory.trains, trajectory.runs[1:], strict=True)
            needed = [{train.name, *(run.name for run in runs.values())} for train, runs in pairs]
            episodes = sum(names <= done for names in needed)
            rows.append((name, trajectory.seed, episodes, len(needed), len(done), len(stages)))
    return rows


def left(plan):
    """What the stages that are not finished take by the forecast, as a sentence; or why it cannot tell."""
    from commands.forecast.hardware import read_hardware
    from commands.forecast.table import forecast, total_line

    try:
        name, hardware = read_hardware()
        lines = forecast(plan, hardware).lines
    except ValueError as error:
        return f"left: no forecast, because {error}"
    kinds = sorted((line for line in lines if line.seconds_left), key=lambda line: -line.seconds_left)
    parts = ", ".join(f"{line.kind} {duration(line.seconds_left)}" for line in kinds)
    unknown = [line.kind for line in lines if not line.has_estimate and line.done < line.stages]
    if not kinds and not unknown:
        return "nothing is left to run"
    without = f"; without {', '.join(unknown)}" if unknown else ""
    whole = f"{duration(total_line(lines).seconds_left)} on {name}, one job after another"
    return f"left by the forecast: {whole}{f' ({parts})' if parts else ''}{without}"


def as_seen(plan, labels):
    """For the report page: what runs, what is left and when that was so (plain JSON). labels: {stage: text}"""
    stages = unfinished(lambda name: labels.get(name, "not of this configuration"))
    seen = time.strftime("%Y-%m-%d %H:%M")
    return {"columns": COLUMNS, "unfinished": [cells(stage) for stage in stages], "left": left(plan), "seen": seen}


def render_seeds(rows):
    """The table of `by_seed` as text."""
    lines = [["experiment", "seed", "episodes", "stages"]]
    lines += [[name, str(seed), f"{e} of {es}", f"{s} of {ss}"] for name, seed, e, es, s, ss in rows]
    return "\n".join(columns(lines))


def columns(rows):
    """Rows of text cells as aligned lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def render(stages, counts):
    """The table of unfinished stages and a line about the plan, as text for a terminal."""
    lines = columns([COLUMNS, *(cells(stage) for stage in stages)])
    done, number = (sum(column) for column in zip(*counts.values(), strict=True))
    parts = ", ".join(f"{kind} {d}/{n}" for kind, (d, n) in counts.items())
    return "\n".join([*(lines if stages else ["nothing runs"]), f"{done} of {number} stages finished: {parts}"])


def cells(stage):
    """One row of the table as text."""
    left = duration((stage.total - stage.done) / stage.rate) if stage.rate and stage.state == "runs" else "-"
    done = f"{stage.done}/{stage.total} {stage.unit}" if stage.total else "-"
    rate = f"{stage.rate:.4g}/s" if stage.rate else "-"
    age = f"{duration(stage.age)} ago" if stage.age < float("inf") else "-"
    who = [stage.host, str(stage.process or "?"), str(stage.attempt or "?")]
    return [stage.name, stage.label, stage.state, *who, done, rate, left, age]


def duration(seconds):
    """Seconds as a person says them: "40 s", "12 min", "3 h 05 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
