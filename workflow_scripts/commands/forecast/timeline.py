"""How long what is left of a plan takes on a machine: its stages as jobs, the critical path, what runs together."""

from collections import Counter
from itertools import groupby

from commands.forecast.counts import finished
from commands.forecast.schedule import Job, critical_path, schedule, together
from commands.forecast.table import GB, THREADS, duration, estimate

# What rules/stages.smk asks for, where it is not one thread, no GPU and no priority; threads: `table.THREADS`.
ON_GPU = ("encode", "retrieve", "train")
PRIORITIES = {"check": 100, "pretrained": 50, "tokens": 50}
WORTH_SAYING = 0.003  # of the wall clock: what runs together for less is left out


def jobs_left(plan, counts, hardware):
    """{name: Job} of the stages that are not finished, in the order of the plan."""
    left = {name: stage for name, stage in plan.stages.items() if finished(stage) is None}
    return {name: job_of(stage, left, *estimate(stage, counts, plan, hardware)) for name, stage in left.items()}


def job_of(stage, left, cost, seconds):
    """The `Job` of a stage, which waits for those in `left` alone. Without an estimate (None) it takes no time."""
    trained = stage.kind == "index" and stage.settings.index.kind != "flat"
    needs = {"cores": 8 if trained else THREADS.get(stage.kind, 1), "gpu": int(stage.kind in ON_GPU)}
    if cost is not None:
        needs["memory"] = int(cost.memory)
    after = tuple({read.name: None for read in stage.inputs.values() if read.name in left})
    return Job(seconds, after, needs, PRIORITIES.get(stage.kind, 0))


def timing(plan, counts, hardware):
    """The wall clock, the critical path and what runs together, as lines of text; [] where nothing is left."""
    jobs, room = jobs_left(plan, counts, hardware), hardware.room
    if not jobs:
        return []
    times, path = schedule(jobs, room), critical_path(jobs)
    whole, longest = max(end for _, end in times.values()), sum(jobs[name].seconds for name in path)
    machine = [f"{room['cores']} cores ({in_use(jobs, room, 'cores', whole)})"]
    if hardware.device_memory:
        machine.append(f"{room['gpu']} GPU{'s' if room['gpu'] > 1 else ''} ({in_use(jobs, room, 'gpu', whole)})")
    return [
        f"wall clock: {duration(whole)} on {', '.join(machine)}, {room['memory'] / GB:.0f} GB of memory",
        f"critical path: {duration(longest)}, the least however many cores and GPUs there are",
        *path_lines(plan, jobs, path),
        *overlap_lines(plan, jobs, times, WORTH_SAYING * whole),
    ]


def in_use(jobs, room, what, whole):
    """How much of a resource all jobs take in `whole` seconds, as text."""
    taken = sum(job.seconds * min(job.needs[what], room[what]) for job in jobs.values())
    return f"{100 * taken / (whole * room[what]) if whole else 0:.0f} % in use"


def path_lines(plan, jobs, path):
    """The stages of a path by kind: a line for those of an experiment, one for those that several share."""
    text = []
    for user, names in groupby(path, lambda name: plan.users[name][0] if len(plan.users[name]) == 1 else "shared"):
        number, seconds = Counter(), Counter()
        for name in names:
            number[plan.stages[name].kind] += 1
            seconds[plan.stages[name].kind] += jobs[name].seconds
        parts = [f"{f'{n} ' if n > 1 else ''}{kind} {duration(seconds[kind])}" for kind, n in number.items()]
        text.append(f"  {user}: {', '.join(parts)}")
    return text


def overlap_lines(plan, jobs, times, least):
    """Which kinds run at the same time for at least so many seconds, each pair with the kind that takes longer."""
    kinds, lasts, beside = {name: plan.stages[name].kind for name in jobs}, Counter(), {}
    for name, job in jobs.items():
        lasts[kinds[name]] += job.seconds
    for pair, seconds in together(times, kinds).most_common():
        if seconds >= least:
            other, kind = sorted(pair, key=lasts.__getitem__)
            beside.setdefault(kind, []).append(f"{'another' if kind == other else other} {duration(seconds)}")
    text = ["at the same time:" if beside else "at the same time: hardly anything"]
    order = sorted(beside, key=lasts.__getitem__, reverse=True)
    return [*text, *(f"  {kind} beside {', '.join(beside[kind])}" for kind in order)]
