"""The searches of a checkpoint in the real workflow: one job opens its vectors for all of them that are to run."""

import re

import pytest

OPENED = re.compile(r"240 vectors are opened for (\d+) lines of (\d) searches")
DIES = "run(sibling, beside=job)", "run(sibling, beside=job); import os; os.kill(os.getpid(), 9)"


def forget(world):
    """Have the three searches of a checkpoint made again; returns {name: folder} of them."""
    names = [name for name in world.manifests() if name.startswith("retrieve/")]
    by_index = {}
    for name in names:
        by_index.setdefault(world.manifests()[name]["inputs"]["index"], []).append(name)
    found = {name: world.folder / "results/stages" / name for name in max(by_index.values(), key=len)}
    for folder in found.values():
        (folder / "manifest.json").unlink()
    for path in (world.folder / "results/logs/retrieve").iterdir():
        path.unlink()
    assert len(found) == 3
    return found


def logs(world):
    """{name: text} of the searches' logs."""
    paths = (world.folder / "results/logs/retrieve").iterdir()
    return {f"retrieve/{path.stem}": path.read_text() for path in paths}


def targets(found):
    return [f"results/stages/{name}/manifest.json" for name in found]


def test_the_vectors_of_each_checkpoint_are_opened_once(finished):
    """Ten searches of four checkpoints: queries of the test, and for the first three those that negatives come from."""
    opened = {name: OPENED.findall(text) for name, text in logs(finished).items()}
    assert sorted(found for found in opened.values() if found) == [[("180", "3")]] * 3 + [[("20", "1")]]
    made = finished.manifests()
    by = {name: made[name]["provenance"].get("beside", name) for name in opened}
    assert {made[name]["inputs"]["index"] for name in by.values()} == {name for name in made if name[:5] == "index"}
    for name, maker in by.items():
        assert made[name]["inputs"]["index"] == made[maker]["inputs"]["index"] and opened[maker]
        assert made[name]["provenance"]["process"] == made[maker]["provenance"]["process"]


@pytest.mark.slow
def test_alone_each_search_opens_them_and_makes_the_same_files(finished, world):
    found = forget(world)
    for number, target in enumerate(targets(found)):
        world.snakemake(target)
        there = [folder for folder in found.values() if list(folder.glob("*.json"))]
        assert len(there) == number + 1, "what nobody asks for is not searched"
    assert sorted(sum(map(OPENED.findall, logs(world).values()), [])) == [("20", "1"), ("80", "1"), ("80", "1")]
    assert world.digests() == finished.digests()


def test_a_new_split_reruns_only_itself(world):
    before = {name: manifest["sha256"] for name, manifest in world.manifests().items()}
    world.config["evaluation"]["splits"] = ["test", "dev"]
    counts, _ = world.would_run(arguments=["--until", "retrieve"])
    assert counts["retrieve"] == 4 and counts.keys() <= {"retrieve", "all"}
    world.snakemake("--until", "retrieve")
    after = {name: manifest["sha256"] for name, manifest in world.manifests().items()}
    assert before.items() <= after.items() and len(after) == len(before) + 4
    assert sum((OPENED.findall(logs(world)[name]) for name in after.keys() - before.keys()), []) == [("20", "1")] * 4


@pytest.fixture
def killed(world):
    """(world, folders of searches, names of those made) where the process that makes three dies after the second."""
    path = world.folder / "workflow_scripts/teleport/running/run.py"
    text, found = path.read_text(), forget(world)
    path.write_text(text.replace(*DIES))
    said = world.snakemake(*targets(found), check=False)
    path.write_text(text)
    assert "was killed by signal 9" in "".join(logs(world).values()), said
    assert not any((folder / "manifest.json").exists() for folder in found.values())
    return world, found, {name for name, folder in found.items() if (folder / "unclaimed.json").exists()}


def test_a_kill_between_two_searches_leaves_the_finished_ones_finished(finished, killed):
    world, found, made = killed
    assert len(made) == 2
    world.snakemake(*targets(found))
    for name, text in logs(world).items():
        assert ("was finished by the job of" in text and "attempt" not in text) == (name in made)
    (left,) = found.keys() - made
    assert len(OPENED.findall(logs(world)[left])) == 1 and world.digests() == finished.digests()


@pytest.mark.slow
def test_an_edit_is_noticed_of_stages_that_another_job_has_made(killed):
    """Snakemake knows of their code by their own jobs: what waits for these is not finished for it."""
    world, found, _ = killed
    module = world.folder / "workflow_scripts/teleport/search/retrieve.py"
    module.write_text(module.read_text() + "\n\nADDED = 1\n")
    world.snakemake(*targets(found))
    assert sum((OPENED.findall(text) for text in logs(world).values()), []) == [("180", "3")]
    assert world.would_run(arguments=targets(found))[0] == {}
    module.write_text(module.read_text() + "\n\nMORE = 1\n")
    assert world.would_run(arguments=targets(found))[0] == {"retrieve": 3}
