"""Costs of the stages of teleport/analyses, by kind; the figures they are made of are those of the packages."""

from commands.forecast.costs.evaluation import contrast, forgetting  # noqa: F401
from commands.forecast.costs.negatives import negatives_overlap  # noqa: F401
from commands.forecast.costs.search import errors  # noqa: F401
