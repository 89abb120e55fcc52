"""Refusals of a plan that name the key of the configuration that they are about."""

from contextlib import contextmanager

from teleport.refusal import Refusal


class AboutKey(Refusal):
    """A refusal about a `key` of the configuration, such as "evaluation.splits", or of an experiment, (name, number of
    the episode)."""

    def __init__(self, sentence, key, experiment=None):
        super().__init__(sentence)
        self.key, self.experiment = key, experiment


@contextmanager
def about(key):
    """Let a refusal of the block be about a `key`."""
    try:
        yield
    except Refusal as error:
        error.key = key
        raise


@contextmanager
def of_experiment(name, episodes=(), key=""):
    """Let a refusal of the block be about the experiment `name` and the episode after the planned `episodes`, and about
    the `key`, unless it says so of others already."""
    try:
        yield
    except Refusal as error:
        error.key = getattr(error, "key", None) or key
        error.experiment = getattr(error, "experiment", None) or (name, max(1, len(episodes)))
        raise
