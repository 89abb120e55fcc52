"""A training on a real Slurm of one node whose job, step, node or controller is taken away: it ends in the same bits.

A training is caught right after it has saved a step for the first time, and stands still until something ends it.
"""

import os
import signal

import pytest
from cluster_world import SAVE_EVERY_STEP, assert_continued, run_until, wait_for
from test_kill import running_stages

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture(scope="module")
def trained(mined, tmp_path_factory):
    """A world in which the same training was never disturbed, nor on a cluster."""
    return run_until("train", mined, tmp_path_factory.mktemp("trained"))


@pytest.fixture
def caught(opened, mined):
    """A training in a Slurm job that stands still: (world, its process, the job's number)."""
    world = opened(mined)
    world.train(SAVE_EVERY_STEP)
    process = world.catch()
    (job,) = world.jobs()
    return world, process, job["JobId"]


@pytest.fixture
def in_service(cluster):
    """The node takes jobs again after the test."""
    yield
    if "idle" not in cluster.command("sinfo", "--noheader", "--format=%T"):
        cluster.node("RESUME")


def assert_not_disturbed(world, undisturbed):
    """The training ended in its first attempt, in one job, with the bits of a `World`."""
    manifest, expected = (w.manifests()[world.training] for w in (world.world, undisturbed))
    assert manifest["provenance"]["attempt"] == 1 and manifest["files"] == expected["files"]
    assert [job["JobState"] for job in world.jobs()] == ["COMPLETED"]


@pytest.mark.parametrize(("step", "state"), [("", "CANCELLED"), (".0", "FAILED")])
def test_a_job_or_its_step_that_is_cancelled_is_submitted_again_and_continues(caught, trained, step, state):
    world, _, number = caught
    world.cluster.command("scancel", number + step)
    world.finish()
    assert [job["JobState"] for job in world.jobs()] == [state, "COMPLETED"]
    assert_continued(world, trained)


def test_a_job_that_is_requeued_continues_as_the_same_job(caught, trained):
    world, _, number = caught
    world.cluster.command("scontrol", "requeue", number)
    world.finish()
    (job,) = world.jobs()
    assert (job["JobId"], job["JobState"], job["Restarts"]) == (number, "COMPLETED", "1")
    assert_continued(world, trained)


def test_a_node_that_is_drained_ends_its_job_and_begins_none_until_it_is_back(
    caught, opened, mined, trained, in_service
):
    world, process, _ = caught
    world.cluster.node("DRAIN")
    os.kill(process, signal.SIGCONT)
    world.finish()
    assert_not_disturbed(world, trained)
    waits = opened(mined)
    waits.train()
    (job,) = wait_for(waits.jobs)
    wait_for(lambda: "DRAINED" in waits.jobs()[0]["Reason"])
    assert waits.jobs()[0]["JobState"] == "PENDING" and waits.process.poll() is None
    world.cluster.node("RESUME")
    waits.finish()
    assert_not_disturbed(waits, trained)


def test_a_node_that_is_down_loses_its_job_which_continues_when_it_is_back(caught, trained, in_service):
    world, _, number = caught
    world.cluster.node("DOWN")
    wait_for(lambda: world.training not in running_stages(world.folder))
    wait_for(lambda: world.jobs()[0]["JobState"] == "PENDING")
    world.cluster.node("RESUME")
    world.finish()
    (job,) = world.jobs()
    assert (job["JobId"], job["JobState"], job["Restarts"]) == (number, "COMPLETED", "1")
    assert_continued(world, trained)


def test_a_controller_that_is_started_again_knows_the_job_that_runs(caught, trained):
    world, process, _ = caught
    with world.cluster.without_controller():
        pass
    os.kill(process, signal.SIGCONT)
    world.finish()
    assert_not_disturbed(world, trained)
