"""Several processes that share the tasks of one stage: for work of Python's own, at which threads would take turns."""

import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context

from teleport.runtime.launch import end_with_parent


@contextmanager
def processes_apart(number, shared):
    """Yields a function that gives `function(shared, task)` of all tasks, in order; so many processes do them.

    With 1 this process does them. Others are started anew and not forked, because numpy and pyarrow have threads here;
    each gets `shared` once, and none outlives this one. Raises ValueError when one dies.
    """
    if number == 1:
        yield lambda function, tasks: map(partial(function, shared), tasks)
        return
    with ProcessPoolExecutor(number, get_context("spawn"), begin, (shared,)) as pool:
        try:
            yield lambda function, tasks: pool.map(partial(of_shared, function), tasks)
        except BrokenProcessPool:
            raise ValueError(
                f"one of {number} processes died. Where no error stands above, it was killed: unless by you or the "
                "scheduler, by the kernel for want of memory (dmesg names it). Run fewer jobs at once (--cores), or "
                "give this one fewer threads (--set-threads)."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def begin(given):
    """The beginning of a process of the pool: it keeps what all share. Ctrl-C is its parent's affair."""
    global shared
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shared = given


def of_shared(function, task):
    """`function` of a task in a process of the pool."""
    return function(shared, task)
