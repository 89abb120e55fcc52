"""When jobs run on a machine, the critical path, what runs together, and how much is on the disk at a time.

Greedy list scheduling, as Snakemake's: whenever a job ends, every job starts that is ready and fits into what is free,
those of higher priority first, else in their given order. Nothing idles to wait for a better job: it is no optimum.
"""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import accumulate, combinations

START = ""  # before all jobs


@dataclass(frozen=True)
class Job:
    """after: names of the jobs that it waits for; needs: {resource: int}, of which it takes at most all there is;
    bytes: on the disk from its start on; scratch: more until its end; kind: for the reader"""

    seconds: float
    after: tuple[str, ...] = ()
    needs: dict[str, int] = field(default_factory=dict)
    priority: int = 0
    bytes: float = 0.0
    scratch: float = 0.0
    kind: str = ""


def schedule(jobs, room):
    """{name: (start, end) in seconds} of `jobs` {name: Job} on a machine with `room` {resource: int}."""
    taken = {name: tuple(min(job.needs.get(what, 0), room[what]) for what in room) for name, job in jobs.items()}
    ranks = {name: (-job.priority, number, name) for number, (name, job) in enumerate(jobs.items())}
    graph = TopologicalSorter({name: job.after for name, job in jobs.items()})
    graph.prepare()
    # Ready jobs by what they take: of each such queue only the first can be the next to start.
    free, times, queues, running = tuple(room.values()), {}, {}, []
    now = 0.0
    while graph.is_active():
        for name in graph.get_ready():
            heapq.heappush(queues.setdefault(taken[name], []), ranks[name])
        while fitting := [
            q for sizes, q in queues.items() if q and all(s <= f for s, f in zip(sizes, free, strict=True))
        ]:
            name = heapq.heappop(min(fitting))[-1]
            free = tuple(f - s for f, s in zip(free, taken[name], strict=True))
            times[name] = now, now + jobs[name].seconds
            heapq.heappush(running, (times[name][1], name))
        now = running[0][0]
        while running and running[0][0] == now:
            _, name = heapq.heappop(running)
            free = tuple(f + s for f, s in zip(free, taken[name], strict=True))
            graph.done(name)
    return times


def critical_path(jobs):
    """The names of the longest chain of `jobs` {name: Job}: the least time in which all jobs can be done."""
    import networkx  # loads slowly, and every run of the workflow loads this module

    graph = networkx.DiGraph()
    for name, job in jobs.items():
        graph.add_weighted_edges_from((before, name, job.seconds) for before in (START, *job.after))
    return networkx.dag_longest_path(graph)[1:]


def most_bytes(jobs, times, freed=()):
    """The most bytes at a time of what `jobs` write when they run as `times` says; freed: [(second, bytes that go)]."""
    changes = [(second, -size) for second, size in freed]
    for name, (start, end) in times.items():
        changes += [(start, jobs[name].bytes + jobs[name].scratch), (end, -jobs[name].scratch)]
    return max(accumulate((change for _, change in sorted(changes)), initial=0.0))


def together(jobs, times):
    """{(kind, kind): seconds in which jobs of both run}, in alphabetical order; twice the same: several of it."""
    starts = [(start, 1, jobs[name].kind) for name, (start, _) in times.items()]
    ends = [(end, -1, jobs[name].kind) for name, (_, end) in times.items()]
    running, seconds, last = Counter(), Counter(), 0.0
    for moment, step, kind in sorted(starts + ends):
        if moment > last:
            for pair in combinations(sorted(+running), 2):
                seconds[pair] += moment - last
            seconds.update({(name, name): moment - last for name, number in running.items() if number > 1})
        running[kind] += step
        last = moment
    return seconds
