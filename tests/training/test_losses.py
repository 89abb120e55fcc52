"""Each loss and its gradients against plain float64 loops, and the mask of false negatives."""

import math
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from teleport.training.losses import hardest, nll, ranknet, softmax
from teleport.training.masks import known_positives, other_negatives

MASKED = float("-inf")


def plain_softmax(scores, columns, own):
    """d loss / d s_ij = (softmax_ij - target_ij) / Q."""
    loss, gradient = 0.0, np.zeros_like(scores)
    for i, row in enumerate(scores):
        highest = max(row)
        total = sum(math.exp(s - highest) for s in row)
        loss += (highest + math.log(total) - row[columns[i]]) / len(scores)
        for j, score in enumerate(row):
            gradient[i, j] = (math.exp(score - highest) / total - (j == columns[i])) / len(scores)
    return loss, gradient


def plain_pairs(scores, columns, others_of):
    """log(1 + e^d) of every pair, d = s_j - s_positive, has the slope 1 / (1 + e^-d) by s_j. others_of: {j: weight}."""
    loss, pairs, gradient = 0.0, 0, np.zeros_like(scores)
    for i, row in enumerate(scores):
        others = {j: weight for j, weight in others_of(i, row).items() if row[j] != MASKED}
        pairs += round(sum(others.values()))
        for j, weight in others.items():
            difference = row[j] - row[columns[i]]
            loss += weight * (max(difference, 0) + math.log(1 + math.exp(-abs(difference))))
            slope = weight / (1 + math.exp(-difference)) if difference > -700 else 0.0
            gradient[i, j] += slope
            gradient[i, columns[i]] -= slope
    return loss / max(pairs, 1), gradient / max(pairs, 1)


def plain_nll(scores, columns, own):
    return plain_pairs(scores, columns, lambda i, row: dict.fromkeys(own[i], 1))


def plain_ranknet(scores, columns, own):
    return plain_pairs(scores, columns, lambda i, row: {j: 1 for j in range(len(row)) if j != columns[i]})


def plain_hardest(scores, columns, own):
    """One pair a query, shared by those with the highest score."""

    def others(i, row):
        highest = max([score for j, score in enumerate(row) if j != columns[i]], default=MASKED)
        best = [j for j, score in enumerate(row) if j != columns[i] and score == highest]
        return dict.fromkeys(best, 1 / max(len(best), 1))

    return plain_pairs(scores, columns, others)


LOSSES = {
    "softmax": (softmax.loss, plain_softmax),
    "nll": (nll.loss, plain_nll),
    "ranknet": (ranknet.loss, plain_ranknet),
    "hardest": (hardest.loss, plain_hardest),
}


def layout(num_queries, negatives):
    """(columns of the positives, of the own negatives) of a batch."""
    columns = np.arange(num_queries * (1 + negatives)).reshape(num_queries, -1)
    return columns[:, 0], columns[:, 1:]


def random_scores(num_queries, negatives, spread=1.0):
    shape = num_queries, num_queries * (1 + negatives)
    return np.random.default_rng(7).normal(scale=spread, size=shape)


def with_repeated_positive(num_queries, negatives):
    """The second query's positive is the passage of the first one's: equal scores for every query."""
    scores = random_scores(num_queries, negatives)
    scores[:, 1 + negatives] = scores[:, 0]
    return scores


def with_ties(num_queries, negatives):
    """Scores of four values alone, so that many are equal, also the highest ones and the positive's."""
    return np.round(random_scores(num_queries, negatives)).clip(-2, 1)


def with_masked(num_queries, negatives):
    """Two in five masked, also own negatives; of the last query all but its positive."""
    scores, (positives, _) = random_scores(num_queries, negatives), layout(num_queries, negatives)
    masked = np.random.default_rng(8).random(scores.shape) < 0.4
    masked[-1] = True
    masked[np.arange(num_queries), positives] = False
    scores[masked] = MASKED
    return scores


CASES = {
    "one query": random_scores(1, 2),
    "random": random_scores(3, 4),
    "far apart": random_scores(3, 2, spread=100.0),
    "repeated positive": with_repeated_positive(3, 2),
    "ties": with_ties(4, 3),
    "masked": with_masked(4, 3),
    "no own negatives": random_scores(5, 0),
    "no own negatives, repeated positive": with_repeated_positive(4, 0),
    "no own negatives, masked": with_masked(4, 0),
}


