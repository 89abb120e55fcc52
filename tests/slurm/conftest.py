"""The cluster, and the worlds that are submitted to it."""

import os

import pytest
import yaml
from cluster import COMMANDS, PACKAGES, Cluster
from cluster_world import ClusterWorld, run_until
from toy import World, finished  # noqa: F401

from debian import install


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A running one-node Slurm; the tests skip where it can neither be found nor installed, but not in CI."""
    try:
        install("Slurm", PACKAGES, COMMANDS)
        if os.geteuid() != 0:
            raise RuntimeError("starting a cluster needs root")
    except RuntimeError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    running = Cluster(tmp_path_factory.mktemp("slurm") / "cluster")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """A world of one episode in which nothing has run."""
    world = World.create(tmp_path_factory.mktemp("toy") / "world")
    world.config |= {"bm25": None, "episodes": [{}]}
    world.config["training"]["steps"] = 60  # enough to be caught in the middle
    (world.folder / "toy.yaml").write_text(yaml.safe_dump(world.config))
    return world


@pytest.fixture(scope="session")
def mined(toy, tmp_path_factory):
    """The same world after a local run up to the merge: the training is next."""
    return run_until("merge", toy, tmp_path_factory.mktemp("mined"))


@pytest.fixture(scope="session")
def opened(cluster, tmp_path_factory):
    """Makes a `ClusterWorld` of a copy of a world; its Snakemake is ended with the tests at the latest."""
    worlds = []

    def make(world):
        worlds.append(ClusterWorld(world.copy(tmp_path_factory.mktemp("cluster") / "world"), cluster))
        return worlds[-1]

    yield make
    for world in worlds:
        if world.process and world.process.poll() is None:
            world.process.kill()
            world.process.wait()


@pytest.fixture(scope="session")
def submitted(opened, toy):
    """A world whose whole workflow ran on the cluster."""
    world = opened(toy)
    world.submit()
    world.finish()
    return world
