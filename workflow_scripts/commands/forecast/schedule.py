"""When jobs run that depend on each other and share a machine.

Greedy list scheduling, as Snakemake's: whenever a job ends, every job starts that is ready and fits into what is free,
those of higher priority first, else in their given order. Nothing is left idle to wait for a better job, so it is no
optimum. Which of several jobs of one priority Snakemake takes first is its own affair.
"""

import heapq
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations


@dataclass(frozen=True)
class Job:
    """after: names of the jobs that it waits for; needs: {resource: int}, of which it takes at most all there is."""

    seconds: float
    after: tuple[str, ...] = ()
    needs: dict[str, int] = field(default_factory=dict)
    priority: int = 0


def schedule(jobs, room):
    """{name: (start, end) in seconds} of `jobs` {name: Job} on a machine with `room` {resource: int}."""
    waits_for, followers = {name: len(job.after) for name, job in jobs.items()}, {name: [] for name in jobs}
    for name, job in jobs.items():
        for earlier in job.after:
            followers[earlier].append(name)
    taken = {name: {what: min(size, room[what]) for what, size in job.needs.items()} for name, job in jobs.items()}
    rank = {name: (-job.priority, number, name) for number, (name, job) in enumerate(jobs.items())}
    ready = sorted(rank[name] for name, number in waits_for.items() if not number)
    free, times, running, now = Counter(room), {}, [], 0.0
    while ready or running:
        waiting = []
        for entry in ready:
            name = entry[-1]
            if all(size <= free[what] for what, size in taken[name].items()):
                free.subtract(taken[name])
                times[name] = now, now + jobs[name].seconds
                heapq.heappush(running, (times[name][1], name))
            else:
                waiting.append(entry)
        ready, now = waiting, running[0][0]
        while running and running[0][0] == now:
            _, name = heapq.heappop(running)
            free.update(taken[name])
            for follower in followers[name]:
                waits_for[follower] -= 1
                if not waits_for[follower]:
                    insort(ready, rank[follower])
    return times


def critical_path(jobs):
    """The names of the longest chain of `jobs` {name: Job}, each after those that it waits for; from first to last.

    Its seconds are the least in which all jobs are done, however large the machine is.
    """
    done_at, before = {}, {}
    for name, job in jobs.items():
        before[name] = max(job.after, key=done_at.__getitem__, default=None)
        done_at[name] = job.seconds + done_at.get(before[name], 0.0)
    path, name = [], max(done_at, key=done_at.__getitem__, default=None)
    while name is not None:
        path.append(name)
        name = before[name]
    return path[::-1]


def together(times, kinds):
    """{(kind, kind): seconds in which jobs of both run}, the two in alphabetical order; twice the same: several of it.

    times: of `schedule`; kinds: {name: kind}
    """
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
