"""The forecast of a configuration: per stage kind the count, what is done, disk, memory and time."""

from dataclasses import dataclass
from typing import NamedTuple

from commands.forecast.costs.stages import stage_cost
from commands.forecast.counts import Counts, finished
from teleport.runtime.code import STAGE_MODULES

GB = 1e9
SUMMED = ("stages", "done", "bytes", "bytes_left", "seconds", "seconds_left", "measured", "estimated")
LARGEST = ("memory", "device_memory", "memory_left", "device_memory_left")
# Threads that rules/stages.smk asks for, where it is not one; `threads_of` has those of kinds that differ.
THREADS = dict.fromkeys(("tokens", "bm25", "encode", "retrieve", "positives", "train", "errors"), 8)


@dataclass
class Line:
    """A stage kind. Of its done stages bytes and memory are those measured, of the others estimates.

    bytes: of all; memory, device_memory: the largest; seconds: estimate of all; `*_left`: of the stages to do;
    measured and estimated: seconds of the done ones.
    """

    kind: str
    stages: int = 0
    done: int = 0
    bytes: float = 0.0
    bytes_left: float = 0.0
    memory: float = 0.0
    device_memory: float = 0.0
    memory_left: float = 0.0
    device_memory_left: float = 0.0
    seconds: float = 0.0
    seconds_left: float = 0.0
    measured: float = 0.0
    estimated: float = 0.0
    has_estimate: bool = True

    def include(self, other):
        """Count the stages of another line too."""
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in LARGEST:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))


def stage_line(kind, cost, seconds, artefact):
    """The `Line` of one stage; `cost` is None where there is no estimate, `artefact` None where it is to do."""
    line = Line(kind, stages=1, seconds=seconds)
    if artefact is not None:
        made, facts = artefact.manifest.get("provenance", {}), artefact.manifest["facts"]
        line.done, line.estimated = 1, seconds
        line.bytes = artefact.bytes
        line.measured = made.get("wall_seconds", 0.0) + facts.get("earlier_seconds", 0.0)
        line.memory = made.get("peak_memory_bytes", 0)
        line.device_memory = made.get("hardware", {}).get("gpu_peak_bytes", 0)
    elif cost is not None:
        line.bytes, line.memory, line.device_memory = cost.bytes, cost.memory, cost.device_memory
        line.bytes_left, line.memory_left, line.device_memory_left = cost.bytes, cost.memory, cost.device_memory
        line.seconds_left = seconds
    return line


def threads_of(stage):
    """The threads that a stage asks for: a merge that looks for answers and an index that is trained for 8."""
    if stage.kind == "index":
        return 1 if stage.settings.index.kind == "flat" else 8
    if stage.kind == "merge":
        return 8 if stage.settings.remove == "answers" else 1
    return THREADS.get(stage.kind, 1)


def estimate(stage, counts, plan, hardware):
    """(the Cost of a stage on this hardware, its seconds); (None, 0.0) for a kind that has no estimate."""
    cost = stage_cost(stage, counts, plan)
    if cost is None:
        return None, 0.0
    if hardware.device_memory is None:
        cost = cost.on_processor(min(threads_of(stage), hardware.room["cores"]))
    return cost, hardware.seconds(cost)


class Forecast(NamedTuple):
    """lines: a `Line` per stage kind, in the order of the workflow; counts: the `Counts` used; costs: {stage's name:
    (Cost, seconds)}, (None, 0.0) where there is no estimate."""

    lines: list
    counts: Counts
    costs: dict


def forecast(plan, hardware):
    """The `Forecast` of a plan on this hardware."""
    counts, lines, costs = Counts(plan), {}, {}
    for name, stage in plan.stages.items():
        cost, seconds = costs[name] = estimate(stage, counts, plan, hardware)
        line = lines.setdefault(stage.kind, Line(stage.kind, has_estimate=cost is not None))
        line.include(stage_line(stage.kind, cost, seconds, finished(stage)))
    order = {kind: place for place, kind in enumerate(STAGE_MODULES)}
    return Forecast(sorted(lines.values(), key=lambda line: order.get(line.kind, len(order))), counts, costs)


def render(lines):
    """The forecast as lines of text; sizes in GB (1e9 bytes), times as if one job ran after another."""
    head = ("stage", "count", "done", "disk GB", "memory GB", "GPU GB", "time", "left", "done took", "forecast")
    total = total_line(lines)
    columns = len(head) if total.done else 7  # of what is done and what is left there is nothing to say yet
    rows = [row[:columns] for row in (head, *map(cells, lines), cells(total))]
    widths = [max(len(row[column]) for row in rows) for column in range(columns)]
    text = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:-1], "-" * len(text[0]), text[-1]])


def total_line(lines):
    """The sum over all kinds; of memory the largest."""
    total = Line("total")
    for line in lines:
        total.include(line)
    return total


def cells(line):
    """A Line as text."""
    counted = (line.kind, str(line.stages), str(line.done))
    if not line.has_estimate:
        return (*counted, number(line.bytes / GB) if line.done else "?", *["?"] * 4, "", "")
    memory = [number(size / GB) if size else "" for size in (line.memory, line.device_memory)]
    compared = [duration(line.measured), duration(line.estimated)] if line.done else ["", ""]
    times = duration(line.seconds), duration(line.seconds_left)
    return (*counted, number(line.bytes / GB), *memory, *times, *compared)


def number(value):
    return f"{value:.3f}" if value < 1 else f"{value:.1f}"


def duration(seconds):
    """Seconds, minutes or hours, whichever reads well."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
