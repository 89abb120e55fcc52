"""The workflow on a real Slurm of one node, through profiles/slurm as it is shipped: toy sizes, fake GPUs.

What is interrupted, runs out of time or is shared out among jobs: test_slurm_faults.py.
"""

import pytest
import yaml
from cluster_world import rules

from paths import REPOSITORY

pytestmark = pytest.mark.slurm

PROFILE = yaml.safe_load((REPOSITORY / "profiles/slurm/config.yaml").read_text())
SUBMISSIONS = 1 + PROFILE["retries"]


@pytest.fixture(scope="module", autouse=True)
def failing(opened, mined):
    """A training submitted on a torn pool of negatives."""
    world = opened(mined)
    (path,) = (world.folder / "results/stages/merge").glob("*/passages.npy")
    path.write_bytes(path.read_bytes()[:-4])
    world.train()
    return world


def test_the_workflow_passes_and_every_stage_was_in_a_slurm_job(submitted):
    assert "ANCE-Tele" in (submitted.folder / "results/tables/main.md").read_text()
    kinds = {name.split("/")[0] for name in submitted.world.manifests()}
    assert len(kinds) == 10 and {rule for job in submitted.jobs() for rule in rules(job)} == kinds
    assert {job["JobState"] for job in submitted.jobs()} == {"COMPLETED"}


def test_a_checkpoint_is_encoded_indexed_and_searched_in_one_job_and_merge_is_alone(submitted):
    groups = [sorted(rules(job)) for job in submitted.jobs() if len(rules(job)) > 1]
    assert groups == [["encode", "index", "retrieve"]] * 2
    alone = [rules(job)[0] for job in submitted.jobs() if len(rules(job)) == 1]
    assert not {"encode", "index", "retrieve"} & set(alone)
    assert alone.count("merge") == alone.count("train") == 1


def test_a_group_of_three_searches_asks_for_one_gpu_and_the_memory_of_one(submitted):
    groups = [job for job in submitted.jobs() if len(rules(job)) > 1]
    assert [job["TresPerJob"] for job in groups] == ["gres:gpu:1"] * 2
    assert [job["MinMemoryNode"] for job in groups] == ["62.50G"] * 2  # 64,000 MB
    # encode and three searches of 8 h each, index of 1 h; after training one search
    assert [job["TimeLimit"] for job in groups] == ["1-09:00:00", "17:00:00"]
    asked = {rules(job)[0]: job.get("TresPerJob") for job in submitted.jobs() if len(rules(job)) == 1}
    assert asked["train"] == "gres:gpu:1" and asked["merge"] is None


def test_groups_of_three_episodes_do_not_wait_for_each_other_unless_merge_joins_them(toy, opened):
    world = opened(toy).world
    world.config = toy.config | {"episodes": [{}, {}, {}]}
    profile = ["-n", "--workflow-profile", "profiles/slurm", "--executor", "slurm"]
    assert "Job stats" in world.snakemake(*profile)
    joined = [f"{rule}=mining" for rule in ("encode", "index", "retrieve", "merge")]
    assert "they in turn depend on" in world.snakemake(*profile, "--groups", *joined, check=False)


def test_a_failing_job_is_submitted_exactly_as_often_as_the_profile_says(failing):
    """One execution per submission: attempts are not multiplied inside the jobs, and the time asked for grows."""
    failing.finish(status=1)
    assert "torn or edited" in failing.log()
    assert [job["JobState"] for job in failing.jobs()] == ["FAILED"] * SUBMISSIONS
    assert [job["TimeLimit"] for job in failing.jobs()] == ["2-00:00:00", "4-00:00:00", "6-00:00:00"]
    logs = (failing.folder / ".snakemake/slurm_logs").rglob("*.log")
    assert [path.read_text().count("CalledProcessError") for path in logs] == [1] * SUBMISSIONS
