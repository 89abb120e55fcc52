"""The logger plugin `teleport`, which the profiles choose. Snakemake finds it by the name of this package."""

from commands.terminal import LogHandler

__all__ = ["LogHandler"]
