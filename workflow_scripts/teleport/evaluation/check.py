"""Stage `check`: does the collection suit the experiments? Asked before any vector is computed."""

from teleport.evaluation.coverage import coverage_cutoffs
from teleport.evaluation.measures import measure_cutoffs
from teleport.settings.scoring import CheckSettings as Settings  # noqa: F401


def run(job):
    """Compare the collection's counts with the configuration; returns the numbers compared.

    Raises ValueError when the corpus has fewer passages than a depth, a split is missing or has no queries, there are
    too few of them for a batch of training, a measure is unknown or looks at more passages than a run has, or a
    measure or a rule of the negatives has no judgments or answers to work with.
    """
    settings, facts = job.settings, job.facts("collection")
    coverage = coverage_cutoffs(settings.measures)
    cutoffs = coverage | measure_cutoffs([name for name in settings.measures if name not in coverage])
    depths = {"evaluation.depth": settings.evaluation_depth}
    if settings.trains:
        depths["mining.depth"] = settings.mining_depth
    check_depths(depths, facts["num_passages"])
    check_cutoffs(cutoffs, settings.evaluation_depth, facts["num_passages"])
    queries = check_splits(settings, facts["splits"])
    check_evidence(settings, coverage, facts["splits"])
    return {"num_passages": facts["num_passages"], "depths": depths, "queries": queries}


def check_depths(depths, num_passages):
    """Raise ValueError when a depth ({setting: value}) is more than there are passages."""
    for key, depth in depths.items():
        if num_passages < depth:
            found = f"The collection has {num_passages} passages, fewer than {key}: {depth}"
            raise ValueError(f"{found}. Set {key} to at most {num_passages}.")


def check_cutoffs(cutoffs, depth, num_passages):
    """Raise ValueError when a measure of {name: k} would be taken on shorter lists than its name says.

    A run that ranks the whole collection has all there is, whatever the cut-off.
    """
    for name, cutoff in cutoffs.items():
        if depth < (needed := min(cutoff, num_passages)):
            raise ValueError(
                f"evaluation.measures has {name!r}, but evaluation.depth is {depth}: runs would be too short for it. "
                f"Set evaluation.depth to at least {needed}, or give evaluation.measures without it."
            )


def check_splits(settings, splits):
    """Queries of each split that is needed ({name: number}); `splits` are the collection's facts.

    Raises ValueError for one without queries, and for fewer training queries than a batch has.
    """
    queries = {name: split["queries"] for name, split in splits.items()}
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
    if settings.trains and queries["train"] < settings.batch_queries:
        raise ValueError(
            f"training.batch_queries is {settings.batch_queries}, but the split 'train' has {queries['train']} "
            f"queries. Set training.batch_queries to at most {queries['train']}."
        )
    return {name: queries[name] for name in needed}


def check_evidence(settings, coverage, splits):
    """Raise ValueError when the judgments or answers that a measure or negatives.remove works with are missing.

    `coverage` are the coverage measures among settings.measures ({name: k}), `splits` the collection's facts.
    """
    for name in settings.splits:
        measures = (settings.measures_of or {}).get(name, settings.measures)
        covering = [measure for measure in measures if measure in coverage]
        if covering and not splits[name].get("answers"):
            found = f"evaluation.measures has {covering[0]!r}, but the split {name!r} has no answers"
            raise ValueError(f"{found}. Add answers.{name}.jsonl to the collection, or take the measure out.")
        if len(covering) < len(measures) and splits[name].get("judgments") == 0:
            raise ValueError(
                f"evaluation.measures has measures of judgments, but the split {name!r} has none, only answers. "
                "Give answer coverage alone, for example [Cov@5, Cov@20, Cov@100]."
            )
    train = splits.get("train", {})
    if settings.remove == "answers" and (missing := train["queries"] - train.get("answers", 0)) > 0:
        raise ValueError(
            f"negatives.remove is 'answers', but {missing} of {train['queries']} training queries have no answers. "
            "Add them to answers.train.jsonl, or set negatives.remove to judged."
        )
