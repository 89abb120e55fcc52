"""What a person brought, and what is finished, is as it was after every command, whatever it writes elsewhere."""

import json
import sys
from pathlib import Path

import pytest
import yaml

import manage
from collection_world import write_folder
from experiment_world import ExperimentWorld
from stages import Stages
from teleport.running.artefact import MANIFEST, signed
from teleport.running.files import write_json
from untouched import untouched

CONFIG, EPISODE = "settings/mine.yaml", "results/experiments/mine/tuned/episode-1"
MINE = {
    "name": "mine",
    "collection": {"source": "folder", "path": "given/toy"},
    "encoder": {"checkpoint": {"folder": "start"}, "pooling": "mean", "max_query_tokens": 16, "max_passage_tokens": 12},
    "counts": {"passages": 30, "queries": {"train": 4, "test": 4}},
    "episodes": [],
    "experiments": {"start": {"label": "Start"}},
    "evaluation": {"splits": ["test"], "measures": ["RR@10"]},
}
READING = {
    "status": [CONFIG],
    "forecast": [CONFIG],
    "doctor": [CONFIG],
    "prune": [CONFIG],
    "verify": [],
    "audit": [f"{EPISODE}/merge"],
    "compare": ["results/experiments/mine/tuned/episode-0/evaluate-test", f"{EPISODE}/evaluate-test"],
    "search": ["mine/tuned", "{query}"],
    "push": ["start", "me/model"],
}
WRITING = {
    "new": ["other", "given/toy"],
    "export": [f"{EPISODE}/merge", "{new}/pool.jsonl"],
    "export of a run": [f"{EPISODE}/evaluate-test", "{new}/run"],
    "share": ["mine/tuned", "--to", "{new}/shared"],
    "link": [CONFIG],
}
# Stages have to run for the first five: faults/test_outputs_of_commands.py looks at what they leave. `schema` writes
# the pages of this repository; the others have tests of their own.
ELSEWHERE = {"mine", "fetch", "report", "figures", "tables", "schema", "reproductions", "joint", "delete_vectors"}
GIVEN = "given", "settings", "start", "results/stages"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a collection, a checkpoint, a configuration and a finished experiment."""
    world = ExperimentWorld(Stages(tmp_path_factory.mktemp("desk")))
    passages = [(f"d{n}", "", text) for n, text in enumerate(world.texts)]
    queries = {split: [(f"q{n}", world.texts[n]) for n in range(4)] for split in ("train", "test")}
    judged = {split: [(n, n, 1) for n in range(4)] for split in queries}
    write_folder(world.root / "given/toy", passages, queries, judged)
    (world.root / "settings").mkdir()
    (world.root / CONFIG).write_text(yaml.safe_dump(MINE))
    for _, episode, link, kind, key, folder in world.rows:
        path = world.root / folder / MANIFEST
        write_json(path, signed(json.loads(path.read_text())))
        home = world.root / f"results/experiments/mine/tuned/episode-{episode}"
        home.mkdir(exist_ok=True)
        (home / link).symlink_to(f"../../../../stages/{kind}/{key}")
    return world


def called(line, monkeypatch, capsys):
    """What a command prints, which has to do its work."""
    monkeypatch.setattr(sys, "argv", ["teleport", *line])
    with pytest.raises(SystemExit) as ended:
        manage.main()
    assert ended.value.code in (None, 0, 1)  # 1: of `doctor` and `verify`
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [*READING, *WRITING])
def test_a_command_leaves_what_a_person_brought(desk, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(desk.root)
    words = [word.format(query=desk.queries[5], new=tmp_path) for word in (READING | WRITING)[name]]
    with untouched(*([Path(".")] if name in READING else map(Path, GIVEN))):
        said = called([name.split()[0], *words], monkeypatch, capsys)
    assert said or name == "link"


def test_every_command_is_looked_at_here_or_elsewhere():
    assert {name.split()[0] for name in [*READING, *WRITING]} | ELSEWHERE == {f.__name__ for f, _ in manage.COMMANDS}
