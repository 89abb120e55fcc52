"""Arrays that are filled in blocks of rows; a killed stage continues after its last saved block."""

import os
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from teleport.running.files import read_saved, write_json


class RowBlocks:
    """Arrays with the same number of rows in a resume folder, as .npy files, with a JSON file that says which rows are
    done.

    Blocks depend on `rows` and `block_rows` alone, never on where a run was killed, so all runs compute the same
    blocks.

        blocks = RowBlocks(job, {"passages.npy": (np.float32, (n, dim))}, block_rows=1024)
        for start, stop in blocks:
            blocks["passages.npy"][start:stop] = ...
            blocks.totals["texts"] += stop - start
        blocks.publish()

    arrays: {name of the output: (dtype, shape)}, each with the same number of rows; made: other conditions under which
    rows are kept (plain JSON), such as the precision they are computed in; totals: a Counter that is saved with the
    rows; earlier: seconds that the rows took in earlier processes
    """

    def __init__(self, job, arrays, block_rows, made=None):
        self.job, self.block_rows, self.names = job, block_rows, sorted(arrays)
        self.rows = next(iter(arrays.values()))[1][0]
        self.counter = job.resume / f"{self.names[0]}.json"
        described = {name: str(array) for name, array in arrays.items()}
        self.plan = {"rows": self.rows, "block_rows": block_rows, "arrays": described, "made": made}
        state = read_saved(self.counter)
        same = state.get("plan") == self.plan and all((job.resume / name).is_file() for name in arrays)
        self.done, self.totals = (state["done"], Counter(state["totals"])) if same else (0, Counter())
        self.earlier, self.began = state.get("seconds", 0.0) if same else 0.0, time.monotonic()
        if not same:  # the arrays begin as zeros: a later run must not take them for the rows that an old count names
            self.counter.unlink(missing_ok=True)
        self.thread, self.writing = ThreadPoolExecutor(1), None
        mode = "r+" if same else "w+"
        self.arrays = {
            name: np.lib.format.open_memmap(job.resume / name, mode, dtype=dtype, shape=shape)
            for name, (dtype, shape) in arrays.items()
        }

    def __getitem__(self, name):
        return self.arrays[name]

    def __iter__(self):
        """Yield (start, stop) of every block that no earlier run has finished. A block is done when the next is
        requested; the rows are saved every `job.save_every` seconds."""
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
        """Allocate disk space for rows `start` to `stop`: a memory map without space would end the process by a
        signal."""
        for name, array in self.arrays.items():
            row = array.nbytes // self.rows
            with open(self.job.resume / name, "r+b") as file:
                os.posix_fallocate(file.fileno(), array.offset + start * row, (stop - start) * row)

    def beside(self, write):
        """Have a thread run `write`, which writes the rows of the last block, while the next block is computed."""
        self.wait()
        self.writing = self.thread.submit(write)

    def wait(self):
        """Wait until all rows are written; raises the thread's exception."""
        if self.writing:
            self.writing.result()

    def save(self):
        """Write the rows to disk, and only then the file with the number of those that are done."""
        self.wait()
        for array in self.arrays.values():
            array.flush()
        state = {"plan": self.plan, "done": self.done, "totals": self.totals}
        write_json(self.counter, state | {"seconds": self.earlier + time.monotonic() - self.began})

    def publish(self):
        """Make the finished files outputs of the job. The links in the resume folder survive a kill before the
        manifest."""
        for name in self.names:
            output = self.job.output(name)
            try:
                os.link(self.job.resume / name, output)
            except OSError:  # no hard links, or `stages` leads to another disk, onto which nothing can be renamed
                shutil.move(self.job.resume / name, output)
