"""The requests of a stage's job to a cluster: time and memory by the forecast of this stage alone."""

import math
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from pydantic import Field

from commands.forecast.forecast import Forecast
from commands.forecast.hardware import read_hardware
from teleport.plan.kinds import needs
from teleport.refusal import Refusal
from teleport.running.artefact import is_finished
from teleport.settings.section import Section
from teleport.settings.yaml_mapping import Locations, validated

# Factors on the forecast, which is right within a factor 2 of hours and 1.25 of memory; each further attempt requests
# twice as much.
MARGIN, MEMORY_MARGIN = 2, 1.5
STARTING = 2  # extra minutes, for a stage that begins a job
FOLLOWING = ("index", "retrieve", "positives")  # kinds that follow an encoding in its job, `group_of`
LEAST_MB = 4000  # the libraries of CUDA alone are 3 GB in memory


class Cluster(Section):
    """The nodes as a profile describes them, `config: {cluster: …}`."""

    hardware: str | None = Field(None, description="Their line in config/hardware.yaml.")
    minutes: int | None = Field(None, ge=1, description="The longest job that the partition takes.")
    mem_mb: int | None = Field(None, ge=1, description="The largest one.")


class Request(NamedTuple):
    minutes: int
    mem_mb: int


class Requests:
    """The requests of a plan's stages on a cluster, described by the mapping `cluster`.

    Without hardware in `cluster`, or if the size of the collection is not known yet, they are those of plan/kinds.py.
    If the forecast has no estimate for something, they are at least those. finished: a function of a stage's name,
    whether it is finished and will not rerun
    """

    def __init__(self, plan, cluster, finished=is_finished):
        self.finished = finished
        self.plan, self.cluster = plan, validated(Cluster, cluster, ("the profile's config", "cluster"), Locations([]))
        self.hardware = self.cluster.hardware and read_hardware(self.cluster.hardware)[1]
        self.made = None  # the forecast

    @property
    def forecast(self):
        """The `Forecast` on a node of the cluster; None if nothing can be forecast."""
        if self.hardware and not self.made:
            with suppress(Refusal):  # the size of the collection is not known, until it is built
                self.made = Forecast(self.plan, self.hardware)
        return self.made

    def minutes(self, stage, seconds):
        """Return the minutes that a job requests if it takes `seconds` by the forecast."""
        return max(1, round(MARGIN * seconds / 60)) + STARTING * self.begins(stage)

    def begins(self, stage):
        """Whether a stage begins a job: all stages of its job that come before it are finished."""
        job = self.groups.get(stage.name, [])
        if stage.kind == "encode" and stage.settings.of != "passages":  # a search of the job waits for both
            before = [other for other in job if other.kind == "encode" and other.settings.of == "passages"]
        else:
            before = [read for read in stage.inputs.values() if read in job]
        return all(self.finished(other.name) for other in before)

    def first_request(self, stage, shards=1):
        """The `Request` of a first attempt, without limits."""
        row = needs(stage, self.plan.deleted_vectors)
        usual = Request(row.minutes, row.mem_mb)
        if not self.forecast:
            return usual
        cost, seconds = self.forecast.cost(stage, shards)
        foreseen = Request(self.minutes(stage, seconds), max(LEAST_MB, math.ceil(MEMORY_MARGIN * cost.memory / 1e6)))
        return Request(*map(max, usual, foreseen)) if cost.lacks else foreseen

    def of(self, stage, attempt=1, shards=1):
        """The `Request` for a job of a stage, or for one of its shards, within the cluster's limits. The minutes of the
        stages that share an encoding's job add up, so each gets its share of the partition's limit."""
        times, most = 2 ** (attempt - 1), self.cluster.minutes or math.inf
        minutes, mem_mb = (times * n for n in self.first_request(stage, shards))
        others = self.groups.get(stage.name, ()) if shards == 1 else ()  # shards are jobs of their own
        left = [other for other in others if not self.finished(other.name)]
        together = max(minutes, times * sum(self.first_request(other).minutes for other in left))
        if together > most:
            minutes = max(1, minutes * most // together)
        return Request(minutes, min(mem_mb, self.cluster.mem_mb or math.inf))

    @cached_property
    def groups(self):
        """{stage: [the stages of its job]} of encodings and what follows them, in the order of the plan."""
        jobs = {}
        for stage in self.plan.stages.values():
            if name := group_of(stage):
                jobs.setdefault(name, []).append(stage)
        return {stage.name: job for job in jobs.values() for stage in job}


def checkpoint_of(stage):
    """The stage that made the checkpoint of the vectors that a stage makes or reads. If queries and passages have one
    each, as one side is frozen (ADORE), it is the later one. None if the stage reads a run of words (BM25)."""
    if stage.kind == "encode":
        return stage.inputs["checkpoint"]
    read = [checkpoint_of(stage.inputs[role]) for role in ("queries", "passages") if role in stage.inputs]
    return max(filter(None, read), key=trainings, default=None)


def trainings(checkpoint):
    """How many trainings lead to a checkpoint."""
    return 1 + trainings(checkpoint.inputs["checkpoint"]) if checkpoint.kind == "train" else 0


def group_of(stage):
    """The name of the job that a stage shares on a cluster with what else is made of a checkpoint's vectors; None for
    one of its own. Never `merge`: it follows the pool of the episode before, and the jobs of all episodes would become
    one."""
    made = checkpoint_of(stage) if stage.kind in ("encode", *FOLLOWING) else None
    return made and f"mining_{made.key}"
