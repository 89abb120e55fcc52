"""What each kind of stage costs: a function (stage, counts, place) -> Cost of its name in `data`, `models` or `search`.

The work of a stage is {rate of the hardware line: amount}; `bench/calibrate.py` turns the same amounts and measured
times into rates.
"""

from commands.forecast.costs import data, models, search
from commands.forecast.hardware import Cost, Place

ON_A_GPU = Place()


def stage_cost(stage, counts, place=ON_A_GPU):
    """The `Cost` of a planned stage in a `Place`; of a kind without a function that of a process alone."""
    functions = (getattr(module, stage.kind, None) for module in (data, models, search))
    if function := next(filter(None, functions), None):
        return function(stage, counts, place)
    return Cost(lacks=f"{stage.kind}, of which there is no estimate")
