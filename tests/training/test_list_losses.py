"""The losses over ranked lists and their gradients against plain float64 loops."""

import math

import numpy as np
import pytest
import torch

from teleport.training.losses import lambda_loss, ranknet_list

CUT = 4


def plain(scores, positive, negative, weight):
    """Mean over the lists of the mean over pairs of weight(i, j) log(1 + e^(s_j - s_i)); ranks i, j from 1."""
    loss, gradient = 0.0, np.zeros_like(scores)
    for q, row in enumerate(scores):
        pairs = [(i, j) for i in range(len(row)) for j in range(len(row)) if positive[q][i] and negative[q][j]]
        for i, j in pairs:
            share = weight(i + 1, j + 1) / (len(pairs) * len(scores))
            difference = row[j] - row[i]
            loss += share * (max(difference, 0) + math.log(1 + math.exp(-abs(difference))))
            slope = share / (1 + math.exp(-difference))
            gradient[q, j] += slope
            gradient[q, i] -= slope
    return loss, gradient


def reciprocal(rank):
    return 1 / rank if rank <= CUT else 0.0


WEIGHTS = {
    "lambda": (lambda_loss.loss, lambda i, j: abs(reciprocal(i) - reciprocal(j))),
    "ranknet-list": (
        lambda scores, positive, negative, cut: ranknet_list.loss(scores, positive, negative),
        lambda i, j: 1.0,
    ),
}
# One line a list: + a positive, - a negative, . neither. Columns are ranks.
LISTS = {
    "one positive": ["-+----"],
    "several positives, within and after the cut": ["+-+--+", "--+-+-"],
    "a positive appended, and a place that holds nothing": ["-----+.", "-+----.", "-----++"],
    "a judged passage that is neither": ["-.+-.-"],
    "no negatives": ["+++", "-+-"],
    "no positive": ["---", "+--"],
}


def labels(lines):
    """(positive, negative) bool tensors of lines."""
    signs = np.array([list(line) for line in lines])
    return torch.from_numpy(signs == "+"), torch.from_numpy(signs == "-")


def random_scores(lines, ties=False):
    scores = np.random.default_rng(3).normal(scale=3, size=(len(lines), len(lines[0])))
    return np.round(scores / 3) if ties else scores


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("case", LISTS)
@pytest.mark.parametrize("name", WEIGHTS)
def test_loss_and_gradients_equal_plain_loops(name, case, ties):
    function, weight = WEIGHTS[name]
    positive, negative = labels(LISTS[case])
    values = random_scores(LISTS[case], ties)
    scores = torch.tensor(values, requires_grad=True)
    loss = function(scores, positive, negative, CUT)
    loss.backward()
    expected_loss, expected = plain(values, positive.tolist(), negative.tolist(), weight)
    assert loss.dtype == torch.float64 and loss.item() == pytest.approx(expected_loss, rel=1e-12)
    np.testing.assert_allclose(scores.grad.numpy(), expected, rtol=1e-12, atol=1e-15)
    assert expected_loss > 1e-3 and np.abs(expected).max() > 1e-3


def test_weights_are_differences_of_reciprocal_ranks():
    """A positive at rank 3 and negatives at ranks 1, 2, 4 and (after the cut) 5; all scores are equal: log 2 a pair."""
    scores = torch.zeros(1, 5, dtype=torch.float64)
    loss = lambda_loss.loss(scores, *labels(["--+--"]), 4)
    assert loss.item() == pytest.approx((2 / 3 + 1 / 6 + 1 / 12 + 1 / 3) / 4 * math.log(2))
    assert ranknet_list.loss(scores, *labels(["--+--"])).item() == pytest.approx(math.log(2))


def test_beyond_the_cut_nothing_is_gained():
    """A positive that was appended gains what the negatives within the cut are worth; those after it weigh nothing."""
    scores = torch.zeros(1, 6, dtype=torch.float64)
    assert lambda_loss.loss(scores, *labels(["....-+"]), 4).item() == 0
    assert lambda_loss.loss(scores, *labels(["-...-+"]), 4).item() == pytest.approx(math.log(2) / 2)


def test_lists_without_any_positive_or_negative_lose_nothing_and_have_gradients():
    scores = torch.zeros(2, 3, requires_grad=True)
    loss = lambda_loss.loss(scores, *labels(["---", "..."]), 3)
    loss.backward()
    assert loss.item() == 0 and (scores.grad == 0).all()


@pytest.mark.parametrize("name", WEIGHTS)
def test_nothing_is_read_from_the_device_of_the_scores(name):
    """A meta tensor has no values: int() or item() of one, or of what is made of it, raises an error."""
    scores = torch.zeros(2, 6, device="meta")
    loss = WEIGHTS[name][0](scores, *labels(LISTS["several positives, within and after the cut"]), CUT)
    assert loss.device.type == "meta" and loss.shape == ()


def test_guard_the_cases_contain_what_they_say():
    values = random_scores(LISTS["several positives, within and after the cut"], ties=True)
    assert all(len(set(row)) < len(row) for row in values)
    assert all(len(line) > CUT for name in list(LISTS)[:4] for line in LISTS[name])
