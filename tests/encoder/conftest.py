"""Encoders compute on the CPU, but in tests of a GPU."""

from training_world import on_cpu  # noqa: F401 (a fixture)
