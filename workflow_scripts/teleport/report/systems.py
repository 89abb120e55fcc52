"""What a table may say of a system besides its measures, decided from the plan: its method, and what it cost."""

MINING = ("encode", "index", "retrieve", "lexical_index", "bm25", "negatives_file", "positives", "merge")


def system_columns(trajectories, wanted):
    """{column: what it says} of the columns `wanted` of an experiment, from its `Trajectory` per seed (none: BM25).

    "seconds" is a list per seed of the stages that mined and trained. None, or no list, where nothing was trained.
    """
    trained = [trajectory for trajectory in trajectories if trajectory.trains]
    last = trained[0] if trained else None
    columns = {
        "negatives": pool_text(last.pools[-1]) if last else None,
        "loss": last.trains[-1].settings.training.loss if last else None,
        "episodes": len(last.trains) if last else 0,
        "seconds": [mining_stages(trajectory.trains) + trajectory.trains for trajectory in trained],
    }
    return {name: columns[name] for name in wanted}


def pool_text(pool):
    """The negatives per query of a merge stage, such as "query 15, lookahead 15; relative margin 0.05" (text)."""
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
