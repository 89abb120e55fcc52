"""One optimisation step of the dual encoder."""

import math

import numpy as np
import torch

from teleport.encoder.plain import packs
from teleport.encoder.precision import to_device
from teleport.encoder.side import Frozen, Side, TiedSides
from teleport.runtime.arrays import places_of
from teleport.runtime.seed import derive_seed
from teleport.training.curves import GradientNorms, mean_scores, mean_where
from teleport.training.gradcache import CachedSide
from teleport.training.gradient_sum import GradientSum
from teleport.training.lamb import Lamb
from teleport.training.masks import false_negative_mask
from teleport.training.maxp import best_of_chunks, in_places
from teleport.training.parallel import ALONE
from teleport.training.schedule import learning_rate

# Tokens per bucket of a step. CPU: a step of 4,900 tokens (bfloat16, MiniLM, 8 x (1 + 7) passages) took 9 % less time
# in one bucket than in two on a Xeon with AMX, the same on an EPYC; one of 9,800 gained nothing by more than 8,192.
# CUDA: the 20,000 tokens of the papers' 8 x (1 + 31) passages are one bucket, whose weights are cast once; with
# gradient caching that is 22 GB by the forecast, for GPUs of 24 GB.
TOKEN_BUDGET = {"cpu": 8192, "cuda": 21504}


