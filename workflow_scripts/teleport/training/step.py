"""One training step of any model: `Steps.step` lists what it does."""

import math

import numpy as np
import torch

from teleport.encoder.budget import TOKEN_BUDGET, tokens_within
from teleport.encoder.precision import require_memory, to_device
from teleport.encoder.shape import Shape, kept_bytes
from teleport.refusal import Refusal
from teleport.seed import derive_seed
from teleport.training.optimizers import make_optimizer
from teleport.training.parallel import ALONE
from teleport.training.step_metrics import GradientNorms, StepMetrics


class Steps:
    """Weights and optimiser of a training, and the step that changes them. Each kind of model is a subclass with
    `forward` and `real_tokens`: dual_encoder.py, cross_train.py.

    models: the distinct modules that are trained; data: gives the batch of a step, such as `data.TrainingSet`;
    training: a settings.Training; total: length of the full schedule
    """

    live = memory = num_pairs = None  # only some dual encoders have these
    masks, parts, most_chunks = (), (), 1

    def __init__(self, models, data, training, total, seed, device, processes=ALONE):
        self.data, self.training, self.total, self.seed = data, training, total, seed
        self.device, self.processes = device, processes
        processes.require_divisible(training.batch_queries, training.accumulate)
        self.encoders = torch.nn.ModuleList(models)
        room = require_room_to_train(models, device)
        self.encoders.to(device).train()
        self.optimizer = make_optimizer(training.optimizer, self.encoders, training.weight_decay)
        self.gradient_norms = GradientNorms(self.encoders)
        per_token = max(kept_bytes(Shape.of(model), 1, training) for model in models)
        self.token_budget = tokens_within(TOKEN_BUDGET["train"][device.type], room, per_token)

    def step(self, step):
        """Do step 0, 1, ...; returns its `StepMetrics`, which `finish` must read before the weights are saved. Dropout
        draws from torch's global generator. Seeding it by the step, and by the rank of a process after the first, makes
        a resumed run equal to an uninterrupted one without saving generator states."""
        rank = [self.processes.rank] if self.processes.rank else []
        torch.manual_seed(derive_seed(self.seed, "dropout", step, *rank))
        batch = self.batch(step)
        loss, scores = 0.0, []
        for micro_batch in self.micro_batches(batch):
            share, means = self.backward(*micro_batch)
            loss = loss + share
            scores.append(means)
        self.processes.sum_gradients(self.encoders)
        norm, layer_norms = self.gradient_norms()
        torch.nn.utils.clip_grads_with_norm_(self.encoders.parameters(), self.training.max_grad_norm, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.memory:
            self.memory.end_step(self.most_chunks)
        means = torch.stack(scores).nanmean(0)
        values = torch.cat([torch.stack([loss, norm]), layer_norms, means])
        return StepMetrics(step, batch, values, self.live and self.live.take_result())

    def batch(self, step):
        """The `data.Batch` of a step."""
        return self.data.batch(step)

    def data_of(self, step):
        """Return the data that `batch` used for a step."""
        return self.data

    def micro_batches(self, batch):
        """[(micro-batch, its masks, its weight in the step's loss)]. The loss is the mean over all terms; a micro-batch
        has only its own passages. If the loss is a mean over queries, a micro-batch weighs by its rows, equally many
        except with `positive: all`. If it is a mean over pairs, a micro-batch weighs by its pairs, whose number masks
        make unequal."""
        micro_batches = []
        for micro in batch.split(self.training.accumulate):
            seen = self.memory.batch(micro) if self.memory else micro
            masked, pairs = [np.asarray(mask(seen)) for mask in self.masks], len(micro.queries_Q)
            if self.num_pairs:
                kept = ~np.logical_or.reduce(masked)
                pairs = self.num_pairs(kept, micro.positive_columns_Q, micro.own_columns_QN)
            micro_batches.append((micro, masked, pairs))
        total = max(sum(pairs for _, _, pairs in micro_batches), 1)
        return [(micro, masked, max(pairs, 1) / total) for micro, masked, pairs in micro_batches]

    def backward(self, batch, masked, weight):
        """Add the gradients of a (micro-)batch's share of the step's loss; returns that share and `mean_scores`."""
        loss, scores = self.forward(batch, masked)
        loss = weight * loss
        loss.backward()
        return loss.detach(), scores

    def on_device(self, array):
        """A numpy array as a tensor on the device of the encoders."""
        return to_device(torch.from_numpy(array), self.device)

    def rate(self, step):
        return learning_rate(step, self.total, self.training)

    def finish(self, metrics):
        """The values of a step, floats in the order of `step_metrics.COLUMNS`. Raises Refusal with step and query ids
        when the loss or the norm of its gradient is not finite."""
        loss, norm, *_ = values = metrics.read()
        if math.isfinite(loss) and math.isfinite(norm):
            return values
        data = self.data_of(metrics.step)
        ids = ", ".join(data.query_ids[row] for row in metrics.batch.queries_Q)
        raise Refusal(
            f"training stopped at step {metrics.step + 1}: loss {loss}, gradient norm {norm}, for the queries {ids}. "
            "Lower training.learning_rate or encoder.scale, or set training.precision to fp32; if it is step 1, check "
            "the weights of the checkpoint."
        )


def learning_rate(step, total, training):
    """The rate of step 0, 1, ..., total - 1: linear from the base to the peak in the warm-up, then linear back, like
    transformers' `linear` scheduler. With `cycle_steps` each cycle is such a schedule, like torch's CyclicLR
    (triangular). `total` is the length of the full schedule, even if training stops earlier (ANCE-Tele's Appendix C.2
    stops after 20,000 steps, its released code plans 188,601)."""
    length = training.cycle_steps or total
    warmup = training.warmup_steps if training.warmup_ratio is None else math.ceil(length * training.warmup_ratio)
    base, position = training.base_learning_rate, step % length
    height = training.learning_rate - base
    if position < warmup:
        return base + height * position / warmup
    return base + height * (length - position) / (length - warmup)


def require_room_to_train(models, device):
    """The bytes that a device has beside what training some models keeps: their weights, and a gradient and two moments
    for each trained weight; None on a CPU. Raises Refusal if it cannot hold these."""
    trained = sum(3 * p.nbytes for model in models for p in model.parameters() if p.requires_grad)
    remedy = "Set encoder.lora, which trains fewer, or take a smaller checkpoint or a larger GPU."
    return require_memory("training", models, device, (trained, "gradients and moments"), remedy)
