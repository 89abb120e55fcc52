"""What is recorded of every step, for the curves of ANCE's Figure 4: norms of gradients, and mean scores.

No value is waited for here: all are tensors on the device, which come to the processor with the loss.
"""

import re

import torch

NORMS = ("gradient_norm", "lower_layers", "middle_layers", "upper_layers", "last_layer")
CURVES = ("loss", *NORMS, "positive_score", "negative_score")
LAYER = re.compile(r"(\d+)\..*\blayer\.(\d+)\.")  # in the name of a parameter: the encoder, and its layer
HEAD = re.compile(r"(\d+)\.head\.")


class GradientNorms:
    """Norms of the gradients of the module list `encoders`, before they are clipped.

    The norm of a layer is that of the gradient by all of its parameters. The paper's figure has three groups of layers
    and a line for the "last layer", and says no more. Here the groups are thirds (1-4, 5-8 and 9-12 of twelve layers),
    each with the mean of its layers' norms, and the last layer is the projection head, or the last transformer layer
    where there is no head. Two encoders count as twice as many layers.
    """

    def __init__(self, encoders):
        self.parameters = dict(encoders.named_parameters())
        self.groups = None  # known with the first gradients: which parameters get one is the same in every step

    def __call__(self):
        """(norm of the whole gradient, those of the groups [4]; NaN for a group without a layer): float32 tensors."""
        gradients = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        norms_T = torch.stack(torch._foreach_norm(list(gradients.values())))
        if self.groups is None:
            self.groups = [matrix.to(norms_T) for matrix in group_matrices(gradients)]
        members_LT, shares_GL = self.groups
        return torch.linalg.vector_norm(norms_T), shares_GL @ (members_LT @ norms_T.square()).sqrt()


def group_matrices(names):
    """(which of the tensors `names` each layer has, 0 or 1 [L, T]; the share of each layer in each group [4, L])."""
    layers = [layer_of(name) for name in names]
    found = sorted({layer for layer in layers if layer}, key=str)
    members_LT = torch.tensor([[float(layer == one) for layer in layers] for one in found])
    depth = 1 + max((number for _, number in found if number is not None), default=-1)
    heads = [number is None for _, number in found]
    last = heads if any(heads) else [number == depth - 1 for _, number in found]
    thirds = [[number is not None and number * 3 // depth == third for _, number in found] for third in range(3)]
    shares_GL = torch.tensor([*thirds, last], dtype=torch.float32).reshape(4, len(found))
    return members_LT.reshape(len(found), len(layers)), shares_GL / shares_GL.sum(1, keepdim=True)


def layer_of(name):
    """(encoder, number of the transformer layer from 0) of a parameter; (encoder, None): the head; None: neither."""
    if found := LAYER.match(name):
        return int(found[1]), int(found[2])
    found = HEAD.match(name)
    return (int(found[1]), None) if found else None


def mean_scores(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean scores of the positives, and of own negatives that are not masked (-inf); NaN without one. Float32 [2]."""
    scores_QP = scores_QP.detach()
    own_QN = scores_QP.gather(1, own_columns_QN)
    positive = scores_QP.gather(1, positive_columns_Q.unsqueeze(1)).mean()
    return torch.stack([positive, mean_where(own_QN, own_QN > float("-inf"))])


def mean_where(scores, counted):
    """The mean of the scores that are counted (bool of the same shape), a scalar; NaN without one."""
    return scores.where(counted, 0.0).sum() / counted.sum()


def write_losses(path, trainer, state):
    """One tab-separated line per step: step (from 1), learning rate, `CURVES` (as many digits as they have)."""
    steps = enumerate(state.curves, start=state.first_step)
    write_lines(path, ["learning_rate", *CURVES], [[step + 1, trainer.rate(step), *values] for step, values in steps])


def write_found(path, measures, state):
    """One line per step: step (from 1), and the means over its queries of what a live search found."""
    write_lines(path, measures, [[step, *means] for step, means in enumerate(state.found, start=state.first_step + 1)])


def write_lines(path, columns, lines):
    """Tab-separated lines, the first column a step, below a header."""
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in [["step", *columns], *lines]))
