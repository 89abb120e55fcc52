"""The splits of a collection, known before it is read: a misspelt one is refused by a dry run."""

from teleport.collection import apidocs, sources


def split_names(source):
    """The names of the splits of a collection's source: of its files, or those that the configuration lists."""
    if source.source == "apidocs":
        return list(apidocs.SPLIT_BELOW)
    if source.source in ("folder", "beir"):
        return list(getattr(sources, source.source)(source).splits)
    return list(source.splits)


def require_splits(config, experiments):
    """Raise ValueError when the collection lacks a split that is evaluated, or the one that is trained on."""
    needed = {split: f"evaluation.splits names {split!r}" for split in config.evaluation.splits}
    if any(experiment.episodes for experiment in experiments.values()):
        needed["train"] = "training needs the split 'train'"
    names = split_names(config.collection)
    for split, reason in needed.items():
        if split not in names:
            have = f"the collection has no such split; it has {', '.join(names)}"
            remedy = "Add its queries and judgments to the collection, or change the configuration."
            raise ValueError(f"{reason}, but {have}. {remedy}")
