"""The forecast of a plan: what every stage costs, by the `costs.py` of its package, and what all take on a machine."""

import importlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

from commands.forecast.counts import Counts, artefact_of
from teleport.costs import Cost, Place
from teleport.plan.kinds import KINDS, is_scattered, needs
from teleport.refusal import Refusal


def stage_cost(stage, counts, place=Place()):  # noqa: B008
    """The `Cost` of a planned stage in a `Place`; for a kind without an estimate, that of a process alone."""
    function = getattr(package_costs(stage.kind), stage.kind, None)
    return function(stage, counts, place) if function else Cost(lacks=f"{stage.kind} (no estimate)")


def package_costs(kind):
    """The module `costs` beside that of a kind of stage; None if there is none."""
    name = f"{KINDS[kind].module.rpartition('.')[0]}.costs"
    return importlib.import_module(name) if find_spec(name) else None


@dataclass(frozen=True)
class Estimate:
    """A stage: its cost, and seconds by the forecast (None: the machine is unmeasured). For a finished stage
    the sizes are measured, and `took` is its time."""

    kind: str
    cost: Cost
    seconds: float | None
    done: bool
    bytes: float
    memory: float
    device_memory: float
    took: float = 0.0


def total(what, stages):
    """The sum of a figure of `Estimate`s, for memory the largest; None if one is unknown."""
    values = [getattr(each, what) for each in stages]
    if None in values:
        return None
    return max(values, default=0.0) if "memory" in what else sum(values)


class Forecast:
    """The costs of a plan's stages on a `Hardware`; None: an unmeasured machine with one GPU, for which there are no
    times.

    gpus: {kind: how many GPUs a job takes}, instead of those in kinds.py; shards: {kind: into how many jobs a stage is
    scattered}. counts: the `Counts` of the collection; others: {name: those of another collection, taken to be as large
    as the first if its size is unknown}; stages: {name: Estimate}
    """

    def __init__(self, plan, hardware, gpus=None, shards=None):
        self.plan, self.hardware, self.gpus, self.shards = plan, hardware, gpus or {}, shards or {}
        self.counts, self.others = Counts(plan), {}
        for name, other in plan.others.items():
            try:
                self.others[name] = Counts(other)
            except Refusal:
                self.others[name] = self.counts.of_unknown(other)

    def counts_of(self, stage):
        """The `Counts` of the collection that a stage is made from."""
        return self.others.get(self.plan.elsewhere.get(stage.name), self.counts)

    @cached_property
    def stages(self):
        return {name: self.estimate(stage) for name, stage in self.plan.stages.items()}

    def needs(self, stage):
        """Return what a job of a stage requests (`Kind`), with the GPUs of this forecast."""
        row = needs(stage)
        return row._replace(gpus=self.gpus.get(stage.kind, row.gpus))

    def place(self, stage):
        """Return where a job of a stage computes (`Place`), at most on the cores that the machine has."""
        row = self.needs(stage)
        if self.hardware is None:
            return Place(row.threads, row.gpus)
        room, has_gpus = self.hardware.room, self.hardware.device_memory is not None
        return Place(min(row.threads, room["cores"]), row.gpus if has_gpus else 0)

    def cost(self, stage, shards=1):
        """(Cost, seconds) of the job that makes a stage, or of one of `shards` jobs that each make a part of it."""
        place = self.place(stage)
        cost = stage_cost(stage, self.counts_of(stage), place)
        cost = package_costs(stage.kind).sharded(cost, shards)[0] if shards > 1 else cost
        return cost, self.hardware and self.hardware.seconds(cost, place.gpus)

    def estimate(self, stage):
        """The `Estimate` of a stage; for a finished one, sizes and time are those of its manifest."""
        (cost, seconds), artefact = self.cost(stage), artefact_of(stage)
        if self.hardware and self.is_split(stage):
            shards, shard, join = self.split_seconds(stage, cost)
            at_once = min(shards, self.hardware.gpus if self.place(stage).gpus else 1)
            rounds = -(-shards // at_once)
            seconds = rounds * shard + join
        if artefact is None:
            return Estimate(stage.kind, cost, seconds, False, cost.bytes, cost.memory, cost.device_memory)
        facts, made = artefact.manifest["facts"], artefact.manifest.get("provenance", {})
        sizes = artefact.bytes, made.get("peak_memory_bytes", 0), made.get("hardware", {}).get("gpu_peak_bytes", 0)
        took = made.get("wall_seconds", 0.0) + facts.get("earlier_seconds", 0.0)
        return Estimate(stage.kind, cost, seconds, True, *sizes, took)

    def is_split(self, stage):
        """Whether several jobs each make a part of a stage."""
        return self.shards.get(stage.kind, 1) > 1 and is_scattered(stage)

    def split_seconds(self, stage, cost):
        """(number of jobs that each make a part of a stage, seconds of each, seconds of the job that joins them)."""
        shards = self.shards[stage.kind]
        shard, join = package_costs(stage.kind).sharded(cost, shards)
        return shards, self.hardware.seconds(shard, 1), self.hardware.seconds(join)

    @cached_property
    def by_kind(self):
        """{kind: [Estimate]} in the order of the workflow."""
        by_kind = {kind: [each for each in self.stages.values() if each.kind == kind] for kind in KINDS}
        return {kind: stages for kind, stages in by_kind.items() if stages}

    @cached_property
    def left(self):
        """{name: Estimate} of the stages that are not finished."""
        return {name: each for name, each in self.stages.items() if not each.done}

    @cached_property
    def critical_path(self):
        """(seconds, names) of the longest chain of stages that are left: the least time, whatever the machine."""
        longest = {}
        for name, stage in self.plan.stages.items():  # each comes after those that it reads
            before = [longest[each.name] for each in stage.inputs.values()]
            seconds, names = max(before, key=lambda each: each[0], default=(0.0, ()))
            own = self.left.get(name)
            longest[name] = (seconds + own.seconds, (*names, name)) if own else (seconds, names)
        return max(longest.values(), key=lambda each: each[0], default=(0.0, ()))

    @property
    def wall_seconds(self):
        """Return the least seconds that the stages left take: the critical path or the work for each device, whichever
        is larger."""
        room, work = self.hardware.room, {"cores": 0.0, "gpu": 0.0}
        for name, each in self.left.items():
            stage, seconds = self.plan.stages[name], each.seconds
            place = self.place(stage)
            if place.gpus and self.is_split(stage):  # each.seconds is that of some devices at a time
                shards, shard, join = self.split_seconds(stage, each.cost)
                work["cores"] += join * place.threads
                seconds = shards * shard
            work["gpu" if place.gpus else "cores"] += seconds * (place.gpus or place.threads)
        return max(self.critical_path[0], *(seconds / room[what] for what, seconds in work.items()))

    @property
    def bytes_to_come(self):
        """The most bytes at a time besides those that are on the disk now. If vectors are deleted once they are read
        (keep_vectors), those of one checkpoint are still there while the next are made."""
        passing = Counter()
        for name in self.plan.deleted_vectors.keys() & self.left.keys():
            passing[self.plan.stages[name].inputs["checkpoint"].name] += self.left[name].bytes
        return total("bytes", self.left.values()) - sum(sorted(passing.values())[:-2])
