"""What a table may say of a system besides its measures, decided from the plan: its method, and what it cost."""

from teleport.plan.experiment import is_mined

MINING = ("encode", "index", "retrieve", "lexical_index", "bm25", "negatives_file", "positives", "merge")


def system_columns(trajectories, wanted):
    """{column: what it says} of the columns `wanted` of an experiment, from its `Trajectory` per seed (none: BM25).

    "seconds" is a list per seed of the stages that mined and trained. "index" is what evaluation searches: its name,
    the stage that knows its size, and the one that knows its recall. "gap" is the last train stage whose negatives a
    checkpoint has mined, None without one. None, or no list, where nothing was trained; of BM25 there is no index.
    """
    trained = [trajectory for trajectory in trajectories if trajectory.trains]
    last = trained[0] if trained else None
    columns = {
        "negatives": negatives_text(last.trains[-1]) if last else None,
        "loss": last.trains[-1].settings.training.loss if last else None,
        "episodes": len(last.trains) if last else 0,
        "refreshes": refreshes(last) if last else 0,
        "gap": last_mined(last) if last else None,
        "index": searched_index(trajectories[0]) if trajectories else None,
        "seconds": [mining_stages(trajectory.trains) + trajectory.trains for trajectory in trained],
    }
    return {name: columns[name] for name in wanted}


def refreshes(trajectory):
    """How often a checkpoint mined anew: retrieved, or retrieved for other queries; "every step" with live search."""
    if trajectory.trains[-1].settings.live:
        return "every step"
    pools = (pool for pool in trajectory.pools if pool)
    mined = ({stage.name for stage in pool.inputs.values() if stage.kind == "retrieve"} for pool in pools)
    return len({frozenset(names) for names in mined if names})


def last_mined(trajectory):
    """The last train stage whose negatives a checkpoint has mined; None without one."""
    trains = zip(trajectory.trains, trajectory.pools, strict=True)
    return next((train for train, pool in reversed(list(trains)) if pool and is_mined(pool)), None)


def negatives_text(train):
    """The negatives of a train stage, such as "query 15, lookahead 15; relative margin 0.05" or "live 200" (text)."""
    live, pool = train.settings.live, train.inputs.get("negatives")
    if live:
        compressed = f" of {index_text(live.index)}" if live.index.kind == "pq" else ""
        return f"live {live.depth}{compressed}{', compressed scores' if live.scores == 'compressed' else ''}"
    if pool is None:
        return "in batch"
    sources = ", ".join(source_text(name, draw) for name, draw in pool.settings.sources.items())
    changed = pool.settings.filters.model_dump(exclude_defaults=True)
    filters = [name.replace("_", " ") + ("" if value is True else f" {value}") for name, value in changed.items()]
    return "; ".join([sources, *filters])


def source_text(name, draw):
    """What is drawn from one source, such as "query 20 of 1-20, 181-200" (text)."""
    ranks = ", ".join(f"{first}-{last}" for first, last in draw.ranks or ())
    return f"{name} {draw.count}{f' of {ranks}' if ranks else ''}"


def index_text(index):
    """A settings.FrozenIndex as "flat" or "pq 24", with the number of parts (text)."""
    return f"pq {index.m}" if index.kind == "pq" else index.kind


def searched_index(trajectory):
    """What an experiment's last checkpoint is evaluated with: ["pq 24"; the stage that made it; a search of it]."""
    run = next(iter(trajectory.runs[-1].values())).inputs["run"]
    return [index_text(run.inputs["index"].settings.index), run.inputs["index"], run]


def mining_stages(stages):
    """The stages whose results become the negatives of `stages`, each once: merges, retrievals, vectors, indexes.

    A pool of an earlier episode, and a checkpoint, are not among them: another refresh, or training, made those.
    """
    found, unread = {}, list(stages)
    while unread:
        inputs = unread.pop().inputs.items()
        mined = [stage for role, stage in inputs if stage.kind in MINING and role != "momentum"]
        unread += [stage for stage in mined if stage.name not in found]
        found |= {stage.name: stage for stage in mined}
    return list(found.values())
