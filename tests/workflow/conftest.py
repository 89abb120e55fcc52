"""One finished toy workflow, shared by the tests of this folder; each takes a copy when it changes something."""

import fcntl

import pytest
from toy import World


@pytest.fixture(scope="session")
def finished(tmp_path_factory, worker_id):
    """A world whose workflow has run to the end, once for all test processes. Do not change it: `.copy` it."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    world = World(shared / "finished")
    world.config["report"] = {}
    with open(shared / "finished.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        log = shared / "finished.log"
        if not log.exists():
            World.create(world.folder)
            log.write_text(world.snakemake())
    world = world.copy(own / "world")  # a dry run writes its configuration, too
    world.config["report"] = {}
    world.log = log.read_text()
    return world


@pytest.fixture
def world(finished, tmp_path):
    """A copy of the finished world that a test may change."""
    return finished.copy(tmp_path / "world")
