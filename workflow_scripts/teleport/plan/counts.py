"""How many negatives a pool has from each source. Modes become counts here, so no stage knows about modes."""

from teleport.settings.pool import Draw
from teleport.settings.registry import SOURCES

# Settings of `negatives` that may decide how many negatives a pool has of each source, and those read only for a pool.
OF_MIXTURE = {"alpha", "beta", "pool"}
OF_COUNTS = OF_MIXTURE | {"mode", "sources", "per_source"}
OF_A_POOL = OF_COUNTS | {"ranks", "draw", "draws", "filters"}


def mixture_counts(pool, sources, alpha, beta):
    """{source: negatives per query} of mode `mixture`; the counts sum to `pool` (ANCE-Tele, Appendix C).

    Shares: momentum alpha, lookahead (1 - alpha) * beta, query (1 - alpha) * (1 - beta); the share of a source that is
    not in `sources` goes to the others. Rounding by largest remainder, ties to the first of query, lookahead, momentum.
    """
    new = 1 - alpha if "momentum" in sources else 1
    lookahead = beta if {"query", "lookahead"} <= set(sources) else float("lookahead" in sources)
    shares = {"query": new * (1 - lookahead), "lookahead": new * lookahead, "momentum": 1 - new}
    exact = {source: round(pool * shares[source], 9) for source in shares if source in sources}
    counts = {source: int(share) for source, share in exact.items()}
    by_remainder = sorted(counts, key=lambda source: counts[source] - exact[source])
    for source in by_remainder[: pool - sum(counts.values())]:
        counts[source] += 1
    return counts


def released_counts(per_source, sources, episode, last_size):
    """{source: negatives per query} of mode `released_code`: a pool of 2 * per_source * episode, whatever the sources.

    With momentum the last pool is taken whole and 2 * per_source negatives are new; otherwise all are new. Query and
    lookahead share the new ones equally (released code). For fewer sources nothing was released; pools of equal size
    make them comparable.
    """
    retrievals = [source for source in ("query", "lookahead") if source in sources]
    new = 2 * per_source * (1 if "momentum" in sources else episode)
    counts = {source: new // len(retrievals) for source in retrievals}
    return counts | ({"momentum": last_size} if "momentum" in sources and last_size else {})


def resolve_draws(negatives, episode, last_size):
    """{source: Draw} of an episode by its settings.Negatives, in registry order. last_size: of the last pool, or 0"""
    if negatives.counts is not None:
        available = [name for name in negatives.counts if last_size or SOURCES[name].needs != "last_pool"]
        counts = {name: negatives.count_of(name) for name in available}
    elif negatives.mode == "released_code":
        counts = released_counts(negatives.per_source, negatives.sources, episode, last_size)
    else:
        available = [name for name in negatives.sources if name != "momentum" or last_size]
        counts = mixture_counts(negatives.pool, available, negatives.alpha, negatives.beta)
    draws = {}
    for name, source in SOURCES.items():
        if count := counts.get(name):
            how = {"draw": negatives.draw_of(name), "ranks": negatives.ranks.get(name), "scored": source.scored}
            draws[name] = Draw(count=count, place=len(draws), **how, **negatives.settings_of(name))
    return draws


def keys_read(negatives, last_size):
    """Return the names (set) of the settings of `negatives` that decide how many negatives a pool has of each
    source."""
    if negatives.counts is not None:
        return {"counts"}
    if negatives.mode == "released_code":
        return {"mode", "sources", "per_source"}
    both = {"query", "lookahead"} <= set(negatives.sources)
    return {"mode", "sources", "pool", *(["alpha"] if last_size else []), *(["beta"] if both else [])}


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
