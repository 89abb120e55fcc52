"""The forecast of a configuration: per stage kind the count, what is done, disk, memory and time; and warnings."""

import glob
import shutil
from dataclasses import dataclass

from commands.forecast.costs.stages import stage_cost
from commands.forecast.counts import Counts, finished
from commands.forecast.hardware import MEASURED, read_hardware
from teleport.runtime.artefact import STAGES
from teleport.runtime.code import STAGE_MODULES
from teleport.runtime.devices import DEVICE_FILES
from teleport.runtime.files import PRUNE

GB = 1e9
SUMMED = ("stages", "done", "bytes", "bytes_left", "seconds", "seconds_left", "measured", "estimated")
LARGEST = ("scratch", "memory", "device_memory", "memory_left", "device_memory_left")
# Threads that rules/stages.smk asks for, where it is not one. An index that is trained takes 8.
THREADS = dict.fromkeys(("tokens", "bm25", "encode", "retrieve", "train", "errors"), 8)
REMEDIES = {
    "retrieve": "Vectors that do not fit are read from the disk again for every block of queries, slowly.",
    "train": "Set training.gradient_caching: true, which gives the same gradients, or share the training among GPUs "
    "(--set-resources train:gpu=4); where it is set already, training.precision: bf16 or a device with more memory is "
    "left. A lower training.batch_queries or training.negatives_per_query changes the result.",
}


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
    scratch: float = 0.0
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
        line.bytes = sum(file["bytes"] for file in artefact.manifest["files"].values())
        line.measured = made.get("wall_seconds", 0.0) + facts.get("earlier_seconds", 0.0)
        line.memory = made.get("peak_memory_bytes", 0)
        line.device_memory = made.get("hardware", {}).get("gpu_peak_bytes", 0)
    elif cost is not None:
        line.bytes, line.memory, line.device_memory = cost.bytes, cost.memory, cost.device_memory
        line.bytes_left, line.memory_left, line.device_memory_left = cost.bytes, cost.memory, cost.device_memory
        line.scratch, line.seconds_left = cost.scratch, seconds
    return line


def estimate(stage, counts, plan, hardware):
    """(the Cost of a stage on this hardware, its seconds); (None, 0.0) for a kind that has no estimate."""
    cost = stage_cost(stage, counts, plan)
    if cost is None:
        return None, 0.0
    if hardware.device_memory is None:
        cost = cost.on_processor(min(THREADS.get(stage.kind, 1), hardware.room["cores"]))
    return cost, hardware.seconds(cost)


def forecast(plan, hardware):
    """(lines, counts): a `Line` per stage kind of the plan, in the order of the workflow, and the `Counts` used."""
    counts, lines = Counts(plan), {}
    for stage in plan.stages.values():
        cost, seconds = estimate(stage, counts, plan, hardware)
        line = lines.setdefault(stage.kind, Line(stage.kind, has_estimate=cost is not None))
        line.include(stage_line(stage.kind, cost, seconds, finished(stage)))
    order = {kind: place for place, kind in enumerate(STAGE_MODULES)}
    return sorted(lines.values(), key=lambda line: order.get(line.kind, len(order))), counts


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


def shortages(plan):
    """The `warnings` of a plan on this machine, before it runs here.

    None where the size of the collection is not known yet, nor where there are GPUs and nobody has measured them.
    """
    if glob.glob(DEVICE_FILES) and not MEASURED.is_file():
        return []
    hardware = read_hardware()[1]
    try:
        return warnings(forecast(plan, hardware)[0], hardware)
    except ValueError:
        return []


def warnings(lines, hardware, folder=STAGES):
    """What is too small for the stages that are still to do: one sentence each (list of str).

    folder: where artefacts are written; its disk is looked at on this machine.
    """
    existing = next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())
    free, total = shutil.disk_usage(existing).free, total_line(lines)
    found = []
    if total.bytes_left + total.scratch > free:
        found.append(
            f"disk: {(total.bytes_left + total.scratch) / GB:.1f} GB are needed below {folder}, {free / GB:.1f} GB are "
            f"free. Free some space ({PRUNE}), or move `results`."
        )
    for what, has in (("memory", hardware.room["memory"]), ("device_memory", hardware.device_memory)):
        for line in lines:
            needed = getattr(line, f"{what}_left")
            if has is not None and needed > has:
                found.append(
                    f"{what.replace('_', ' ')}: {line.kind} needs about {needed / GB:.1f} GB, there are "
                    f"{has / GB:.1f} GB. {REMEDIES.get(line.kind, 'Use a larger machine.')}"
                )
    return found
