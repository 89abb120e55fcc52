"""Checkpoints as sentence-transformers writes them: its vectors, with nothing configured, or one sentence."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from encoder_world import (
    PASSAGES,
    QUERIES,
    encode_all,
    make_collection,
    make_pretrained,
    make_tokens,
    saved_with_layers,
    source_folder,
)
from teleport.encoder.completed import completed
from teleport.encoder.load import linear_of
from teleport.encoder.model import Encoder as Model
from teleport.encoder.new_queries import published_encoder
from teleport.encoder.own_settings import ACTIVATIONS, own_settings
from teleport.refusal import Refusal
from teleport.settings.encoder import Encoder

PROMPTS = {"query": "the query ", "document": "the passage "}


def model_of(folder):
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def saved(tmp_path, pooling, normalize, prompts, length=20, similarity="dot"):
    """A folder that the installed version, 6, has saved."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(str(source_folder(tmp_path / "source")), max_seq_length=length)
    modules = [transformer, Pooling(32, pooling_mode=pooling), *([Normalize()] if normalize else [])]
    model = SentenceTransformer(modules=modules, device="cpu", prompts=prompts, similarity_fn_name=similarity)
    model.save_pretrained(str(tmp_path / "saved"))
    return tmp_path / "saved"


def in_version_5(folder, length=20):
    """The same folder in the form of versions 2 to 5."""
    pooling = json.loads((folder / "1_Pooling/config.json").read_text())
    if mode := pooling.get("pooling_mode"):
        flags = {f"pooling_mode_{name}": name.startswith(mode) for name in ("cls_token", "mean_tokens")}
        write(folder / "1_Pooling/config.json", {"word_embedding_dimension": 32} | flags)
    write(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = f"sentence_transformers.models.{module['type'].rpartition('.')[2]}"
    write(folder / "modules.json", modules)
    edit(folder / "tokenizer_config.json", model_max_length=512)
    return folder


def write(path, content):
    path.write_text(json.dumps(content))


def edit(path, **changes):
    write(path, json.loads(path.read_text()) | changes)


def ours(stages, folder, projection=None, truncate_dim=None):
    """(vectors of queries, of passages) of a checkpoint of which the configuration says nothing but a head's width."""
    encoder = completed(Encoder(checkpoint={"folder": str(folder)}, title="space", projection=projection))
    said = {name: getattr(encoder, name) for name in ("pooling", "normalize", "projection")}
    checkpoint = make_pretrained(stages, folder, **said)
    collection = make_collection(stages)
    prefixes = {"query_prefix": encoder.query_prefix, "passage_prefix": encoder.passage_prefix}
    tokens = make_tokens(stages, collection, checkpoint, "space", bool(encoder.lower_case), **prefixes)
    settings = {name: getattr(encoder, name) for name in ("max_query_tokens", "max_passage_tokens")}
    settings |= {"precision": "fp32", "truncate_dim": truncate_dim}
    inputs = {"collection": collection, "tokens": tokens, "checkpoint": checkpoint}
    job = encode_all(stages, settings, inputs)
    return [np.load(job.files[f"{name}.npy"]) for name in ("queries.train", "passages")]


def theirs(folder):
    model, passages = model_of(folder), [f"{title} {text}" if title else text for title, text in PASSAGES]
    return model.encode_query(QUERIES["train"]), model.encode_document(passages)


@pytest.mark.ci(2)
@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize(
    ("pooling", "normalize", "prompts"), [("mean", True, None), ("cls", False, PROMPTS), ("mean", False, PROMPTS)]
)
def test_its_vectors_are_ours(stages, tmp_path, version, pooling, normalize, prompts):
    folder = saved(tmp_path, pooling, normalize, prompts)
    if version == 5:
        in_version_5(folder)
    assert own_settings(folder)["max_tokens"].value == model_of(folder).max_seq_length == 20
    for mine, its in zip(ours(stages, folder), theirs(folder), strict=True):
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-5)
    wider = in_version_5(shutil.copytree(folder, tmp_path / "wider"), 64)
    assert np.abs(theirs(folder)[1] - theirs(wider)[1]).max() > 1e-3, "no text is cut: the length shows nowhere"


