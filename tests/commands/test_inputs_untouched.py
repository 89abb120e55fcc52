"""What a person brought, and what is finished, is as it was after every command, whatever it writes elsewhere."""

import gzip
import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from desk import CONFIGURATION, HOME, METHOD, SHARED, make_desk
from desk import EPISODE as EPISODE_OF_DESK

import manage
from collection_world import write_folder
from experiment_world import ExperimentWorld
from paths import REPOSITORY
from stages import Stages
from teleport.running.artefact import MANIFEST, signed
from teleport.running.files import write_json
from untouched import contents, untouched

CONFIG, EPISODE = "settings/mine.yaml", "results/experiments/mine/tuned/episode-1"
PASSAGES = EPISODE_OF_DESK / "encode-passages"
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
JOINT = "marco", "ablations/bm25", "nq", "triviaqa"
# On an experiment of whole stages, as the workflow leaves them.
FINISHED = {
    "mine": ["mine", "--method", METHOD, "--output", "{new}/mined.jsonl", "--cores", "1"],
    "fetch": [SHARED],
    "report": [CONFIGURATION, "--output", "{new}/page"],
    "report in one file": [CONFIGURATION, "--share", "{new}/page.html"],
    "figures": [CONFIGURATION, "--output", "{new}/figures"],
    "tables": [CONFIGURATION],
    "joint": ["ance-tele-table-1", *(str(REPOSITORY / f"config/{name}.yaml") for name in JOINT)],
    "reproductions": ["config/theirs.yaml"],
    "delete_vectors": ["--output", "{vectors}"],
}
ELSEWHERE = {"schema"}  # which takes neither a path nor a name, and writes the pages of this repository
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a finished experiment whose stages are whole (faults/desk.py)."""
    folder = tmp_path_factory.mktemp("whole")
    make_desk(folder)
    shutil.copytree(REPOSITORY / "config/published", folder / "config/published")  # read beside a folder `config`
    with gzip.open(folder / EPISODE_OF_DESK / "evaluate-test/test.run.gz") as run:
        digest = hashlib.sha256(run.read()).hexdigest()
    theirs = {"by": "Ann", "configuration": [CONFIGURATION], "place": SHARED}
    runs = {str((EPISODE_OF_DESK / "evaluate-test").relative_to(HOME.parent)): digest}
    (folder / "config/theirs.yaml").write_text(yaml.safe_dump(theirs | {"runs": runs}))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", FINISHED)
def test_a_command_on_finished_stages_leaves_what_is_there(whole, tmp_path, monkeypatch, capsys, name):
    folder = tmp_path / "here"
    shutil.copytree(whole, folder, symlinks=True)
    monkeypatch.chdir(folder)
    vectors = PASSAGES.resolve().relative_to(folder)
    gone = {str(path) for path in vectors.glob("*.npy")} if name == "delete_vectors" else set()
    before = contents(folder)
    words = [word.format(new=tmp_path, vectors=vectors) for word in FINISHED[name]]
    said = called([name.split()[0], *words], monkeypatch, capsys)
    after = contents(folder)
    assert said or name in ("tables", "delete_vectors")
    ours = ("results/tables", "results/published", "results/experiments/mine/mined")
    other = {path for path in before if after.get(path) != before[path] and not path.startswith(ours)}
    assert other == gone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["report", CONFIGURATION, "--share", CONFIGURATION], ".*another kind"),
        (["mine", "mine", "--method", METHOD, "--output", CONFIGURATION], "exists already, and no .*origin.jsonl"),
        (["export", f"{EPISODE_OF_DESK}/merge", CONFIGURATION], "exists already. Remove it"),
    ],
)
def test_a_slip_replaces_no_configuration(whole, tmp_path, monkeypatch, line, said):
    shutil.copytree(whole, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "argv", ["teleport", *line])
    with untouched(Path(".")), pytest.raises(SystemExit, match=f"error: {CONFIGURATION} {said}"):
        manage.main()


def test_every_command_is_looked_at():
    looked_at = {name.split()[0] for name in [*READING, *WRITING, *FINISHED]}
    assert looked_at | ELSEWHERE == {function.__name__ for function, _ in manage.COMMANDS}
