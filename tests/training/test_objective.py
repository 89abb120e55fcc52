"""What masks and losses see: scores of the step, and another's scores of a batch's pairs."""

from types import ModuleType

import numpy as np
import pytest
import torch

from teleport.running.job import Job
from teleport.training import objective
from teleport.training.losses import softmax
from training_world import World, backward, make_trainer


def make(stages, monkeypatch, modules, **training):
    """A trainer without dropout whose job gets some modules with other functions ({name: functions})."""
    job, load = World(stages, dropout=0.0).job(training), Job.load

    def module(job, name):
        if name not in modules:
            return load(job, name)
        made = ModuleType(name)
        vars(made).update(modules[name])
        return made

    monkeypatch.setattr(Job, "load", module)
    return make_trainer(job)


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
        scores_QP = made.encoded(part).products(made.encoded(part).queries_QD).detach()
        columns = torch.from_numpy(part.positive_columns_Q), torch.from_numpy(part.own_columns_QN)
        masked_QP = above(scores_QP, *columns)
        left_out += int(masked_QP.sum())
        losses.append(softmax.loss(scores_QP.masked_fill(masked_QP, float("-inf")), *columns).item())
    assert left_out > 3, "not vacuous"
    assert backward(made, made.data.batch(1)) == pytest.approx(np.mean(losses), rel=1e-6)


class Table:
    """Scores that tell the pair: the row of the query, plus a thousandth of the passage's."""

    name, scores = "table", np.arange(2.0)

    @staticmethod
    def score(rows, passages):
        return (rows + passages / 1000).astype(np.float32)


def scored(monkeypatch, training):
    """Give a loss or mask `scores`, and every table of pairs the scores of `Table`."""
    monkeypatch.setattr(objective.PairTable, "open", lambda job, role: Table if role == "scores.miner" else None)
    return {"kind": training, "scores": "miner"}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_gets_the_scores_of_the_positive_and_of_its_own_negatives(stages, monkeypatch, accumulate):
    seen = []

    def loss(scores_QP, positive_columns_Q, own_columns_QN, judged_QN):
        seen.append(judged_QN)
        return softmax.loss(scores_QP, positive_columns_Q, own_columns_QN)

    chosen = scored(monkeypatch, "softmax")
    made = make(stages, monkeypatch, {"losses.softmax": {"loss": loss}}, loss=chosen, accumulate=accumulate)
    batch = made.data.batch(1)
    backward(made, batch)
    assert len(seen) == accumulate and all(isinstance(each, torch.Tensor) for each in seen)
    passages_QN = batch.passages_P.reshape(len(batch.queries_Q), -1)  # the positive, then the own negatives
    expected = np.vstack(
        [Table.score(row, passages) for row, passages in zip(batch.queries_Q, passages_QN, strict=True)]
    )
    assert torch.cat(seen).numpy().tolist() == expected.tolist() and expected.shape == (4, 4)


def test_a_mask_gets_the_scores_of_pairs_too(stages, monkeypatch):
    def mask(batch, data, score):
        assert data is made.data
        rows, passages = np.broadcast_arrays(batch.queries_Q[:, None], batch.passages_P)
        return score(rows.ravel(), passages.ravel()).reshape(rows.shape) > batch.queries_Q[:, None] + 0.02

    chosen = scored(monkeypatch, "known_positives")
    made = make(stages, monkeypatch, {"masks.known_positives": {"mask": mask}}, masks=[chosen])
    batch = made.data.batch(1)
    ((_, (masked_QP,), _),) = made.micro_batches(batch)
    assert masked_QP.tolist() == [(batch.passages_P > 20).tolist()] * 4 and 0 < masked_QP.sum() < 64