@pytest.mark.parametrize("similarity", [None, "dot"])
def test_products_are_its_similarities(stages, tmp_path, similarity):
    """It compares vectors by their cosine unless another function was saved."""
    folder = saved(tmp_path, "mean", False, None, similarity=similarity)
    queries, passages = theirs(folder)
    assert np.abs(np.linalg.norm(passages, axis=1) - 1).min() > 0.1
    mine_queries, mine_passages = ours(stages, folder)
    its = model_of(folder).similarity(queries, passages)
    np.testing.assert_allclose(mine_queries @ mine_passages.T, its, rtol=0, atol=1e-4)
    own = completed(Encoder(checkpoint={"folder": str(folder)}, normalize=False))
    assert not own.normalize, "the file may only have the library's default"


@pytest.mark.parametrize(("similarity", "normalize"), [("euclidean", False), ("manhattan", True)])
def test_a_similarity_in_another_order_than_the_product_s_is_refused(tmp_path, similarity, normalize):
    folder = saved(tmp_path, "mean", normalize, None, similarity=similarity)
    with pytest.raises(Refusal, match=f"similarity_fn_name {similarity}. Give a checkpoint for cosine or dot"):
        own_settings(folder)


def test_distances_of_vectors_of_length_1_are_in_the_order_of_their_products(tmp_path):
    assert own_settings(saved(tmp_path, "mean", True, None, similarity="euclidean"))["normalize"].value


@pytest.mark.parametrize(("similarity", "expected"), [("cosine", True), ("dot", False)])
def test_both_sides_decide_whether_vectors_have_length_1(tmp_path, similarity, expected):
    (tmp_path / "q").mkdir()
    passages, queries = (
        saved(folder, "mean", False, None, similarity=each)
        for folder, each in ((tmp_path, "cosine"), (tmp_path / "q", similarity))
    )
    both = {"checkpoint": {"folder": str(passages)}, "query_checkpoint": {"folder": str(queries)}}
    assert completed(Encoder(**both, tied=False)).normalize == expected


@pytest.mark.parametrize("normalize", [True, False])
def test_the_first_components_are_those_of_its_truncate_dim(stages, tmp_path, normalize):
    folder = saved(tmp_path, "mean", normalize, PROMPTS)
    model, passages = model_of(folder), [f"{title} {text}" if title else text for title, text in PASSAGES]
    model.truncate_dim = 8
    options = {"normalize_embeddings": normalize}  # it cuts behind its own Normalize
    its = model.encode_query(QUERIES["train"], **options), model.encode_document(passages, **options)
    cut, whole = ours(stages, folder, truncate_dim=8), ours(stages, folder)
    for mine, theirs, wider in zip(cut, its, whole, strict=True):
        assert mine.shape == (len(wider), 8) and wider.shape[1] == 32
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
        assert np.allclose(mine, wider[:, :8], rtol=0, atol=1e-6) != normalize
    np.testing.assert_array_equal(ours(stages, folder, truncate_dim=32)[1], whole[1])
    with pytest.raises(Refusal, match="^encoder.truncate_dim is 33, .* 32 components"):
        ours(stages, folder, truncate_dim=33)