class Outcome:
    """What a step gave; its values, those of `curves.CURVES` (float32 [n]), are still on their way from the device.

    found: see `live.Found`.

    On CUDA, reading them at once would have the processor wait for the step, and the device for the processor.
    """

    def __init__(self, step, batch, values, padded_tokens, found=None):
        self.step, self.batch, self.padded_tokens, self.found = step, batch, padded_tokens, found
        self.values = values.to("cpu", non_blocking=True)
        self.copied = torch.cuda.current_stream().record_event() if values.is_cuda else None

    def read(self):
        """The values (list of floats), after waiting for this step, but not for steps after it."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.values.tolist()


class Trainer:
    """Weights and optimiser of a training, and the step that changes them.

    queries, passages: a `Side`, which is trained, or a `Frozen` one; two sides with one encoder object are tied
    data: gives the batch of a step and what is masked in it, such as `data.TrainingSet`
    loss: function of the scores and the columns of positives and own negatives, or of ranked lists, see losses
    live: the `live.LiveSearch` of a training whose steps search for their passages, or None
    total: length of the full schedule; processes: those that train together (`parallel.Processes`)
    """

    def __init__(self, queries, passages, data, loss, settings, total, seed, device, processes=ALONE, live=None):
        self.queries, self.passages, self.data, self.loss_function = queries, passages, data, loss
        self.settings, self.training, self.total, self.seed = settings, settings.training, total, seed
        self.device, self.processes, self.live = device, processes, live
        self.most_chunks = 1 if passages.offsets is None else int(np.diff(passages.offsets).max())
        self.accumulate, self.caches = self.training.accumulate, self.training.gradient_caching
        processes.require_divisible(self.training.batch_queries, self.accumulate)
        self.trained = [side for side in (queries, passages) if isinstance(side, Side)]
        self.tied = TiedSides(queries, passages) if self.are_tied() else None
        self.encoders = torch.nn.ModuleList(dict.fromkeys(side.encoder for side in self.trained))
        self.encoders.to(device).train()
        self.optimizer = OPTIMIZERS[self.training.optimizer](self.encoders, self.training.weight_decay)
        self.gradient_sum = GradientSum(self.encoders.parameters(), processes)
        self.norms, self.mean_scores = GradientNorms(self.encoders), []  # of the (micro-)batches of this step

    def are_tied(self):
        """Whether both sides are trained as one encoder that packs texts: a plain one would pad queries to passages."""
        encoders = {side.encoder for side in self.trained}
        return len(self.trained) == 2 and len(encoders) == 1 and packs(self.queries.encoder)

    def rate(self, step):
        """Learning rate of a step."""
        return learning_rate(step, self.total, self.training)

    def loss(self, batch):
        """The loss of a `data.Batch` with its graph (float32 scalar), tokens encoded, and `CachedSide`s.

        The graph ends in the vectors that this process encoded, and with gradient caching in vectors without a graph:
        then each bucket has one of its own, which the `CachedSide`s go through after the loss.
        """
        part = self.processes.part(batch)
        rows = part.queries_Q, self.chunk_rows(part.passages_P)
        apart = zip((self.queries, self.passages), rows, strict=True)
        sides = [(self.tied, self.tied.rows(*rows))] if self.tied else apart
        vectors, tokens, cached = zip(*(self.encode(*side) for side in sides), strict=True)
        vectors = list(torch.cat(vectors).split([len(own) for own in rows]))
        if self.most_chunks > 1:
            vectors[1] = in_places(vectors[1], self.chunk_counts(part.passages_P), self.most_chunks)
        return self.loss_of(batch, *vectors), sum(tokens), sum(cached, [])

    def encode(self, side, rows):
        """(vectors of a side's rows, tokens encoded, the `CachedSide` that they are of, or none)."""
        budget = TOKEN_BUDGET[self.device.type]
        if self.caches and not isinstance(side, Frozen):
            cached = CachedSide(side, rows, budget, self.device)
            return cached.vectors.requires_grad_(), cached.tokens, [cached]
        return *side.vectors(rows, budget), []

    def loss_of(self, batch, query_vectors, passage_vectors):
        """The loss of a whole `data.Batch` (float32 scalar), given the vectors of this process's part of it.

        passage_vectors: of passages in several chunks those of all places (`maxp.in_places`)
        """
        query_vectors_QD = self.processes.gather(query_vectors)
        if self.live:
            return self.loss_of_lists(batch, query_vectors_QD)
        passage_vectors_PD = self.processes.gather(passage_vectors)
        scores_QP = self.settings.scale * query_vectors_QD @ passage_vectors_PD.T
        if self.most_chunks > 1:
            scores_QP = best_of_chunks(scores_QP, self.chunk_counts(batch.passages_P), self.most_chunks)
        if self.training.mask_false_negatives:
            positives = [self.data.known_positives(row) for row in batch.queries_Q]
            masked_QP = false_negative_mask(batch.passages_P, batch.positive_columns_Q, positives)
            scores_QP = scores_QP.masked_fill(to_device(masked_QP, self.device), float("-inf"))
        columns = (batch.positive_columns_Q, batch.own_columns_QN)
        columns = [to_device(torch.from_numpy(c), self.device) for c in columns]
        self.mean_scores.append(mean_scores(scores_QP, *columns))
        return self.loss_function(scores_QP, *columns)

    def loss_of_lists(self, batch, query_vectors_QD):
        """The loss of a whole batch on what a live search finds for its queries (scalar)."""
        passage_vectors_QKD, *labels = self.live.lists(batch.queries_Q, query_vectors_QD.detach())
        scores_QK = self.settings.scale * (passage_vectors_QKD @ query_vectors_QD.unsqueeze(2)).squeeze(2)
        self.mean_scores.append(torch.stack([mean_where(scores_QK.detach(), label_QK) for label_QK in labels]))
        return self.loss_function(scores_QK, *labels)

    def backward(self, batch, last=True):
        """Add the gradients of a (micro-)batch's share in the step's loss; returns that share, and tokens encoded.

        last: whether these complete the step's gradients, so that processes can begin to exchange them; not with
        gradient caching, where they come bucket by bucket
        """
        loss, tokens, cached = self.loss(batch)
        loss = loss / self.accumulate
        if last and not cached:
            self.gradient_sum.begin()
        loss.backward()
        for side in cached:
            side.backward(side.vectors.grad)
        return loss.detach(), tokens

    def step(self, step):
        """Do step 0, 1, ...; returns its `Outcome`, which `finish` must read before the weights are saved.

        Dropout draws from torch's global generator: seeding it by the step number makes a resumed run equal to an
        uninterrupted one without saving generator states. Processes after the first add their rank to the seed.
        """
        own = [self.processes.rank] if self.processes.rank else []
        torch.manual_seed(derive_seed(self.seed, "dropout", step, *own))
        batch = self.data.batch(step)
        self.mean_scores.clear()
        *parts, last = batch.split(self.accumulate)
        found = [self.backward(part, last=False) for part in parts] + [self.backward(last, last=True)]
        losses, tokens = zip(*found, strict=True)
        self.gradient_sum.finish()
        norm, layer_norms = self.norms()
        torch.nn.utils.clip_grads_with_norm_(self.encoders.parameters(), self.training.max_grad_norm, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        scores = torch.stack(self.mean_scores).mean(0)
        values = torch.cat([torch.stack([sum(losses), norm]), layer_norms, scores])
        return Outcome(step, batch, values, sum(tokens), self.live and self.live.found())

    def finish(self, outcome):
        """The values of a step, floats in the order of `curves.CURVES`, the loss first.

        Raises ValueError when it or the norm of its gradient is not finite.
        """
        loss, norm, *_ = values = outcome.read()
        self.require_finite(outcome.step, outcome.batch, loss, norm)
        return values

    def real_tokens(self, batch):
        """How many tokens the texts of a `data.Batch` have that are encoded, without padding."""
        return self.queries.count_tokens(batch.queries_Q) + self.passages.count_tokens(
            self.chunk_rows(batch.passages_P)
        )

    def chunk_rows(self, passages_P):
        """The rows of the passages' vectors: those of all their chunks, or the passages' own (int64)."""
        offsets = self.passages.offsets
        return passages_P if offsets is None else places_of(offsets, passages_P)

    def chunk_counts(self, passages_P):
        """How many chunks each passage has: int64 [P]."""
        return self.passages.offsets[passages_P + 1] - self.passages.offsets[passages_P]

    def require_finite(self, step, batch, loss, norm):
        """Raise ValueError with step and query ids when the loss or the norm of its gradient is not a number."""
        if math.isfinite(loss) and math.isfinite(norm):
            return
        ids = ", ".join(self.data.query_ids[row] for row in batch.queries_Q)
        raise ValueError(
            f"training stopped at step {step + 1}: loss {loss}, gradient norm {norm}, for the queries {ids}. Lower "
            "training.learning_rate or encoder.scale, or set training.precision to fp32; if it is step 1, check the "
            "weights of the checkpoint."
        )


def adamw(encoders, weight_decay):
    """AdamW (betas 0.9 and 0.999, eps 1e-8, as released) over all parameters, decaying matrices alone."""
    # The fused kernel took a fifth of the time of the loop over tensors on a CPU.
    return torch.optim.AdamW(decay_groups(encoders, weight_decay), lr=0.0, fused=True)


def lamb(encoders, weight_decay):
    """LAMB as ANCE ran it (eps 1e-8) over all parameters, decaying matrices alone."""
    return Lamb(decay_groups(encoders, weight_decay), lr=0.0)


def decay_groups(encoders, weight_decay):
    """Parameter groups: biases and LayerNorm weights do not decay, as in transformers' Trainer and in ANCE."""
    parameters = list(encoders.parameters())
    matrices, others = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


OPTIMIZERS = {"adamw": adamw, "lamb": lamb}
