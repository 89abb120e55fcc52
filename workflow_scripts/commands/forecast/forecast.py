"""The forecast of a plan on a machine: what every stage costs, and when the jobs run that are left."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from commands.forecast.costs import stage_cost
from commands.forecast.costs.encoder import sharded
from commands.forecast.counts import Counts, artefact_of
from commands.forecast.hardware import Cost, Place
from commands.forecast.schedule import Job, most_bytes, schedule
from teleport.plan.kinds import KINDS, needs


@dataclass(frozen=True)
class Estimate:
    """A stage: its cost, seconds by the forecast, and its sizes in bytes; of a finished one these are measured."""

    kind: str
    cost: Cost
    seconds: float
    done: bool
    bytes: float
    memory: float
    device_memory: float
    took: float = 0.0  # seconds, measured


class Line(NamedTuple):
    """Some stages together (list of `Estimate`)."""

    kind: str
    stages: list

    @property
    def left(self):
        return [each for each in self.stages if not each.done]

    @property
    def done(self):
        return len(self.stages) - len(self.left)

    @property
    def forecast_of_done(self):
        return total("seconds", self.stages) - total("seconds", self.left)


def total(what, stages):
    """The sum of a figure of `Estimate`s; of memory the largest."""
    values = [getattr(each, what) for each in stages]
    return max(values, default=0.0) if "memory" in what else sum(values)


class Forecast:
    """What the stages of a plan cost on a `Hardware`.

    gpus: {kind: how many GPUs a job takes}, in the place of what kinds.py says; shards: jobs that encode the passages
    of a stage. counts: the `Counts` used; stages: {name: Estimate}
    """

    def __init__(self, plan, hardware, gpus=None, shards=1):
        self.plan, self.hardware, self.gpus, self.shards = plan, hardware, gpus or {}, shards
        self.counts = Counts(plan)

    @cached_property
    def stages(self):
        return {name: self.estimate(stage) for name, stage in self.plan.stages.items()}

    def needs(self, stage):
        """What a job of a stage asks for (`Kind`), with the GPUs of this forecast."""
        row = needs(stage, self.plan.deleted_vectors)
        return row._replace(gpus=self.gpus.get(stage.kind, row.gpus))

    def place(self, stage):
        """Where a job of a stage computes (`Place`), at most on what the machine has."""
        room, row = self.hardware.room, self.needs(stage)
        has_gpus = self.hardware.device_memory is not None and KINDS[stage.kind].gpus
        return Place(min(row.threads, room["cores"]), min(row.gpus, room["gpu"]) if has_gpus else 0)

    def cost(self, stage, shards=1):
        """(Cost, seconds) of the job that makes a stage, or of one of so many that each make a part of it. Where the
        same process makes others before it, these have opened what it reads."""
        place = self.place(stage)
        cost = stage_cost(stage, self.counts, place)
        cost = sharded(cost, shards)[0] if shards > 1 else cost
        return cost, self.hardware.seconds(cost, place.gpus)

    def parts(self, stage, cost):
        """[(Cost, seconds)] of the jobs that make a stage: those of its shards, and at the end its own."""
        gpus, costs = self.place(stage).gpus, [cost]
        if self.shards > 1 and stage.kind == "encode" and "passage" in stage.settings.sides:
            shard, join = sharded(cost, self.shards)
            costs = [*[shard] * self.shards, join]
        return [(part, self.hardware.seconds(part, gpus)) for part in costs]

    def estimate(self, stage):
        """The `Estimate` of a stage; of a finished one sizes and time are those of its manifest."""
        (cost, _), artefact = self.cost(stage), artefact_of(stage)
        made = artefact.manifest.get("provenance", {}) if artefact else {}
        seconds = sum(seconds for _, seconds in self.parts(stage, cost))
        if artefact is None:
            return Estimate(stage.kind, cost, seconds, False, cost.bytes, cost.memory, cost.device_memory)
        facts = artefact.manifest["facts"]
        sizes = artefact.bytes, made.get("peak_memory_bytes", 0), made.get("hardware", {}).get("gpu_peak_bytes", 0)
        took = made.get("wall_seconds", 0.0) + facts.get("earlier_seconds", 0.0)
        return Estimate(stage.kind, cost, seconds, True, *sizes, took)

    @cached_property
    def lines(self):
        """A `Line` per kind, in the order of the workflow, and at the end that of all (list)."""
        by_kind = {kind: [] for kind in KINDS}
        for each in self.stages.values():
            by_kind[each.kind].append(each)
        return [*(Line(*item) for item in by_kind.items() if item[1]), Line("total", [*self.stages.values()])]

    @cached_property
    def jobs(self):
        """{name: Job} of the stages that are not done; see `jobs_of`."""
        return self.jobs_of({name for name, each in self.stages.items() if not each.done})

    def jobs_of(self, left):
        """{name: Job} of the stages `left` (set), in the order of the plan; shards are named NAME/NUMBER."""
        jobs = {}
        for name in filter(left.__contains__, self.plan.stages):
            stage = self.plan.stages[name]
            row, parts = self.needs(stage), self.parts(stage, self.stages[name].cost)
            reads = stage.inputs.values()
            waits = [read.name for read in reads if read.name in left]
            shards = [f"{name}/{number}" for number in range(1, len(parts))]
            for job, (cost, seconds) in zip([*shards, name], parts, strict=True):
                taken = {"cores": row.threads, "gpu": row.gpus, "memory": int(cost.memory)}
                after = tuple(dict.fromkeys(waits + (shards if job == name else [])))
                jobs[job] = Job(seconds, after, taken, row.priority, cost.bytes, cost.scratch, stage.kind)
        return jobs

    @cached_property
    def times(self):
        """{job: (start, end) in seconds}, of one schedule on this machine."""
        return schedule(self.jobs, self.hardware.room)

    @property
    def wall_seconds(self):
        """When the last job ends, in seconds from now."""
        return max((end for _, end in self.times.values()), default=0.0)

    @property
    def bytes_to_come(self):
        """The most bytes at a time beside those that are on the disk now, when jobs run as `times` says. Vectors go
        when the last stage that is planned to read them has ended (keep_vectors)."""
        freed = []
        for name, readers in self.plan.deleted_vectors.items():
            ends = [self.times[stage][1] for stage in (name, *(r.name for r in readers)) if stage in self.times]
            freed.append((max(ends, default=0.0), self.stages[name].bytes))
        return most_bytes(self.jobs, self.times, freed)
