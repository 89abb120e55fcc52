"""Search on the CPU, where no device is named."""

import pytest

from teleport.search import exact


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch):
    """These tests use the CPU even where there is a GPU; those of a GPU name it."""
    monkeypatch.setattr(exact, "visible_devices", list)
