"""How long what is left of a plan takes on a machine: its stages as jobs, the critical path, what runs together."""

from collections import Counter
from itertools import accumulate, groupby

from commands.forecast.counts import finished
from commands.forecast.schedule import Job, critical_path, schedule, together
from commands.forecast.table import GB, duration, threads_of

# What rules/stages.smk asks for, where it is not one thread, no GPU and no priority; threads: `table.threads_of`.
ON_GPU = ("encode", "retrieve", "train")  # where vectors are released, "index" too
FOR_VECTORS = ("index", "retrieve", "positives", "merge", "train", "rerank", "errors")  # as soon as they are there
PRIORITIES = {"check": 100, "pretrained": 50, "tokens": 50} | dict.fromkeys(FOR_VECTORS, 10)
WORTH_SAYING = 0.003  # of the wall clock: what runs together for less is left out


def jobs_left(plan, costs):
    """{name: Job} of the stages that are not finished, in the order of the plan. costs: of a `Forecast`"""
    left = {name: stage for name, stage in plan.stages.items() if finished(stage) is None}
    on_gpu = (*ON_GPU, "index") if plan.released else ON_GPU
    return {name: job_of(stage, left, on_gpu, *costs[name]) for name, stage in left.items()}


def job_of(stage, left, on_gpu, cost, seconds):
    """The `Job` of a stage, which waits for those in `left` alone. Without an estimate (None) it takes no time."""
    needs = {"cores": threads_of(stage), "gpu": int(stage.kind in on_gpu)}
    if cost is not None:
        needs["memory"] = int(cost.memory)
    after = tuple({read.name: None for read in stage.inputs.values() if read.name in left})
    return Job(seconds, after, needs, PRIORITIES.get(stage.kind, 0))


def bytes_to_come(plan, costs, hardware):
    """The most bytes at a time beside those that are on the disk now, when jobs run as `schedule` says.

    Vectors go when the last stage that is planned to read them has ended (keep_vectors). costs: of a `Forecast`
    """
    times, changes = schedule(jobs_left(plan, costs), hardware.room), []
    for name, (start, end) in times.items():
        if (cost := costs[name][0]) is not None:
            changes += [(start, cost.bytes + cost.scratch), (end, -cost.scratch)]
    for name, readers in plan.released.items():
        made = finished(plan.stages[name])
        ends = [times[stage][1] for stage in (name, *(reader.name for reader in readers)) if stage in times]
        changes.append((max(ends, default=0.0), -(made.bytes if made else costs[name][0].bytes)))
    return max(accumulate((change for _, change in sorted(changes)), initial=0.0))


def timing(plan, costs, hardware):
    """The wall clock, the critical path and what runs together, as lines of text; [] where nothing is left."""
    jobs, room = jobs_left(plan, costs), hardware.room
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
