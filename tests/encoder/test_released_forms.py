"""Released checkpoints in the file forms of their repositories: read as their makers' code reads them, or refused."""

import json
from functools import partial

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, DPRContextEncoder

from encoder_world import make_collection, make_tokens, pretrained_settings, source_folder
from hub import Hub
from released_world import ance, bert, distilbert, dpr, torch_file
from stages import facts_of
from teleport.encoder import pretrained
from teleport.encoder.batches import Chunks
from teleport.encoder.load import load_encoders
from teleport.encoder.tokens import open_tokens
from teleport.running.artefact import Artefact

TEXTS = ["word1 Word2 word3", "word9", "", 'WORD4 "quoted" word5 ' * 9]


def written(folder, files):
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def run(stages, folder=None, **changes):
    job = stages.run(pretrained.run, "pretrained", pretrained_settings(folder, **changes))
    return job, facts_of(job)


def refused(stages, folder, **changes):
    job = stages.make("pretrained", pretrained_settings(folder, **changes))
    with pytest.raises(ValueError) as caught:
        pretrained.run(job)
    return str(caught.value)


def vectors(stages, job, side="query", texts=TEXTS, max_tokens=512, **text_settings):
    """Vectors of texts by the stages' own way: tokens once, packed, the encoder of one side."""
    made = make_tokens(stages, make_collection(stages, [], {"test": texts}), job, **text_settings)
    token_map = open_tokens(stages.make("encode", inputs={"tokens": made}), "queries.test")
    special = json.loads((made["tokens.queries.test"].folder / "special.json").read_text())
    encoder = load_encoders(job.folder / "checkpoint")[side == "passage"]
    with torch.inference_mode():
        return encoder(*Chunks(token_map, max_tokens, special).packed(np.arange(len(texts))))


def assert_close(found, expected):
    assert expected.std(0).mean() > 0.1, "vectors that are all the same would show nothing"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("max_tokens", [7, 512])
@pytest.mark.parametrize("make", [bert, distilbert])
def test_a_backbone_alone(stages, tmp_path, make, max_tokens):
    released = make(1)
    job, _ = run(stages, written(tmp_path / "source", released.files))
    assert_close(vectors(stages, job, max_tokens=max_tokens), released.encode(TEXTS, max_tokens))


@pytest.mark.parametrize("start", ["ance_encoder.", ""])
def test_the_head_of_ance(stages, tmp_path, start):
    released = ance(1, start)
    job, facts = run(stages, written(tmp_path / "source", released.files), projection=768, seed=3)
    assert facts["dim"] == 768
    found = vectors(stages, job, lower_case=True)
    assert_close(found, released.encode(TEXTS))
    cased = vectors(stages, job)
    assert not torch.allclose(found, cased, atol=0.1), "the texts have capitals, so their case must count"


def test_two_headed_checkpoints_with_a_space_before_each_text(stages, tmp_path):
    """ADORE's queries and STAR's passages."""
    star, adore = (ance(seed, start="", prefix=" ") for seed in (1, 11))
    folders = [written(tmp_path / name, made.files) for name, made in (("star", star), ("adore", adore))]
    own = pretrained_settings(folders[1])["checkpoint"]
    job, _ = run(stages, folders[0], query_checkpoint=own, tied=False, projection=768, seed=3)
    text_settings = {"lower_case": True, "query_prefix": " ", "passage_prefix": " "}
    for side, released in (("passage", star), ("query", adore)):
        assert_close(vectors(stages, job, side, **text_settings), released.encode(TEXTS))


def test_the_two_encoders_of_dpr(stages, tmp_path):
    questions, contexts = dpr(1), dpr(11, DPRContextEncoder)
    folders = [
        written(tmp_path / name, made.files) for name, made in (("contexts", contexts), ("questions", questions))
    ]
    own = pretrained_settings(folders[1])["checkpoint"]
    job, facts = run(stages, folders[0], query_checkpoint=own, tied=False)
    assert facts["model_type"] == "bert"
    for side, released in (("passage", contexts), ("query", questions)):
        assert_close(vectors(stages, job, side, lower_case=True), released.encode(TEXTS))
        config = json.loads((job.folder / "checkpoint" / side / "config.json").read_text())
        assert (config["model_type"], config["architectures"]) == ("bert", ["BertModel"])


def test_the_projection_of_dpr_is_refused(stages, tmp_path):
    folder = written(tmp_path / "source", dpr(1, projection_dim=16).files)
    assert "has projection_dim 16; only 0 is computed" in refused(stages, folder)


@pytest.mark.parametrize("projection", [None, 8])
def test_the_head_of_a_checkpoint_is_not_passed_over(stages, tmp_path, projection):
    folder = written(tmp_path / "source", ance(1).files)
    message = refused(stages, folder, projection=projection, seed=3)
    assert f"encoder.projection is {projection or 'null'}, but encoder.checkpoint ({folder}) has" in message
    assert "Set encoder.projection to 768" in message


def test_a_head_without_one_of_its_weights(stages, tmp_path):
    folder = written(tmp_path / "source", ance(1).files)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    del weights["ance_encoder.norm.bias"]
    (folder / "pytorch_model.bin").write_bytes(torch_file(weights))
    assert "a projection head without ance_encoder.norm.bias" in refused(stages, folder, projection=768, seed=3)


