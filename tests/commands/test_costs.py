"""FLOP and bytes against figures worked out by hand for BERT-base on MS MARCO and DPR's Wikipedia."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from encoder_world import in_bfloat16
from teleport.costs import search_flop, vector_bytes
from teleport.encoder.costs import forward_flop, forward_work
from teleport.encoder.model import Encoder
from teleport.encoder.shape import Shape, activation_bytes
from teleport.settings.training import Training
from teleport.training.costs import SQUARES, UPDATE_FLOP, Steps, attention_bytes

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


# Sizes, and microseconds a token of encoding and of a step of so many tokens, by the processor time of one thread: see
# encoder.costs.HALF_WIDTH.
MEASURED = [
    ((1, 32, 64, 1), 0.979, 4.93, 18_568),
    ((2, 128, 512, 2), 5.88, 27.6, 19_088),
    ((6, 384, 1536, 12), 88.8, 360.0, 4_478),
    ((2, 768, 3072, 12), 87.8, 361.0, 4_478),
]


def work_of_token(sizes, tokens_of_step):
    """(work of encoding a token, work of a token of a step) in texts of 73 tokens."""
    shape = Shape(*sizes)
    encoding = forward_work(shape, 73) / 73
    return np.array([encoding, 3 * encoding + UPDATE_FLOP * shape.parameters / tokens_of_step])


def test_times_of_narrow_models_are_within_a_factor_of_two():
    """With the rates that bench/calibrate.py measures with MiniLM, the third."""
    works = np.array([work_of_token(sizes, tokens) for sizes, _, _, tokens in MEASURED])
    times = np.array([times for _, *times, _ in MEASURED])
    found = works / (works[2] / times[2]) / times
    assert ((found > 1 / 1.8) & (found < 1.8)).all()
    products = np.array([forward_flop(Shape(*sizes), 73) for sizes, *_ in MEASURED])
    assert (products / products[2] * times[2, 0] / times[:, 0])[0] < 1 / 8, "products alone do not say it"


def test_the_work_of_a_model_as_wide_as_bert_base_is_its_flop():
    assert forward_work(BASE, 76) == forward_flop(BASE, 76)


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


def test_attention_keeps_twelve_bytes_a_weight_on_a_cpu():
    """Texts of 64 tokens against twice as many of 32; the batch keeps everything else by tokens."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    encoder = Encoder(BertModel(BertConfig(vocab_size=99, **sizes), add_pooling_layer=False), "cls").train()

    def saved(texts, length):
        kept = {}

        def keep(tensor):
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            vectors_BD = encoder(np.ones(texts * length, np.int64), np.full(texts, length))
        assert vectors_BD.requires_grad
        return sum(storage.nbytes() for storage in kept.values())

    def forecast(texts, length):
        training = Training(learning_rate=1e-5, epochs=1, loss={"kind": "softmax"})
        return attention_bytes(Steps(Shape(**sizes), training, 1, [(texts, length)], [], 0)) / SQUARES

    assert forecast(8, 64) - forecast(16, 32) == pytest.approx(saved(8, 64) - saved(16, 32), rel=0.01)


def test_a_step_of_the_paper_keeps_seven_gigabytes():
    """BERT-base, 8 x (1 + 31): 6.8 GB besides the weights were counted on the meta device."""
    assert activation_bytes(BASE, 256 * 76 + 8 * 9, half=True) == pytest.approx(6.83e9, rel=0.05)
