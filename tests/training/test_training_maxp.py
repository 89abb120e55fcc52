"""Training on the best chunk: loss and gradients of ANCE's padded form, whose padding is masked with -9999."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from reference_encoder import reference_of
from teleport.arrays import offsets_of
from teleport.encoder import encode
from teleport.encoder.load import load_encoders
from teleport.encoder.tokens import open_tokens
from teleport.maxp import Padding
from teleport.training.encoded import Encoded
from training_world import (
    SPECIAL,
    World,
    backward,
    facts_of,
    gradients_of,
    loss_of,
    losses_of,
    make_trainer,
    require_close,
)

LIMIT, MOST = 8, 3
CHUNKED = {"max_passage_tokens": LIMIT, "chunks": MOST}
COUNTS = np.array([2, 1, 3])


def test_places_and_best_scores_by_hand():
    vectors = torch.arange(1.0, 7.0)[:, None] * torch.tensor([1.0, -1.0])
    padding = Padding.of(np.arange(3), offsets_of(COUNTS), 3, torch.from_numpy)
    padded = padding.pad(vectors)
    assert padded[:, 0].tolist() == [1, 2, 0, 3, 0, 0, 4, 5, 6]
    assert torch.equal(padding.real(padded), vectors)
    assert padding.rows_of(torch.tensor([2, 0])).tolist() == [6, 7, 8, 0, 1, 2]
    scores = torch.tensor([[-2.0, -1, 9, -5, 9, 9, -3, -4, -3]], requires_grad=True)
    best = padding.best(scores)
    assert best.tolist() == [[-1, -5, -3]]
    assert padding.best(scores[:, [6, 7, 8, 0, 1, 2]], torch.tensor([2, 0])).tolist() == [[-3, -1]]
    (best * torch.tensor([1.0, 10, 100])).sum().backward()
    assert scores.grad[0, :6].tolist() == [0, 1, 0, 10, 0, 0]
    assert sorted(scores.grad[0, 6:].tolist()) == [0, 0, 100], "of equal chunks one has the gradient"


class Operators(TorchDispatchMode):
    """Notes the names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        by_bool = str(function) == "aten.index.Tensor" and any(each.dtype == torch.bool for each in args[1])
        self.names.add("an index by bool" if by_bool else str(function))
        return function(*args, **kwargs or {})


def test_no_operator_waits_for_a_gpu():
    """A size that depends on values, or a tensor made from Python's numbers, would."""
    padding, vectors = Padding.of(np.arange(3), offsets_of(COUNTS), 3, torch.from_numpy), torch.ones(6, 2)
    encoded, columns = Encoded(torch.ones(2, 2), padding.pad(vectors), padding), torch.tensor([2, 0])
    waiting = {"an index by bool", "aten.nonzero.default", "aten.masked_select.default"}
    waiting |= {"aten.repeat_interleave.Tensor", "aten._local_scalar_dense.default", "aten.lift_fresh.default"}
    with Operators() as seen:
        assert encoded.products_of(columns).shape == (2, 3)
        assert encoded.of_texts()[1].shape == (6, 2) and encoded.shares().shape == (8,)
    assert len(seen.names) > 5 and not seen.names & waiting
    with Operators() as old:
        vectors[padding.real_C[:6]], columns.new_tensor(range(3)), columns.repeat_interleave(columns)
    assert len(old.names & waiting) == 3, "the names are torch's"


def padded(token_map, row):
    """A text as released: ids and attention mask [MOST, LIMIT]."""
    ids = [*SPECIAL["before"], *token_map[row][: MOST * LIMIT - 2].tolist(), *SPECIAL["after"]]
    padding = [0] * (MOST * LIMIT - len(ids))
    return torch.tensor(ids + padding).view(MOST, LIMIT), torch.tensor([1] * len(ids) + padding).view(MOST, LIMIT)


def released_scores(encoder, token_map, row, query_vector):
    """The scores of a text's chunks with what masks padding: [MOST], and how many are padding."""
    ids, mask = padded(token_map, row)
    return encoder(ids, mask) @ query_vector + (1 - mask[:, 0]) * -9999.0


