"""Arrays that are filled block of rows by block of rows, and that a killed stage goes on filling where it was."""

import json
import os
import time
from collections import Counter

import numpy as np

from teleport.runtime.files import write_json


class RowBlocks:
    """Arrays of the same number of rows in a resume folder, as .npy files, with a small JSON count of done rows.

    Blocks are fixed by `rows` and `block_rows` alone, never by where a run was killed: whatever is computed from a
    block is computed from the same rows in every run.

        blocks = RowBlocks(job, {"passages.npy": (np.float32, (n, dim))}, block_rows=1024)
        for start, stop in blocks:
            blocks["passages.npy"][start:stop] = ...
            blocks.totals["texts"] += stop - start
        blocks.publish()

    `totals` (Counter) is saved with the rows: what it counts, it counts over all runs.

    job: teleport.runtime.job.Job, for its folders and `save_every` (seconds)
    arrays: {name of the output: (dtype, shape)}, all with the same first dimension
    made: what else must be the same for rows to be kept (plain JSON), for example the precision they are computed in
    """

    def __init__(self, job, arrays, block_rows, made=None):
        self.job, self.block_rows, self.names = job, block_rows, sorted(arrays)
        self.rows = next(iter(arrays.values()))[1][0]
        self.counter = job.resume / f"{self.names[0]}.json"
        plan = {"rows": self.rows, "block_rows": block_rows, "arrays": {n: str(a) for n, a in sorted(arrays.items())}}
        plan |= {"made": made}
        state = self.read_state()
        same = state.get("plan") == plan and all((job.resume / name).is_file() for name in arrays)
        self.plan, self.done = plan, state["done"] if same else 0
        self.totals = Counter(state["totals"] if same else {})
        mode = "r+" if same else "w+"
        self.arrays = {
            name: np.lib.format.open_memmap(job.resume / name, mode, dtype=dtype, shape=shape)
            for name, (dtype, shape) in arrays.items()
        }

    def read_state(self):
        """What the last run saved (dict); {} when there is nothing, or a torn file."""
        try:
            return json.loads(self.counter.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def __getitem__(self, name):
        """The array called `name`, a writable memory map."""
        return self.arrays[name]

    def __iter__(self):
        """Yield (start, stop) of every block that no earlier run has finished.

        A block counts as done when the next one is asked for; done rows are saved after at most `save_every` seconds
        and a block. Raises OSError when the disk has no room for a block.
        """
        saved = time.monotonic()
        for start in range(self.done, self.rows, self.block_rows):
            stop = min(start + self.block_rows, self.rows)
            self.reserve(start, stop)
            yield start, stop
            self.done = stop
            if time.monotonic() - saved >= self.job.save_every:
                self.save()
                saved = time.monotonic()
        self.save()

    def reserve(self, start, stop):
        """Take the disk's room for some rows: where a memory map finds none, a signal ends the process."""
        for name, array in self.arrays.items():
            row = array.nbytes // self.rows
            with open(self.job.resume / name, "r+b") as file:
                os.posix_fallocate(file.fileno(), array.offset + start * row, (stop - start) * row)

    def save(self):
        """Put the rows on disk, and only then the count that says so."""
        for array in self.arrays.values():
            array.flush()
        write_json(self.counter, {"plan": self.plan, "done": self.done, "totals": self.totals})

    def publish(self):
        """Make the finished files the outputs of the job.

        They stay in the resume folder too, as hard links: a kill between here and the manifest costs no recomputing.
        """
        for name in self.names:
            output = self.job.output(name)
            try:
                os.link(self.job.resume / name, output)
            except OSError:  # a file system without hard links
                os.replace(self.job.resume / name, output)