def arguments(scores):
    """A loss function's arguments: scores that take gradients, and the columns."""
    num_queries, passages = scores.shape
    columns = layout(num_queries, passages // num_queries - 1)
    return torch.tensor(scores, requires_grad=True), *map(torch.from_numpy, columns)


@pytest.mark.parametrize(("name", "case"), [(n, c) for n in LOSSES for c in CASES if n != "nll" or "no own" not in c])
def test_loss_and_gradients_equal_plain_loops(name, case):
    function, plain = LOSSES[name]
    scores, positives, own = arguments(CASES[case])
    expected_loss, expected = plain(CASES[case], positives.tolist(), own.tolist())
    loss = function(scores, positives, own)
    loss.backward()
    assert loss.dtype == torch.float64 and loss.item() == pytest.approx(expected_loss, rel=1e-12, abs=1e-300)
    np.testing.assert_allclose(scores.grad.numpy(), expected, rtol=1e-12, atol=1e-15)
    assert expected_loss > 0 and np.abs(expected).max() > 1e-3
    assert (scores.grad[scores == MASKED] == 0).all()


def test_guard_the_cases_tell_the_losses_apart_and_contain_what_they_say():
    for case in ("random", "ties", "masked"):
        values = [function(*arguments(CASES[case])).item() for function, _ in LOSSES.values()]
        assert all(abs(a - b) > 1e-3 for a, b in combinations(values, 2)), case
    _, own = layout(4, 3)
    ties, masked = CASES["ties"], CASES["masked"]
    assert all((row == np.sort(row)[-1]).sum() > 1 for row in ties)
    assert (masked[np.arange(4)[:, None], own] == MASKED).any() and np.isfinite(masked).sum() > 12


@pytest.mark.parametrize("name", ["nll", "ranknet", "hardest"])
def test_a_masked_pair_counts_neither_in_the_sum_nor_in_the_number(name):
    """Scores 2 | 1, 3 with the last one masked: what is left is one pair, log(1 + e^(1 - 2))."""
    scores, positives, own = arguments(np.array([[2.0, 1.0, MASKED]]))
    loss = LOSSES[name][0](scores, positives, own)
    assert loss.item() == pytest.approx(math.log1p(math.exp(-1)))
    alone = LOSSES[name][0](*arguments(np.array([[2.0, MASKED, MASKED]])))
    alone.backward()  # no pair: nothing to learn, and no number that is none
    assert alone.item() == 0


def test_softmax_literal_value():
    """Scores 2, 0 | 0, 2 of two queries over two positives: each loses log(1 + e^-2)."""
    scores, *columns = arguments(np.array([[2.0, 0.0], [0.0, 2.0]]))
    assert softmax.loss(scores, *columns).item() == pytest.approx(math.log1p(math.exp(-2)))


@pytest.mark.parametrize("case", ["random", "masked", "ties", "no own negatives, masked"])
def test_label_smoothing_by_a_plain_loop(case):
    """The target is 0.9 on the positive and 0.1 over all passages that are not left out."""
    scores, positives, own = arguments(CASES[case])
    expected, slopes = 0.0, np.zeros_like(CASES[case])
    for i, row in enumerate(CASES[case].tolist()):
        counted = [j for j, score in enumerate(row) if score != MASKED]
        total = math.log(sum(math.exp(row[j]) for j in counted))
        for j in counted:
            target = 0.1 / len(counted) + (0.9 if j == positives[i] else 0.0)
            expected -= target * (row[j] - total) / len(scores)
            slopes[i, j] = (math.exp(row[j] - total) - target) / len(scores)
    loss = softmax.loss(scores, positives, own, label_smoothing=0.1)
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-12) and loss.item() != softmax.loss(scores, positives, own)
    np.testing.assert_allclose(scores.grad.numpy(), slopes, rtol=1e-10, atol=1e-12)


def test_nll_is_the_softmax_over_a_positive_and_one_negative():
    """-log(e^s+ / (e^s+ + e^s-)) = log(1 + e^(s- - s+)), as the released code of ANCE computes it."""
    scores, positives, own = arguments(random_scores(4, 3))
    triples = [torch.stack([scores[i, positives[i]], scores[i, n]]) for i in range(4) for n in own[i]]
    expected = -torch.stack([triple.log_softmax(0)[0] for triple in triples]).mean()
    torch.testing.assert_close(nll.loss(scores, positives, own), expected)


@pytest.mark.parametrize("case", ["random", "masked", "ties", "repeated positive"])
@pytest.mark.parametrize("alpha", [0.0, 0.25, 7.0])
def test_ranknet_with_alpha_is_two_means(case, alpha):
    """STAR, Eq. 13: pairs with own negatives, and alpha times those with the rest of the batch."""
    scores, positives, own = arguments(CASES[case])

    def rest(i, row):
        return {j: 1 for j in range(len(row)) if j != positives[i] and j not in own[i]}

    static = plain_nll(CASES[case], positives.tolist(), own.tolist())
    random = plain_pairs(CASES[case], positives.tolist(), rest)
    loss = ranknet.loss(scores, positives, own, star_alpha=alpha)
    loss.backward()
    assert loss.item() == pytest.approx(static[0] + alpha * random[0], rel=1e-12)
    np.testing.assert_allclose(scores.grad.numpy(), static[1] + alpha * random[1], rtol=1e-12, atol=1e-15)
    assert random[0] > 0.1 and static[0] > 0.1


@pytest.mark.parametrize("num_queries", [2, 5])
def test_equal_weights_are_an_alpha_of_2b_minus_2(num_queries):
    """B queries with one own negative: B own pairs, B (2B - 2) others; so the equal mean is 1 / (2B - 1) of that."""
    case = arguments(random_scores(num_queries, 1))
    explicit = ranknet.loss(*case, star_alpha=2 * num_queries - 2)
    torch.testing.assert_close(ranknet.loss(*case), explicit / (2 * num_queries - 1))


def test_the_mask_of_known_positives_literal():
    """Query 0 knows 10 and 11, query 1 knows 10 alone; both use 10 as their positive."""
    passages = np.array([10, 5, 11, 10, 6, 7])
    batch = SimpleNamespace(passages_P=passages, queries_Q=[0, 1], positive_columns_Q=np.array([0, 3]))
    known = {0: np.array([10, 11]), 1: np.array([10])}
    mask = known_positives.mask(batch, SimpleNamespace(known_positives=known.get))
    assert mask.tolist() == [[False, False, True, True, False, False], [True, False, False, False, False, False]]


def test_the_mask_of_other_negatives_literal():
    """Two queries with a negative each, and a remembered row, whose positive is the last passage."""
    batch = SimpleNamespace(passages_P=np.arange(6), queries_Q=[0, 1, 2], own_columns_QN=np.array([[1], [3]]))
    mask = other_negatives.mask(batch, None)
    no, yes = False, True
    assert mask.tolist() == [[no, no, no, yes, no, no], [no, yes, no, no, no, no], [no, yes, no, yes, no, no]]