@pytest.mark.ci(1)
@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_linear_layer_with_a_layer_norm_is_a_head(stages, tmp_path, version, normalize):
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize, Pooling, Transformer

    transformer = Transformer(str(source_folder(tmp_path / "source")), max_seq_length=20)
    head = [Dense(32, 16, activation_function=torch.nn.Identity()), LayerNorm(16)]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for parameter in (parameter for module in head for parameter in module.parameters()):
            torch.nn.init.normal_(parameter)
    modules = [transformer, Pooling(32, pooling_mode="mean"), *head, *([Normalize()] if normalize else [])]
    folder = tmp_path / "saved"
    SentenceTransformer(modules=modules, device="cpu", similarity_fn_name="dot").save_pretrained(str(folder))
    if version == 5:
        in_version_5(folder)
    for mine, its in zip(ours(stages, folder, projection=16), theirs(folder), strict=True):
        assert mine.shape[1] == 16
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-5)
    read = published_encoder(folder)(QUERIES["train"], "query")  # `teleport audit --by` has no configuration
    np.testing.assert_allclose(read, theirs(folder)[0], rtol=0, atol=1e-5)
    with pytest.raises(Refusal, match="encoder.projection is null, .* 16 dimensions"):
        ours(stages, folder)


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("family", "widths", "bias", "activation", "normalize", "version"),
    [
        ("embeddinggemma", [48, 32], False, torch.nn.Identity, True, 6),
        ("bert", [32], True, torch.nn.Tanh, True, 5),
        ("bert", [24], True, torch.nn.Tanh, False, 6),
        ("bert", [24], True, torch.nn.GELU, True, 6),
        ("bert", [48, 24], False, torch.nn.SiLU, False, 6),
    ],
)
def test_linear_layers_without_a_layer_norm_are_a_head_too(
    stages, tmp_path, family, widths, bias, activation, normalize, version
):
    folder = saved_with_layers(tmp_path, family, widths, bias, activation, normalize)
    if version == 5:
        in_version_5(folder)
    without = shutil.copytree(folder, tmp_path / "without")
    modules = [module for module in json.loads((folder / "modules.json").read_text()) if "Dense" not in module["type"]]
    write(without / "modules.json", modules)
    plain = ours(stages, without)
    for mine, its, other in zip(ours(stages, folder), theirs(folder), plain, strict=True):
        assert mine.shape[1] == widths[-1]
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-5)
        assert mine.shape != other.shape or np.abs(mine - other).max() > 0.1, "the layers change nothing"
    with pytest.raises(Refusal, match="encoder.projection is 16, .* linear layers"):
        ours(stages, folder, projection=16)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_behind_a_linear_layer_is_that_of_sentence_transformers(name):
    """Its Dense writes the name of the class alone; the head here is made from that name."""
    from sentence_transformers.sentence_transformer.modules import Dense

    theirs = Dense(6, 4, activation_function=getattr(torch.nn, name)()).eval()
    said = linear_of(json.loads(json.dumps(theirs.get_config_dict())))
    backbone = SimpleNamespace(config=SimpleNamespace(model_type="none", hidden_size=6))
    ours = Model(backbone, "mean", dense=[said])
    ours.set_dense([theirs.state_dict()])
    given = 4 * torch.randn(50, 6, generator=torch.Generator().manual_seed(3))
    expected = theirs({"sentence_embedding": given})["sentence_embedding"]
    torch.testing.assert_close(ours.head.train()(given), expected, rtol=0, atol=1e-6)
    assert bool((expected - theirs.linear(given)).abs().max() > 0.01) is (name != "Identity"), (
        "the activation does nothing"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"in_features": 16}, "linear.weight .*config.json .*16 to 48, .* 32"),
        ({"out_features": None}, "out_features"),
        ({"bias": True}, "linear.weight"),
        ({"activation_function": "torch.nn.modules.activation.PReLU"}, "the activation PReLU"),
        ({"activation_function": "torch.nn.modules.activation.RReLU"}, "the activation RReLU"),
        ({"activation_function": "os.system"}, "the activation system"),
        ({"use_residual": True}, "use_residual"),
    ],
)
def test_a_linear_layer_that_is_not_computed_or_does_not_fit_is_refused(stages, tmp_path, changes, said):
    folder = saved_with_layers(tmp_path)
    edit(folder / "2_Dense/config.json", **changes)
    with pytest.raises(Refusal, match=said) as caught:
        make_pretrained(stages, folder, pooling="mean", normalize=True)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_default_prompt_is_of_encode_alone(stages, tmp_path):
    """`encode_query` and `encode_document` take "" for a side that has no prompt of its own."""
    folder = saved(tmp_path, "mean", True, {"query": "the query "})
    edit(folder / "config_sentence_transformers.json", default_prompt_name="query")
    for mine, its in zip(ours(stages, folder), theirs(folder), strict=True):
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-5)


def test_lower_case_is_the_checkpoints(stages, tmp_path):
    folder = in_version_5(saved(tmp_path, "mean", True, None))
    plain = ours(stages, folder)[0]
    edit(folder / "sentence_bert_config.json", do_lower_case=True)
    assert completed(Encoder(checkpoint={"folder": str(folder)})).lower_case is True
    np.testing.assert_array_equal(plain, ours(stages, folder)[0])  # whose tokenizer does so anyway


