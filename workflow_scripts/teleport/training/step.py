"""One training step of any model: `Steps.step` lists what it does."""

import math

import numpy as np
import torch

from teleport.encoder.budget import TOKEN_BUDGET, tokens_within
from teleport.encoder.precision import require_memory, to_device
from teleport.encoder.shape import Shape, kept_bytes
from teleport.refusal import Refusal
from teleport.seed import derive_seed
from teleport.settings.training import warm_up
from teleport.training.optimizers import make_optimizer
from teleport.training.parallel import ALONE
from teleport.training.step_metrics import GradientNorms, StepMetrics


class Steps:
    """Weights and optimiser of a training, and the step that changes them. Each kind of model is a subclass with
    `forward`, `real_tokens` and `trained`, objects with the `dtype` of its products (None: float32): dual_encoder.py,
    cross_train.py.

    models: the distinct modules that are trained; data: gives the batch of a step, such as `data.TrainingSet`;
    training: a settings.Training; total: length of the full schedule
    """

    live = memory = None  # only some dual encoders have these
    masks, parts, most_chunks = (), (), 1
    num_pairs, weights = (None,), (1.0,)  # of each loss of the step

    def __init__(self, models, data, training, total, seed, device, processes=ALONE):
        self.data, self.training, self.total, self.seed = data, training, total, seed
        self.device, self.processes = device, processes
        processes.require_divisible(training.batch_queries, training.accumulate)
        self.encoders = torch.nn.ModuleList(models)
        room = require_room_to_train(models, device)
        self.encoders.to(device).train()
        self.optimizer = make_optimizer(training.optimizer, self.encoders, training.weight_decay)
        self.gradient_norms = GradientNorms(self.encoders)
        half = self.trained[0].dtype is not None
        per_token = max(1, *(kept_bytes(Shape.of(model), 1, training, half) for model in models))  # 1: without layers
        self.token_budget = tokens_within(TOKEN_BUDGET["train"][device.type], room, per_token)
        self.step_bytes = per_token * self.token_budget  # the most activations at a time

    def step(self, step):
        """Do step 0, 1, ...; returns its `StepMetrics`, which `finish` must read before the weights are saved. Dropout
        draws from torch's global generator. Seeding it by the step, and by the rank of a process after the first, makes
        a resumed run equal to an uninterrupted one without saving generator states."""
        rank = [self.processes.rank] if self.processes.rank else []
        torch.manual_seed(derive_seed(self.seed, "dropout", step, *rank))
        batch = self.batch(step)
        shares, scores = zip(*[self.backward(*each) for each in self.micro_batches(batch)], strict=True)
        losses = list(map(added, zip(*shares, strict=True)))
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
        values = [torch.stack([added(losses), norm]), layer_norms, means]
        values = torch.cat([*values, torch.stack(losses)] if len(losses) > 1 else values)
        return StepMetrics(step, batch, values, self.live and self.live.take_result())

    def batch(self, step):
        """The `data.Batch` of a step."""
        return self.data.batch(step)

    def data_of(self, step):
        """Return the data that `batch` used for a step."""
        return self.data

    def micro_batches(self, batch):
        """[(micro-batch, its masks, the weight of each of its losses in the step's loss)]. Each is the mean over all
        its terms; a micro-batch has only its own passages. If a loss is a mean over queries, a micro-batch weighs by
        its rows, remembered ones too, equally many except with `positive: all`. If it is a mean over pairs, a
        micro-batch weighs by its pairs, whose number masks make unequal."""
        parts, counts = [], []
        for micro in batch.split(self.training.accumulate):
            seen = self.memory.batch(micro) if self.memory else micro
            masked = [np.asarray(mask(seen)) for mask in self.masks]
            columns = micro.positive_columns_Q, micro.own_columns_QN
            kept = ~np.logical_or.reduce(masked) if any(self.num_pairs) else None
            counts.append([number(kept, *columns) if number else len(seen.queries_Q) for number in self.num_pairs])
            parts.append((micro, masked))
        weights = np.maximum(counts, 1) / np.maximum(np.sum(counts, axis=0), 1) * self.weights
        return [(*part, of_losses) for part, of_losses in zip(parts, weights.tolist(), strict=True)]

    def backward(self, batch, masked, weights):
        """Add the gradients of a (micro-)batch's share of the step's loss; returns the share of each loss, and
        `mean_scores`."""
        losses, scores = self.forward(batch, masked)
        shares = [weight * loss for weight, loss in zip(weights, losses, strict=True)]
        added(shares).backward()
        return [share.detach() for share in shares], scores

    def on_device(self, array):
        """A numpy array as a tensor on the device of the encoders."""
        return to_device(torch.from_numpy(array), self.device)

    def rate(self, step):
        return learning_rate(step, self.total, self.training)

    def finish(self, metrics):
        """The values of a step, floats in the order of `step_metrics.columns_of`. Raises Refusal with step and query
        ids when the loss or the norm of its gradient is not finite."""
        loss, norm, *_ = values = metrics.read()
        if math.isfinite(loss) and math.isfinite(norm):
            return values
        data = self.data_of(metrics.step)
        ids = ", ".join(data.query_ids[row] for row in metrics.batch.queries_Q)
        raise Refusal(
            f"training stopped at step {metrics.step + 1}: loss {loss}, gradient norm {norm}, for the queries {ids}. "
            "Lower training.learning_rate, or the factor on the scores (encoder.scale), or set training.precision to "
            "fp32; if it is step 1, check the weights of the checkpoint."
        )


def added(losses):
    """The sum of some losses (scalars). It begins with the first: 0 + loss is a kernel."""
    return sum(losses[1:], losses[0])


def learning_rate(step, total, training):
    """The rate of step 0, 1, ..., total - 1: linear from the base to the peak in the warm-up, then linear back, like
    transformers' `linear` scheduler. With `cycle_steps` each cycle is such a schedule, like torch's CyclicLR
    (triangular). `total` is the length of the full schedule, even if training stops earlier (ANCE-Tele's Appendix C.2
    stops after 20,000 steps, its released code plans 188,601)."""
    length = training.cycle_steps or total
    warmup = warm_up(training, length)
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
