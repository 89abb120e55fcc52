"""Several threads that call torch, instead of one call that is split over several."""

from contextlib import contextmanager

import torch


@contextmanager
def one_thread_each():
    """torch computes with the thread that calls it: the calls are made by as many threads as there may be."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