def released_loss(job, query_encoder, encoder, batch):
    """The mean over triples of -log softmax over two passages (model/models.py), and counters of what occurred."""
    queries, passages, losses, seen = open_tokens(job, "queries.train"), open_tokens(job, "passages"), [], set()
    for query, positive, own in zip(batch.queries_Q, batch.positive_columns_Q, batch.own_columns_QN, strict=True):
        ids = torch.tensor([[*SPECIAL["before"], *queries[query][:6].tolist(), *SPECIAL["after"]]])
        vector = query_encoder(ids, torch.ones_like(ids))[0]
        scores = [released_scores(encoder, passages, batch.passages_P[p], vector) for p in (positive, *own)]
        seen |= {(int((s > -5000).sum()), int(s.argmax())) for s in scores}
        best = [s.max() for s in scores]
        losses += [-torch.log_softmax(torch.stack([best[0], other]), 0)[0] for other in best[1:]]
    return torch.stack(losses).mean(), seen


def cls_trainer(job):
    made = make_trainer(job)
    for encoder in made.encoders:
        encoder.pooling = "cls"  # the released one; a mean over padding alone is not defined
    return made


@pytest.mark.parametrize("changes", [{}, {"gradient_caching": True}, {"accumulate": 2}])
def test_loss_and_gradients_are_those_of_the_padded_form(stages, changes):
    world = World(stages, dropout=0.0, tied=False)  # a query's first token would be nearest to that of a passage
    job = world.job({"loss": "nll"} | changes, **CHUNKED)
    made = cls_trainer(job)
    made.token_budget = 40  # several buckets
    batch = made.data.batch(1)
    loss = backward(made, batch)
    encoders = load_encoders(world.inputs["checkpoint"].folder / "checkpoint")
    for encoder in encoders:
        encoder.pooling = "cls"
    expected, seen = released_loss(job, *map(reference_of, encoders), batch)
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for ours, theirs in zip((made.queries.encoder, made.passages.encoder), encoders, strict=True):
        require_close(gradients_of(ours), gradients_of(theirs), tolerance=1e-5)
    assert {count for count, _ in seen} == {1, 2, 3} and {best for _, best in seen} == {0, 1, 2}, "not vacuous"


def test_known_positives_are_masked_by_passage(stages):
    world = World(stages, dropout=0.0, first_negative=0)
    jobs = [world.job({"masks": masks, "batch_queries": 10}, **CHUNKED) for masks in ([], ["known_positives"])]
    losses = [loss_of(made, made.data.batch(0)).item() for made in map(cls_trainer, jobs)]
    assert losses[1] < losses[0]


def test_a_frozen_passage_side_gives_the_same_gradients(stages):
    world = World(stages, dropout=0.0, tied=False)
    settings = {"of": "passages", "max_query_tokens": 8, "precision": "fp32", **CHUNKED}
    inputs = {role: world.inputs[role] for role in ("tokens", "checkpoint")}
    vectors = stages.run(encode.run, "encode", settings, inputs)
    both = world.job(**CHUNKED)
    half = world.job({"trains": ["query"]}, inputs={"passages": vectors}, **CHUNKED)
    found = []
    for job in (both, half):
        made = make_trainer(job)
        found.append((backward(made, made.data.batch(1)), gradients_of(made.queries.encoder)))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6)
    require_close(*(gradient for _, gradient in found), tolerance=1e-5)


def test_a_training_learns_and_counts_all_chunks(stages):
    world = World(stages)
    chunked, first = (world.finished(world.job({"steps": 30}, **(CHUNKED | {"chunks": n}))) for n in (MOST, 1))
    facts = [facts_of(job) for job in (chunked, first)]
    assert facts[0]["last_loss"] < 0.8 * facts[0]["first_loss"]
    assert facts[0]["real_tokens"] > 1.3 * facts[1]["real_tokens"]
    assert losses_of(chunked)[1] != losses_of(first)[1]
