"""The splits of a collection, known before it is read: a misspelt one is refused by a dry run."""

from teleport.collection import apidocs, sources
from teleport.settings.scoring import needed_splits


def split_names(source):
    """The names of the splits of a collection's source: of its files, or those that the configuration lists."""
    if source.source == "apidocs":
        return list(apidocs.SPLIT_BELOW)
    if source.source in ("folder", "beir"):
        return list(getattr(sources, source.source)(source).splits)
    return list(source.splits)


def require_splits(config, experiments):
    """Raise ValueError when the collection lacks a split that is evaluated, watched, or trained on."""
    episodes = [episode for experiment in experiments.values() for episode in experiment.method]
    watched = [episode.watched_by.split for episode in episodes if episode.watched_by]
    names = split_names(config.collection)
    for split, reason in needed_splits(config.evaluation.splits, watched, bool(episodes)).items():
        if split not in names:
            have = f"the collection has no such split; it has {', '.join(names)}"
            remedy = "Add its queries and judgments to the collection, or change the configuration."
            raise ValueError(f"{reason}, but {have}. {remedy}")
