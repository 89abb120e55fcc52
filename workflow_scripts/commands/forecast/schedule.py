"""When the stages that are left run on a machine: the wall clock, the critical path, what runs together, the disk.

Greedy list scheduling, as Snakemake's: whenever a job ends, every job starts that is ready and fits into what is free,
those of higher priority first, else in their given order. Nothing idles to wait for a better job: it is no optimum.
"""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import accumulate, combinations, groupby

from commands.forecast.counts import finished
from commands.forecast.table import GB
from commands.status import duration
from teleport.plan.kinds import needs

START = ""  # before all jobs
WORTH_SAYING = 0.003  # of the wall clock: what runs together for less is left out


@dataclass(frozen=True)
class Job:
    """after: names of the jobs that it waits for; needs: {resource: int}, of which it takes at most all there is."""

    seconds: float
    after: tuple[str, ...] = ()
    needs: dict[str, int] = field(default_factory=dict)
    priority: int = 0


def schedule(jobs, room):
    """{name: (start, end) in seconds} of `jobs` {name: Job} on a machine with `room` {resource: int}."""
    taken = {name: {what: min(size, room[what]) for what, size in job.needs.items()} for name, job in jobs.items()}
    rank = {name: (-job.priority, number, name) for number, (name, job) in enumerate(jobs.items())}
    graph = TopologicalSorter({name: job.after for name, job in jobs.items()})
    graph.prepare()
    free, times, waiting, running, now = Counter(room), {}, [], [], 0.0
    while graph.is_active():
        ready, waiting = sorted([*waiting, *map(rank.__getitem__, graph.get_ready())]), []
        for entry in ready:
            name = entry[-1]
            if any(size > free[what] for what, size in taken[name].items()):
                waiting.append(entry)
                continue
            free.subtract(taken[name])
            times[name] = now, now + jobs[name].seconds
            heapq.heappush(running, (times[name][1], name))
        now = running[0][0]
        while running and running[0][0] == now:
            _, name = heapq.heappop(running)
            free.update(taken[name])
            graph.done(name)
    return times


def critical_path(jobs):
    """The names of the longest chain of `jobs` {name: Job}: the least time in which all jobs can be done."""
    import networkx  # loads slowly, and every run of the workflow loads this module

    graph = networkx.DiGraph()
    for name, job in jobs.items():
        graph.add_weighted_edges_from((before, name, job.seconds) for before in (START, *job.after))
    return networkx.dag_longest_path(graph)[1:]


def together(times, kinds):
    """{(kind, kind): seconds in which jobs of both run}, the two in alphabetical order; twice the same: several of it.
    times: of `schedule`; kinds: {name: kind}"""
    starts = [(start, 1, kinds[name]) for name, (start, _) in times.items()]
    ends = [(end, -1, kinds[name]) for name, (_, end) in times.items()]
    running, seconds, last = Counter(), Counter(), 0.0
    for moment, step, kind in sorted(starts + ends):
        if moment > last:
            for pair in combinations(sorted(+running), 2):
                seconds[pair] += moment - last
            seconds.update({(name, name): moment - last for name, number in running.items() if number > 1})
        running[kind] += step
        last = moment
    return seconds


def jobs_left(plan, costs):
    """{name: Job} of the stages that are not finished, in the order of the plan. costs: of a `Forecast`"""
    left, jobs = {name: stage for name, stage in plan.stages.items() if finished(stage) is None}, {}
    for name, stage in left.items():
        (cost, seconds), kind = costs[name], needs(stage, plan.deleted_vectors)
        room = {"cores": kind.threads, "gpu": kind.gpus, "memory": int(cost.memory) if cost else 0}
        after = tuple({read.name: None for read in stage.inputs.values() if read.name in left})
        jobs[name] = Job(seconds, after, room, kind.priority)
    return jobs


def bytes_to_come(plan, costs, hardware):
    """The most bytes at a time beside those that are on the disk now, when jobs run as `schedule` says.

    Vectors go when the last stage that is planned to read them has ended (keep_vectors). costs: of a `Forecast`
    """
    times, changes = schedule(jobs_left(plan, costs), hardware.room), []
    for name, (start, end) in times.items():
        if (cost := costs[name][0]) is not None:
            changes += [(start, cost.bytes + cost.scratch), (end, -cost.scratch)]
    for name, readers in plan.deleted_vectors.items():
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
    machine, shared = [], {"cores": "cores"}
    if hardware.device_memory:
        shared["gpu"] = "GPUs" if room["gpu"] > 1 else "GPU"
    for what, name in shared.items():
        taken = sum(job.seconds * min(job.needs[what], room[what]) for job in jobs.values())
        machine.append(f"{room[what]} {name} ({100 * taken / (whole * room[what]) if whole else 0:.0f} % in use)")
    return [
        f"wall clock: {duration(whole)} on {', '.join(machine)}, {room['memory'] / GB:.0f} GB of memory",
        f"critical path: {duration(longest)}, the least however many cores and GPUs there are",
        *path_lines(plan, jobs, path),
        *overlap_lines(plan, jobs, times, WORTH_SAYING * whole),
    ]


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
