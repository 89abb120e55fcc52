"""Several threads that call torch, instead of one call that is split over several."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_each(threads):
    """Yields a pool of `threads` threads, in each of which torch computes alone; so it does here within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)
