"""The folder `cpu/`, which exists for a CPU's speed alone, by name: it may be deleted."""

from functools import cache
from importlib import import_module


@cache  # every training step asks
def cpu_module(name):
    """The module that settings/registry.py has in CPU for "search"; None where the folder was deleted.
    Both are loaded by name: so a line there changes the code of those stages alone that ran on a CPU."""
    module = import_module("teleport.settings.registry").CPU[name]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith(error.name):
            raise
    return None
