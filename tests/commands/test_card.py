"""The card of an exported checkpoint: BM25's row and the p's of a table, and an example that is a hit, or none."""

import os
import re
from pathlib import Path

import pytest

import collection_world
from commands import card
from experiment_world import ExperimentWorld
from teleport.api import compare, open_results
from teleport.evaluation import evaluate
from teleport.refusal import Refusal
from teleport.report.table import write_table
from teleport.report.verdicts import figure, p_text
from teleport.running.artefact import Artefact


@pytest.fixture
def linked(stages, monkeypatch):
    """A world whose experiment has its links, and an evaluation of a run that is called BM25."""
    monkeypatch.chdir(stages.root)
    world = ExperimentWorld(stages)
    home = stages.root / "results/experiments/mine/tuned"
    for _, episode, link, _, _, folder in world.rows:
        path = home / (f"episode-{episode}" if episode else "") / link
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(os.path.relpath(stages.root / folder, path.parent))
    run = collection_world.make_run(stages, [[5, 9], [9, 8], [9, 7]])
    told = {"split": "test", "measures": ["RR@10", "R@5"]}
    world.bm25 = stages.run(evaluate.run, "evaluate", told, {"collection": world.collection, "run": run})
    world.home = home
    return world


def write(world, episode=None, start="Zero-shot"):
    """The workflow's table of the world's systems. start: the label of the one that is not trained"""
    rows = [("BM25", 0, [], world.bm25), (start, 0, [], world.start["evaluate"])]
    rows.append(("Tuned", 1, [42], episode or world.trained["evaluate"]))
    rows = [
        {"system": system, "episode": episode, "seeds": seeds, "runs": {"test": [f"evaluate/{job.key}"]}, "columns": {}}
        for system, episode, seeds, job in rows
    ]
    corpus = world.bm25.inputs["corpus"].folder
    spec = {"name": "main", "title": "All", "columns": [], "measures": {"test": ["RR@10", "R@5"]}, "splits": ["test"]}
    spec |= {"significance": None, "collection": {"corpus": f"collection/{corpus.name}", "splits": {}}, "rows": rows}
    write_table(spec, world.root, world.root / "results/tables/mine")


def test_bm25_and_p_are_those_of_the_table(linked):
    write(linked)
    text = card.scores_text(linked.home / "episode-1")
    jobs = {"BM25": linked.bm25, "Episode 0": linked.start["evaluate"], "Episode 1": linked.trained["evaluate"]}
    for name, job in jobs.items():
        means = Artefact(job.folder).facts["means"]
        assert f"| {name} | test | {means['RR@10']:.3f} | {means['R@5']:.3f} |" in text
    mine = open_results()["mine/tuned"]
    found = compare(mine, mine, "test", "RR@10", (0, 1))
    assert found.difference != 0
    said = re.findall(r"RR@10: (\S+) beside (\S+) \(p (\S+?)\)", text)
    assert said[1] == (figure(found.difference, "+"), "Zero-shot", p_text(found.p))
    ours, theirs = (Artefact(jobs[name].folder).facts["means"]["RR@10"] for name in ("Episode 1", "BM25"))
    assert said[0][0] == figure(ours - theirs, "+") and ours != theirs
    assert [name for _, name, _ in said] == ["BM25", "Zero-shot"] and "With another seed these differences may" in text
    assert "R@5:" not in text, "pairs are tested in the first measure"


def test_an_experiment_of_several_seeds_has_its_table_too(linked):
    """Its episodes are in a folder of their seed; and results/ may be a link to another disk."""
    seed = linked.home / "seed-42"
    seed.mkdir()
    for path in list(linked.home.iterdir()):
        if path.name not in ("plan.tsv", seed.name):
            path.rename(seed / path.name)
    for link in (path for path in seed.rglob("*") if path.is_symlink()):
        target = linked.root / "results/stages" / "/".join(os.readlink(link).split("/")[-2:])
        link.unlink()
        link.symlink_to(os.path.relpath(target, link.parent))
    write(linked)
    text = card.scores_text(seed / "episode-1")
    assert "| BM25 | test |" in text and "beside Zero-shot" in text
    (linked.root / "disk").mkdir()
    (linked.root / "results").rename(linked.root / "disk/run")
    (linked.root / "results").symlink_to("disk/run")
    assert card.scores_text(Path(os.path.relpath(seed)) / "episode-1") == text


def test_a_label_takes_no_effect_in_a_card(linked):
    """It is any line of the user's, and the hub renders the HTML of a card."""
    write(linked, start="<img src=x> *1*")
    assert r"beside \<img src=x\> \*1\* (p " in card.scores_text(linked.home / "episode-1")


def test_a_table_of_other_stages_says_nothing(linked):
    """Such as one that was made before the training was."""
    assert "BM25" not in card.scores_text(linked.home / "episode-1")
    write(linked, linked.bm25)
    text = card.scores_text(linked.home / "episode-1")
    assert "BM25" not in text and "beside" not in text and "| Episode 1 | test |" in text


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.sources.csv", "evaluate/", "../"),
        ("main.sources.csv", "seed", "sead"),
        ("main.csv", "system", '"system'),
        ("main.pairs.csv", ",p,", ",q,"),
    ],
)
def test_a_table_that_is_torn_is_named(linked, file, old, new):
    write(linked)
    path = linked.root / "results/tables/mine" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(Refusal, match=f"{file} .*torn.*teleport tables"):
        card.scores_text(linked.home / "episode-1")


def test_the_example_is_the_first_query_with_a_relevant_passage_at_rank_1(linked, monkeypatch):
    ranked = [("test0", "d29"), ("test0", "d5"), ("test1", "d6"), ("test1", "d8"), ("test2", "d7")]
    lines = [[query, "Q0", doc, "1", "1.0", "x"] for query, doc in ranked]
    monkeypatch.setattr(card, "run_lines", lambda stage: iter(lines))
    text = card.example_text(linked.home / "episode-1")
    assert "`test1`" in text and linked.queries[6] in text and linked.queries[5] not in text
    found = re.findall(r"^(\d)\. `(d\d+)` (?:title \d+ )?(.{30})", text, re.M)
    assert found == [("1", "d6", linked.texts[6][:30]), ("2", "d8", linked.texts[8][:30])]
    monkeypatch.setattr(card, "run_lines", lambda stage: iter(lines[:2]))
    assert card.example_text(linked.home / "episode-1") == "", "no query has a hit"
