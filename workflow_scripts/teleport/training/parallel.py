"""Training with several processes, one device each: they share the queries of a step, but not its loss.

Every process encodes its queries with their passages, receives the vectors of all others, and computes the loss of the
whole batch. So the gradient of its own vectors is complete without further exchange, and the sum of the processes'
parameter gradients is the gradient of one big batch.
"""

import atexit
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from torch import distributed

from teleport.refusal import Refusal
from teleport.running.launch import PROCESSES, RANK, RENDEZVOUS

TIMEOUT = timedelta(minutes=30)  # others wait this long while the first process saves


@dataclass(frozen=True)
class Processes:
    """The processes that train together, as the one of `rank` sees them; rank 0 writes files."""

    rank: int = 0
    size: int = 1

    def gather(self, vectors, numbers=None):
        """The vectors of all processes [rows of all, dim], in the order of their ranks; only `vectors` get gradients.
        numbers: rows of each process (list of int); None if all have the same number"""
        if self.size == 1:
            return vectors
        numbers = numbers or [len(vectors)] * self.size
        # An exchange needs the same number from each.
        padded = torch.nn.functional.pad(vectors.detach(), (0, 0, 0, max(numbers) - len(vectors))).contiguous()
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        distributed.all_gather(gathered, padded)
        gathered = [rows[:number] for rows, number in zip(gathered, numbers, strict=True)]
        gathered[self.rank] = vectors  # with its graph
        return torch.cat(gathered)

    def sum_gradients(self, encoders):
        """Replace the gradients of a module by their sums over the processes, in one exchange."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in encoders.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))

    def gather_integers(self, array):
        """The integers of all processes (list of int64 arrays of one shape); waits for them, on the CPU only."""
        if self.size == 1:
            return [array]
        gathered = [torch.empty(array.shape, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(gathered, torch.from_numpy(np.ascontiguousarray(array)))
        return [tensor.numpy() for tensor in gathered]

    def totals(self, *integers):
        """The sums of some integers over the processes (list); waits for all of them, on the CPU only."""
        return np.sum(self.gather_integers(np.array(integers, np.int64)), axis=0).tolist()

    def require_divisible(self, batch_queries, accumulate):
        """Raise Refusal unless all processes get the same number of queries of a (micro-)batch."""
        if (queries := batch_queries // accumulate) % self.size:
            raise Refusal(
                f"training.batch_queries {batch_queries} with accumulate {accumulate} is {queries} queries at a time, "
                f"which {self.size} processes cannot share equally: change training.batch_queries to a multiple of "
                f"{self.size * accumulate}, or give the rule `train` more or fewer processes (GPUs)."
            )


ALONE = Processes()


@contextmanager
def joined():
    """Within the block the processes started together (by `launch`) can exchange tensors; yields this one's
    `Processes`. A process that ends by an exception (SystemExit is one) exits as soon as Python has printed it: NCCL's
    orderly end would wait for the others, which may wait for its vectors."""
    size = int(os.environ.get(PROCESSES, 1))
    if size == 1:
        yield ALONE
        return
    rank, rendezvous, backend = int(os.environ[RANK]), os.environ[RENDEZVOUS], "gloo"
    if torch.cuda.is_available():
        if rank >= (visible := torch.cuda.device_count()):
            raise Refusal(
                f"process {rank + 1} of this machine has no GPU: {visible} are visible. Start as many processes as "
                "there are GPUs (resource `gpu` or `processes` of the rule `train`)."
            )
        torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        processes = Processes(rank, size)
        processes.totals(0)  # the first process has opened the resume state when the others go on
        yield processes
    except BaseException as error:
        status = error.code if isinstance(error, SystemExit) else 1
        atexit.register(leave, status if isinstance(status, int) else 1)
        raise
    # The first one ends last: closing its connections would break the last exchange of one that still reads.
    words = [torch.empty(1) for _ in range(size)] if rank == 0 else None
    distributed.gather(torch.zeros(1), words, dst=0)
    distributed.destroy_process_group()


def leave(status):
    """End this process at once, even if threads of NCCL still run."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
