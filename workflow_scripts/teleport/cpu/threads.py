"""Several threads that call torch, instead of one call that is split over several."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def threads_apart(number, each=1):
    """Yields a pool of threads; in each of them, and here within the block, torch computes with `each` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(each)
    try:
        with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(each,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)
