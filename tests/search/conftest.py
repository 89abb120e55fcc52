"""Search on the CPU, where equal bits are promised."""

import pytest

from teleport.search import engines


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    """These tests use the CPU even where there is a GPU; those of engines on a GPU open them by name."""
    monkeypatch.setattr(engines, "visible_devices", list)