def test_two_encoders_in_one_file(stages, tmp_path):
    folder = written(tmp_path / "source", bert(1).files)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    both = {f"{side}.{name}": tensor for side in ("query", "passage") for name, tensor in weights.items()}
    (folder / "pytorch_model.bin").write_bytes(torch_file(both))
    assert "the file has 2 weights called embeddings.word_embeddings.weight" in refused(stages, folder)


def test_the_oldest_names_of_layer_norms(stages, tmp_path):
    """bert-base-uncased has them."""
    released = bert(1)
    folder = written(tmp_path / "source", released.files)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for new, name in old.items():
        weights = {key.replace(new, name): tensor for key, tensor in weights.items()}
    (folder / "pytorch_model.bin").write_bytes(torch_file(weights))
    assert_close(vectors(stages, run(stages, folder)[0]), released.encode(TEXTS))


def test_a_checkpoint_of_ours_keeps_its_head_as_a_source(stages, tmp_path):
    first, _ = run(stages, written(tmp_path / "source", ance(1).files), projection=768, seed=3)
    again, _ = run(stages, first.folder / "checkpoint", projection=768, seed=4)
    assert_close(vectors(stages, again), vectors(stages, first))
    drawn, _ = run(stages, source_folder(tmp_path / "plain"), projection=8, seed=3)
    kept, _ = run(stages, drawn.folder / "checkpoint", projection=8, seed=4)
    heads = [load_encoders(job.folder / "checkpoint")[0].head[0].weight for job in (drawn, kept)]
    assert torch.equal(*heads)


def test_a_head_that_is_not_linear(stages, tmp_path):
    first, _ = run(stages, source_folder(tmp_path / "plain"), projection=8, seed=3)
    path = first.folder / "checkpoint/2_Dense/config.json"
    config = json.loads(path.read_text()) | {"activation_function": "torch.nn.modules.activation.Tanh"}
    path.write_text(json.dumps(config))
    message = refused(stages, first.folder / "checkpoint", projection=8, seed=4)
    assert "2_Dense has the activation torch.nn.modules.activation.Tanh; a projection head is linear" in message


def test_distilbert_is_written_as_distilbert(stages, tmp_path):
    """Not as a BERT whose token types are 0: it has other dropout, and its own class in transformers."""
    released = distilbert(1)
    job, facts = run(stages, written(tmp_path / "source", released.files))
    folder = job.folder / "checkpoint"
    assert facts["model_type"] == "distilbert"
    original = torch.load(tmp_path / "source/pytorch_model.bin", weights_only=True)
    found = load_file(folder / "model.safetensors")
    assert found.keys() == original.keys() and all(torch.equal(found[name], original[name]) for name in found)
    encoder = load_encoders(folder)[0]
    encoder.backbone.save_pretrained(tmp_path / "saved")
    assert type(AutoModel.from_pretrained(tmp_path / "saved")).__name__ == "DistilBertModel"
    saved = load_file(tmp_path / "saved/model.safetensors")
    assert all(torch.equal(saved[name], original[name]) for name in original)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub that this process takes for the real one."""
    made, download = Hub({}), huggingface_hub.snapshot_download
    of_hub = partial(download, endpoint=made.address, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", of_hub)
    yield made
    made.close()


def test_the_commit_of_main_is_in_the_manifest(stages, hub):
    passages, queries = bert(1), bert(5)
    hub.repositories |= {"some/psg-encoder": passages.files, "some/qry-encoder": queries.files}
    places = [
        pretrained_settings(checkpoint={"hub": name, "revision": "main"})["checkpoint"] for name in hub.repositories
    ]
    settings = pretrained_settings() | {"checkpoint": places[0], "query_checkpoint": places[1], "tied": False}
    job = stages.run(pretrained.run, "pretrained", settings)
    facts = Artefact(job.folder).facts
    assert facts["commit"] == hub.commit("some/psg-encoder") != facts["query_commit"]
    assert facts["query_commit"] == hub.commit("some/qry-encoder")
    for side, released in (("passage", passages), ("query", queries)):
        assert_close(vectors(stages, job, side), released.encode(TEXTS))


def test_a_named_commit_is_the_one_that_is_read(stages, hub):
    released = distilbert(1)
    hub.repositories["some/model"] = released.files | {"rust_model.ot": b"of no use here"}
    checkpoint = {"hub": "some/model", "revision": hub.commit("some/model")}
    job = stages.run(pretrained.run, "pretrained", pretrained_settings(checkpoint=checkpoint))
    assert Artefact(job.folder).facts["commit"] == checkpoint["revision"]
    assert_close(vectors(stages, job), released.encode(TEXTS))
    assert not any(path.endswith("rust_model.ot") for path in hub.asked)
    other = pretrained_settings(checkpoint=checkpoint | {"revision": "0" * 40})
    with pytest.raises(ValueError, match="encoder.checkpoint.hub: .*'some/model' .*'0000"):
        pretrained.run(stages.make("pretrained", other))


def test_a_head_in_the_form_of_sentence_transformers_comes_from_the_hub_too(stages, hub, tmp_path):
    first, _ = run(stages, source_folder(tmp_path / "plain"), projection=8, seed=3)
    folder = first.folder / "checkpoint"
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    hub.repositories["some/model"] = files
    checkpoint = {"hub": "some/model", "revision": "main"}
    job, _ = run(stages, checkpoint=checkpoint, projection=8, seed=4)
    heads = [load_encoders(made.folder / "checkpoint")[0].head[0].weight for made in (first, job)]
    assert torch.equal(*heads)
