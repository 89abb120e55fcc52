"""One optimisation step of the dual encoder."""

import math

import torch

from teleport.encoder.precision import autocast
from teleport.seed import derive_seed
from teleport.training.loss import false_negative_mask, softmax_loss
from teleport.training.schedule import learning_rate

# Tokens per chunk of a step. CPU: a step of 2,100 tokens in one chunk took 2 % (float32) and 7 % (bfloat16) less time
# than in chunks of 1,024; longer chunks were not compared. CUDA: a chunk must fill the device.
TOKEN_BUDGET = {"cpu": 4096, "cuda": 16384}


class Trainer:
    """Weights and optimiser of an episode, and the step that changes them.

    `queries` and `passages` are `forward.Side`s, whose encoders are one object when tied; `data` is a
    `data.TrainingSet`; `total` is the length of the full schedule; `dtype` is the precision of `autocast`.
    """

    def __init__(self, queries, passages, data, settings, total, seed, device, dtype):
        self.queries, self.passages, self.data = queries, passages, data
        self.settings, self.training, self.total, self.seed = settings, settings.training, total, seed
        self.device, self.dtype = device, dtype
        tied = queries.encoder is passages.encoder
        self.encoders = torch.nn.ModuleList([queries.encoder] if tied else [queries.encoder, passages.encoder])
        self.encoders.to(device).train()
        self.optimizer = adamw(self.encoders, self.training.weight_decay)

    def rate(self, step):
        """Learning rate of a step."""
        return learning_rate(step, self.total, self.training.learning_rate, self.training.warmup_ratio)

    def loss(self, batch):
        """The loss of a `data.Batch` with its graph (float32 scalar), and how many tokens were encoded."""
        budget = TOKEN_BUDGET[self.device.type]
        with autocast(self.device, self.dtype):  # one block, so that the weights are cast once
            query_vectors_QD, query_tokens = self.queries.vectors(batch.queries_Q, budget, self.device)
            passage_vectors_PD, passage_tokens = self.passages.vectors(batch.passages_P, budget, self.device)
        masked_QP = None
        if self.training.mask_false_negatives:
            positives = [self.data.positives[row] for row in batch.queries_Q]
            masked_QP = false_negative_mask(batch.passages_P, batch.positive_columns_Q, positives).to(self.device)
        columns_Q = torch.from_numpy(batch.positive_columns_Q).to(self.device)
        loss = softmax_loss(query_vectors_QD, passage_vectors_PD, columns_Q, self.settings.scale, masked_QP)
        return loss, query_tokens + passage_tokens

    def step(self, step):
        """Do step 0, 1, ...; returns its loss (float), tokens as encoded, and real tokens.

        Dropout draws from torch's global generator: seeding it by the step number makes a resumed run equal to an
        uninterrupted one without saving generator states. Raises ValueError when loss or gradient is not finite.
        """
        torch.manual_seed(derive_seed(self.seed, "dropout", step))
        batch = self.data.batch(step)
        loss, padded_tokens = self.loss(batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.encoders.parameters(), self.training.max_grad_norm)
        self.require_finite(step, batch, loss.item(), norm.item())
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        real_tokens = self.queries.lengths[batch.queries_Q].sum() + self.passages.lengths[batch.passages_P].sum()
        return loss.item(), padded_tokens, int(real_tokens)

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
    """AdamW (betas 0.9 and 0.999, eps 1e-8, as released) over all parameters, decaying matrices alone.

    Biases and LayerNorm weights do not decay, as in transformers' Trainer.
    """
    parameters = list(encoders.parameters())
    matrices, others = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    # The fused kernel took a fifth of the time of the loop over tensors on a CPU.
    return torch.optim.AdamW(groups, lr=0.0, fused=True)
