"""What masks and losses see: scores of the step, and labels that a stage says of a batch's pairs."""

from types import ModuleType

import numpy as np
import pytest
import torch

from teleport.running.job import Job
from teleport.training import train
from teleport.training.data import read_training_set
from teleport.training.losses import softmax
from training_world import World, backward, on_cpu  # noqa: F401


def make(stages, monkeypatch, modules, inputs=(), **training):
    """A trainer without dropout whose job loads some modules anew ({name: functions}), and reads stages in roles."""
    job, load = World(stages, dropout=0.0).job(training), Job.load

    def module(job, name):
        if name not in modules:
            return load(job, name)
        made = ModuleType(name)
        vars(made).update(modules[name])
        return made

    monkeypatch.setattr(Job, "load", module)
    job.inputs |= dict.fromkeys(inputs)
    return train.make_trainer(job, read_training_set(job, 1), 12, 1)


def above(scores_QP, positive_columns_Q, own_columns_QN):
    """What scores higher than the positive."""
    assert not scores_QP.requires_grad
    return scores_QP > scores_QP.gather(1, positive_columns_Q.unsqueeze(1))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_mask_sees_the_scores_of_the_step(stages, monkeypatch, accumulate):
    training = {"masks": ["known_positives"], "accumulate": accumulate}
    made = make(stages, monkeypatch, {"masks.known_positives": {"mask_scores": above}}, **training)
    losses, left_out = [], 0
    for part in made.data.batch(1).split(accumulate):
        scores_QP = made.inner_products(part).detach()
        columns = torch.from_numpy(part.positive_columns_Q), torch.from_numpy(part.own_columns_QN)
        masked_QP = above(scores_QP, *columns)
        left_out += int(masked_QP.sum())
        losses.append(softmax.loss(scores_QP.masked_fill(masked_QP, float("-inf")), *columns).item())
    assert left_out > 3, "not vacuous"
    assert backward(made, made.data.batch(1)) == pytest.approx(np.mean(losses), rel=1e-6)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_gets_the_labels_of_its_batch(stages, monkeypatch, accumulate):
    """The rows of the passages, which say in the loss that they are those of its columns."""
    seen = []

    def open_labels(job, data):
        assert job.inputs["loss"] is None and len(data.pools)
        return lambda batch: batch.passages_P.astype(np.float32)

    def loss(scores_QP, positive_columns_Q, own_columns_QN, labels_P):
        seen.append(labels_P)
        return softmax.loss(scores_QP, positive_columns_Q, own_columns_QN)

    made = make(
        stages, monkeypatch, {"loss": {"open_labels": open_labels, "loss": loss}}, ["loss"], accumulate=accumulate
    )
    batch = made.data.batch(1)
    backward(made, batch)
    assert len(seen) == accumulate and all(isinstance(each, torch.Tensor) for each in seen)
    assert torch.cat(seen).int().tolist() == batch.passages_P.tolist()


def test_a_mask_gets_labels_too(stages, monkeypatch):
    def open_labels(job, data):
        return lambda batch: np.arange(len(batch.passages_P)) % 4 == 3  # the last negative of each query

    def mask(batch, data, labels):
        assert data is made.data
        return np.broadcast_to(labels, (len(batch.queries_Q), len(labels)))

    modules = {"masks.known_positives": {"open_labels": open_labels, "mask": mask}}
    made = make(stages, monkeypatch, modules, ["masks.known_positives"], masks=["known_positives"])
    ((_, (masked_QP,), _),) = made.micro_batches(made.data.batch(1))
    assert masked_QP.shape == (4, 16) and masked_QP.sum() == 16 and masked_QP[:, 3::4].all()
