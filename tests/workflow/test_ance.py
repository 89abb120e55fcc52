"""ANCE on two devices that are only pretended: training and mining run at one time, and a kill changes no bit.

What asynchrony is here is a shape of the DAG: with a lag, what an episode needs mined does not wait for the training
before it. The devices are numbers in CUDA_VISIBLE_DEVICES, which jobs lease; they compute on the processor.
"""

import calendar
import json
import os
import re
import subprocess
import time

import pytest
from killer import SAVE_OFTEN, Killer, durations_of
from toy import World

pytestmark = pytest.mark.slow

SEGMENT, SEGMENTS = 150, 4
ANCE = {
    "negatives": {"counts": {"query": 6}},
    "mining": {"parts": 2, "depth": 20},
    "training": {
        "loss": "nll", "triples": True, "negatives_per_query": 6, "batch_queries": 16, "optimizer": "lamb",
        "learning_rate": 0.003, "warmup_ratio": None, "warmup_steps": 10, "steps": 10_000, "stop_after_steps": SEGMENT,
        "continues": True, "start_from": "previous", "precision": "fp32",
    },
    "episodes": [
        {"training": {"continues": False, "start_from": "pretrained", "stop_after_steps": 10},
         "negatives": {"counts": {"bm25": 6}}, "mining": {"parts": 1}},
        {"repeat": SEGMENTS, "lag": 1},
    ],
}  # fmt: skip
TWO_DEVICES = ["--resources", "gpu=2", "--set-threads", *(f"{rule}=1" for rule in ("encode", "retrieve", "train"))]
ENVIRONMENT = os.environ | {"CUDA_VISIBLE_DEVICES": "0,1", "TELEPORT_CPU": "1", "HF_HUB_OFFLINE": "1"}


def make_world(folder):
    world = World.create(folder)
    columns = ["negatives", "episodes", "refreshes", "gap"]
    table = {"title": "Asynchronous", "columns": columns, "experiments": {"ance": ANCE | {"label": "ANCE"}}}
    world.config |= {"experiments": {"ance": ANCE | {"label": "ANCE"}}, "ablations": {"lagged": table}}
    world.config["training"] = {"steps": 6}
    return world


def snakemake(world, *arguments):
    command = world.command(*TWO_DEVICES, *arguments)
    result = subprocess.run(
        command, cwd=world.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert result.returncode == 0, result.stdout[-3000:]


@pytest.fixture(scope="module")
def ance(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("ance") / "world")
    snakemake(world)
    return world


def stage_of(world, link):
    """The manifest of a stage of the experiment, by its link."""
    path = world.folder / f"results/experiments/ance/{link}/manifest.json"
    return json.loads(path.read_text())


def interval(manifest):
    """From when to when a stage ran, in seconds; the manifest knows the second in which it began."""
    took = manifest["provenance"]
    started = calendar.timegm(time.strptime(took["started"], "%Y-%m-%dT%H:%M:%SZ"))
    return started, started + took["wall_seconds"]


def overlap(one, other):
    """How many seconds two stages ran together."""
    starts, ends = zip(interval(one), interval(other), strict=True)
    return min(ends) - max(starts)


def device_of(world, manifest):
    log = (world.folder / f"results/logs/{manifest['kind']}/{manifest['key']}.log").read_text()
    return re.findall(r"CUDA devices: (\d)", log)[-1]


def test_training_and_mining_overlap_on_a_device_each(ance):
    """While segment e trains, the checkpoint of segment e - 1 is encoded and mined with, for segment e + 1."""
    trains = [stage_of(ance, f"episode-{number}/train") for number in range(2, SEGMENTS + 2)]
    mining = [stage_of(ance, f"episode-{number}/encode-passages") for number in range(2, SEGMENTS + 1)]
    together = []
    for train, encode in zip(trains[1:], mining, strict=True):
        together.append(overlap(train, encode))
        assert device_of(ance, train) != device_of(ance, encode)
    assert min(together) > 1, together  # the second of the clock that a manifest leaves out
    for encode, number in zip(mining[:-1], range(4, SEGMENTS + 2), strict=True):
        mined = stage_of(ance, f"episode-{number}/retrieve-queries")["inputs"]["passages"]
        assert mined == f"encode/{encode['key']}"


def test_the_gap_stands_in_the_manifest_and_in_the_table(ance):
    facts = [stage_of(ance, f"episode-{number}/train")["facts"] for number in range(1, SEGMENTS + 2)]
    assert [f["gap"] for f in facts] == [None, 0] + [SEGMENT] * (SEGMENTS - 1)
    assert [f["first_step"] for f in facts] == [0] + [SEGMENT * number for number in range(SEGMENTS)]
    table = (ance.folder / "results/tables/lagged.md").read_text()
    assert f"| ANCE | query 6 | {SEGMENTS + 1} | {SEGMENTS} | {SEGMENT}-{2 * SEGMENT - 1} |" in table


def test_parts_are_mined_in_turn_and_nothing_else(ance):
    manifests = [stage_of(ance, f"episode-{number}/retrieve-queries") for number in range(2, SEGMENTS + 2)]
    assert [m["settings"]["part"]["number"] for m in manifests] == [0, 1, 0, 1]
    assert [m["facts"]["lines"] for m in manifests] == [40] * SEGMENTS  # of 80 training queries
    trains = [stage_of(ance, f"episode-{number}/train")["facts"] for number in range(2, SEGMENTS + 2)]
    assert [(f["queries"], f["queries_without_negatives"]) for f in trains] == [(40, 0)] * SEGMENTS


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments_it_ends_in_the_same_bits(ance, tmp_path, seed):
    world = make_world(tmp_path / "world")
    killer = Killer(world.folder, durations_of(ance), chance=0.02)
    killer.random.seed(seed)
    killer.start()
    try:
        snakemake(world, "--retries", "2", "--set-resources", *SAVE_OFTEN)
    finally:
        killer.over = True
        killer.join()
    kinds = [name.split("/")[0] for name in killer.killed]
    assert kinds.count("train") >= 3 and {"encode", "retrieve", "merge"} <= set(kinds)
    resumed = [m["facts"]["resumed_from"] for n, m in world.manifests().items() if n.startswith("train/")]
    assert sum(step > 0 for step in resumed) >= 3
    assert world.digests() == ance.digests() and len(world.digests()) > 100
