"""One finished toy workflow, shared by the tests of this folder; each takes a copy when it changes something."""

import pytest
from toy import World


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A world whose workflow has run to the end. Do not change it: `.copy` it."""
    world = World.create(tmp_path_factory.mktemp("toy") / "world")
    world.config["report"] = {}
    world.log = world.snakemake()
    return world


@pytest.fixture
def world(finished, tmp_path):
    """A copy of the finished world that a test may change."""
    return finished.copy(tmp_path / "world")
