"""What is recorded of every step: norms of gradients by groups of layers, and mean scores."""

import math

import numpy as np
import pytest
import torch

from teleport.encoder.model import layers_of
from teleport.training.step_metrics import COLUMNS, NORMS, GradientNorms, groups_of, layer_of, mean_scores
from training_world import World, backward, make_trainer

MASKED = float("-inf")


def curves_of(job):
    """{column: values} of losses.tsv."""
    lines = [line.split("\t") for line in (job.folder / "losses.tsv").read_text().splitlines()]
    return {name: [float(value) for value in values] for name, *values in zip(*lines, strict=True)}


def with_gradients(stages, tied=True, **training):
    """A trainer after one backward pass."""
    job = World(stages, tied=tied).job(training)
    made = make_trainer(job)
    torch.manual_seed(0)  # of dropout
    backward(made, made.data.batch(0))
    return made


def plain_norm(parameters):
    """A float64 loop over the tensors."""
    return math.sqrt(sum((p.grad.double() ** 2).sum().item() for p in parameters))


@pytest.mark.parametrize("tied", [True, False])
def test_norms_equal_plain_loops(stages, tied):
    made = with_gradients(stages, tied)
    encoders = list(made.encoders)
    per_layer = [[plain_norm(layer.parameters()) for layer in layers_of(e.backbone)[1]] for e in encoders]
    total, groups = made.gradient_norms()
    assert total.item() == pytest.approx(plain_norm(made.encoders.parameters()), rel=1e-5)
    first, second = np.mean(per_layer, axis=0)  # of two layers, the first is lower and the second middle
    assert groups[:2].tolist() == pytest.approx([first, second], rel=1e-5)
    assert math.isnan(groups[2]) and groups[3].item() == pytest.approx(second, rel=1e-5)
    assert len(encoders) == (1 if tied else 2) and abs(first - second) > 1e-3 * first


def test_the_norm_is_that_of_torchs_clipping_to_the_last_bit(stages):
    """The groups must not have changed the training."""
    made = with_gradients(stages)
    norm, _ = made.gradient_norms()
    gradients = [p.grad.clone() for p in made.encoders.parameters()]
    expected = torch.nn.utils.clip_grad_norm_(made.encoders.parameters(), 1e-3)
    clipped = [p.grad.clone() for p in made.encoders.parameters()]
    for parameter, gradient in zip(made.encoders.parameters(), gradients, strict=True):
        parameter.grad = gradient
    torch.nn.utils.clip_grads_with_norm_(made.encoders.parameters(), 1e-3, norm)
    assert torch.equal(norm, expected)
    assert all(torch.equal(p.grad, g) for p, g in zip(made.encoders.parameters(), clipped, strict=True))


def test_twelve_layers_are_three_groups_of_four():
    """ANCE, Figure 4: layers 1-4, 5-8, 9-12; embeddings are in none of them."""
    names = [f"0.backbone.encoder.layer.{n}.output.dense.{kind}" for n in range(12) for kind in ("weight", "bias")]
    layers, groups = groups_of(["0.backbone.embeddings.word_embeddings.weight", *names])
    assert layers[0] == 12 and all(layers[1 + 2 * n] == layers[2 + 2 * n] for n in range(12))
    heights = {row: n for n, row in enumerate(layers[1::2])}
    found = {name: sorted(heights[row] for row in rows) for name, rows in groups.items()}
    assert found == {
        "lower_layers": [0, 1, 2, 3], "middle_layers": [4, 5, 6, 7], "upper_layers": [8, 9, 10, 11], "last_layer": [11]
    }  # fmt: skip


def test_the_head_is_the_last_layer_where_there_is_one():
    assert layer_of("1.head.0.weight") == (1, None) and layer_of("0.backbone.transformer.layer.5.x.weight") == (0, 5)
    names = ["0.backbone.encoder.layer.0.a.weight", "0.head.0.weight", "0.head.1.weight", "0.backbone.norm.weight"]
    norms = GradientNorms(torch.nn.ModuleList())
    norms.parameters = {name: torch.nn.Parameter(torch.zeros(2)) for name in names}
    for value, parameter in enumerate(norms.parameters.values(), 1):
        parameter.grad = torch.tensor([0.0, float(value)])
    total, groups = norms()
    assert total.item() == pytest.approx(math.sqrt(30)) and groups[0] == 1.0
    assert groups[3].item() == pytest.approx(math.sqrt(4 + 9))
    assert groups[1:3].isnan().all()


def test_layers_of_modernbert_are_layers_and_without_any_nothing_is_said():
    assert layer_of("0.backbone.layers.3.mlp.Wi.weight") == (0, 3)
    assert groups_of(["0.backbone.embeddings.a", "0.backbone.other.b"]) == ([0, 0], dict.fromkeys(NORMS[1:], []))


def test_mean_scores_literally():
    scores = torch.tensor([[4.0, 1.0, 2.0, 7.0], [9.0, 9.0, 3.0, MASKED]])
    found = mean_scores(scores, torch.tensor([0, 2]), torch.tensor([[1, 2], [1, 3]]))
    assert found.tolist() == [3.5, 4.0]  # positives 4 and 3; own negatives 1, 2 and 9, and one masked
    without = mean_scores(scores, torch.tensor([0, 2]), torch.empty(2, 0, dtype=torch.int64))
    assert without[0] == 3.5 and without[1].isnan()


def test_the_stage_writes_a_column_for_each_and_clips_afterwards(stages):
    world = World(stages)
    free, clipped = (world.finished(world.job({"steps": 3, "max_grad_norm": m})) for m in (1e9, 1e-3))
    columns = [curves_of(job) for job in (free, clipped)]
    assert list(columns[0]) == ["step", "learning_rate", *COLUMNS] and set(NORMS) < set(COLUMNS)
    assert columns[0]["gradient_norm"][0] == columns[1]["gradient_norm"][0] > 1e-2
    assert all(low < whole for low, whole in zip(columns[0]["lower_layers"], columns[0]["gradient_norm"], strict=True))
    assert np.isfinite(columns[0]["positive_score"] + columns[0]["negative_score"]).all()
    in_batch = world.finished(world.job({"steps": 2, "negatives_per_query": 0}, inputs={"negatives": None}))
    assert np.isnan(curves_of(in_batch)["negative_score"]).all()


def test_training_parts_the_scores_of_positives_and_negatives(stages):
    world = World(stages)
    columns = curves_of(world.finished(world.job({"steps": 30, "loss": "nll"})))
    margins = np.subtract(columns["positive_score"], columns["negative_score"])
    assert margins[-5:].mean() > margins[:5].mean() + 1


def test_micro_batches_give_the_scores_of_the_whole_batch(stages):
    world = World(stages, dropout=0.0)
    rows = [curves_of(world.finished(world.job({"steps": 1, "loss": "nll", "accumulate": a}))) for a in (1, 2)]
    for name in COLUMNS:
        np.testing.assert_allclose(rows[0][name], rows[1][name], rtol=1e-5)


def test_a_micro_batch_without_a_negative_leaves_the_mean_of_the_others(stages):
    trainer = with_gradients(stages, accumulate=2)
    scores = [torch.tensor([1.0, float("nan")]), torch.tensor([3.0, 5.0])]
    trainer.backward = lambda *_: ([torch.tensor(0.0)], scores.pop(0))
    assert trainer.step(1).read()[-2:] == [2.0, 5.0]
