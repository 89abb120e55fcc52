"""What tables say of a system besides its measures, and the stages that it costs, decided from the plan alone."""

from teleport.plan.mining import is_mined
from teleport.report.figures import MINING


def system_columns(trajectories, wanted):
    """{column: what it says} of the columns `wanted` of an experiment, from its `Trajectory` per seed (none: BM25).

    "seconds" is a list per seed of the stages that mined and trained. "index" is what evaluation searches: its name,
    the stage that knows its size, and the one that knows its recall. "gap" is the last train stage whose negatives a
    checkpoint has mined, None without one. None, or no list, where nothing was trained; of BM25 there is no index.
    """
    trained = [trajectory for trajectory in trajectories if trajectory.trains]
    last = trained[0] if trained else None
    mined = [episode.train for episode in last.episodes if episode.pool and is_mined(episode.pool)] if last else []
    run = next(iter(trajectories[0].episodes[-1].runs.values())).inputs["run"] if trajectories else None
    columns = {
        "negatives": negatives_text(last.trains[-1]) if last else None,
        "loss": last.trains[-1].settings.training.loss.kind if last else None,
        "episodes": len(last.trains) if last else 0,
        "refreshes": refreshes(last) if last else 0,
        "gap": mined[-1] if mined else None,
        "index": run and [index_text(run.inputs["index"].settings.index), run.inputs["index"], run],
        "seconds": [cost_stages(trajectory.trains) for trajectory in trained],
    }
    return {name: columns[name] for name in wanted}


def refreshes(trajectory):
    """How often a checkpoint mined anew: retrieved, or retrieved for other queries; "every step" with live search."""
    if trajectory.trains[-1].settings.live:
        return "every step"
    searches = ((stage.name for stage in pool.inputs.values() if stage.kind == "retrieve") for pool in trajectory.pools)
    return len(set(map(frozenset, searches)) - {frozenset()})


def negatives_text(train):
    """The negatives of a train stage, such as "query 15, lookahead 15; relative margin 0.05" or "live 200" (text)."""
    live, pool = train.settings.live, train.inputs.get("negatives")
    if live:
        compressed = f" of {index_text(live.index)}" if live.index.kind == "pq" else ""
        return f"live {live.depth}{compressed}{', compressed scores' if live.scores == 'compressed' else ''}"
    if pool is None:
        return "in batch"
    sources = []
    for name, draw in pool.settings.sources.items():
        ranks = ", ".join(f"{first}-{last}" for first, last in draw.ranks or ())
        sources.append(f"{name} {draw.count}{f' of {ranks}' if ranks else ''}")
    rule = pool.settings.positive_score
    changed = pool.settings.filters | ({"positive_score": rule} if rule not in (None, "lowest") else {})
    filters = [name.replace("_", " ") + ("" if value is True else f" {value}") for name, value in changed.items()]
    return "; ".join([", ".join(sources), *filters])


def index_text(index):
    """A settings.FrozenIndex as "flat" or "pq 24", with the number of parts (text)."""
    return f"pq {index.numbers[0]}" if index.kind == "pq" else index.kind


def cost_stages(trains):
    """The stages whose seconds are the cost of a system: those that mined for its trainings, and these."""
    return mining_stages(trains) + trains


def mining_stages(stages):
    """The stages whose results become the negatives of `stages`, each once: merges, retrievals, vectors, indexes; not a
    pool of an earlier episode, nor a checkpoint: another refresh, or training, made those."""
    mining, unread = {}, list(stages)
    while unread:
        inputs = unread.pop().inputs.items()
        read = [stage for role, stage in inputs if stage.kind in MINING and role != "momentum"]
        unread += [stage for stage in read if stage.name not in mining]
        mining |= {stage.name: stage for stage in read}
    return list(mining.values())
