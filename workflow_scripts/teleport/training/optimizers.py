"""The optimisers: AdamW, and LAMB (You et al. 2020) in the form of ANCE's released code, which its experiments used."""

from functools import partial

import torch

LARGEST_WEIGHT_NORM = 10.0
MOMENTS = ("exp_avg", "exp_avg_sq")


class Lamb(torch.optim.Optimizer):
    """Adam's update of each tensor, scaled to the norm of its weights.

    With moments m and v (betas 0.9 and 0.999) and u = m / (sqrt(v) + eps) + weight_decay * w, a step is w -= lr * trust
    * u, where trust = min(|w|, 10) / |u|, or 1 when either norm is 0. The moments are not corrected for their start at
    zero, and the trust ratio has no bound (ANCE and DRhard `lamb.py`; the paper's own code corrects the moments).
    """

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        """Update all tensors that have a gradient; waits for nothing on the device."""
        for group in self.param_groups:
            if weights := [weight for weight in group["params"] if weight.grad is not None]:
                self.update(weights, group)

    def update(self, weights, group):
        """One step of a list of tensors, in place."""
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] |= {name: torch.zeros_like(weight) for name in MOMENTS}
        means, squares = ([self.state[weight][name] for weight in weights] for name in MOMENTS)
        gradients, (beta1, beta2) = [weight.grad for weight in weights], group["betas"]
        torch._foreach_mul_(means, beta1)
        torch._foreach_add_(means, gradients, alpha=1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(means, roots)
        torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        weight_norms = torch.stack(torch._foreach_norm(weights)).clamp(max=LARGEST_WEIGHT_NORM)
        update_norms = torch.stack(torch._foreach_norm(updates))
        trusts = torch.where((weight_norms > 0) & (update_norms > 0), weight_norms / update_norms, 1.0)
        # Each tensor's factor is on the device, where the fused kernels cannot read it: one kernel per tensor.
        torch._foreach_mul_(updates, (trusts * group["lr"]).unbind())
        torch._foreach_sub_(weights, updates)


OPTIMIZERS = {"adamw": partial(torch.optim.AdamW, fused=True), "lamb": Lamb}  # betas and eps as released


def make_optimizer(name, encoders, weight_decay):
    """One of OPTIMIZERS over all parameters with requires_grad. Matrices decay, other weights do not, as in
    transformers' Trainer."""
    parameters = [parameter for parameter in encoders.parameters() if parameter.requires_grad]
    matrices, others = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return OPTIMIZERS[name](groups, lr=0.0)
