"""The costs of the analyses, by kind, from the same figures as those of the stages that they read."""

from teleport.evaluation.costs import contrast, forgetting  # noqa: F401
from teleport.negatives.costs import negatives_overlap  # noqa: F401
from teleport.search.costs import errors  # noqa: F401
