"""FLOP and bytes against figures worked out by hand for BERT-base on MS MARCO and DPR's Wikipedia."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from encoder_world import in_bfloat16
from teleport.costs import search_flop, vector_bytes
from teleport.encoder.costs import forward_flop
from teleport.encoder.model import Encoder
from teleport.encoder.shape import Shape, activation_bytes

MARCO, TRAIN_QUERIES, POSITIVES, WIKIPEDIA = 8_841_823, 502_939, 516_472, 21_015_324
BASE = Shape()


def test_parameters_of_known_models():
    assert BASE.parameters == 108_891_648  # BERT-base without its pooler
    minilm = Shape(num_hidden_layers=6, hidden_size=384, intermediate_size=1536)
    assert minilm.parameters == 22_565_376
    assert BASE.layer_weights == 84_934_656


def test_forward_pass_of_a_passage():
    assert forward_flop(BASE, 76) == 13.122994176e9
    assert forward_flop(BASE, 128) == 22.347251712e9


def test_encoding_the_collection():
    """Passages, queries, and the positives once more, as the released code encodes them."""
    passages = (MARCO + POSITIVES) * forward_flop(BASE, 76)
    queries = TRAIN_QUERIES * forward_flop(BASE, 9)
    assert (passages + queries) / 1e15 == pytest.approx(123.5792576672686, rel=1e-12)
    assert WIKIPEDIA * forward_flop(BASE, 140) / 1e15 == pytest.approx(514.9645026243379, rel=1e-12)


def test_searching_with_queries_and_positives():
    assert search_flop(TRAIN_QUERIES + POSITIVES, MARCO, 768) / 1e15 == pytest.approx(13.844661697924607, rel=1e-12)


def test_index_size():
    assert vector_bytes(MARCO, 768) == 27_162_080_256
    assert vector_bytes(MARCO, 768, 2) == 13_581_040_128
    assert vector_bytes(WIKIPEDIA, 768) == 64_559_075_328


def saved_bytes(pooling, half, layers=6):
    """(bytes that the backward pass of 64 texts of 76 tokens keeps besides the weights, the encoder's Shape). Without
    numbers autocast does nothing, so the weights themselves are in bfloat16 with `half`."""
    shape = Shape(layers, hidden_size=128, intermediate_size=512, num_attention_heads=4, vocab_size=99)
    encoder = Encoder(BertModel(BertConfig(**asdict(shape)), add_pooling_layer=False), pooling).to("meta").train()
    if half:
        in_bfloat16(encoder)
    weights = {parameter.untyped_storage()._cdata for parameter in encoder.parameters()}
    saved, lengths_B = {}, np.full(64, 76)

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved[storage._cdata] = storage  # held, so that no other gets its number
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        vectors_BD = encoder(np.ones(lengths_B.sum(), np.int64), lengths_B)
    assert vectors_BD.requires_grad
    return sum(storage.nbytes() for storage in saved.values()), shape


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("half", [True, False])
def test_a_training_step_keeps_what_is_forecast(half, pooling):
    """On the meta device, whose dropout is not CUDA's: its masks have the type of what they drop, not 8 bits."""
    saved, shape = saved_bytes(pooling, half)
    masks = 64 * 76 * shape.num_hidden_layers * shape.hidden_size * 2 * ((2 if half else 4) - 1)
    assert activation_bytes(shape, 64 * 76, half) == pytest.approx(saved - masks, rel=0.15)


def test_a_step_of_the_paper_keeps_seven_gigabytes():
    """BERT-base, 8 x (1 + 31): 6.8 GB besides the weights were counted on the meta device."""
    assert activation_bytes(BASE, 256 * 76 + 8 * 9) == pytest.approx(6.83e9, rel=0.05)
