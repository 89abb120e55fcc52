"""keep_vectors in the real workflow: what every planned stage has read is deleted, and nothing is made again for it."""

import subprocess
import sys
from datetime import datetime
from itertools import chain, pairwise

import pytest
from toy import World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def deleted(finished, tmp_path_factory):
    """The finished world after a run that keeps the vectors of the last checkpoint alone."""
    world = finished.copy(tmp_path_factory.mktemp("deleted") / "world")
    world.config["keep_vectors"] = "last"
    world.snakemake()
    return world


def encodes(world):
    """{episode: folders of the encode stages of its checkpoint, that of the passages first}."""
    episodes, texts = world.folder / "results/experiments/tele", ("passages", "queries.train", "queries.test")
    return {n: [(episodes / f"episode-{n}/encode-{of}").resolve() for of in texts] for n in (1, 2, 3)}


def manage(world, *arguments):
    command = [sys.executable, "workflow_scripts/manage.py", *arguments]
    return subprocess.run(command, cwd=world.folder, text=True, capture_output=True)


def test_the_last_checkpoint_keeps_its_vectors_and_nothing_is_left_to_do(finished, deleted):
    kept = [{path.parent for path in (w.folder / "results/stages/encode").rglob("*.npy")} for w in (finished, deleted)]
    assert set(chain(*encodes(finished).values())) < kept[0] and len(kept[0]) == 4 * 3
    assert kept[1] == set(encodes(deleted)[3])
    assert deleted.digests() == finished.digests()
    assert deleted.would_run()[0] == {}


def test_what_was_deleted_is_sound_and_what_reads_it_says_so(deleted, tmp_path):
    assert manage(deleted, "verify").returncode == 0
    world = deleted.copy(tmp_path / "world")
    name = f"encode/{encodes(world)[1][0].name}"
    index = next(i for i, m in world.manifests().items() if i.startswith("index/") and name in m["inputs"].values())
    for name in ("manifest.json", "finished.json"):  # else the finished result is taken, and nothing is read
        (world.folder / "results/stages" / index / name).unlink()
    world.snakemake(f"results/stages/{index}/manifest.json", check=False)
    text = (world.folder / f"results/logs/{index}.log").read_text()
    assert "passages.npy was deleted after it was read (keep_vectors). Run the workflow again with --forcerun" in text


@pytest.mark.slow
def test_forced_it_is_made_again(finished, deleted, tmp_path):
    world = deleted.copy(tmp_path / "world")
    target = f"results/stages/encode/{encodes(world)[2][0].name}/manifest.json"
    assert not list(encodes(world)[2][0].glob("*.npy"))
    world.snakemake(target, "--forcerun", target)
    assert list(encodes(world)[2][0].glob("*.npy")) and world.digests() == finished.digests()


@pytest.mark.slow
def test_one_after_another_vectors_are_made_read_and_removed(tmp_path):
    """Of two seeds, between whose jobs Snakemake may choose, one is encoded when the vectors of the other are gone."""
    world = World.create(tmp_path / "world")
    world.config |= {"keep_vectors": "none", "experiments": {"tele": {"seeds": [1, 2]}}}
    world.snakemake()
    manifests, lives = world.manifests(), []
    for name in (n for n, m in manifests.items() if m["kind"] == "encode" and m["settings"]["of"] == "passages"):
        made = datetime.fromisoformat(manifests[name]["provenance"]["started"]).timestamp()
        lives.append((made, (world.folder / "results/stages" / name / "deleted.json").stat().st_mtime))
    assert len(lives) == 1 + 2 * 3
    for (_, gone), (made, _) in pairwise(sorted(lives)):
        assert gone < made + 1  # a manifest has whole seconds, cut
