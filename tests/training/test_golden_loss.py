"""The loss curve of 30 steps, compared with the one kept in golden/.

A change of the numbers must be wanted: then write the curve anew with

    CUDA_VISIBLE_DEVICES= PYTHONPATH=tests python tests/training/test_golden_loss.py

and say in the commit why it changed. Weights and batches come from numpy and dropout is off, so that the curve is the
same on every machine up to the rounding of its matrix products, which 30 steps of AdamW enlarge (to 7e-7 between
kernels for SSE, AVX2 and AVX-512).
"""

import tempfile
from pathlib import Path

import numpy as np

from stages import Stages
from training_world import World, losses_of, on_cpu  # noqa: F401

GOLDEN = Path(__file__).parent / "golden" / "loss_30_steps.txt"
RELATIVE_TOLERANCE = 1e-5


def curve(stages):
    """Losses of 30 steps in float32 on one thread, as text with all digits."""
    world = World(stages, dropout=0.0)
    training = {"steps": 30, "learning_rate": 1e-3, "weight_decay": 0.01}
    return losses_of(world.finished(world.job(training)))[1]


def test_golden_loss_curve(stages):
    golden = np.loadtxt(GOLDEN)
    assert golden[:, 0].tolist() == list(range(1, 31))
    assert golden[-10:, 1].mean() < 0.8 * golden[:10, 1].mean(), "the golden curve does not fall"
    np.testing.assert_allclose([float(loss) for loss in curve(stages)], golden[:, 1], rtol=RELATIVE_TOLERANCE)


def test_two_runs_are_equal_to_the_last_bit(stages):
    assert curve(stages) == curve(stages)


def write():
    """Replace the golden file by this machine's curve."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{step} {loss}\n" for step, loss in enumerate(curve(Stages(Path(folder))), start=1)]
    GOLDEN.write_text("".join(lines))


if __name__ == "__main__":
    write()
