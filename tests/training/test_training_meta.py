"""A step and an encoding as CUDA computes them, on torch's device without numbers: what would wait for it fails.

Every operator is counted, for a small step's time is that of handing them out, and every byte, for memory takes much of
a large one's."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from encoder_world import in_bfloat16
from teleport.encoder import encode
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.training import optimizers, step, train
from training_world import World, make_trainer


class Operators(TorchDispatchMode):
    """Counts torch's operators by name, and `made`: the bytes of the tensors that they make, without views."""

    def __init__(self):
        super().__init__()
        self.counts, self.made = Counter(), 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.counts[operator.overloadpacket.__name__] += 1
        made = operator(*args, **(kwargs or {}))
        known = {storage_of(tensor) for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, torch.Tensor)}
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and storage_of(tensor) not in known:
                self.made += tensor.untyped_storage().nbytes()
        return made


def storage_of(tensor):
    return tensor.untyped_storage()._cdata


@pytest.fixture
def operators(stages, monkeypatch):
    """A function: (the `Operators` of the second step of a training with such settings, the bytes kept for its backward
    pass), without the optimiser, whose fused form is one operator and knows no such device. The first step sets up the
    norms."""
    monkeypatch.setitem(TOKEN_BUDGET["train"], "meta", TOKEN_BUDGET["train"]["cuda"])
    monkeypatch.setitem(optimizers.OPTIMIZERS, "adamw", torch.optim.AdamW)
    monkeypatch.setattr(train, "pick_device", lambda: torch.device("meta"))
    monkeypatch.setattr(step, "StepMetrics", lambda number, batch, values, search: values)

    def count(**training):
        job = World(stages).job(training | {"precision": "bf16"})
        made = make_trainer(job)
        made.optimizer.step = lambda: None
        for encoder in made.encoders:
            in_bfloat16(encoder)
        made.step(0)
        kept = {}

        def keep(tensor):
            kept[storage_of(tensor)] = tensor  # which holds its storage, whose address no other gets
            return tensor

        with Operators() as mode:
            values = made.step(1)
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            made.step(1)
        assert values.device.type == "meta" and made.trained[0].dtype == torch.bfloat16
        weights = {storage_of(weight) for weight in made.encoders.parameters()}
        return mode, sum(kept[at].untyped_storage().nbytes() for at in kept.keys() - weights)

    return count


@pytest.mark.parametrize(
    ("training", "budget", "made", "kept"),
    [
        ({}, 832, 2_400_000, 700_000),
        ({"gradient_caching": True}, 1106, 3_300_000, 700_000),
        ({"accumulate": 2}, 1605, 2_500_000, 700_000),
    ],
)
def test_a_step_waits_for_nothing_and_keeps_within_its_budgets(operators, training, budget, made, kept):
    """The encoder has two layers; a number of a tensor without numbers is an error. A budget, of operators, of bytes
    that they make and of bytes that are kept for the backward pass, may fall; what raises one says what it is worth on
    a GPU. The weights are in bfloat16: the casts of autocast, which does nothing without numbers, are not counted. The
    operators are those of transformers' own layers, which a CUDA graph launches at once."""
    mode, saved = operators(**training)
    assert mode.counts["_flash_attention_backward"] and not mode.counts["_local_scalar_dense"]
    assert sum(mode.counts.values()) <= budget, mode.counts.most_common(20)
    assert made / 2 < mode.made <= made and kept / 2 < saved <= kept, (mode.made, saved)


def test_encoding_waits_for_nothing_and_keeps_within_its_budgets(stages, monkeypatch):
    """Of operators and bytes of a batch of texts: two layers, and the vectors in the order of the texts."""
    world = World(stages)
    monkeypatch.setattr(encode, "pick_device", lambda: torch.device("meta"))
    settings = {"of": "passages", "max_query_tokens": 8, "max_passage_tokens": 24, "precision": "bf16"}
    job = stages.make("encode", settings, {role: world.inputs[role] for role in ("tokens", "checkpoint")})
    side = encode.open_texts(job)[0]
    found = []
    for tokens in (TOKEN_BUDGET["encode"]["cuda"], 300):  # in one batch, and in several
        rows = np.arange(len(side.lengths))
        with torch.inference_mode(), Operators() as mode:
            vectors = side.vectors(rows, tokens)
        assert vectors.shape == (len(rows), 32) and vectors.device.type == "meta" and vectors.dtype == torch.float32
        assert mode.counts["_flash_attention_forward"] and not mode.counts["_local_scalar_dense"]
        found.append((len(side.buckets(rows, tokens)), sum(mode.counts.values()), mode.made))
    (one, operators, made), (several, more, _) = found
    assert one == 1 < several
    assert operators <= 87 and more <= several * operators and 1_575_000 < made <= 3_150_000, found
