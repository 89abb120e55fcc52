"""LAMB (You et al. 2020) in the form of ANCE's released code, which its experiments used."""

import torch

LARGEST_WEIGHT_NORM = 10.0


class Lamb(torch.optim.Optimizer):
    """Adam's update of each tensor, scaled to the norm of its weights.

    With moments m and v (betas 0.9 and 0.999) and u = m / (sqrt(v) + eps) + weight_decay * w, a step is
    w -= lr * trust * u, where trust = min(|w|, 10) / |u|, or 1 when either norm is 0. The moments are not corrected
    for their start at zero, and the trust ratio itself has no bound (ANCE and DRhard `lamb.py`; the paper's own code
    corrects the moments).
    """

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        """Update all tensors that have a gradient; waits for nothing on the device."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.update(weight, group)

    def update(self, weight, group):
        """One step of one tensor, in place."""
        moments = self.state[weight]
        if not moments:
            moments |= {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
        beta1, beta2 = group["betas"]
        mean = moments["exp_avg"].mul_(beta1).add_(weight.grad, alpha=1 - beta1)
        square = moments["exp_avg_sq"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
        update = mean / (square.sqrt() + group["eps"])
        update.add_(weight, alpha=group["weight_decay"])
        weight_norm, update_norm = weight.norm().clamp(max=LARGEST_WEIGHT_NORM), update.norm()
        trust = torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
        weight.sub_(update * (group["lr"] * trust))
