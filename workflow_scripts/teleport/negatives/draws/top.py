"""The candidates with the highest scores; nothing is random. After a filter it is the k highest that the filter leaves:
TopK-PercPos of NV-Retriever (arXiv 2407.15831), `sampling_strategy="top"` of sentence-transformers."""

from teleport.settings.section import Scored


class Settings(Scored):
    """The highest scores, those of equal ones that come first."""


def choose(candidates, count):
    """The `count` slots of the highest scores of each query."""
    from teleport.negatives.draw import slots_of_smallest

    return slots_of_smallest(-candidates.scores_QS, candidates.available_QS, count)
