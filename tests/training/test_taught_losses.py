"""Losses and masks that see more than scores: each against a float64 loop, and sentence-transformers' own."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from teleport.maxp import Padding
from teleport.refusal import Refusal
from teleport.settings.registry import LOSSES, own_settings
from teleport.training.encoded import Encoded
from teleport.training.losses import (
    adr_mse,
    bidirectional,
    bixse,
    cl_drd,
    distill,
    focal,
    hardness,
    joint,
    kl,
    listmle,
    m3_kd,
    margin_mse,
    margin_mse_batch,
    own_softmax,
    qwen3,
    softmax,
)
from teleport.training.masks import above_positive, guide, other_negatives
from teleport.training.objective import Teacher
from teleport.training.seen import Step, look, names_seen

Q, N, D, SCALE = 5, 3, 6, 4.0
P = Q * (1 + N)
COLUMNS = np.arange(P).reshape(Q, -1)
POSITIVES, OWN = COLUMNS[:, 0], COLUMNS[:, 1:]
INF = float("inf")


class Batch:
    """Normalised vectors of queries and passages, float64, those of a teacher, and all that a loss may see."""

    def __init__(self, seed=0, masked=()):
        rng = np.random.default_rng(seed)
        self.arrays = [unit(rng.normal(size=(n, D))) for n in (Q, P)]
        self.teacher = [unit(rng.normal(size=(n, D))) for n in (Q, P)]
        self.judged = rng.normal(scale=3, size=(Q, 1 + N))
        self.masked = np.zeros((Q, P), bool)
        for query, column in masked:
            self.masked[query, column] = True
        self.vectors = [torch.tensor(array, requires_grad=True) for array in self.arrays]

    def seen(self, **others):
        queries, passages = self.vectors
        encoded = Encoded(queries, passages)
        positives = torch.from_numpy(POSITIVES)
        return {
            "scale": SCALE,
            "judged_QN": torch.from_numpy(self.judged),
            "query_query_QQ": SCALE * queries @ queries.T,
            "passage_passage_QP": SCALE * encoded.products_of(positives),
            "vectors": tuple(self.vectors),
            "teacher_vectors": tuple(map(torch.from_numpy, self.teacher)),
            "shares_M": encoded.shares(),
            "guide_QP": torch.from_numpy(self.teacher[0] @ self.teacher[1].T),
        } | others

    def call(self, function, **settings):
        """A loss or a mask with what it sees, on scores where what is masked is -inf."""
        queries, passages = self.vectors
        scores = (SCALE * queries @ passages.T).masked_fill(torch.from_numpy(self.masked), -INF)
        seen = {name: value for name, value in self.seen().items() if name in names_seen(function)}
        return function(scores, torch.from_numpy(POSITIVES), torch.from_numpy(OWN), **seen, **settings)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def log_sum(values):
    highest = max(values)
    return highest + math.log(sum(math.exp(value - highest) for value in values))


def scores_of(batch, queries, passages):
    """[[q·d]] of lists, scaled, -inf where masked."""
    return [[-INF if batch.masked[i][j] else SCALE * float(q @ d) for j, d in enumerate(passages)]
            for i, q in enumerate(queries)]  # fmt: skip


# Each loop: (batch, queries, passages: float64 arrays) → loss.


def plain_kl(batch, queries, passages, temperature=1.0):
    total, scores = 0.0, scores_of(batch, queries, passages)
    for i in range(Q):
        kept = [n for n in range(1 + N) if scores[i][COLUMNS[i, n]] > -INF]
        own = [scores[i][COLUMNS[i, n]] / temperature for n in kept]
        judged = [batch.judged[i, n] / temperature for n in kept]
        for s, t in zip(own, judged, strict=True):
            share = math.exp(t - log_sum(judged))
            total += share * (math.log(share) - (s - log_sum(own))) * temperature**2
    return total / Q


def plain_softmax(scores):
    return sum(log_sum(row) - row[POSITIVES[i]] for i, row in enumerate(scores)) / len(scores)


def plain_margin_mse(batch, queries, passages):
    squares, scores = [], scores_of(batch, queries, passages)
    for i in range(Q):
        for n in range(N):
            if scores[i][OWN[i, n]] > -INF:
                margin = scores[i][POSITIVES[i]] - scores[i][OWN[i, n]]
                squares.append((margin - (batch.judged[i, 0] - batch.judged[i, 1 + n])) ** 2)
    return sum(squares) / len(squares)


def plain_margin_mse_batch(batch, queries, passages):
    squares, scores, teacher = [], scores_of(batch, queries, passages), batch.teacher[0] @ batch.teacher[1].T
    for i in range(Q):
        for j in set(range(P)) - set(COLUMNS[i].tolist()):
            if scores[i][j] > -INF:
                margin = scores[i][POSITIVES[i]] - scores[i][j]
                squares.append((margin - 3 * (teacher[i, POSITIVES[i]] - teacher[i, j])) ** 2)
    return sum(squares) / len(squares)


def plain_listmle(batch, queries, passages):
    total, scores = 0.0, scores_of(batch, queries, passages)
    for i in range(Q):
        kept = [n for n in range(1 + N) if scores[i][COLUMNS[i, n]] > -INF]
        ranked = [scores[i][COLUMNS[i, n]] for n in sorted(kept, key=lambda n: -batch.judged[i, n])]
        total += sum(log_sum(ranked[k:]) - ranked[k] for k in range(len(ranked)))
    return total / Q


def plain_adr_mse(batch, queries, passages, alpha):
    terms, scores = [], scores_of(batch, queries, passages)
    for i in range(Q):
        kept = [n for n in range(1 + N) if scores[i][COLUMNS[i, n]] > -INF]
        judged, own = [batch.judged[i, n] for n in kept], [scores[i][COLUMNS[i, n]] for n in kept]
        for n in range(len(kept)):
            ties = sum(other == judged[n] for other in judged)
            rank = sum(other > judged[n] for other in judged) + (ties + 1) / 2
            others = own[:n] + own[n + 1 :]
            approximate = 1 + sum(1 / (1 + math.exp(-alpha * (other - own[n]))) for other in others)
            terms.append((rank - approximate) ** 2 / math.log2(1 + rank))
    return sum(terms) / len(terms)


def plain_cl_drd(batch, queries, passages, ranked):
    """The model's ranks are of the scores as they are, as those of `plain_hardness`."""
    total, scores, fixed = 0.0, scores_of(batch, queries, passages), scores_of(batch, *batch.arrays)
    for i in range(Q):
        kept = [n for n in range(1 + N) if scores[i][COLUMNS[i, n]] > -INF]
        by_teacher = sorted(kept, key=lambda n: -batch.judged[i, n])
        by_model = sorted(kept, key=lambda n: -fixed[i][COLUMNS[i, n]])
        first, rest = by_teacher[:ranked], by_teacher[ranked:]
        groups = [[n] for n in first] + [rest[: len(rest) // 2], rest[len(rest) // 2 :]]
        terms = []
        for number, group in enumerate(groups):
            for a in group:
                for b in sum(groups[number + 1 :], []):
                    weight = abs(1 / (1 + by_model.index(a)) - 1 / (1 + by_model.index(b)))
                    difference = scores[i][COLUMNS[i, b]] - scores[i][COLUMNS[i, a]]
                    terms.append(weight * math.log(1 + math.exp(difference)))
        total += sum(terms) / max(len(terms), 1)
    return total / Q


def plain_m3_kd(batch, queries, passages):
    """The released code: a softmax for each place of the list, from which those before it are taken out."""
    total, scores = 0.0, scores_of(batch, queries, passages)
    for i in range(Q):
        kept = [n for n in range(1 + N) if scores[i][COLUMNS[i, n]] > -INF]
        shares, row = log_sum([batch.judged[i, n] for n in kept]), list(scores[i])
        for n in kept:
            total += math.exp(batch.judged[i, n] - shares) * (log_sum(row) - row[COLUMNS[i, n]])
            row[COLUMNS[i, n]] = -INF
    return total / Q


def plain_hardness(batch, queries, passages, alpha, of):
    """The penalties are of the scores as they are; a finite difference must not see them (`fixed`)."""
    total = 0.0
    scores, fixed = scores_of(batch, queries, passages), scores_of(batch, *batch.arrays)
    for i, row in enumerate(scores):
        added = {"own": set(OWN[i]), "batch": set(range(P)) - set(COLUMNS[i]), "all": set(range(P)) - {POSITIVES[i]}}[
            of
        ]
        logits = [s + (alpha / SCALE * fixed[i][j] if j in added and s > -INF else 0) for j, s in enumerate(row)]
        total += log_sum(logits) - logits[POSITIVES[i]]
    return total / Q


def plain_focal(batch, queries, passages, gamma):
    logs = [row[POSITIVES[i]] - log_sum(row) for i, row in enumerate(scores_of(batch, queries, passages))]
    return -sum((1 - math.exp(log)) ** gamma * log for log in logs) / Q


def plain_bidirectional(batch, queries, passages):
    scores = scores_of(batch, queries, passages)
    columns = [[row[positive] for row in scores] for positive in POSITIVES]
    back = sum(log_sum(column) - column[i] for i, column in enumerate(columns)) / Q
    return (plain_softmax(scores) + back) / 2


def plain_joint(batch, queries, passages):
    total, scores = 0.0, scores_of(batch, queries, passages)
    for i in range(Q):
        terms = list(scores[i]) + [row[POSITIVES[i]] for row in scores]
        terms += [SCALE * float(queries[i] @ queries[j]) for j in range(Q) if j != i]
        others = [j for j in range(P) if j not in COLUMNS[i] and scores[i][j] > -INF]
        terms += [SCALE * float(passages[POSITIVES[i]] @ passages[j]) for j in others]
        total += log_sum(terms) - scores[i][POSITIVES[i]]
    return total / Q


def plain_qwen3(batch, queries, passages, margin):
    total, scores = 0.0, scores_of(batch, queries, passages)
    for i in range(Q):
        most = float(batch.arrays[0][i] @ batch.arrays[1][POSITIVES[i]]) + margin
        terms = [s for s in scores[i] if s / SCALE <= most]
        terms += [
            SCALE * float(queries[i] @ queries[j]) for j in range(Q) if j != i and queries[i] @ queries[j] <= most
        ]
        others = [j for j in range(P) if j != POSITIVES[i] and scores[i][j] > -INF]
        terms += [SCALE * float(passages[POSITIVES[i]] @ passages[j]) for j in others]
        total += log_sum(terms) - scores[i][POSITIVES[i]]
    return total / Q


def plain_own_softmax(batch, queries, passages):
    rows = enumerate(scores_of(batch, queries, passages))
    return sum(log_sum([row[j] for j in COLUMNS[i]]) - row[POSITIVES[i]] for i, row in rows) / Q


def plain_bixse(batch, queries, passages, bias):
    total, grades = 0.0, {}
    for i in range(Q):
        grades |= {(i, COLUMNS[i, n]): batch.judged[i, n] for n in range(1 + N)}
    for i, row in enumerate(scores_of(batch, queries, passages)):
        for j, score in enumerate(row):
            if score > -INF:
                share, grade = 1 / (1 + math.exp(-score - bias)), grades.get((i, j), 0.0)
                total -= grade * math.log(share) + (1 - grade) * math.log(1 - share)
    return total / Q


def plain_distill(batch, queries, passages, mse):
    own, wanted = [*queries, *passages], [*batch.teacher[0], *batch.teacher[1]]
    distance = sum(1 - a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in zip(own, wanted, strict=True)) / len(own)
    squares = [(x - y) ** 2 for a, b in zip(own, wanted, strict=True) for x, y in zip(a, b, strict=True)]
    return distance + mse * sum(squares) / len(squares)


CASES = {
    "kl": (kl, {}, plain_kl, {}),
    "kl, T 2": (kl, {"temperature": 2.0}, plain_kl, {"temperature": 2.0}),
    "margin-mse": (margin_mse, {}, plain_margin_mse, {}),
    "margin-mse-batch": (margin_mse_batch, {"teacher_scale": 3.0}, plain_margin_mse_batch, {}),
    "listmle": (listmle, {}, plain_listmle, {}),
    "adr-mse": (adr_mse, {}, plain_adr_mse, {"alpha": 1.0}),
    "adr-mse, alpha 0.3": (adr_mse, {"alpha": 0.3}, plain_adr_mse, {"alpha": 0.3}),
    "cl-drd, 1": (cl_drd, {"ranked": 1}, plain_cl_drd, {"ranked": 1}),
    "cl-drd, all": (cl_drd, {"ranked": 30}, plain_cl_drd, {"ranked": 30}),
    "m3-kd": (m3_kd, {}, plain_m3_kd, {}),
    "hardness, own": (hardness, {"alpha": 5.0, "of": "own"}, plain_hardness, {"alpha": 5.0, "of": "own"}),
    "hardness, batch": (hardness, {"alpha": 9.0, "of": "batch"}, plain_hardness, {"alpha": 9.0, "of": "batch"}),
    "hardness, all": (hardness, {"alpha": 2.0, "of": "all"}, plain_hardness, {"alpha": 2.0, "of": "all"}),
    "focal": (focal, {"gamma": 0.5}, plain_focal, {"gamma": 0.5}),
    "bidirectional": (bidirectional, {}, plain_bidirectional, {}),
    "joint": (joint, {}, plain_joint, {}),
    "qwen3": (qwen3, {"margin": 0.1}, plain_qwen3, {"margin": 0.1}),
    "own-softmax": (own_softmax, {}, plain_own_softmax, {}),
    "bixse": (bixse, {"bias": -2.0}, plain_bixse, {"bias": -2.0}),
    "distill": (distill, {"mse": 0.3}, plain_distill, {"mse": 0.3}),
}
MASKED = [(0, 1), (0, 9), (2, 0), (3, 14), (4, 17), (4, 18), (4, 19)]  # query 4 has no own negative left


def made(name, masked):
    batch = Batch(masked=masked)
    if name == "bixse":
        batch.judged = 1 / (1 + np.exp(-batch.judged))
    return batch


@pytest.mark.parametrize("masked", [[], MASKED], ids=["whole", "masked"])
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_a_loop(name, masked):
    """The gradient by every number of every vector, by central differences of the loop."""
    module, settings, plain, own = CASES[name]
    batch = made(name, masked)
    found = batch.call(module.loss, **settings)
    assert found.item() == pytest.approx(plain(batch, *batch.arrays, **own), rel=1e-10)
    found.backward()
    for side in (0, 1):
        gradient = batch.vectors[side].grad.numpy()
        assert np.isfinite(gradient).all()
        rng = np.random.default_rng(1)
        for row, column in zip(rng.integers(len(gradient), size=12), rng.integers(D, size=12), strict=True):
            around = []
            for step in (1e-5, -1e-5):
                moved = [array.copy() for array in batch.arrays]
                moved[side][row, column] += step
                around.append(plain(batch, *moved, **own))
            assert gradient[row, column] == pytest.approx((around[0] - around[1]) / 2e-5, rel=1e-5, abs=1e-8)


def test_guard_the_losses_differ_and_the_masks_matter():
    values = {name: made(name, []).call(CASES[name][0].loss, **CASES[name][1]).item() for name in CASES}
    of_scores = [name for name in CASES if name != "distill"]  # which compares vectors alone
    values |= {
        f"{name} masked": made(name, MASKED).call(CASES[name][0].loss, **CASES[name][1]).item() for name in of_scores
    }
    assert len({round(value, 9) for value in values.values()}) == len(values)
    batch, thresholds = Batch(), 0.1 + np.sum(Batch().arrays[0] * Batch().arrays[1][POSITIVES], axis=1)
    assert (batch.arrays[0] @ batch.arrays[1].T > thresholds[:, None]).any(), "Qwen3's mask leaves something out"
    assert (batch.arrays[0] @ batch.arrays[0].T > thresholds[:, None]).sum() > Q, "also of the queries"


def test_every_loss_that_sees_more_than_scores_is_compared_here():
    compared = {module.__name__ for module, *_ in CASES.values()}
    for entry in LOSSES.values():
        module = __import__(entry.module, fromlist=["loss"])
        assert not names_seen(module.loss) or entry.module in compared


@pytest.mark.parametrize("module", [kl, margin_mse, m3_kd])
def test_a_teacher_s_scale_multiplies_its_scores(module):
    scaled, expected = Batch(), Batch()
    expected.judged = 3.0 * expected.judged
    found = scaled.call(module.loss, teacher_scale=3.0).item()
    assert found == pytest.approx(expected.call(module.loss).item(), rel=1e-12)
    assert found != pytest.approx(scaled.call(module.loss).item(), rel=1e-2)


def test_margin_mse_over_the_batch_is_that_of_the_released_code():
    """TAS-B, matchmaker's train.py, with one own negative: half the mean over the positives of the other queries, and
    half that over their negatives. Alone, without pairs, it is 0."""
    rng = np.random.default_rng(3)
    scores, teacher = (torch.from_numpy(rng.normal(size=(Q, 2 * Q))) for _ in range(2))
    columns = torch.arange(2 * Q).view(Q, 2)
    parts = []
    for of in (0, 1):
        ours, theirs = ((each.gather(1, columns[:, :1]) - each[:, columns[:, of]]) for each in (scores, teacher))
        parts.append((ours - theirs).square()[~torch.eye(Q, dtype=torch.bool)].mean())
    found = margin_mse_batch.loss(scores, columns[:, 0], columns[:, 1:], teacher)
    assert found.item() == pytest.approx(float(sum(parts) / 2), rel=1e-12)
    one = [each[:1, :2] for each in (scores, teacher)]
    assert margin_mse_batch.loss(one[0], columns[:1, 0], columns[:1, 1:], one[1]) == 0
    counted = rng.random((Q, 2 * Q)) < 0.5
    pairs = sum(counted[query, passage] for query in range(Q) for passage in range(2 * Q) if passage // 2 != query)
    assert margin_mse_batch.num_pairs(counted, columns[:, 0].numpy(), columns[:, 1:].numpy()) == pairs


def test_gamma_0_and_a_sure_positive_are_the_plain_softmax_and_no_nan():
    batch = Batch()
    assert batch.call(focal.loss, gamma=0.0).item() == pytest.approx(batch.call(softmax.loss).item(), rel=1e-12)
    scores = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = focal.loss(scores, torch.tensor([0]), torch.tensor([[1]]), gamma=0.5)
    loss.backward()
    assert loss.item() == 0 and torch.isfinite(scores.grad).all()


# Sentence-transformers' own, from the same vectors: [queries, positives, first negatives, second ones, ...].


# Cosines of two queries with the positive and the negative of the first, then with those of the second.
COSINES = torch.tensor([[0.8, 0.6, 0.2, 0.9], [0.1, 0.3, 0.7, 0.5]], dtype=torch.float64)
TWO = SimpleNamespace(
    queries_Q=np.arange(2),
    passages_P=np.arange(4),
    positive_columns_Q=np.array([0, 2]),
    own_columns_QN=np.array([[1], [3]]),
)
TWO_COLUMNS = torch.from_numpy(TWO.positive_columns_Q), torch.from_numpy(TWO.own_columns_QN)


def test_the_loss_of_embedding_gemma_literal():
    """Eq. 2: in the denominator are a query's own negative, with weight exp(5 cos), and the positives of the batch."""
    left_out = torch.from_numpy(other_negatives.mask(TWO, None))
    found = hardness.loss((10 * COSINES).masked_fill(left_out, -INF), *TWO_COLUMNS, scale=10.0, alpha=5.0, of="own")
    first = 8 - math.log(math.exp(8) + math.exp(5 * 0.6) * math.exp(6) + math.exp(2))
    second = 7 - math.log(math.exp(7) + math.exp(5 * 0.5) * math.exp(5) + math.exp(1))
    assert found.item() == pytest.approx(-(first + second) / 2, rel=1e-12)


def test_the_loss_of_nemotron_literal():
    """Section 6.1: the denominator has no passage of another query."""
    found = own_softmax.loss(50 * COSINES, *TWO_COLUMNS)
    assert found.item() == pytest.approx((math.log1p(math.exp(-10)) + math.log1p(math.exp(-10))) / 2, rel=1e-12)


def columns_of(vectors):
    queries, passages = vectors
    return [queries, *(passages[torch.from_numpy(COLUMNS[:, n])] for n in range(1 + N))]


def theirs(name, batch):
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.util import dot_score

    model = torch.nn.Identity()
    ranking = partial(losses.MultipleNegativesRankingLoss, model, scale=SCALE, similarity_fct=dot_score)
    four, labels = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"), torch.from_numpy(batch.judged)

    def dot(a, b):
        return SCALE * (a * b).sum(-1)

    teacher = columns_of([torch.from_numpy(each) for each in batch.teacher])
    made = {
        "joint": lambda: (ranking(directions=four), None),
        "bidirectional": lambda: (ranking(directions=four[::2], partition_mode="per_direction"), None),
        "hardness, own": lambda: (ranking(hardness_mode="hard_negatives", hardness_strength=5.0), None),
        "hardness, batch": lambda: (ranking(hardness_mode="in_batch_negatives", hardness_strength=9.0), None),
        "hardness, all": lambda: (ranking(hardness_mode="all_negatives", hardness_strength=2.0), None),
        "margin-mse": lambda: (losses.MarginMSELoss(model, similarity_fct=dot), labels),
        "kl": lambda: (losses.DistillKLDivLoss(model, similarity_fct=dot), labels),
        "kl, T 2": lambda: (losses.DistillKLDivLoss(model, similarity_fct=dot, temperature=2.0), labels),
        "distill": lambda: (losses.EmbedDistillLoss(model), teacher),
    }
    loss, second = made[name]()
    return loss.compute_loss_from_embeddings(columns_of(batch.vectors), second)


OURS = {name: CASES[name][:2] for name in CASES}
OURS |= {"kl, T 2": (kl, {"temperature": 2.0}), "distill": (distill, {})}
SAME = ["joint", "bidirectional", "hardness, own", "hardness, batch", "hardness, all", "margin-mse", "kl", "kl, T 2"]


@pytest.mark.parametrize("name", [*SAME, "distill"])
def test_loss_and_gradients_are_those_of_sentence_transformers(name):
    found, expected = Batch(), Batch()
    module, settings = OURS[name]
    loss, their_loss = found.call(module.loss, **settings), theirs(name, expected)
    assert loss.item() == pytest.approx(their_loss.item(), rel=1e-6)
    loss.backward()
    their_loss.backward()
    for ours, other in zip(found.vectors, expected.vectors, strict=True):
        torch.testing.assert_close(ours.grad, other.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["listmle", "adr-mse", "adr-mse, alpha 0.3"])
def test_list_losses_are_those_of_sentence_transformers_cross_encoders(name):
    """Their cross-encoder's scores are given; lists of equal length, in the teacher's order, with a tie."""
    from sentence_transformers.cross_encoder.losses import ADRMSELoss, PListMLELoss

    batch = Batch()
    scores = SCALE * batch.arrays[0] @ batch.arrays[1].T
    if name != "listmle":
        batch.judged[:, 2] = batch.judged[:, 0]
    order = np.argsort(-batch.judged, axis=1, kind="stable")
    ranked = np.take_along_axis(np.take_along_axis(scores, COLUMNS, axis=1), order, axis=1)
    flat = torch.from_numpy(ranked.ravel())

    class Given(torch.nn.Module):
        num_labels, device = 1, torch.device("cpu")

        def preprocess(self, pairs, **_):
            return {"numbers": torch.tensor([number for _, number in pairs])}

        def forward(self, tokens):
            return {"scores": flat[tokens["numbers"]]}

    module, settings, *_ = CASES[name]
    theirs = PListMLELoss(Given(), lambda_weight=None) if name == "listmle" else ADRMSELoss(Given(), **settings)
    documents = [[i * (1 + N) + n for n in range(1 + N)] for i in range(Q)]
    labels = [torch.from_numpy(np.sort(row)[::-1].copy()) for row in batch.judged]
    expected = theirs([["q"] * Q, documents], labels)
    assert batch.call(module.loss, **settings).item() == pytest.approx(expected.item(), rel=1e-6)


# Masks.


def test_a_mask_by_the_model_s_scores_is_a_loop():
    batch = Batch()
    masked = batch.call(above_positive.mask_scores, margin=0.1).numpy()
    products = batch.arrays[0] @ batch.arrays[1].T
    expected = [[products[i, j] > products[i, POSITIVES[i]] + 0.1 for j in range(P)] for i in range(Q)]
    assert masked.tolist() == expected and 0 < masked.sum() < masked.size


@pytest.mark.parametrize("margin", [0.0, 0.2, -0.3])
def test_a_mask_by_a_guide_is_a_loop_and_spares_the_positive(margin):
    batch = Batch()
    masked = batch.call(guide.mask_scores, margin=margin).numpy()
    products = batch.teacher[0] @ batch.teacher[1].T
    expected = [[j != POSITIVES[i] and products[i, j] > products[i, POSITIVES[i]] + margin for j in range(P)]
                for i in range(Q)]  # fmt: skip
    assert masked.tolist() == expected and 0 < masked.sum() < masked.size


@pytest.mark.parametrize("counts", [None, [3, 1, 2, 1, 4, 2]])
def test_a_guide_scores_a_passage_by_its_best_chunk(counts):
    """Passages of a batch, one of them twice; counts: chunks of each passage, None: it has one vector."""
    rng, passages = np.random.default_rng(3), np.array([4, 0, 2, 4, 1])
    offsets = np.arange(7) if counts is None else np.cumsum([0, *counts])
    vectors, queries = (rng.normal(size=(n, D)).astype(np.float32) for n in (offsets[-1], 3))
    batch = SimpleNamespace(queries_Q=np.array([2, 0]), passages_P=passages)
    teacher = Teacher(None, queries, vectors, None if counts is None else offsets)
    step = Step(batch, None, None, SCALE, torch.from_numpy)
    of_passages = [vectors[offsets[p] : offsets[p + 1]] for p in passages]
    expected = [[max(float(queries[q] @ chunk) for chunk in of) for of in of_passages] for q in batch.queries_Q]
    found = look(["guide_QP", "teacher_vectors"], teacher, step)
    np.testing.assert_allclose(found["guide_QP"].numpy(), expected, rtol=1e-5)
    assert np.array_equal(found["teacher_vectors"][1].numpy(), np.concatenate(of_passages)), "a row for each chunk"


def test_a_passage_of_several_chunks_counts_once():
    """Of four texts, the first query and the first passage are at right angles to the teacher's vectors: distance 1."""
    east, north = [1.0, 0.0], [0.0, 1.0]
    padding = Padding.of(np.arange(2), np.array([0, 1, 4]), 3, torch.from_numpy)
    made, wanted = (
        Encoded(torch.tensor([first, north]), padding.pad(torch.tensor([first, north, north, north])), padding)
        for first in (east, north)
    )
    found = distill.loss(None, None, None, made.of_texts(), wanted.of_texts(), made.shares())
    assert found.item() == pytest.approx((1 + 0 + 1 + 0) / 4)


@pytest.mark.parametrize("margin", [0.0, 0.2, -0.3])
def test_the_guide_s_mask_is_that_of_gist_embed(margin):
    """Their loss has two columns of passages, so the second one holds all negatives of all queries."""
    from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss

    class Looks(torch.nn.Module):
        tokenizer, max_seq_length = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel())), 1

        def __init__(self, vectors):
            super().__init__()
            self.vectors = vectors

        def forward(self, features, **_):
            queries, passages = self.vectors
            return {"sentence_embedding": queries if features["of"] is None else passages[features["of"]]}

    batch, alone = Batch(), {"contrast_anchors": False, "contrast_positives": False}
    both = Looks(batch.vectors), Looks([torch.from_numpy(each) for each in batch.teacher])
    theirs = GISTEmbedLoss(*both, temperature=1 / SCALE, margin_strategy="absolute", margin=-margin, **alone)
    numbers = None, torch.from_numpy(POSITIVES), torch.from_numpy(OWN.ravel())
    batch.masked |= batch.call(guide.mask_scores, margin=margin).numpy()
    assert batch.masked[:, OWN.ravel()].sum() > 0 and batch.masked[:, POSITIVES].sum() > 0
    expected = theirs([{"of": each} for each in numbers], None).item()
    assert batch.call(softmax.loss).item() == pytest.approx(expected, rel=1e-6)


# Refusals.


@pytest.mark.parametrize(
    ("loss", "setting", "value"),
    [
        ("kl", "temperature", 0),
        ("hardness", "alpha", 0),
        ("qwen3", "margin", -0.1),
        ("focal", "gamma", -1),
        ("adr-mse", "alpha", 0),
        ("cl-drd", "ranked", 0),
    ],
)
def test_settings_that_teach_nothing_are_refused(loss, setting, value):
    with pytest.raises(ValueError, match=f"{setting}\n.*greater than"):
        own_settings(LOSSES[loss].module).model_validate({setting: value})


def test_scores_that_are_no_grades_are_refused():
    with pytest.raises(Refusal, match="bixse .*0 to 1.*ranker.*-1 to 1"):
        bixse.require_scores("ranker", np.float32([-1, 0.5, 1]))
    bixse.require_scores("judge", np.float32([0, 1]))
    bixse.require_scores("ranker", np.float32([-1, 0.5, 1]), clip=True)


def test_clipped_scores_are_grades():
    batch, clipped = Batch(), Batch()
    assert batch.judged.min() < 0 < 1 < batch.judged.max()
    clipped.judged = np.clip(batch.judged, 0, 1)
    found = batch.call(bixse.loss, bias=-2.0, clip=True).item()
    assert found == pytest.approx(plain_bixse(clipped, *clipped.arrays, bias=-2.0), rel=1e-10)
