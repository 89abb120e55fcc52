"""The training of a dual encoder: the loss of a batch from the vectors of its texts. Gradient caching, MaxP, live
search and several processes each have functions of their own."""

import numpy as np
import torch

from teleport.encoder.batches import in_order
from teleport.encoder.graphs import Graphs, graphs_fit, most_graphs
from teleport.encoder.precision import autocast, to_device
from teleport.encoder.side import Frozen, Side
from teleport.maxp import Padding, chunk_rows, most_chunks
from teleport.training.budget import STEP_RESERVE
from teleport.training.data import other_positives
from teleport.training.encoded import Encoded
from teleport.training.memory import Memory
from teleport.training.mixing import draw_mixtures, mixed_scores
from teleport.training.parallel import ALONE
from teleport.training.seen import Step
from teleport.training.several import Part, turns
from teleport.training.step import Steps, added
from teleport.training.step_metrics import mean_scores, mean_where


class Trainer(Steps):
    """The `Steps` of a dual encoder.

    queries, passages: a `Side`, which is trained, or a `Frozen` one; objective: the `objective.Objective`; live: the
    `live.LiveSearch` if steps search for their passages, or None; others: the `several.Part`s of other collections,
    whose batches take turns by the weights settings.also
    """

    def __init__(
        self, queries, passages, data, objective, settings, total, seed, device, processes=ALONE, live=None, others=()
    ):
        self.trained = [side for side in (queries, passages) if isinstance(side, Side)]
        models = dict.fromkeys(side.encoder for side in self.trained)
        super().__init__(models, data, settings.training, total, seed, device, processes)
        self.scale, self.live = settings.scale, live
        self.parts = [Part(queries, passages, data, objective), *others]
        self.turns = turns([1 - sum(settings.also), *settings.also], total) if others else None
        # A graph can be replayed only once per step (`Graphs`).
        self.replays = self.training.accumulate == 1 and not self.training.gradient_checkpointing
        self.replays, self.graphs = self.replays and all(map(graphs_fit, self.trained)), {}
        if self.replays:
            self.most_graphs = self.graphs_within(torch.cuda.mem_get_info(device)[0] - (STEP_RESERVE if live else 0))
            self.replays = self.most_graphs > 0
        remembers = self.training.memory, self.training.memory_queries
        self.memory = Memory(*remembers) if self.training.memory else None
        self.take(0)

    def take(self, number):
        """Take the next batches from collection `number`; the first one is 0."""
        self.queries, self.passages, self.data, self.objective = self.parts[number]
        self.most_chunks = most_chunks(self.passages.offsets)
        self.masks = [] if self.live else self.objective.masks
        if self.training.positive == "all":
            self.masks = [other_positives, *self.masks]
        self.num_pairs = [term.num_pairs if self.masks else None for term in self.objective.terms]
        self.weights = [term.weight for term in self.objective.terms]

    def batch(self, step):
        number, own_step = self.turn(step)
        if self.turns is not None:
            self.take(number)
        return self.data.batch(own_step)

    def data_of(self, step):
        return self.parts[self.turn(step)[0]].data

    def turn(self, step):
        """(number of the collection of a step, number of the batch in that collection)."""
        return (0, step) if self.turns is None else tuple(int(each[step]) for each in self.turns)

    def forward(self, batch, masked):
        """(losses of a `data.Batch` with their graph, list of float32 scalars; its `mean_scores`)."""
        return self.live_loss(batch) if self.live else self.batch_loss(batch, masked)

    def batch_loss(self, batch, masked):
        """Return the same as `forward`, for the queries and passages of the batch and of the `Memory`. With
        `training.widths`: the sum of the losses of that many first numbers of all vectors (Matryoshka), and the scores
        of the widest."""
        encoded, normalize = self.encoded(batch), self.queries.encoder.normalize
        if self.memory:
            vectors = self.memory.beside(batch, encoded.queries_QD, encoded.passages_CD)
            batch = self.memory.batch(batch)
            encoded = Encoded(*vectors, self.padding(batch))
        narrowed = [encoded.narrowed(width, normalize) for width in self.training.widths] or [encoded]
        losses, means = zip(*(self.loss_of(batch, masked, each) for each in narrowed), strict=True)
        return list(map(added, zip(*losses, strict=True))), means[-1]

    def loss_of(self, batch, masked, encoded):
        """Return the same as `forward`, from the batch's `Encoded`."""
        scores_QP = encoded.products(self.scale * encoded.queries_QD)
        for masked_QP in masked:
            scores_QP = scores_QP.masked_fill(self.on_device(masked_QP), float("-inf"))
        columns = self.on_device(batch.positive_columns_Q), self.on_device(batch.own_columns_QN)
        seen = Step(batch, encoded, columns, self.scale, self.on_device)
        for mask, sees in self.objective.score_masks:
            masked_QP = mask(scores_QP.detach(), *columns, **sees(seen))
            scores_QP = scores_QP.masked_fill(masked_QP, float("-inf"))
        means = mean_scores(scores_QP, *columns)
        if self.training.mixed_negatives:
            scores_QP = torch.cat([scores_QP, self.mixed(batch, encoded, scores_QP)], dim=1)
        return [term.loss(scores_QP, *columns, **term.sees(seen)) for term in self.objective.terms], means

    def mixed(self, batch, encoded, scores_QP):
        """The scaled scores of each query's mixed negatives (`mixing`): [Q, M]. scores_QP: with what masks left out"""
        numbers_QM2, shares_QM = draw_mixtures(batch, self.training.mixed_negatives, self.seed)
        rows_Q11 = np.arange(len(numbers_QM2))[:, None, None]
        columns_QM2 = self.on_device(batch.own_columns_QN[rows_Q11, numbers_QM2])
        queries_QD, normalize = self.scale * encoded.queries_QD, self.queries.encoder.normalize
        mixtures = columns_QM2, self.on_device(shares_QM)
        return mixed_scores(queries_QD, encoded.passages_CD, scores_QP, *mixtures, normalize)

    def live_loss(self, batch):
        """Return the same as `forward`, for queries against the passages that a live search ranks for them."""
        own = batch.split(self.processes.size)[self.processes.rank]  # the queries that this process encodes
        query_vectors_QD = self.processes.gather(self.vectors(self.queries, own.queries_Q))
        passage_vectors_QKD, *labels = self.live.lists(batch.queries_Q, query_vectors_QD.detach())
        scores_QK = self.scale * (passage_vectors_QKD @ query_vectors_QD.unsqueeze(2)).squeeze(2)
        means = [mean_where(scores_QK.detach(), to_device(label_QK, self.device)) for label_QK in labels]
        return [term.loss(scores_QK, *labels) for term in self.objective.terms], torch.stack(means)

    def encoded(self, batch):
        """The `Encoded` of all processes' queries and passages."""
        parts = batch.split(self.processes.size)
        own = parts[self.processes.rank]
        queries, chunks = self.encode(own.queries_Q, chunk_rows(own.passages_P, self.passages.offsets))
        numbers = ([len(part.queries_Q) for part in parts], [self.most_chunks * len(part.passages_P) for part in parts])
        vectors = map(self.processes.gather, (queries, self.padding(own).pad(chunks)), numbers)
        return Encoded(*vectors, self.padding(batch))

    def padding(self, batch):
        """The `maxp.Padding` of the passages of a batch. All batches have the same number of rows per passage, so the
        processes' vectors can be gathered."""
        return Padding.of(batch.passages_P, self.passages.offsets, self.most_chunks, self.on_device)

    def vectors(self, side, rows):
        """Vectors of a side's texts, float32 [rows, D], with their graph; a frozen side's are read, and have none."""
        if isinstance(side, Frozen):
            return side.vectors(rows, self.token_budget)
        if self.training.gradient_caching:
            return cached_vectors(side, rows, self.token_budget)
        if self.replays and side.count_tokens(rows) <= self.token_budget:
            return self.graphs_of(side)(*side.packed(rows))
        return side.vectors(rows, self.token_budget)

    def encode(self, query_rows, passage_rows):
        """Vectors of the queries and of the passages, in one pass if a GPU encodes both with one encoder."""
        if self.goes_together(query_rows, passage_rows):
            both = self.queries.packed(query_rows), self.passages.packed(passage_rows)
            longer = max(self.queries, self.passages, key=lambda side: side.max_tokens)
            vectors = self.graphs_of(longer)(*map(np.concatenate, zip(*both, strict=True)))
            return vectors.split([len(query_rows), len(passage_rows)])
        with autocast(self.device, self.trained[0].dtype):
            return self.vectors(self.queries, query_rows), self.vectors(self.passages, passage_rows)

    def goes_together(self, query_rows, passage_rows):
        """Whether queries and passages fit one bucket of one encoder, whose step is a graph."""
        if not self.replays or len(self.trained) < 2 or len(self.encoders) > 1 or self.training.gradient_caching:
            return False
        tokens = self.queries.count_tokens(query_rows) + self.passages.count_tokens(passage_rows)
        return tokens <= self.token_budget

    def graphs_within(self, free):
        """How many graphs each encoder may have in the `free` bytes of a device, of which the first step's moments take
        some."""
        gradients, encoders = sum(p.nbytes for p in self.encoders.parameters() if p.requires_grad), len(self.encoders)
        return most_graphs(free - 2 * gradients, self.step_bytes, gradients / encoders) // encoders

    def graphs_of(self, side):
        """The `Graphs` that encode a side, of whichever collection. Each side has its own, as the passes of both sides
        overlap."""
        role = "queries" if side is self.queries else "passages"
        if role not in self.graphs:
            self.graphs[role] = Graphs(side.encoder, side.max_tokens, side.dtype, self.most_graphs)
        return self.graphs[role]

    def real_tokens(self, batch):
        """How many tokens the encoded texts of a `data.Batch` have."""
        passages = self.passages.count_tokens(chunk_rows(batch.passages_P, self.passages.offsets))
        return self.queries.count_tokens(batch.queries_Q) + passages


