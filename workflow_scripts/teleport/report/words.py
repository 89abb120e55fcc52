"""Numbers, times, sizes and progress as text: the same words in the terminal and on the page."""

from collections import Counter

UNITS = ("bytes", "kB", "MB", "GB", "TB")
SEED_COLUMNS = ["experiment", "seed", "episodes", "stages"]  # of `of_seed`


def number(count, noun):
    """A count with its noun: "1 query", "2,000 queries"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def listed(names, last="and"):
    """Names as a sentence lists them: "a", "a and b", "a, b and c"; "" for none."""
    *first, end = names or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def duration(seconds, decimals=0):
    """Seconds as text: "40 s", "12 min", "3 h 05 min"; below 10 s with `decimals` decimals; – for None."""
    if seconds is None:
        return "–"
    if seconds < 90:
        return f"{seconds:.{decimals if seconds < 9.95 else 0}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(num_bytes):
    """A number of bytes as text with three digits, in the unit in which at most three are before the point."""
    unit = next((power for power in range(4) if num_bytes < 999.5 * 1000**power), 4)
    return f"{num_bytes / 1000**unit:.3g} {UNITS[unit]}"


def by_kind(names, is_finished):
    """{kind: (finished stages, all stages)} of the stages `names` ("kind/key"), in their order."""
    planned = Counter(name.split("/")[0] for name in names)
    finished = Counter(name.split("/")[0] for name in names if is_finished(name))
    return {kind: (finished[kind], number) for kind, number in planned.items()}


def of_seed(label, seed, episodes, stages, is_finished):
    """[label, seed, "2 of 3" episodes, "29 of 32" stages] as text; episodes: names of the stages that each needs."""
    done = sum(all(map(is_finished, names)) for names in episodes)
    return [label, str(seed), f"{done} of {len(episodes)}", f"{sum(map(is_finished, stages))} of {len(stages)}"]
