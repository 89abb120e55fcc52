"""Stage `check`: does the collection suit the experiments? Asked before any vector is computed."""

from teleport.evaluation.measures import parse_measures


def run(job):
    """Compare the collection's counts with the configuration; returns the numbers compared.

    Raises ValueError when the corpus has fewer passages than a depth, a split is missing or has no queries, or a
    measure is unknown.
    """
    parse_measures(job.settings.measures)
    settings, facts = job.settings, job.facts("collection")
    depths = {"evaluation.depth": settings.evaluation_depth}
    if settings.trains:
        depths["mining.depth"] = settings.mining_depth
    for key, depth in depths.items():
        if facts["num_passages"] < depth:
            raise ValueError(
                f"The collection has {facts['num_passages']} passages, fewer than {key}: {depth}. "
                f"Set {key} to at most {facts['num_passages']}."
            )
    queries = {name: split["queries"] for name, split in facts["splits"].items()}
    needed = {name: f"evaluation.splits names {name!r}" for name in settings.splits}
    if settings.trains:
        needed["train"] = "training needs the split 'train'"
    for name, reason in needed.items():
        if not queries.get(name):
            state = "has no judged queries in it" if name in queries else "has no such split"
            have = ", ".join(f"{other} ({count} queries)" for other, count in sorted(queries.items())) or "none"
            raise ValueError(
                f"{reason}, but the collection {state}; it has: {have}. "
                "Add its queries and judgments to the collection, or change the configuration."
            )
    return {
        "num_passages": facts["num_passages"],
        "depths": depths,
        "queries": {name: queries[name] for name in needed},
    }
