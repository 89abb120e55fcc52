"""Finds the file and line of the key that a refusal of a plan is about."""

from bisect import bisect_left
from functools import wraps
from itertools import accumulate

from teleport.refusal import Refusal
from teleport.settings.configuration import named_experiments
from teleport.settings.read import with_bases
from teleport.settings.yaml_mapping import Locations


def with_line(function):
    """Decorates a function of a `Plan`, whose refusals then begin with the file and line of their key."""

    @wraps(function)
    def run(plan, *arguments):
        try:
            return function(plan, *arguments)
        except Refusal as error:
            places = places_of(plan, getattr(error, "key", ""), getattr(error, "experiment", None))
            if not places:
                raise
            line = Locations(path for path, _ in with_bases(plan.config.files)).line(*places)
            raise Refusal(f"{line}: {error}" if line else str(error)) from error

    return run


def places_of(plan, key, experiment):
    """Where a key may be written (list of tuples), the nearest first. experiment: (name, number of the episode), or
    None"""
    key = tuple(filter(None, key.split(".")))
    if not experiment:
        return [key] if key else []
    name, number = experiment
    written = {each: (place, overrides) for place, each, overrides in named_experiments(plan.config)}
    own, overrides = written.get(name, (("external", name), {}))
    ends = list(accumulate(override.repeat for override in plan.experiments[name].episodes))
    entry = ("episodes", bisect_left(ends, number))
    starts = [(*own, *entry), own, ()] if "episodes" in overrides else [own, entry, ()]
    return [(*start, *key) for start in starts] if key else starts[:1]
