"""The loss and its gradients against a plain float64 implementation with loops, and the mask of false negatives."""

import math

import numpy as np
import pytest
import torch

from teleport.training.loss import false_negative_mask, softmax_loss


def plain_loss(queries, passages, columns, scale, masked):
    """Loss and gradients by the closed form, one number at a time: d loss / d s_ij = (softmax_ij - target_ij) / Q."""
    loss, gradient_q, gradient_p = 0.0, np.zeros_like(queries), np.zeros_like(passages)
    for i, query in enumerate(queries):
        scores = [scale * sum(a * b for a, b in zip(query, passage, strict=True)) for passage in passages]
        kept = [j for j in range(len(passages)) if not masked[i][j]]
        total = sum(math.exp(scores[j]) for j in kept)
        loss += (math.log(total) - scores[columns[i]]) / len(queries)
        for j in kept:
            slope = scale * (math.exp(scores[j]) / total - (j == columns[i])) / len(queries)
            for d in range(queries.shape[1]):
                gradient_q[i, d] += slope * passages[j, d]
                gradient_p[j, d] += slope * query[d]
    return loss, gradient_q, gradient_p


@pytest.mark.parametrize(("num_queries", "negatives", "scale"), [(1, 1, 1.0), (3, 4, 1.0), (5, 2, 20.0)])
@pytest.mark.parametrize("with_mask", [False, True])
def test_loss_and_gradients_equal_the_closed_form(num_queries, negatives, scale, with_mask):
    rng = np.random.default_rng(7)
    queries = rng.normal(size=(num_queries, 6)) / math.sqrt(scale)
    passages = rng.normal(size=(num_queries * (1 + negatives), 6)) / math.sqrt(scale)
    columns = np.arange(num_queries) * (1 + negatives)
    masked = np.zeros((num_queries, len(passages)), bool)
    if with_mask:
        masked = rng.random(masked.shape) < 0.4
        masked[np.arange(num_queries), columns] = False
    expected_loss, expected_q, expected_p = plain_loss(queries, passages, columns, scale, masked)

    q, p = (torch.tensor(v, requires_grad=True) for v in (queries, passages))
    mask = torch.from_numpy(masked) if with_mask else None
    loss = softmax_loss(q, p, torch.from_numpy(columns), scale, mask)
    loss.backward()
    assert loss.item() == pytest.approx(expected_loss, rel=1e-12)
    np.testing.assert_allclose(q.grad.numpy(), expected_q, atol=1e-13)
    np.testing.assert_allclose(p.grad.numpy(), expected_p, atol=1e-13)


def test_literal_value():
    """Scores 2, 0 | 0, 2 of two queries over two positives: each loses log(1 + e^-2)."""
    vectors = torch.eye(2)
    assert softmax_loss(vectors, vectors, torch.tensor([0, 1]), 2.0).item() == pytest.approx(math.log1p(math.exp(-2)))


def test_negatives_of_other_queries_count():
    """In-batch negatives: a passage drawn for the second query raises the loss of the first."""
    queries, passages = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 0.0]])
    few = softmax_loss(queries, passages[:2], torch.tensor([0]), 1.0)
    many = softmax_loss(queries, passages, torch.tensor([0]), 1.0)
    assert many > few + 1


def test_gradients_pass_gradcheck():
    rng = torch.Generator().manual_seed(1)
    q = torch.randn(2, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    p = torch.randn(6, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: softmax_loss(a, b, torch.tensor([0, 3]), 1.5), (q, p))


def test_false_negative_mask_literal():
    """Query 0 knows 10 and 11, query 1 knows 10 alone; both use 10 as their positive."""
    passages = np.array([10, 5, 11, 10, 6, 7])
    mask = false_negative_mask(passages, np.array([0, 3]), [np.array([10, 11]), np.array([10])])
    assert mask.tolist() == [
        [False, False, True, True, False, False],
        [True, False, False, False, False, False],
    ]


def test_masked_passage_has_no_gradient_and_no_weight():
    rng = torch.Generator().manual_seed(2)
    q, p = torch.randn(1, 4, generator=rng), torch.randn(3, 4, generator=rng, requires_grad=True)
    mask = torch.tensor([[False, True, False]])
    loss = softmax_loss(q, p, torch.tensor([0]), 1.0, mask)
    loss.backward()
    assert loss.item() == pytest.approx(softmax_loss(q, p[[0, 2]], torch.tensor([0]), 1.0).item())
    assert p.grad[1].abs().max() == 0
    assert p.grad[0].abs().max() > 0
