"""The encoder, and that its folders load in transformers and in sentence-transformers with the same embeddings."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from encoder_world import make_pretrained, source_folder
from teleport.encoder.load import load_backbone, load_encoders, save_encoders
from teleport.encoder.model import Encoder
from teleport.encoder.precision import autocast

TEXTS = ["the cat was sitting", "a", "Who was it, the 東京 cafe 42 times over and over again?"]


def embed(encoder, folder, texts=TEXTS, max_tokens=64):
    """Vectors of an Encoder for texts tokenised by transformers."""
    batch = AutoTokenizer.from_pretrained(folder)(
        texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt"
    )
    with torch.inference_mode():
        lengths = batch["attention_mask"].sum(1)
        return encoder(batch["input_ids"][batch["attention_mask"].bool()].numpy(), lengths.numpy())


def expected(folder, pooling, normalize, head=None):
    """The same by hand: each text alone, no padding, so that no mask is needed."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in TEXTS:
        with torch.inference_mode():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            vector = hidden[0] if pooling == "cls" else sum(hidden) / len(hidden)
            if head:
                weight, bias, norm_weight, norm_bias = head
                vector = weight @ vector + bias
                spread = ((vector - vector.mean()) ** 2).mean()
                vector = (vector - vector.mean()) / torch.sqrt(spread + 1e-5) * norm_weight + norm_bias
        vectors.append(vector / (vector**2).sum().sqrt() if normalize else vector)
    return torch.stack(vectors)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_are_pooled_token_vectors(tmp_path, family, pooling, normalize):
    source_folder(tmp_path, family)
    encoder = Encoder(load_backbone(tmp_path), pooling, normalize=normalize).eval()
    torch.testing.assert_close(embed(encoder, tmp_path), expected(tmp_path, pooling, normalize), rtol=0, atol=1e-5)
    assert encoder.max_tokens == 64


def test_head_is_a_linear_layer_and_a_layer_norm(tmp_path):
    source_folder(tmp_path)
    encoder = Encoder(load_backbone(tmp_path), "mean", projection=8).eval()
    encoder.init_head(torch.Generator().manual_seed(3))
    linear, norm = encoder.head
    norm.weight.data.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1))
    head = [linear.weight, linear.bias, norm.weight, norm.bias]
    torch.testing.assert_close(embed(encoder, tmp_path), expected(tmp_path, "mean", False, head), rtol=0, atol=1e-5)
    assert encoder.dim == 8 and embed(encoder, tmp_path).shape == (3, 8)


def test_head_is_drawn_from_the_generator_alone(tmp_path):
    source_folder(tmp_path)
    state = torch.get_rng_state()
    drawn = []
    for seed in (3, 3, 4):
        encoder = Encoder(load_backbone(tmp_path), "cls", projection=200)
        encoder.init_head(torch.Generator().manual_seed(seed))
        drawn.append(encoder.head[0].weight.detach())
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.get_rng_state(), state)
    assert abs(drawn[0].std().item() - 0.02) < 0.001 and not encoder.head[0].bias.any()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_output_is_float32_with_weights_in_bfloat16(tmp_path, pooling):
    source_folder(tmp_path)
    encoder = Encoder(load_backbone(tmp_path), pooling, projection=8).eval()
    encoder.init_head(torch.Generator().manual_seed(3))
    with autocast(encoder.device, torch.bfloat16):
        vectors = embed(encoder, tmp_path)
    assert vectors.dtype is torch.float32
    difference = (vectors - embed(encoder, tmp_path)).abs().max()
    assert 0 < difference < 0.3  # the backbone computed in bfloat16