def cached_vectors(side, rows, token_budget):
    """`side.vectors` with gradient caching (GradCache, Gao et al. 2021, Section 3.2), in the memory of one bucket. The
    vectors are computed without a graph; once the backward pass has their gradients, each bucket is encoded again, with
    a graph. Torch's generator is reset before each bucket, so both passes draw the dropout of a step without
    caching."""
    buckets, states, vectors = side.buckets(rows, token_budget), [], []
    with torch.no_grad():
        for bucket in buckets:
            states.append(generator_state())
            vectors.append(side.encode(rows[bucket]))
    vectors = in_order(vectors, buckets).requires_grad_()

    def encode_again(vectors):
        after = generator_state()
        with torch.enable_grad(), autocast(side.device, side.dtype):
            for bucket, state in zip(buckets, states, strict=True):
                set_generator_state(state)
                again = side.encode(rows[bucket])
                with autocast(side.device, None):  # otherwise the head's gradient would be a product in `dtype`
                    again.backward(vectors.grad[to_device(torch.from_numpy(bucket), vectors.device)])
        set_generator_state(after)

    vectors.register_post_accumulate_grad_hook(encode_again)
    return vectors


def generator_state():
    """The states of torch's generators for dropout: the CPU's, and that of the CUDA device in use."""
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None


def set_generator_state(state):
    """Restore the `generator_state` of torch's generators."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])
