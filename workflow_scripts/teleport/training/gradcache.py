"""Gradient caching (GradCache, Gao et al. 2021, §3.2): the gradients of one big batch in the memory of one bucket."""

import torch

from teleport.encoder.batches import in_order
from teleport.encoder.precision import to_device


class CachedSide:
    """Vectors of one side of a step without their graph, which `backward` makes anew, one bucket at a time.

    `vectors` is float32 [rows, dim], `tokens` the number of tokens encoded. Both passes over a bucket draw
    the same dropout, and the draws are those of a step without caching, because torch's generator goes back to where
    it was before the bucket.
    """

    def __init__(self, side, rows, token_budget, device):
        self.side, self.rows, self.device = side, rows, device
        self.buckets = side.buckets(rows, token_budget)
        self.generator_states, vectors, tokens = [], [], []
        with torch.no_grad():
            for bucket in self.buckets:
                self.generator_states.append(generator_state(device))
                encoded = side.encode(rows[bucket])
                vectors.append(encoded[0])
                tokens.append(encoded[1])
        self.vectors, self.tokens = in_order(vectors, self.buckets), sum(tokens)

    def backward(self, gradient):
        """Add to the parameters' gradients what `gradient`, that of the loss by `vectors`, gives them."""
        for bucket, state in zip(self.buckets, self.generator_states, strict=True):
            set_generator_state(self.device, state)
            vectors, _ = self.side.encode(self.rows[bucket])
            vectors.backward(gradient[to_device(torch.from_numpy(bucket), self.device)])


def generator_state(device):
    """The state of the generator that dropout draws from on `device` (a uint8 tensor on the CPU)."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_generator_state(device, state):
    """Put the generator of `device` back into a state."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
