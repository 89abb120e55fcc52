"""The last episode on a real Slurm of one node, through profiles/slurm as it is shipped: toy sizes, fake GPUs.

The whole workflow, and what is interrupted, fails or is shared out among jobs: test_slurm_all.py.
"""

import pytest
from cluster_world import rules

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def submitted(opened, finished):
    """A world whose last episode ran again, on the cluster."""
    world = opened(finished)
    world.again = world.world.forget(3)
    world.submit()
    world.finish()
    return world


def test_every_stage_was_in_a_slurm_job_and_has_the_same_bits(submitted, finished):
    assert {job["JobState"] for job in submitted.jobs()} == {"COMPLETED"}
    kinds = {name.split("/")[0] for name in submitted.again}
    assert {rule for job in submitted.jobs() for rule in rules(job)} == kinds >= {"merge", "train"}
    assert submitted.world.digests() == finished.digests()


def test_a_checkpoint_is_encoded_indexed_and_searched_in_one_job_with_one_gpu(submitted):
    (group,) = (job for job in submitted.jobs() if len(rules(job)) > 1)
    assert sorted(rules(group)) == ["encode", "index", "retrieve"]
    # the least memory, and minutes: two until the first starts, and one each for passages, test queries, index and a
    # search. No search of this job reads the training queries, which the report looks at: their encoding is one alone
    assert [group[name] for name in ("TresPerJob", "MinMemoryNode", "TimeLimit")] == ["gres:gpu:1", "4000M", "00:06:00"]
    asked = {rules(job)[0]: job.get("TresPerJob") for job in submitted.jobs() if len(rules(job)) == 1}
    with_gpu = dict.fromkeys(("encode", "retrieve", "train"), "gres:gpu:1")
    assert asked == with_gpu | {"merge": None, "evaluate": None}
