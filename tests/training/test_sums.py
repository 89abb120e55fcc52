"""A training whose loss is a weighted sum of several: values and gradients, resumed runs, curves, keys."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from test_taught_steps import chosen, gradients, require_same
from torch.nn import functional

from teleport.negatives.scores import PairTable
from teleport.report.rows import losses_text
from teleport.settings.experiment import EpisodeTraining
from teleport.settings.registry import LOSSES
from teleport.settings.training import Training
from teleport.training import train
from training_world import World, backward, die_at, make_trainer

KL = chosen(LOSSES, "kl", temperature=2.0, teacher_scale=3.0)
DISTILL = chosen(LOSSES, "distill", mse=0.3)
MARGIN = chosen(LOSSES, "margin-mse")


@pytest.fixture
def world(stages):
    """A world with two teachers, `miner` and `other`, in whose pools are positives of others."""
    made = World(stages, dropout=0.0, first_negative=0)
    other = {role.replace("miner", "other"): job for role, job in made.taught(seed=8).items()}
    made.inputs |= made.taught() | other
    return made


def job_of(world, loss, **training):
    return world.job({"batch_queries": 8, "max_grad_norm": 1e9, "loss": loss} | training, scale=5.0)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    "losses",
    [
        [{"kind": "softmax"}, KL],
        [MARGIN, {"kind": "softmax"}],  # a mean over pairs and one over queries
        [MARGIN | {"scores": "other"}, KL, {"kind": "ranknet"}],
        [{"kind": "bidirectional"}, chosen(LOSSES, "bixse"), DISTILL],
    ],
    ids=lambda losses: " ".join(loss["kind"] for loss in losses),
)
def test_a_sum_is_each_loss_alone_by_its_weight(world, losses, accumulate):
    """Masks leave micro-batches unequally many pairs, and each loss weighs them as it does alone."""
    same, together, expected, added = {"accumulate": accumulate, "masks": ["known_positives"]}, [], 0.0, {}
    for loss, weight in zip(losses, [0.5, 1.0, 3.0], strict=False):
        value, alone = gradients(job_of(world, loss, **same))
        expected += weight * value
        added = {name: weight * gradient + added.get(name, 0.0) for name, gradient in alone.items()}
        together.append(loss | {"weight": weight})
    require_same(gradients(job_of(world, together, **same)), (expected, added))


def test_guard_micro_batches_weigh_unequally_for_a_mean_over_pairs_alone(world):
    losses = [{"kind": "ranknet"}, {"kind": "softmax", "weight": 3.0}]
    job = job_of(world, losses, accumulate=2, masks=["known_positives"])
    made = make_trainer(job)
    of_pairs, of_queries = zip(*(weights for *_, weights in made.micro_batches(made.data.batch(1))), strict=True)
    assert of_pairs[0] != of_pairs[1] and sum(of_pairs) == pytest.approx(1) and of_queries == (1.5, 1.5)


def kl_and_softmax(scores_QP, columns_QN, judged_QN, vectors, teacher_vectors):
    own_QN, judged_QN = scores_QP.gather(1, columns_QN) / 2, (3 * judged_QN).double() / 2
    divergence = functional.kl_div(own_QN.log_softmax(1), judged_QN.softmax(1), reduction="batchmean")
    return 4 * divergence + 0.7 * functional.cross_entropy(scores_QP, columns_QN[:, 0])


def distill_and_softmax(scores_QP, columns_QN, judged_QN, vectors, teacher_vectors):
    own, wanted = torch.cat(vectors), torch.cat(teacher_vectors).double()
    distance = (1 - functional.cosine_similarity(own, wanted)).mean() + 0.3 * (own - wanted).square().mean()
    return distance + 0.7 * functional.cross_entropy(scores_QP, columns_QN[:, 0])


@pytest.mark.parametrize(("loss", "plain"), [(KL, kl_and_softmax), (DISTILL, distill_and_softmax)])
def test_a_loss_beside_the_softmax_is_the_formula_in_plain_torch(world, loss, plain):
    """Loss and gradient of a step, by the formula of the former setting `softmax: 0.7` of kl and distill."""
    job = job_of(world, [loss, {"kind": "softmax", "weight": 0.7}])
    made = make_trainer(job, double=True)
    batch = made.data.batch(1)
    columns_QN = np.column_stack([batch.positive_columns_Q, batch.own_columns_QN])
    rows_QN = np.broadcast_to(batch.queries_Q[:, None], columns_QN.shape)
    judged = PairTable.open(job, "scores.miner").score(rows_QN.ravel(), batch.passages_P[columns_QN].ravel())
    texts = ("queries", "queries.train", batch.queries_Q), ("passages", "passages", batch.passages_P)
    theirs = [torch.from_numpy(np.load(job.input(f"vectors.miner.{of}", f"{file}.npy"))[at]) for of, file, at in texts]
    encoded = made.encoded(batch)
    seen = torch.from_numpy(judged).view(columns_QN.shape), encoded.of_texts(), theirs
    expected = plain(encoded.products(5.0 * encoded.queries_QD), torch.from_numpy(columns_QN), *seen)
    expected.backward()
    named = {name: p.grad.numpy() for name, p in made.encoders.named_parameters() if p.grad is not None}
    require_same(gradients(job), (expected.item(), named))


def test_killed_and_resumed_ends_in_the_same_bits_and_each_loss_has_its_curve(stages, monkeypatch):
    world, bits = World(stages), []  # with dropout
    training = {"loss": [MARGIN | {"weight": 0.1}, {"kind": "softmax"}], "masks": ["known_positives"], "accumulate": 2}
    for dies in (False, True):
        job = world.job(training, inputs=world.taught(), save_every=0)
        if dies:
            die_at(job, 6, monkeypatch)
        world.stages.finish(job, facts := train.run(job))
        assert facts["resumed_from"] == 6 * dies
        bits.append([(job.folder / name).read_bytes() for name in ("losses.tsv", "checkpoint/model.safetensors")])
    assert bits[0] == bits[1]
    curves = pd.read_csv(job.folder / "losses.tsv", sep="\t")
    shares = curves[["loss_1_margin-mse", "loss_2_softmax"]]
    np.testing.assert_allclose(shares.sum(axis=1), curves["loss"], rtol=1e-6)
    assert len(curves) == 12 and (shares > 0.01).all(axis=None) and shares.columns[-1] == curves.columns[-1]


def test_lists_of_a_live_search_have_a_sum_too(stages):
    world = World(stages, dropout=0.0)
    losses, found = [{"kind": "lambda", "metric_cut": 20}, {"kind": "ranknet-list"}], []
    for loss in (*losses, [losses[0] | {"weight": 2.0}, losses[1]]):
        job = world.job(**world.live(training={"loss": loss}))
        made = make_trainer(job)
        found.append(backward(made, made.data.batch(1)))
    assert found[2] == pytest.approx(2 * found[0] + found[1], rel=1e-6) and found[0] > 0 != found[1] - found[0]


def given(loss):
    return EpisodeTraining(steps=3, loss=loss)


@pytest.mark.parametrize("loss", ["kl", {"kind": "kl", "temperature": 2.0}, {"kind": "softmax", "weight": 1}])
def test_a_list_of_one_is_that_loss_and_weight_1_is_in_no_key(loss):
    alone, listed = given(loss), given([loss])
    assert alone == listed and isinstance(alone.loss.model_dump(), dict)
    assert alone.model_dump() == listed.model_dump() and "weight" not in alone.loss.model_dump()


def test_a_sum_is_read_back_from_the_settings_of_a_stage():
    losses = given(["softmax", {"kind": "kl", "temperature": 2.0, "weight": 0.5}])
    dumped = json.loads(json.dumps(Training.taken_from(losses).model_dump(mode="json")))
    assert dumped["loss"][0] == {"kind": "softmax", "label_smoothing": 0.0}
    read = Training.model_validate(dumped)
    assert [(loss.kind, loss.weight, loss.own.get("temperature")) for loss in read.losses] == [
        ("softmax", 1.0, None),
        ("kl", 0.5, 2.0),
    ]
    assert read.losses == losses.losses and losses_text(read) == "softmax + 0.5 kl"
    twice = given({"kind": "softmax", "weight": 2})
    assert twice.loss.model_dump()["weight"] == 2 and losses_text(twice) == "2 softmax"
