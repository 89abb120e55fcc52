"""`teleport new --encoder`: a checkpoint of the hub at one commit, or a folder; what is written loads."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import manage
from collection_world import random_passages
from commands.new import new
from encoder_world import make_encoder, source_folder
from hub import Hub
from teleport.encoder.checkpoint import write_modules
from teleport.plan.plan import Plan
from teleport.refusal import Refusal

NAME = "some/encoder"
LAST = "Normalize"
MODULES = {"": "Transformer", "1_Pooling": "Pooling", f"2_{LAST}": LAST}


def modules(folder, normalised):
    """Let the files of a checkpoint name cls pooling, a prefix and whether its vectors have length 1."""
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    named = [(path, name) for path, name in MODULES.items() if normalised or name != LAST]
    named = [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in named]
    (folder / "modules.json").write_text(json.dumps(named))
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "q: "}}')


def below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def checkpoint(monkeypatch, tmp_path):
    """The folder of a checkpoint whose files name no pooling, beside a file of pairs."""
    monkeypatch.chdir(tmp_path)
    words = [" ".join(each) for each in random_passages(np.random.default_rng(5), 120, 5, 12)]
    rows = [{"query": one, "positive": other} for one, other in zip(words[:60], words[60:], strict=True)]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return source_folder(tmp_path / "bert")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    served = Hub({})
    served.take_over(monkeypatch, tmp_path / "cache")
    yield served
    served.close()


def written(encoder, **options):
    """(the block `encoder` of the configuration, the encoder that its plan completes, sentences)."""
    path, sentences = new("mine", Path("pairs.jsonl"), encoder=encoder, **options)
    assert path.read_text().index("# The start of training.") < path.read_text().index("\nencoder:\n")
    return yaml.safe_load(path.read_text())["encoder"], Plan.of_files([path]).encoder, sentences


@pytest.mark.parametrize(("normalised", "scale"), [(True, 20.0), (False, 1.0)])
def test_a_folder_brings_its_scale_and_keeps_what_its_files_name(checkpoint, normalised, scale):
    modules(checkpoint, normalised)
    block, encoder, sentences = written("bert")
    assert block == {"checkpoint": {"folder": "bert"}, "scale": scale, "title": "space"}
    assert (encoder.pooling, encoder.normalize, encoder.query_prefix) == ("cls", normalised, "q: ")
    assert "The encoder has cls pooling" in " ".join(sentences) and "a guess" not in " ".join(sentences)


def test_a_folder_whose_vectors_are_compared_by_cosine(checkpoint):
    """They are scaled to length 1, and their products as those of a checkpoint with a module for it."""
    modules(checkpoint, normalised=False)
    (checkpoint / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "cosine"}')
    block, encoder, _ = written("bert")
    assert block["scale"] == 20.0 and encoder.normalize


@pytest.mark.parametrize("revision", ["", "@main", "@COMMIT"])
def test_a_revision_of_the_hub_becomes_its_commit(checkpoint, hub, revision):
    modules(checkpoint, normalised=True)
    hub.repositories[NAME] = below(checkpoint)
    commit = hub.commit(NAME)
    block, encoder, _ = written(f"hub:{NAME}{revision.replace('COMMIT', commit)}")
    assert block == {"checkpoint": {"hub": NAME, "revision": commit}, "scale": 20.0, "title": "space"}
    assert encoder.checkpoint.revision == commit and encoder.pooling == "cls"
    assert not any(path.endswith(".safetensors") for path in hub.asked), "weights are not needed yet"


@pytest.mark.parametrize(("architecture", "pooling"), [("BertModel", "mean"), ("BertForCausalLM", "last")])
def test_a_pooling_that_no_file_names_is_a_guess_and_said(checkpoint, architecture, pooling):
    """The guess of sentence-transformers."""
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"architectures": [architecture]}))
    block, encoder, (sentence, *_) = written(str(checkpoint))
    assert block["pooling"] == encoder.pooling == pooling and block["scale"] == 1.0 and not encoder.normalize
    assert str(checkpoint) in sentence and f"`encoder.pooling: {pooling}` is a guess" in sentence
    assert "its files name none: cls, mean or last" in Path("config/mine.yaml").read_text()


def test_a_head_of_this_project_keeps_its_width(checkpoint, tmp_path):
    write_modules(checkpoint, make_encoder(tmp_path, projection=8, normalize=True), 64)
    block, encoder, _ = written("bert")
    assert (block["projection"], block["scale"], encoder.pooling) == (8, 20.0, "mean")


def test_nothing_is_trained_or_a_method_trains_with_the_same_encoder(checkpoint):
    modules(checkpoint, normalised=True)
    block, _, _ = written("bert", method="ance")
    Path("pairs.jsonl").rename("test.jsonl")
    path, _ = new("other", Path("test.jsonl"), encoder="bert")
    raw = yaml.safe_load(path.read_text())
    assert raw["encoder"] == block and raw["episodes"] == []
    assert Plan.of_files([path]).encoder.checkpoint.folder == "bert"


def test_a_checkpoint_that_cannot_be_used_is_one_sentence_before_the_collection_is_read(checkpoint, hub):
    hub.repositories |= {NAME: below(checkpoint), "some/text": {"README.md": b"x"}}
    (checkpoint / "model.safetensors").unlink()
    for encoder, said in (
        ("nowhere", "--encoder nowhere: .*hub:OWNER/NAME@REVISION"),
        ("", "--encoder : "),
        ("x" * 5000, "--encoder xxx"),
        ("hub:some", "--encoder hub:some: "),
        ("hub:some/other", "--encoder: .*'some/other'.*'main' .*RepositoryNotFound"),
        (f"hub:{NAME}@v9", f"--encoder: .*'{NAME}'.*'v9' .*RevisionNotFound"),
        ("hub:some/text", "--encoder: .* no config.json"),
        ("bert", "--encoder: bert has none of model.safetensors"),
    ):
        with pytest.raises(Refusal, match=said) as caught:
            new("mine", Path("nowhere.jsonl"), encoder=encoder)
        assert "\n" not in str(caught.value) and "encoder.checkpoint" not in str(caught.value)
    assert not Path("config").exists() and not Path("data").exists()


def test_the_command_takes_it(checkpoint, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["teleport", "new", "mine", "pairs.jsonl", "--encoder", "bert"])
    with pytest.raises(SystemExit) as ended:
        manage.main()
    assert ended.value.code is None
    assert "bert: its files name no pooling" in capsys.readouterr().out
    assert yaml.safe_load(Path("config/mine.yaml").read_text())["encoder"]["checkpoint"] == {"folder": "bert"}