def test_new_texts_are_in_the_case_that_the_checkpoint_says(tmp_path):
    folder = in_version_5(saved(tmp_path, "mean", True, None))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    write(folder / "tokenizer.json", tokenizer | {"normalizer": None})
    edit(folder / "tokenizer_config.json", do_lower_case=False, tokenizer_class="PreTrainedTokenizerFast")
    lower, upper = ([getattr(text, case)() for text in QUERIES["train"]] for case in ("lower", "upper"))
    cased = [published_encoder(folder)(texts, "query") for texts in (lower, upper)]
    edit(folder / "sentence_bert_config.json", do_lower_case=True)
    np.testing.assert_array_equal(published_encoder(folder)(upper, "query"), cased[0])
    assert np.abs(cased[0] - cased[1]).max() > 0.01, "case changes something"


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "the pooling max"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "cls and mean, which is not supported"),
        ("1_Pooling/config.json", {"pooling_mode": 5}, "pooling_mode"),
        ("1_Pooling/config.json", {"include_prompt": False}, "leaves prompts out of the pooling"),
        ("config_sentence_transformers.json", {"truncate_dim": 16}, "truncate_dim 16"),
        ("config_sentence_transformers.json", {"prompts": ["x"]}, "prompts: Input should be a valid dictionary"),
        ("config_sentence_transformers.json", {"prompts": {"query": 5}}, "prompts.query"),
        ("sentence_bert_config.json", {"max_seq_length": "many"}, "max_seq_length: Input should be a valid integer"),
        ("sentence_bert_config.json", {"max_seq_length": 2}, "max_seq_length: Input should be greater than or equal"),
        ("sentence_bert_config.json", {"max_seq_length": True}, "max_seq_length"),
        (
            "sentence_bert_config.json",
            {"processing_kwargs": {"text": {"max_length": 9}}},
            "{'text': {'max_length': 9}}",
        ),
        ("tokenizer_config.json", {"model_max_length": "x"}, "model_max_length"),
    ],
)
def test_what_is_not_computed_and_what_is_no_form_is_one_sentence(tmp_path, file, changes, said):
    folder = saved(tmp_path, "mean", True, PROMPTS)
    edit(folder / file, **changes)
    with pytest.raises(Refusal) as caught:
        completed(Encoder(checkpoint={"folder": str(folder)}))
    assert said in str(caught.value) and file in str(caught.value) and "\n" not in str(caught.value)


def module(name, path):
    return {"type": f"sentence_transformers.models.{name}", "path": path}


@pytest.mark.parametrize(
    "modules",
    [
        {}, 5, None, [5], [{"path": "1"}], [{"type": 5, "path": ""}], [module("Transformer", "/etc")],
        [module("Transformer", "../x")], [module("Normalize", "")] * 2,
        [module("Pooling", "1_Pooling"), module("Transformer", "")],
        [module("Transformer", ""), module("Router", "1_Router")],
    ],
)  # fmt: skip
def test_modules_of_another_form_are_one_sentence(tmp_path, modules):
    folder = saved(tmp_path, "mean", True, None)
    write(folder / "modules.json", modules)
    with pytest.raises(Refusal, match=r"modules.json") as caught:
        own_settings(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_hidden_layers": 10**6}, "has num_hidden_layers 1000000, the weights have 2"),
        ({"hidden_size": 10**6, "num_attention_heads": 2}, "has hidden_size 1000000, the weights have 32"),
        ({"intermediate_size": 10**9}, "has intermediate_size 1000000000, the weights have 64"),
        ({"vocab_size": 10**8}, "has vocab_size 100000000, the weights have"),
        ({"max_position_embeddings": 10**7}, "has max_position_embeddings 10000000, the weights have 64"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: Input should be greater than or equal to 1"),
        ({"num_attention_heads": 5}, "hidden_size 32, which is not a multiple of num_attention_heads 5"),
        ({"num_attention_heads": 0}, "num_attention_heads: Input should be greater"),
        ({"hidden_size": "32"}, "hidden_size: Input should be a valid integer, not '32'"),
        ({"layer_norm_eps": 1e30}, "layer_norm_eps: Input should be less than or equal to 0.01"),
        ({"layer_norm_eps": 0}, "layer_norm_eps: Input should be greater than 0"),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_a_model_is_built(stages, tmp_path, changes, said):
    folder = source_folder(tmp_path / "source")
    edit(folder / "config.json", **changes)
    with pytest.raises(Refusal) as caught:
        make_pretrained(stages, folder)
    assert said in str(caught.value) and "config.json" in str(caught.value)
