"""How long the jobs of a run still take: by the forecast, and by how long those took that have ended in this run."""

from dataclasses import dataclass, replace
from pathlib import Path

from commands.forecast.forecast import Forecast
from commands.forecast.hardware import read_hardware
from commands.forecast.printed import has_unmeasured_gpus
from commands.forecast.schedule import Job, schedule
from teleport.refusal import Refusal

TRUST = 0.1  # the forecast counts as much as this part of the run, measured: short first jobs tell little of the rest
FIRST = 1000  # priority of what runs


@dataclass
class Left:
    """jobs: {name: Job} of those that are to do at the start; room: as `schedule` takes it."""

    jobs: dict[str, Job]
    room: dict[str, int]

    def seconds(self, ended, running):
        """What the run still takes. ended: {name: seconds that it took}; running: {name: (seconds so far, those left by
        its own report, or None)}"""
        known = ended.keys() & self.jobs.keys()
        trust = TRUST * sum(job.seconds for job in self.jobs.values())
        forecast = trust + sum(self.jobs[name].seconds for name in known)
        ratio = (trust + sum(ended[name] for name in known)) / forecast if forecast else 1.0
        to_do = {}
        for name in [name for name in self.jobs if name not in known]:
            job, (spent, left) = self.jobs[name], running.get(name, (0.0, None))
            left = max(ratio * job.seconds - spent, 0.0) if left is None else left
            if name in running:
                to_do[name] = replace(job, seconds=left, after=(), priority=FIRST)
            else:
                to_do[name] = replace(job, seconds=left, after=tuple(each for each in job.after if each not in known))
        return max((end for _, end in schedule(to_do, self.room).values()), default=0.0)


def left_of_run(plan, names, shards, room):
    """The `Left` of the stages `names` (set) of a plan, by a run that has `room` of this machine; None without a
    forecast. shards: jobs that encode the passages of a stage"""
    if has_unmeasured_gpus():
        return None
    try:
        forecast = Forecast(plan, read_hardware()[1], shards=shards)
        return Left(forecast.jobs_of(names & plan.stages.keys()), forecast.hardware.room | room)
    except Refusal:
        return None


def job_of(output):
    """What a forecast calls the job of an output (path): KIND/KEY, or KIND/KEY/NUMBER of a shard."""
    *_, first, second, last = ("", "", "", *Path(output).parts[:-1])
    number, shard, _ = last.partition("-of-")
    return f"{first}/{second}/{number}" if shard else f"{second}/{last}"
