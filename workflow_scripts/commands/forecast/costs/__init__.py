"""What each kind of stage costs: a function (stage, counts, place) -> Cost of its name, in the file of the name of its
module's package.

The work of a stage is {rate of the hardware line: amount}; `bench/calibrate.py` turns the same amounts and measured
times into rates.
"""

import importlib
from importlib.util import find_spec

from commands.forecast.hardware import Cost, Place
from teleport.plan.kinds import KINDS

ON_A_GPU = Place()


def stage_cost(stage, counts, place=ON_A_GPU):
    """The `Cost` of a planned stage in a `Place`; of a kind without a function that of a process alone."""
    package = KINDS[stage.kind].module.split(".")[1]  # teleport.search.retrieve
    name = f"{__name__}.{package}"
    function = getattr(importlib.import_module(name), stage.kind, None) if find_spec(name) else None
    return function(stage, counts, place) if function else Cost(lacks=f"{stage.kind}, of which there is no estimate")
