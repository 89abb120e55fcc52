"""What the analyses cost, by kind: made of the same figures as what they look into."""

from teleport.evaluation.costs import contrast, forgetting  # noqa: F401
from teleport.negatives.costs import negatives_overlap  # noqa: F401
from teleport.search.costs import errors  # noqa: F401
