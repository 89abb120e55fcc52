"""The walk of one training step through the library: its files in the order in which the step first enters them.

python bench/step_walk.py

It traces the smallest step, 4 queries with a positive and 3 negatives each: one process, without gradient caching, mask
or MaxP. It prints the files with the functions entered in each, the calls, and how often the walk goes from one file to
another. `docs/extending.md` has the same list for a reader.
"""

import argparse
import os
import sys
import threading
from collections import defaultdict
from itertools import pairwise
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch

import texts
import train
from rounds import REPOSITORY

LIBRARY = str(REPOSITORY / "workflow_scripts" / "teleport") + os.sep
SIZES = SimpleNamespace(queries=4, negatives=3, passages=train.QUERIES)


def traced(function):
    """[(file below teleport/, function)] of the library's functions that a call enters, in their order."""
    calls = []

    def record(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(LIBRARY) and not code.co_name.startswith("<"):
            calls.append((code.co_filename.removeprefix(LIBRARY), code.co_name))

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def walk():
    """The calls of a second step on this machine's processor (see `traced`); the first one sets up the optimiser."""
    with TemporaryDirectory() as folder:
        checkpoint = texts.checkpoint(texts.parser("", passages=SIZES.passages).parse_args([]), folder)
        world = texts.Texts(checkpoint, folder, SIZES.passages, train.QUERIES)
        trainer = train.make_trainer(world, train.training_set(SIZES), torch.device("cpu"), "fp32")
        trainer.step(0)
        return traced(lambda: trainer.step(1))


def main():
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    calls, functions = walk(), defaultdict(dict)
    for file, function in calls:
        functions[file][function] = None
    for number, (file, names) in enumerate(functions.items(), start=1):
        print(f"{number:2} {file}: {', '.join(names)}")
    changes = sum(before != after for (before, _), (after, _) in pairwise(calls))
    print(f"{len(functions)} files, {len(set(calls))} functions, {len(calls)} calls, {changes} changes of file")


if __name__ == "__main__":
    main()
