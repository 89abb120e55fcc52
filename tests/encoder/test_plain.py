"""Architectures that transformers' own model computes: the same vectors, and a training that moves the weights."""

import numpy as np
import pytest
import torch
import transformers

from encoder_world import PASSAGES, encode_all, make_collection, make_pretrained, make_tokens, source_folder
from teleport.arrays import Ragged
from teleport.encoder.load import load_backbone, load_encoders, save_encoders
from teleport.encoder.model import Encoder
from teleport.encoder.side import Side
from training_world import World, losses_of, tiny_bert

SETTINGS = {"max_query_tokens": 16, "max_passage_tokens": 48, "precision": "fp32"}


@pytest.mark.parametrize(("family", "sep"), [("mpnet", "</s>"), ("distilbert", "[SEP]")])
def test_vectors_are_those_of_transformers_one_text_at_a_time(stages, tmp_path, family, sep, caplog):
    source = source_folder(tmp_path / "source", family)
    with caplog.at_level("INFO"):
        checkpoint = make_pretrained(stages, source, pooling="mean", normalize=True)
    assert f"{family} is computed in padded batches" in caplog.text
    collection = make_collection(stages)
    tokens = make_tokens(stages, collection, checkpoint)
    inputs = {"collection": collection, "tokens": tokens, "checkpoint": checkpoint}
    found = np.load(encode_all(stages, SETTINGS, inputs).files["passages.npy"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.AutoModel.from_pretrained(source).eval()
    for (title, text), vector in zip(PASSAGES, found, strict=True):
        text = f"{title} {sep} {text}" if title else text
        inputs = tokenizer(text, truncation=True, max_length=48, return_tensors="pt")
        with torch.inference_mode():
            expected = model(**inputs).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(vector, (expected / expected.norm()).numpy(), atol=2e-6)


def test_it_is_trained_as_others_are(stages, tmp_path):
    """A kill or not, the same losses: its dropout draws from the generator that the trainer keeps."""
    config = transformers.MPNetConfig(
        vocab_size=tiny_bert().config.vocab_size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=66,
    )  # fmt: skip
    torch.manual_seed(3)
    world = World(stages)
    job = stages.make("pretrained", {"checkpoint": {"hub": None, "folder": "tiny", "sha256": None}})
    encoder = Encoder(transformers.MPNetModel(config, add_pooling_layer=False), "mean")
    save_encoders(encoder, encoder, job.output("checkpoint"), stages.root / "tokenizer")
    made = stages.finish(job, {"weights_sha256": "beef", "model_type": "mpnet", "dim": 32})
    world.inputs |= {"checkpoint": made, "pretrained": made}
    first, second = (world.finished(world.job()) for _ in range(2))
    losses = [float(loss) for loss in losses_of(first)[1]]
    assert losses_of(first) == losses_of(second) and len(set(losses)) == len(losses) > 3
    before, after = (load_encoders(stage.folder / "checkpoint")[0].backbone.state_dict() for stage in (made, first))
    assert type(load_encoders(first.folder / "checkpoint")[0].backbone).__name__ == "MPNetModel"
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)


def test_its_batches_hold_the_token_budget_with_their_padding(tmp_path):
    lengths = np.array([4, 5, 40, 6, 60, 5, 30])
    tokens = Ragged(np.concatenate([[0], np.cumsum(lengths - 2)]), np.full((lengths - 2).sum(), 7))
    encoder = Encoder(load_backbone(source_folder(tmp_path / "source", "mpnet")), "mean").eval()
    side, computed = Side(encoder, tokens, 64, {"before": [0], "after": [2], "pad": 1}), []
    encoder.backbone.register_forward_pre_hook(
        lambda _, args, kwargs: computed.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    with torch.inference_mode():
        vectors = side.vectors(np.arange(len(lengths)), 80)
        alone = torch.cat([side.vectors(np.array([row]), 80) for row in range(len(lengths))])
    batches = side.buckets(np.arange(len(lengths)), 80)
    assert max(computed) <= 80 and computed[: len(batches)] == [len(b) * lengths[b].max() for b in batches]
    torch.testing.assert_close(vectors, alone, rtol=1e-4, atol=1e-5)
