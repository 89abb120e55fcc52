"""Stage `check`: does the collection suit the experiments? Asked before any vector is computed."""

from teleport.settings.measures import coverage_cutoffs
from teleport.settings.scoring import CheckSettings as Settings  # noqa: F401
from teleport.settings.scoring import needed_splits


def run(job):
    """Compare the collection's counts with the configuration; returns the numbers compared.

    Raises ValueError when the corpus has fewer passages than a depth that the configuration states; when a split has
    no queries, or fewer than a batch; and when a measure or negatives.remove has no judgments, positives or answers to
    work with.
    """
    settings, facts = job.settings, job.facts("collection")
    depths = check_depths(settings, facts["num_passages"])
    queries = check_splits(settings, facts["splits"])
    check_evidence(settings, coverage_cutoffs(settings.measures), facts["splits"])
    check_positives(settings, facts)
    check_dev(settings, facts["splits"])
    return {"num_passages": facts["num_passages"], "depths": depths, "queries": queries}


def check_depths(settings, num_passages):
    """The depths {setting: value}, checked against the corpus; one that is left out, 0, is cut to it in its stage."""
    depths = {"evaluation.depth": settings.evaluation_depth}
    if settings.trains:
        depths["mining.depth"] = settings.mining_depth
        if settings.live_depth:
            depths["negatives.live.depth"] = settings.live_depth
    for key, depth in depths.items():
        if num_passages < depth:
            found = f"The collection has {num_passages} passages, fewer than {key}: {depth}"
            raise ValueError(f"{found}. Set {key} to at most {num_passages}, or leave it out.")
    return depths


def check_splits(settings, splits):
    """Queries of each split that is needed ({name: number}), checked; `splits` are the collection's facts."""
    queries = {name: split["queries"] for name, split in splits.items()}
    needed = needed_splits(settings.splits, settings.dev_splits, settings.trains)
    for name, reason in needed.items():
        if not queries.get(name):
            state = "has no judged queries in it" if name in queries else "has no such split"
            have = ", ".join(f"{other} ({count} queries)" for other, count in sorted(queries.items())) or "none"
            remedy = "Add its queries and judgments to the collection, or change the configuration."
            raise ValueError(f"{reason}, but the collection {state}; it has: {have}. {remedy}")
    if settings.trains and (most := queries["train"]) < settings.batch_queries:
        found = f"a batch (training.batch_queries, from one of mining.parts) needs {settings.batch_queries} training"
        raise ValueError(f"{found} queries, but the split 'train' has {most}. Lower one of the two.")
    return {name: queries[name] for name in needed}


def check_evidence(settings, coverage, splits):
    """Raise ValueError when a measure (`coverage`: those of answers) or negatives.remove has nothing to judge by."""
    for name in settings.splits:
        measures = (settings.measures_of or {}).get(name, settings.measures)
        covering = [measure for measure in measures if measure in coverage]
        if covering and not splits[name].get("answers"):
            found = f"evaluation.measures has {covering[0]!r}, but the split {name!r} has no answers"
            raise ValueError(f"{found}. Add answers.{name}.jsonl to the collection, or take the measure out.")
        if len(covering) < len(measures) and splits[name].get("judgments") == 0:
            found = f"evaluation.measures has measures of judgments, but the split {name!r} has none, only answers"
            raise ValueError(f"{found}. Give answer coverage alone, for example [Cov@5, Cov@20, Cov@100].")
    train = splits.get("train", {})
    if settings.remove == "answers" and (missing := train["queries"] - train.get("answers", 0)) > 0:
        found = f"{missing} of {train['queries']} training queries have no answers"
        remedy = "Add them to answers.train.jsonl, or set negatives.remove to judged."
        raise ValueError(f"negatives.remove is 'answers', but {found}. {remedy}")


def check_positives(settings, facts):
    """Raise ValueError for a split that is judged but without a positive: a table of zeros tells nothing."""
    for name in settings.splits:
        counts = facts["splits"][name]
        if facts.get("positive_grade") == 1 and counts.get("judgments") and counts.get("positives") == 0:
            found = f"none of the {counts['judgments']} judgments of the split {name!r} has a grade of 1 or more"
            raise ValueError(f"{found}, so its measures would all be 0. Give judgments that have positives.")


def check_dev(settings, splits):
    """Raise ValueError for a split that trainings are watched by and that has no positive to look for."""
    for name in settings.dev_splits:
        if not splits[name].get("judgments") or splits[name].get("positives") == 0:
            found = f"training.dev.split names {name!r}, which has no judged positive"
            raise ValueError(f"{found}. Add its judgments to the collection, or name another split.")
