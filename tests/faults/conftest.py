"""The world whose stages are disturbed, once for each test process, and the log of what came of it."""

import fcntl
import shutil

import pytest
from campaign import Campaign
from fault_world import FaultWorld


@pytest.hookimpl(tryfirst=True)  # before the slow ones are left out
def pytest_collection_modifyitems(items):
    """The world takes a minute to make: what disturbs it is slow."""
    for item in items:
        if "fault_world" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def fault_world(tmp_path_factory, worker_id):
    """A `FaultWorld`; its stages are made once, and copied by the other test processes."""
    own, folder = tmp_path_factory.getbasetemp(), tmp_path_factory.mktemp("faults")
    made = (own if worker_id == "master" else own.parent) / "fault_results"
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            copy_made(made, folder)
            world = FaultWorld(folder)
        else:
            world = FaultWorld(folder)
            copy_made(folder, made)
    yield world
    world.close()


def copy_made(source, target):
    """Copy what the stages of a world have made."""
    for name in ("results", "data/downloads"):
        shutil.copytree(source / name, target / name, symlinks=True)


@pytest.fixture
def campaign():
    campaign = Campaign()
    yield campaign
    campaign.check()
