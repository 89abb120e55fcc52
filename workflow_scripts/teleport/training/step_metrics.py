"""The values recorded at every step, for the curves of ANCE's Figure 4: loss, norms of gradients, mean scores.

They are tensors on the device, copied to the CPU together, so that no step waits for them. The curves are tables of the
artefact and, if TensorBoard is installed, events in results/tensorboard/KEY, which every attempt writes again.
"""

import math
import re
import shutil
from contextlib import closing, contextmanager

import torch
from torch.nn import functional

NORMS = ("gradient_norm", "lower_layers", "middle_layers", "upper_layers", "last_layer")
COLUMNS = ("loss", *NORMS, "positive_score", "negative_score")
LAYER = re.compile(r"(\d+)\.(?:head\.|.*\blayers?\.(\d+)\.)")  # in parameters' names: encoder, layer (none in the head)
FLUSH_SECONDS = 10


class StepMetrics:
    """The values of a step (`columns_of`, float32), its `Batch`, and the result of `LiveSearch.take_result`, if there
    is one. Reading the values at once would make the CPU wait for a step on CUDA, and then the device for the CPU."""

    def __init__(self, step, batch, values, search=None):
        self.step, self.batch, self.search = step, batch, search
        self.values = values.to("cpu", non_blocking=True)
        self.copied = torch.cuda.current_stream().record_event() if values.is_cuda else None

    def read(self):
        """The values (list of floats), after waiting for this step, but not for steps after it."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.values.tolist()


class GradientNorms:
    """Norms of the gradients of the module list `encoders`, before clipping. The paper's figure has three groups of
    layers and a "last layer", without details. Here the groups are thirds (1-4, 5-8 and 9-12 of twelve layers), each
    with the mean of its layers' norms. The last layer is the projection head, or else the last transformer layer. Two
    encoders count as twice as many layers."""

    def __init__(self, encoders):
        self.parameters = dict(encoders.named_parameters())
        self.members = self.shares = None  # set at the first step: all steps have gradients for the same parameters

    def __call__(self):
        """(norm of the whole gradient; norms of the groups [4], NaN for a group without a layer): float32 tensors."""
        gradients = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        norms = torch.stack(torch._foreach_norm(list(gradients.values())))
        if self.members is None:
            layers, groups = groups_of(gradients)
            self.members = functional.one_hot(torch.tensor(layers)).T.to(norms)  # [L, T], 1: the tensor is of the layer
            rows = [[float(layer in group) for layer in range(len(self.members))] for group in groups.values()]
            self.shares = functional.normalize(torch.tensor(rows).to(norms), p=1, dim=1, eps=0.0)  # [groups, L]
        # As two products all norms cost a step few kernels, however many layers there are.
        return torch.linalg.vector_norm(norms), self.shares @ (self.members @ norms.square()).sqrt()


def groups_of(names):
    """(the number of the layer of each parameter in `names`; {group in NORMS: numbers of its layers}). What is in no
    layer, such as word vectors, has a number that is in no group."""
    layers = [layer_of(name) for name in names]
    known = sorted({layer for layer in layers if layer}, key=str)
    heights = [height for _, height in known]  # None for a head
    depth = 1 + max((height for height in heights if height is not None), default=-1)
    last = None if None in heights else depth - 1
    groups = {
        name: [row for row, height in enumerate(heights) if height is not None and height * 3 // depth == third]
        for third, name in enumerate(NORMS[1:4])
    }
    groups[NORMS[4]] = [row for row, height in enumerate(heights) if height == last]
    return [known.index(layer) if layer else len(known) for layer in layers], groups


def layer_of(name):
    """(encoder, transformer layer from 0) of a parameter; (encoder, None) in the head; None in neither."""
    match = LAYER.match(name)
    return match and (int(match[1]), match[2] and int(match[2]))


def mean_scores(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean scores of the positives, and of own negatives that are not masked (-inf); NaN without one. Float32 [2]. The
    rows of a `Memory`, which come last, have no own negatives and are left out."""
    scores_QP = scores_QP.detach()
    if len(own_columns_QN) < len(positive_columns_Q):  # a slice is an operator more in every step
        positive_columns_Q = positive_columns_Q[: len(own_columns_QN)]
    own_QN = scores_QP.gather(1, own_columns_QN)
    positive = scores_QP.gather(1, positive_columns_Q.unsqueeze(1)).mean()
    return torch.stack([positive, mean_where(own_QN, own_QN > float("-inf"))])


def mean_where(scores, counted):
    """The mean of the scores where `counted` (bool of the same shape) is True, a scalar; NaN if it never is."""
    return scores.where(counted, 0.0).sum() / counted.sum()


def columns_of(training):
    """The names of a step's values: COLUMNS, and the share of each of several losses in the first."""
    shares = [f"loss_{number}_{loss.kind}" for number, loss in enumerate(training.losses, 1)]
    return [*COLUMNS, *(shares if len(shares) > 1 else [])]


def tables(job, trainer, state, steps=0, scores=0):
    """{file: (columns, lines [step from 1, value of each column])}, without the first `steps` steps and `scores` dev
    scores. Files: learning rate and `columns_of`; the measures of a live search, means over a step's queries; the dev
    score."""
    first = state.first_step + steps
    curves = [[step + 1, trainer.rate(step), *values] for step, values in enumerate(state.curves[steps:], first)]
    made = {"losses.tsv": (["learning_rate", *columns_of(trainer.training)], curves)}
    if trainer.live:
        means = [[step, *values] for step, values in enumerate(state.search_means[steps:], first + 1)]
        made["found.tsv"] = trainer.live.measures, means
    if job.settings.dev:
        made["dev.tsv"] = [job.settings.dev.name], state.dev[scores:]
    return made


def write_curves(job, trainer, state):
    """Write the `tables` as outputs, tab-separated."""
    for name, (columns, lines) in tables(job, trainer, state).items():
        lines = ["\t".join(map(str, line)) + "\n" for line in [["step", *columns], *lines]]
        job.output(name).write_text("".join(lines))


@contextmanager
def tracked(job, trainer, state):
    """Within the block, yields a function that writes new values of `state` to TensorBoard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        SummaryWriter = None
    if SummaryWriter is None or trainer.processes.rank:
        yield lambda: None
        return
    folder, written = job.folder.parents[2] / "tensorboard" / job.key, (0, 0)
    shutil.rmtree(folder, ignore_errors=True)

    def track():
        nonlocal written
        for columns, lines in tables(job, trainer, state, *written).values():
            for step, *values in lines:
                for name, value in zip(columns, values, strict=True):
                    if not math.isnan(value):
                        writer.add_scalar(name, value, step)
        written = len(state.curves), len(state.dev)

    with closing(SummaryWriter(folder, flush_secs=FLUSH_SECONDS)) as writer:
        yield track
