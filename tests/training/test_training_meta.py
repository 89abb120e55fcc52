"""A step as CUDA computes it, on torch's device without numbers: what would wait for the device fails, and every
operator is counted, for a small step's time is that of handing them out."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from teleport.encoder.batches import TOKEN_BUDGET
from teleport.training import optimizers, step, train
from teleport.training.data import read_training_set
from training_world import World


class Operators(TorchDispatchMode):
    """Counts torch's operators by name."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.counts[operator.overloadpacket.__name__] += 1
        return operator(*args, **(kwargs or {}))


@pytest.fixture
def operators(stages, monkeypatch):
    """A function: the operators of the second step of a training with such settings (Counter), without the optimiser,
    whose fused form is one operator and knows no such device. The first step sets up the norms."""
    monkeypatch.setitem(TOKEN_BUDGET["train"], "meta", TOKEN_BUDGET["train"]["cuda"])
    monkeypatch.setitem(optimizers.OPTIMIZERS, "adamw", torch.optim.AdamW)
    monkeypatch.setattr(train, "pick_device", lambda: torch.device("meta"))
    monkeypatch.setattr(step, "StepMetrics", lambda number, batch, values, search: values)

    def count(**training):
        job = World(stages).job(training | {"precision": "bf16"})
        made = train.make_trainer(job, read_training_set(job, 1), 12, 1)
        made.optimizer.step = lambda: None
        made.step(0)
        with Operators() as mode:
            values = made.step(1)
        assert values.device.type == "meta" and made.trained[0].dtype == torch.bfloat16
        return mode.counts

    return count


@pytest.mark.parametrize(
    ("training", "budget"), [({}, 372), ({"gradient_caching": True}, 472), ({"accumulate": 2}, 690)]
)
def test_a_step_waits_for_nothing_and_keeps_within_its_budget_of_operators(operators, training, budget):
    """The encoder has two layers; a number of a tensor without numbers is an error. A budget may fall; what raises one
    says what it is worth on a GPU."""
    counts = operators(**training)
    assert counts["_flash_attention_backward"] and not counts["_local_scalar_dense"]
    assert sum(counts.values()) <= budget, counts.most_common(20)
