"""The world whose stages are disturbed, once for each test process, and the log of what came of it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))

from campaign import Campaign  # noqa: E402
from fault_world import FaultWorld  # noqa: E402


@pytest.fixture(scope="session")
def fault_world(tmp_path_factory):
    world = FaultWorld(tmp_path_factory.mktemp("faults"))
    yield world
    world.close()


@pytest.fixture
def campaign():
    campaign = Campaign()
    yield campaign
    campaign.check()
