"""What encoding and training must not do at realistic lengths: compute padding, or call a tokenizer."""

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from teleport.arrays import Ragged
from teleport.encoder import model
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.encode import BLOCK_TEXTS
from teleport.encoder.model import Encoder, prepare
from teleport.encoder.side import Side
from teleport.training import train
from training_world import SPECIAL, World, tiny_bert

TEXTS, MAX_TOKENS = 600, 64  # tiny_bert has 64 positions


@pytest.fixture
def token_map(tmp_path):
    """Lognormal lengths with the spread of MS MARCO's passages, half as long."""
    rng = np.random.default_rng(0)
    lengths = np.maximum(1, rng.lognormal(np.log(38) - 0.125, 0.5, TEXTS).astype(int))
    np.save(tmp_path / "ids.npy", rng.integers(5, SPECIAL["vocab_size"], lengths.sum()).astype(np.uint16))
    np.save(tmp_path / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
    return Ragged.open(tmp_path / "offsets.npy", tmp_path / "ids.npy")


@pytest.fixture
def computed(monkeypatch):
    """Rows of each kind of token-wise operation by its name, and `scores`: products of a query and a key."""
    counts = {"linear": 0, "layer_norm": 0, "positions": 0, "scores": 0}

    def counting(module, name, count, kind=None):
        function = getattr(module, name)

        def counted(*arguments, **options):
            counts[kind or name] += count(*arguments)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    functional = torch.nn.functional
    counting(functional, "linear", lambda x, *_: x[..., 0].numel())
    counting(functional, "layer_norm", lambda x, *_: x[..., 0].numel())
    counting(model, "positions", lambda ids, *_: len(ids))
    counting(functional, "scaled_dot_product_attention", lambda q, *_: len(q) * q.shape[2] ** 2, "scores")
    return counts


def ratios(computed, lengths):
    """Computed over needed: the norm of the embeddings, 2 layers of 6 products and 2 norms, pairs of tokens."""
    needed = {name: times * lengths.sum() for name, times in (("linear", 12), ("layer_norm", 5), ("positions", 1))}
    needed["scores"] = 2 * (lengths**2).sum()
    return {name: computed[name] / count for name, count in needed.items()}


def test_encoding_computes_no_padding(token_map, computed):
    encoder = Encoder(tiny_bert(), "mean").eval()
    side = Side(encoder, token_map, MAX_TOKENS, SPECIAL, prepared=prepare(encoder))
    lengths = side.lengths
    assert MAX_TOKENS * TEXTS / lengths.sum() > 1.5 and len(lengths) <= BLOCK_TEXTS["cpu"]
    with torch.inference_mode():
        side.vectors(np.arange(TEXTS), TOKEN_BUDGET["encode"]["cpu"])
    assert set(ratios(computed, lengths).values()) == {1.0}


def test_training_computes_no_padding(token_map, computed):
    side = Side(Encoder(tiny_bert(), "mean").train(), token_map, MAX_TOKENS, SPECIAL)
    rows = np.random.default_rng(1).integers(TEXTS, size=8 * 32)
    side.vectors(rows, 4096).sum().backward()
    assert set(ratios(computed, side.lengths[rows]).values()) == {1.0}


def test_training_calls_no_tokenizer(stages, monkeypatch):
    """Encoding neither: test_encoder_encode.py."""
    world = World(stages)

    def refuse(*_, **__):
        raise AssertionError("training loads a tokenizer")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    monkeypatch.setattr(transformers.PreTrainedTokenizerFast, "__init__", refuse)
    monkeypatch.setattr(tokenizers, "Tokenizer", refuse)
    assert train.run(world.job({"steps": 2}))["steps"] == 2