@pytest.mark.ci(6)
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pooling, projection, normalize", [("cls", None, False), ("mean", 8, True), ("cls", 8, False)])
def test_folders_load_elsewhere_with_the_same_embeddings(
    stages, tmp_path, family, tied, pooling, projection, normalize
):
    from sentence_transformers import SentenceTransformer

    folder = source_folder(tmp_path / "source", family)
    changes = {"pooling": pooling, "projection": projection, "normalize": normalize, "tied": tied, "seed": 5}
    checkpoint = make_pretrained(stages, folder, **changes).folder / "checkpoint"
    query_encoder, passage_encoder = load_encoders(checkpoint)
    assert (query_encoder is passage_encoder) == tied
    with torch.no_grad():  # as training would, differently on the two sides
        for i, encoder in enumerate({query_encoder, passage_encoder}):
            for parameter in encoder.parameters():
                parameter += 0.01 * (i + 1)
    save_encoders(query_encoder, passage_encoder, tmp_path / "saved", checkpoint)

    sides = [""] if tied else ["query", "passage"]
    for side, encoder in zip(sides, (query_encoder, passage_encoder), strict=False):
        place = tmp_path / "saved" / side
        vectors = embed(encoder, place)
        sentence_transformer = SentenceTransformer(str(place), device="cpu", local_files_only=True)
        np.testing.assert_allclose(sentence_transformer.encode(TEXTS), vectors, rtol=0, atol=1e-5)
        assert sentence_transformer.similarity_fn_name == "dot"
        assert sentence_transformer.max_seq_length == 64
        if projection is None:
            torch.testing.assert_close(vectors, expected(place, pooling, normalize), rtol=0, atol=1e-5)
    loaded = load_encoders(tmp_path / "saved")
    for encoder, saved in zip(loaded, (query_encoder, passage_encoder), strict=True):
        assert {n: t.tolist() for n, t in encoder.state_dict().items()} == {
            n: t.tolist() for n, t in saved.state_dict().items()
        }
        assert not any(module.training for module in encoder.modules())


def test_untied_sides_differ_after_training(stages, tmp_path):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"), tied=False).folder / "checkpoint"
    query_encoder, passage_encoder = load_encoders(checkpoint)
    assert torch.equal(embed(query_encoder, checkpoint / "query"), embed(passage_encoder, checkpoint / "passage"))
    with torch.no_grad():
        query_encoder.backbone.embeddings.word_embeddings.weight[7:] *= -1
    save_encoders(query_encoder, passage_encoder, tmp_path / "saved", checkpoint)
    query_encoder, passage_encoder = load_encoders(tmp_path / "saved")
    assert not torch.equal(embed(query_encoder, checkpoint / "query"), embed(passage_encoder, checkpoint / "passage"))


def test_sentence_transformers_truncates_as_asked(stages, tmp_path):
    from sentence_transformers import SentenceTransformer

    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"), tied=False).folder / "checkpoint"
    encoders = load_encoders(checkpoint)
    save_encoders(*encoders, tmp_path / "saved", checkpoint, (8, 16))
    for side, max_tokens in (("query", 8), ("passage", 16)):
        place = tmp_path / "saved" / side
        sentence_transformer = SentenceTransformer(str(place), device="cpu", local_files_only=True)
        vectors = embed(encoders[0], place, max_tokens=max_tokens)
        np.testing.assert_allclose(sentence_transformer.encode(TEXTS), vectors, rtol=0, atol=1e-5)


def test_the_backbone_config_is_kept(stages, tmp_path):
    source = source_folder(tmp_path / "source", hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.125)
    checkpoint = make_pretrained(stages, source).folder / "checkpoint"
    config = AutoConfig.from_pretrained(checkpoint)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.25, 0.125)
    assert json.loads((checkpoint / "config.json").read_text())["dtype"] == "float32"
    encoder, _ = load_encoders(checkpoint)
    assert {m.p for m in encoder.modules() if isinstance(m, torch.nn.Dropout)} == {0.25, 0.125}


def test_a_folder_of_another_form_is_refused(tmp_path):
    source_folder(tmp_path)
    with pytest.raises(ValueError, match="modules.json.* pooling"):
        load_encoders(tmp_path)


def test_missing_weights_are_an_error(tmp_path):
    from safetensors.torch import load_file, save_file

    source_folder(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="lacks 1 weights .* encoder.layer.1.output.dense.weight"):
        load_backbone(tmp_path)


def test_weights_that_are_missing_or_of_another_shape_are_refused(stages, tmp_path):
    from safetensors.torch import load_file, save_file

    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source")).folder / "checkpoint"
    weights = load_file(checkpoint / "model.safetensors")
    bias = "encoder.layer.0.output.dense.bias"
    for changed in (weights | {bias: weights[bias][1:]}, {name: t for name, t in weights.items() if name != bias}):
        save_file(changed, checkpoint / "model.safetensors", {"format": "pt"})
        with pytest.raises(ValueError, match=rf"checkpoint .*{bias}"):
            load_encoders(checkpoint)
