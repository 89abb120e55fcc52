"""One optimisation step of the dual encoder."""

import math

import torch

from teleport.encoder.precision import to_device
from teleport.runtime.seed import derive_seed
from teleport.training.gradcache import CachedSide
from teleport.training.lamb import Lamb
from teleport.training.loss import false_negative_mask, softmax_loss
from teleport.training.parallel import ALONE
from teleport.training.schedule import learning_rate

# Tokens per chunk of a step. CPU: a step of 2,100 tokens in one chunk took 2 % (float32) and 7 % (bfloat16) less time
# than in chunks of 1,024; longer chunks were not compared. CUDA: the 20,000 tokens of the papers' 8 x (1 + 31) passages
# are one chunk, whose weights are cast once; with gradient caching that is 22 GB by the forecast, for 24 GB GPUs.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 21504}


class Outcome:
    """What a step gave; its loss and gradient norm are still on their way from the device.

    On CUDA, reading them at once would have the processor wait for the step, and the device for the processor.
    """

    def __init__(self, step, batch, loss, norm, padded_tokens):
        self.step, self.batch, self.padded_tokens = step, batch, padded_tokens
        self.values = torch.stack([loss, norm]).to("cpu", non_blocking=True)
        self.copied = torch.cuda.current_stream().record_event() if loss.is_cuda else None

    def read(self):
        """(loss, gradient norm) as floats, after waiting for this step, but not for steps after it."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.values.tolist()


class Trainer:
    """Weights and optimiser of an episode, and the step that changes them.

    `queries` and `passages` are `forward.Side`s, whose encoders are one object when tied; `data` is a
    `data.TrainingSet`; `total` is the length of the full schedule; `processes` are those that train together
    (`parallel.Processes`).
    """

    def __init__(self, queries, passages, data, settings, total, seed, device, processes=ALONE):
        self.queries, self.passages, self.data = queries, passages, data
        self.settings, self.training, self.total, self.seed = settings, settings.training, total, seed
        self.device, self.processes = device, processes
        self.accumulate = getattr(self.training, "accumulate", 1)
        self.caches = getattr(self.training, "gradient_caching", False)
        processes.require_divisible(self.training.batch_queries, self.accumulate)
        tied = queries.encoder is passages.encoder
        self.encoders = torch.nn.ModuleList([queries.encoder] if tied else [queries.encoder, passages.encoder])
        self.encoders.to(device).train()
        make_optimizer = OPTIMIZERS[getattr(self.training, "optimizer", "adamw")]
        self.optimizer = make_optimizer(self.encoders, self.training.weight_decay)

    def rate(self, step):
        """Learning rate of a step."""
        return learning_rate(step, self.total, self.training.learning_rate, self.training.warmup_ratio)

    def loss(self, batch):
        """The loss of a `data.Batch` with its graph (float32 scalar), and how many tokens were encoded.

        The graph ends in the vectors that this process encoded.
        """
        part, budget = self.processes.part(batch), TOKEN_BUDGET[self.device.type]
        query_vectors_QD, query_tokens = self.queries.vectors(part.queries_Q, budget)
        passage_vectors_PD, passage_tokens = self.passages.vectors(part.passages_P, budget)
        return self.loss_of(batch, query_vectors_QD, passage_vectors_PD), query_tokens + passage_tokens

    def loss_of(self, batch, query_vectors, passage_vectors):
        """The loss of a whole `data.Batch` (float32 scalar), given the vectors of this process's part of it."""
        query_vectors_QD = self.processes.gather(query_vectors)
        passage_vectors_PD = self.processes.gather(passage_vectors)
        masked_QP = None
        if self.training.mask_false_negatives:
            positives = [self.data.positives[row] for row in batch.queries_Q]
            masked_QP = false_negative_mask(batch.passages_P, batch.positive_columns_Q, positives)
            masked_QP = to_device(masked_QP, self.device)
        columns_Q = to_device(torch.from_numpy(batch.positive_columns_Q), self.device)
        return softmax_loss(query_vectors_QD, passage_vectors_PD, columns_Q, self.settings.scale, masked_QP)

    def backward(self, batch):
        """Add the gradients of a (micro-)batch's share in the step's loss; returns that share, and tokens encoded.

        With gradient caching, the graph of the loss ends in the vectors, and each chunk has one of its own.
        """
        if not self.caches:
            loss, tokens = self.loss(batch)
            loss = loss / self.accumulate
            loss.backward()
            return loss.detach(), tokens
        part, budget = self.processes.part(batch), TOKEN_BUDGET[self.device.type]
        pairs = (self.queries, part.queries_Q), (self.passages, part.passages_P)
        sides = [CachedSide(side, rows, budget, self.device) for side, rows in pairs]
        loss = self.loss_of(batch, *(side.vectors.requires_grad_() for side in sides)) / self.accumulate
        loss.backward()
        for side in sides:
            side.backward(side.vectors.grad)
        return loss.detach(), sum(side.tokens for side in sides)

    def step(self, step):
        """Do step 0, 1, ...; returns its `Outcome`, which `finish` must read before the weights are saved.

        Dropout draws from torch's global generator: seeding it by the step number makes a resumed run equal to an
        uninterrupted one without saving generator states. Processes after the first add their rank to the seed.
        """
        own = [self.processes.rank] if self.processes.rank else []
        torch.manual_seed(derive_seed(self.seed, "dropout", step, *own))
        batch = self.data.batch(step)
        losses, tokens = zip(*(self.backward(part) for part in batch.split(self.accumulate)), strict=True)
        self.processes.sum_gradients(self.encoders.parameters())
        norm = torch.nn.utils.clip_grad_norm_(self.encoders.parameters(), self.training.max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return Outcome(step, batch, sum(losses), norm, sum(tokens))

    def finish(self, outcome):
        """The loss (float) of a step. Raises ValueError when it or the norm of its gradient is not finite."""
        loss, norm = outcome.read()
        self.require_finite(outcome.step, outcome.batch, loss, norm)
        return loss

    def real_tokens(self, batch):
        """How many tokens the texts of a `data.Batch` have, without padding."""
        return int(self.queries.lengths[batch.queries_Q].sum() + self.passages.lengths[batch.passages_P].sum())

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
