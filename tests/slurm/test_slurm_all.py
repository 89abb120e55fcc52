"""The whole workflow on a real Slurm of one node; jobs that are interrupted, run out of time or fail, and shards.

Snakemake looks after its jobs ever more rarely, so the runs that wait longest are begun first and looked at last.
"""

import signal
from pathlib import Path

import pytest
import yaml
from cluster import DEVICES
from cluster_world import SAVE_EVERY_STEP, assert_continued, rules, wait_for
from test_kill import running_stages
from test_shards import small_blocks

from commands.status import unfinished
from paths import REPOSITORY

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PROFILE = yaml.safe_load((REPOSITORY / "profiles/slurm/config.yaml").read_text())
SUBMISSIONS = 1 + PROFILE["retries"]


@pytest.fixture(scope="module", autouse=True)
def over_time(opened, mined):
    """A training submitted with a limit of one minute, which then stands still: (world, its stage process)."""
    world = opened(mined)
    world.train(SAVE_EVERY_STEP, "train:runtime=1*attempt")
    return world, world.catch()


@pytest.fixture(scope="module", autouse=True)
def interrupted(opened, mined):
    """A training in the middle of which Snakemake got a Ctrl-C, and which is submitted again: (world, the first stage
    process, the Slurm jobs and the unfinished stage between the two runs)."""
    world = opened(mined)
    world.train(SAVE_EVERY_STEP)
    process = world.catch()
    world.process.send_signal(signal.SIGINT)
    world.finish(status=1)
    wait_for(lambda: world.training not in running_stages(world.folder))
    jobs, (stage,) = world.jobs(), unfinished(str, world.folder)
    world.train()
    return world, process, jobs, stage


@pytest.fixture(scope="module", autouse=True)
def failing(opened, mined):
    """A training submitted on a torn pool of negatives."""
    world = opened(mined)
    (path,) = (world.folder / "results/stages/merge").glob("*/passages.npy")
    path.write_bytes(path.read_bytes()[:-4])
    world.train()
    return world


@pytest.fixture(scope="module", autouse=True)
def failing_group(opened, mined):
    """A group submitted twice in which everything goes well but the search that reads the torn judgments."""
    world = opened(mined)
    targets = []
    for manifest in (world.folder / "results/stages").glob("*/*/manifest.json"):
        if manifest.parts[-3] in ("encode", "index", "retrieve"):
            manifest.unlink()
            manifest.with_name("finished.json").unlink()  # else what is unchanged is taken
            targets.append(str(manifest.relative_to(world.folder)))
    (path,) = (world.folder / "results/stages/split").glob("*/qrels.train.parquet")
    path.write_bytes(path.read_bytes()[:-4])
    world.submit("--retries", "1", "--", *targets)
    return world


@pytest.fixture(scope="module", autouse=True)
def sharded(opened, mined):
    """A checkpoint's passages, four blocks of them, encoded by two jobs and joined by a third."""
    world = opened(mined)
    small_blocks(world.world)
    world.submit("--set-scatter", "encode=2", "--", encoding(world.world))
    return world


def encoding(world):
    """The manifest of the world's only encoding of passages."""
    made = world.manifests().items()
    (name,) = [name for name, m in made if m["kind"] == "encode" and m["settings"]["of"] == "passages"]
    return f"results/stages/{name}/manifest.json"


def environment_of(process):
    """The environment variables of a process (dict)."""
    text = Path(f"/proc/{process}/environ").read_text()
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def test_the_gpu_reaches_the_stage_and_status_sees_it(over_time):
    world, process = over_time
    assert environment_of(process)["CUDA_VISIBLE_DEVICES"] in {str(number) for number in range(len(DEVICES))}
    (stage,) = unfinished(str, world.folder)
    assert (stage.name, stage.process, stage.state, stage.total) == (world.training, process, "runs", 60)


def test_interrupted_by_ctrl_c_and_run_again_it_continues(interrupted, submitted):
    world, process, jobs, stage = interrupted
    assert [job["JobState"] for job in jobs] == ["CANCELLED"]
    assert (stage.name, stage.process, stage.state, stage.attempt) == (world.training, process, "stopped", 1)
    world.finish()
    assert_continued(world, submitted.world)


