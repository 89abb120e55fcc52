"""One of several processes that exchange what a training exchanges, for test_training_on_cuda.

python exchange_process.py BACKEND DEVICE

BACKEND: as torch.distributed takes it; DEVICE: cpu, or cuda: the card of the process's rank, or the only one there is.
It ends with 0 where the totals of all ranks came back.
"""

import os
import sys

import numpy as np
import torch
from torch import distributed

from teleport.running.launch import PROCESSES, RANK, RENDEZVOUS
from teleport.training.parallel import TIMEOUT, Processes


def exchange(rank, size, device):
    """What `Processes` exchanges, of numbers that tell the ranks apart."""
    processes, everyone = Processes(rank, size), sum(range(1, size + 1))
    own = torch.full((2, 3), rank + 1.0, device=device, requires_grad=True)
    gathered = processes.gather(own)
    assert gathered[:, 0].tolist() == [float(number) for number in range(1, size + 1) for _ in range(2)]
    gathered.sum().backward()
    assert own.grad.tolist() == torch.ones(2, 3).tolist()
    words = [torch.empty(2, device=device) for _ in range(size)]
    distributed.all_gather(words, torch.full((2,), rank + 1.0, device=device))
    assert [word[0].item() for word in words] == list(range(1, size + 1))
    module = torch.nn.Linear(3, 1).to(device)
    module(torch.full((1, 3), rank + 1.0, device=device)).sum().backward()
    processes.sum_gradients(module)
    assert module.weight.grad.tolist() == [[everyone] * 3] and module.bias.grad.tolist() == [size]
    assert processes.totals(rank + 1, 10) == [everyone, 10 * size]
    assert [int(each[0]) for each in processes.gather_integers(np.array([rank]))] == list(range(size))


def main(backend, device):
    rank, size = int(os.environ[RANK]), int(os.environ[PROCESSES])
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    rendezvous = {"init_method": os.environ[RENDEZVOUS], "rank": rank, "world_size": size, "timeout": TIMEOUT}
    distributed.init_process_group(backend, **rendezvous)
    exchange(rank, size, torch.device(device))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
