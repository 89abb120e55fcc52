"""Jobs that are interrupted, run out of time or fail on a real Slurm of one node, and shards as jobs.

Snakemake looks after its jobs ever more rarely, so the runs that wait longest are begun first and looked at last.
"""

import signal
from pathlib import Path

import pytest
from cluster import DEVICES
from cluster_world import rules, wait_for
from test_kill import running_stages
from test_shards import small_blocks

from commands.status import unfinished

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SAVE_EVERY_STEP = "train:save_every=0"


@pytest.fixture(scope="module", autouse=True)
def over_time(opened, mined):
    """A training submitted with a limit of one minute, which then stands still: (world, its stage process)."""
    world = opened(mined)
    world.train(SAVE_EVERY_STEP, "train:runtime=1*attempt")
    return world, world.catch()


@pytest.fixture(scope="module", autouse=True)
def interrupted(opened, mined):
    """A training in the middle of which Snakemake got a Ctrl-C, and which is submitted anew: (world, the first stage
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
def failing_group(opened, mined):
    """A group submitted twice in which everything goes well but the search that reads the torn judgments."""
    world = opened(mined)
    targets = []
    for manifest in (world.folder / "results/stages").glob("*/*/manifest.json"):
        if manifest.parts[-3] in ("encode", "index", "retrieve"):
            manifest.unlink()
            targets.append(str(manifest.relative_to(world.folder)))
    (path,) = (world.folder / "results/stages/collection").glob("*/qrels.train.parquet")
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
    """The manifest of the world's only encoding."""
    (name,) = [name for name in world.manifests() if name.startswith("encode/")]
    return f"results/stages/{name}/manifest.json"


def environment_of(process):
    """The environment variables of a process (dict)."""
    text = Path(f"/proc/{process}/environ").read_text()
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def assert_continued(world, submitted):
    """The training went on from a saved step in a second attempt, and ended with the undisturbed bits."""
    manifest, undisturbed = (w.world.manifests()[w.training] for w in (world, submitted))
    assert manifest["provenance"]["attempt"] == 2 and 0 < manifest["facts"]["resumed_from"] < 60
    assert undisturbed["provenance"]["attempt"] == 1
    assert manifest["files"] == undisturbed["files"]


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
    assert_continued(world, submitted)


def test_a_group_submitted_again_keeps_what_its_first_attempt_finished(failing_group):
    failing_group.finish(status=1)
    assert [(job["JobState"], len(rules(job))) for job in failing_group.jobs()] == [("FAILED", 3)] * 2
    # encode and two searches of 8 h, index of 1 h; twice that, but for index
    assert [job["TimeLimit"] for job in failing_group.jobs()] == ["1-01:00:00", "2-01:00:00"]
    logs = {path.parent.name: path.read_text() for path in (failing_group.folder / "results/logs").glob("*/*.log")}
    assert all("was finished by an earlier attempt" in logs[kind] for kind in ("encode", "index"))
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
    assert_continued(world, submitted)