def test_a_group_submitted_again_keeps_what_its_first_attempt_finished(failing_group):
    failing_group.finish(status=1)
    assert [(job["JobState"], len(rules(job))) for job in failing_group.jobs()] == [("FAILED", 3)] * 2
    limits = [job["TimeLimit"].split(":") for job in failing_group.jobs()]
    assert [limit[0] for limit in limits] == ["00", "00"], "the forecast of a toy is minutes"
    assert int(limits[1][1]) == 2 * int(limits[0][1]) > 0, "and of the second attempt twice that"
    logs = failing_group.folder / "results/logs"
    said = {kind: [path.read_text() for path in logs.glob(f"{kind}/*.log")] for kind in ("encode", "index")}
    assert all(any("is unchanged: same code, same inputs" in text for text in texts) for texts in said.values())
    assert "qrels.train.parquet has" in failing_group.log()


def test_shards_are_jobs_with_a_gpu_each_and_their_join_is_the_whole(sharded, mined, tmp_path):
    sharded.finish()
    jobs = [("_".join(rules(job)), job["JobState"], job["TresPerJob"]) for job in sharded.jobs()]
    assert sorted(jobs) == [(rule, "COMPLETED", "gres:gpu:1") for rule in ("encode", "encode_shard", "encode_shard")]
    whole = small_blocks(mined.copy(tmp_path / "world"))
    whole.snakemake(encoding(whole))
    name = encoding(whole).split("/", 2)[2].removesuffix("/manifest.json")
    joined, alone = (world.manifests()[name] for world in (sharded.world, whole))
    assert [shard["rows"] for shard in joined["facts"]["shards"]] == [[0, 128], [128, 240]]
    assert "shards" not in alone["facts"] and joined["files"] == alone["files"]


def test_a_training_that_reaches_its_time_limit_is_ended_by_slurm_and_continues(over_time, submitted):
    world, _ = over_time
    world.finish()
    ends = [(job["JobState"], job["TimeLimit"]) for job in world.jobs()]
    assert ends == [("TIMEOUT", "00:01:00"), ("COMPLETED", "00:02:00")]
    assert_continued(world, submitted.world)


def test_the_workflow_passes_and_every_stage_without_a_network_was_in_a_slurm_job(submitted):
    assert "ANCE-Tele" in (submitted.folder / "results/tables/main.md").read_text()
    kinds = {name.split("/")[0] for name in submitted.world.manifests()}
    assert len(kinds) == 11 and {rule for job in submitted.jobs() for rule in rules(job)} == kinds - {"pretrained"}
    assert {job["JobState"] for job in submitted.jobs()} == {"COMPLETED"}


def test_a_checkpoint_is_encoded_indexed_and_searched_in_one_job_and_merge_is_alone(submitted):
    groups = [sorted(rules(job)) for job in submitted.jobs() if len(rules(job)) > 1]
    assert groups == [["encode", "index", "retrieve"]] * 2
    alone = [rules(job)[0] for job in submitted.jobs() if len(rules(job)) == 1]
    assert not {"index", "retrieve"} & set(alone)
    # no search reads the training queries as the last checkpoint encodes them, but the report does
    assert alone.count("encode") == alone.count("merge") == alone.count("train") == 1


def test_a_group_of_three_searches_asks_for_one_gpu_and_the_memory_of_one(submitted):
    groups = [job for job in submitted.jobs() if len(rules(job)) > 1]
    assert [job["TresPerJob"] for job in groups] == ["gres:gpu:1"] * 2
    assert [job["MinMemoryNode"] for job in groups] == ["4000M"] * 2  # the least
    # the least: two minutes to start, and one each for passages, queries of two splits, index, three searches (after
    # training for passages, test queries, index and a search)
    assert [job["TimeLimit"] for job in groups] == ["00:09:00", "00:06:00"]
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
    assert [job["TimeLimit"] for job in failing.jobs()] == ["00:03:00", "00:06:00", "00:12:00"]
    logs = (failing.folder / ".snakemake/slurm_logs").rglob("*.log")
    assert [path.read_text().count("CalledProcessError") for path in logs] == [1] * SUBMISSIONS
