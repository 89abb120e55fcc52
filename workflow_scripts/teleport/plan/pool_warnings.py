"""Warnings of the plan about pools of negatives, before they are made."""

from teleport.settings.negatives import OF_A_POOL, OF_COUNTS, OF_MIXTURE
from teleport.settings.registry import SOURCES


def unread_warnings(given, read):
    """Warnings about settings of `negatives` that some episode gives and no pool reads. given, read: sets of names;
    `read` is empty if no episode has a pool"""
    unread, reasons = given & (OF_COUNTS - read if read else OF_A_POOL), {}
    modes = {"counts": "negatives.counts gives the numbers of negatives (null: by the mode)"}
    modes |= {"pool": "mode mixture does not read it", "per_source": "mode released_code does not read it"}
    otherwise = " and ".join(why for name, why in modes.items() if name in read)
    if not read:
        without = "training.negatives_per_query is 0, or negatives.live searches"
        otherwise = f"no episode draws a pool of negatives ({without})"
    elif "pool" in read:
        reasons["alpha"] = "no episode has an earlier pool to draw momentum negatives from"
        reasons["beta"] = "no pool has both query and lookahead negatives"
    elif "per_source" in read:
        unread -= OF_MIXTURE  # see `pool_warnings`
    by_reason = {}
    for name in sorted(unread):
        by_reason.setdefault(reasons.get(name, otherwise), []).append(f"negatives.{name}")
    return [f"{', '.join(names)}: no effect, because {why}." for why, names in by_reason.items()]


def most_candidates(name, draw, mining):
    """How many negatives a source has for a query at most; None if the plan cannot know."""
    if name == "lookahead" and mining.anchor == "all":  # a list for each positive
        return None
    lists = len(draw.by) if name == "neighbours" else 1
    if draw.ranks:
        return lists * sum(last - first + 1 for first, last in draw.ranks)
    return None if SOURCES[name].needs in (None, "last_pool", "file") else lists * mining.depth


def pool_warnings(draws, episode, place):
    """Warnings about the pool of a settings.Episode, before it is made; each begins with `place`."""
    warnings, size, negatives = [], 0, episode.negatives
    unread = OF_MIXTURE & negatives.model_fields_set
    if unread and negatives.counts is None and negatives.mode == "released_code":
        names = ", ".join(f"negatives.{name}" for name in sorted(unread))
        warnings.append(f"{place}: mode released_code does not read {names}: set negatives.mode to mixture.")
    for name, draw in draws.items():
        most = most_candidates(name, draw, episode.mining)
        size += draw.count if most is None else min(draw.count, most)
        if most is not None and draw.count > most:
            warnings.append(
                f"{place}: {draw.count} negatives of {name} are requested, but its lists have {most} passages."
            )
    if size < episode.training.negatives_per_query:
        warnings.append(
            f"{place}: the pool has {size} negatives per query, fewer than training.negatives_per_query "
            f"{episode.training.negatives_per_query}: every step repeats some of them."
        )
    return warnings
