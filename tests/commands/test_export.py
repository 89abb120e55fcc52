"""`manage.py export` of a checkpoint: whole or not at all, whatever lies beside the episodes."""

import errno
import json
from pathlib import Path

import pytest

from commands import export
from paths import REPOSITORY  # noqa: F401
from teleport.refusal import Refusal


@pytest.fixture
def train(stages, tmp_path, monkeypatch):
    """The link to a train stage in an experiment that has been evaluated before and after its episode."""
    monkeypatch.setattr(export, "add_pooler", lambda folder: None)
    monkeypatch.setattr(export, "example_text", lambda folder: "")
    home = tmp_path / "results/experiments/tele"
    (home / "episode-1").mkdir(parents=True)
    for folder, mean in ((home, 0.25), (home / "episode-1", 0.5)):
        job = stages.finish(stages.make("evaluate", {"measures": ["RR@10"]}), {"means": {"RR@10": mean}})
        (folder / "evaluate-test").symlink_to(job.folder)
    job = stages.make("train")
    checkpoint = job.output("checkpoint")
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps({}))
    (checkpoint / "README.md").write_text("# A model\n\n## Settings\n")
    stages.finish(job)
    (home / "episode-1/train").symlink_to(job.folder)
    return home / "episode-1/train"


def test_a_folder_beside_the_episodes_is_none(train, tmp_path):
    train.parent.with_name("episode-2b").mkdir()
    export.export(train, tmp_path / "new/model")
    card = (tmp_path / "new/model/README.md").read_text()
    assert [line for line in card.splitlines() if "test" in line] == ["| 0 | test | 0.250 |", "| 1 | test | 0.500 |"]
    with pytest.raises(Refusal, match="model is there already"):
        export.export(train, tmp_path / "new/model")


def test_the_scores_are_of_their_episodes_also_where_one_stands_beside_the_checkpoint(train, tmp_path, monkeypatch):
    monkeypatch.chdir(train.parent)
    export.export(Path(train.name), tmp_path / "model")
    card = (tmp_path / "model/README.md").read_text()
    assert [line for line in card.splitlines() if "test" in line] == ["| 0 | test | 0.250 |", "| 1 | test | 0.500 |"]


def test_an_export_that_fails_leaves_nothing_and_may_be_repeated(train, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(export, "write_text", lambda path, text: int("bug"))
        with pytest.raises(ValueError, match="bug"):
            export.export(train, tmp_path / "new/model")
    assert list((tmp_path / "new").iterdir()) == []
    assert "model" in export.export(train, tmp_path / "new/model")


def test_an_export_without_scores_says_so(train, tmp_path):
    (train.parent / "evaluate-test").resolve().joinpath("manifest.json").unlink()
    said = export.export(train, tmp_path / "model")
    assert "without scores of episode-1/evaluate-test, which are not finished" in said
    assert "| 1 |" not in (tmp_path / "model/README.md").read_text() and (tmp_path / "model/config.json").is_file()
    said = export.export(train.resolve(), tmp_path / "alone")
    assert said.endswith(", without scores: only a link below results/experiments leads to them")


def test_splits_with_other_measures_have_columns_of_their_own(train, stages, tmp_path):
    job = stages.make("evaluate", {"measures": ["R@5", "RR@10"]})
    stages.finish(job, {"means": {"R@5": 0.75, "RR@10": 0.125}})
    (train.parent / "evaluate-dev").symlink_to(job.folder)
    export.export(train, tmp_path / "model")
    table = [line for line in (tmp_path / "model/README.md").read_text().splitlines() if line.startswith("|")]
    assert table == [
        "| Episode | Split | RR@10 | R@5 |",
        "| --: | :-- | --: | --: |",
        "| 0 | test | 0.250 | – |",
        "| 1 | dev | 0.125 | 0.750 |",
        "| 1 | test | 0.500 | – |",
    ]


def test_a_copy_that_fails_is_an_error_of_the_system_which_says_what(train, tmp_path, monkeypatch):
    """Not the list of errors that shutil.copytree raises, in which nobody finds that a disk is full."""

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(export.shutil, "copyfile", full)
    with pytest.raises(OSError) as caught:
        export.export(train, tmp_path / "model")
    assert caught.value.errno == errno.ENOSPC and list(tmp_path.glob("model*")) == []
