"""The sum of the gradients over processes that train together, exchanged while the backward pass makes the rest.

As DistributedDataParallel does (Li et al., VLDB 2020, §3.2): parameters are put together to chunks, the last layer
first, nearly as a backward pass completes their gradients, and a complete chunk is on its way at once.
"""

from functools import partial

import torch
from torch import distributed

# Numbers of a chunk: 25 MB in float32, as DistributedDataParallel's. Of BERT-base these are 4 layers; the word
# embeddings, whose gradient is the last, are a chunk alone.
CHUNK = 6_553_600


class GradientSum:
    """Replaces each parameter's gradient by its sum over `processes`, once a step.

    Call `begin` before the last backward pass of a step, when every gradient that arrives is complete, and `finish`
    after it. All processes exchange the same chunks in the same order, whichever of them are complete by `finish`.
    """

    def __init__(self, parameters, processes):
        self.chunks = chunks_of(list(parameters)) if processes.size > 1 else []
        self.missing, self.started, self.exchanges = None, 0, []
        for number, chunk in enumerate(self.chunks):
            for parameter in chunk:
                parameter.register_post_accumulate_grad_hook(partial(self.arrived, number))

    def begin(self):
        """From now on a gradient that arrives is complete."""
        self.missing = [len(chunk) for chunk in self.chunks]

    def arrived(self, number, parameter):
        """Start the exchange of every chunk that is complete and whose turn it is; `parameter` is of chunk `number`."""
        if self.missing is None:
            return
        self.missing[number] -= 1
        while self.started < len(self.chunks) and not self.missing[self.started]:
            self.start()

    def start(self):
        """Start the exchange of the next chunk, of those of its parameters that have a gradient."""
        gradients = [p.grad for p in self.chunks[self.started] if p.grad is not None]
        self.started += 1
        if gradients:
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            self.exchanges.append((gradients, flat, distributed.all_reduce(flat, async_op=True)))

    def finish(self):
        """Exchange what is left, and put the sums in the places of the gradients."""
        while self.started < len(self.chunks):
            self.start()
        for gradients, flat, exchange in self.exchanges:
            exchange.wait()
            for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(total.view_as(gradient))
        self.missing, self.started, self.exchanges = None, 0, []


def chunks_of(parameters):
    """The parameters from last to first as lists, each of at most `CHUNK` numbers or of one parameter."""
    chunks, numbers = [], CHUNK
    for parameter in reversed(parameters):
        numbers += parameter.numel()
        if numbers > CHUNK:
            chunks.append([])
            numbers = parameter.numel()
        chunks[-1].append(parameter)
    return chunks
