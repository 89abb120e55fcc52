"""Length buckets."""

import numpy as np
import pytest
import torch

from encoder_world import make_encoder
from teleport.encoder.batches import length_buckets
from teleport.encoder.model import layers_of
from teleport.encoder.shape import Shape


def test_texts_of_similar_length_share_a_batch():
    batches = length_buckets([9, 2, 3, 9, 2], token_budget=9)
    assert [batch.tolist() for batch in batches] == [[1, 4, 2], [0], [3]]


def test_a_text_over_the_budget_gets_a_batch_of_its_own():
    batches = length_buckets([50, 4, 60, 4], token_budget=10)
    assert [batch.tolist() for batch in batches] == [[1, 3], [0], [2]]


def test_no_texts_give_no_batches():
    assert length_buckets([], token_budget=10) == []


@pytest.mark.parametrize("budget", [64, 500, 4096])
def test_every_text_is_in_one_batch_and_no_batch_could_take_its_next_text(budget):
    lengths = np.random.default_rng(0).integers(3, 65, size=1000)
    batches = length_buckets(lengths, budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    sizes = [lengths[batch].sum() for batch in batches]
    assert max(sizes) <= budget and (np.diff(lengths[np.concatenate(batches)]) >= 0).all()
    following = [lengths[batch].min() for batch in batches[1:]]
    assert all(size + first > budget for size, first in zip(sizes, following, strict=False))


def test_batches_of_an_encoder_that_pads_count_its_padding():
    lengths = np.random.default_rng(0).integers(3, 65, size=1000)
    batches = length_buckets(lengths, 500, padded=True)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    padded = [len(batch) * lengths[batch].max() for batch in batches]
    assert max(padded) <= 500 < max(lengths[batch].sum() for batch in length_buckets(lengths, 500)) + 64
    following = [(len(batch) + 1) * lengths[after].min() for batch, after in zip(batches, batches[1:], strict=False)]
    assert all(size > 500 for size in following)
    assert [batch.tolist() for batch in length_buckets([50, 4, 60, 4], 10, padded=True)] == [[1, 3], [0], [2]]


def test_the_shape_of_every_family_is_that_of_its_layers(tmp_path):
    """Its weights are those of the linear layers, but for decoders, which have other heads and a third matrix."""
    for family in ("bert", "roberta", "electra", "mpnet", "distilbert"):
        encoder = make_encoder(tmp_path / family, family)
        layers = layers_of(encoder.backbone)[1] if family != "distilbert" else encoder.backbone.transformer.layer
        weights = sum(each.weight.numel() for each in layers.modules() if isinstance(each, torch.nn.Linear))
        assert Shape.of(encoder).layer_weights == weights > 0
    assert Shape.of_config({"hidden_size": 64}) == Shape(hidden_size=64), "a size without a name of ours is no error"
