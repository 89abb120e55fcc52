"""FLOP and bytes against figures worked out by hand for BERT-base on MS MARCO and DPR's Wikipedia."""

import pytest

from commands.forecast.flops import Shape, activation_bytes, forward_flop, search_flop, step_flop, vector_bytes

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


def test_training_step():
    """8 queries of 9 tokens and 256 passages of 76; then both padded to 32 and 128."""
    assert step_flop(BASE, 8, 256, 9, 76) == 10.115222962176e12
    assert step_flop(BASE, 8, 256, 32, 128) == 17.294054916096e12


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


def test_activations_grow_with_layers_tokens_and_length():
    """34 bytes x hidden + 5 x heads x length, twice, per token and layer: 12 layers, 100 tokens in texts of 10."""
    assert activation_bytes(BASE, 100, 10) == 2 * 12 * 100 * (34 * 768 + 5 * 12 * 10)
