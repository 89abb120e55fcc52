"""The forecast of a configuration: per stage kind the count, what is done, disk, memory and time."""

from dataclasses import dataclass, fields

from commands.forecast.costs import stage_cost
from commands.forecast.counts import Counts, finished
from commands.status import columns, duration
from teleport.plan.kinds import KINDS, needs

GB = 1e9


@dataclass
class Line:
    """A stage kind. Of its done stages bytes and memory are those measured, of the others (`*_left`) estimates."""

    kind: str
    stages: int = 0
    done: int = 0
    bytes: float = 0.0  # of all
    bytes_left: float = 0.0
    memory: float = 0.0  # the largest
    device_memory: float = 0.0
    memory_left: float = 0.0
    device_memory_left: float = 0.0
    seconds: float = 0.0  # estimate of all
    seconds_left: float = 0.0
    measured: float = 0.0  # seconds that the done ones took
    has_estimate: bool = True

    @property
    def estimated(self):
        """Seconds forecast for the stages that are done."""
        return self.seconds - self.seconds_left

    def include(self, other):
        """Count the stages of another line too: sums, and of memory the larger."""
        for name in [field.name for field in fields(self) if field.type in (int, float)]:
            mine, others = getattr(self, name), getattr(other, name)
            setattr(self, name, max(mine, others) if "memory" in name else mine + others)


def stage_line(kind, cost, seconds, artefact):
    """The `Line` of one stage; `cost` is None where there is no estimate, `artefact` None where it is to do."""
    if artefact is None:
        sizes = {name: getattr(cost, name) for name in ("bytes", "memory", "device_memory") if cost}
        left = {f"{name}_left": size for name, size in sizes.items()}
        return Line(kind, stages=1, seconds=seconds, seconds_left=seconds, **sizes, **left)
    made, facts = artefact.manifest.get("provenance", {}), artefact.manifest["facts"]
    took = made.get("wall_seconds", 0.0) + facts.get("earlier_seconds", 0.0)
    memory, on_gpu = made.get("peak_memory_bytes", 0), made.get("hardware", {}).get("gpu_peak_bytes", 0)
    sizes = {"bytes": artefact.bytes, "memory": memory, "device_memory": on_gpu}
    return Line(kind, stages=1, done=1, seconds=seconds, measured=took, **sizes)


def forecast(plan, hardware):
    """(lines, counts, costs) of a plan: a `Line` per stage kind, in the order of the workflow; the `Counts` used; and
    {stage's name: (Cost, seconds)}, (None, 0.0) where there is no estimate."""
    counts, lines, costs = Counts(plan), {}, {}
    for name, stage in plan.stages.items():
        cost = stage_cost(stage, counts)
        if cost is not None and hardware.device_memory is None:
            cost = cost.on_processor(min(needs(stage).threads, hardware.room["cores"]))
        costs[name] = cost, hardware.seconds(cost) if cost else 0.0
        line = lines.setdefault(stage.kind, Line(stage.kind, has_estimate=cost is not None))
        line.include(stage_line(stage.kind, *costs[name], finished(stage)))
    return [lines[kind] for kind in KINDS if kind in lines], counts, costs


def render(lines):
    """The forecast as lines of text; sizes in GB (1e9 bytes), times as if one job ran after another."""
    head = ("stage", "count", "done", "disk GB", "memory GB", "GPU GB", "time", "left", "done took", "forecast")
    total = total_line(lines)
    shown = len(head) if total.done else 7  # of what is done and what is left there is nothing to say yet
    text = columns([row[:shown] for row in (head, *map(cells, lines), cells(total))], str.rjust)
    rule = "-" * max(map(len, text))
    return "\n".join([text[0], rule, *text[1:-1], rule, text[-1]])


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
        return (*counted, gigabytes(line.bytes) if line.done else "?", *["?"] * 4, "", "")
    memory = [gigabytes(size) if size else "" for size in (line.memory, line.device_memory)]
    compared = [duration(line.measured), duration(line.estimated)] if line.done else ["", ""]
    times = duration(line.seconds), duration(line.seconds_left)
    return (*counted, gigabytes(line.bytes), *memory, *times, *compared)


def gigabytes(size):
    return f"{size / GB:.3f}" if size < GB else f"{size / GB:.1f}"
