"""What each kind of stage costs: `data`, `models` and `search` have a function `KIND_cost` for each."""

from commands.forecast.costs import data, models, search


def stage_cost(stage, counts):
    """The `search.Cost` of a planned stage; None for a kind that has no estimate."""
    estimates = (getattr(module, f"{stage.kind}_cost", None) for module in (data, models, search))
    estimate = next(filter(None, estimates), None)
    return estimate(stage, counts) if estimate else None
