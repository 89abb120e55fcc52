"""The rows of a stage in shards, each made by its own job, and their joining (`set-scatter`).

A shard is a contiguous run of whole blocks, so that the joined rows equal those of one job, bit by bit on a CPU. Each
is its own file instead of a range of a common one: two machines that write into one page of a file on NFS can lose
rows.
"""

from collections import Counter
from itertools import chain

import numpy as np

from teleport.refusal import Refusal
from teleport.running.artefact import MANIFEST, check_file, read_manifest
from teleport.running.log import log

REMEDY = "Delete the folder {} and run the workflow again: its rows are then computed again."


def shard_rows(num_rows, block_rows, shard):
    """The first row of a shard and the row after its last, both multiples of `block_rows` except at the end. shard:
    "2-of-4", from 1 on. If there are fewer blocks than shards, some are empty"""
    this, shards = map(int, shard.split("-of-"))
    num_blocks = -(-num_rows // block_rows)
    first, last = ((n * num_blocks // shards) * block_rows for n in (this - 1, this))
    return first, min(last, num_rows)


class Shard:
    """A finished shard: its folder, its manifest with facts, its rows (the first, the one after the last), and its
    files ({name: path}), which exist until they are joined."""

    def __init__(self, folder, stamp):
        self.folder = folder
        self.remedy = REMEDY.format(folder)
        self.manifest = read_manifest(folder, f"this shard was not finished. {self.remedy}", self.remedy)
        if self.manifest["stamp"] != stamp:
            made = f"{folder / MANIFEST} was made by other code or from other inputs than this stage."
            raise Refusal(f"{made} {self.remedy}")
        self.facts = self.manifest["facts"]
        if "rows" not in self.facts:  # see `run.take`
            raise Refusal(f"{folder / MANIFEST} has no rows: the stage was finished when its job ran. {self.remedy}")
        self.rows, self.files = self.facts["rows"], {name: folder / name for name in self.manifest["files"]}

    def summary(self, seconds):
        """Return which rows were made where and in how many seconds; `seconds` names that fact (dict for the joined
        manifest)."""
        made = {name: self.manifest["provenance"][name] for name in ("host", "process")}
        return {"rows": self.rows, seconds: self.facts[seconds]} | made


def read_shards(job, num_rows, computed_in=None, facts=None):
    """The shards that a job joins, in order (list of Shard); all are from its code and inputs. Their warnings become
    the job's own, each once: their manifests are deleted.

    computed_in: function of facts; it must give the same text for all shards and for `facts` of this process
    """
    folder, row, remedy = job.shards_folder, 0, REMEDY.format(job.shards_folder)
    shards = [Shard(folder / f"{n}-of-{job.shards}", job.stamp()) for n in range(1, job.shards + 1)]
    for shard in shards:
        if computed_in and (made := computed_in(shard.facts)) != (here := computed_in(facts)):
            raise Refusal(
                f"{shard.folder} was computed in {made}, but this job computes in {here}. Run this job on a machine of "
                f"that kind, with the same resource `compile`, or delete the folder {folder} to compute all shards "
                "on this kind."
            )
        if shard.rows[0] != row:
            raise Refusal(f"{shard.folder} begins at row {shard.rows[0]} instead of {row}. {remedy}")
        row = shard.rows[1]
    if row != num_rows:
        raise Refusal(f"the shards in {folder} have {row} of {num_rows} rows. {remedy}")
    for text in dict.fromkeys(chain(*(shard.manifest["provenance"]["warnings"] for shard in shards))):
        log.warning("%s", text)
    return shards


def join(blocks, shards):
    """Fill the `RowBlocks` of all rows shard by shard, and delete each one's files once its rows are saved; a killed
    join continues at its shard."""
    for shard in shards:
        first, last = shard.rows
        if last > blocks.done:
            for name, path in shard.files.items():
                check_file(path, shard.manifest["files"][name], full=True, remedy=shard.remedy)
            blocks.reserve(first, last)
            for name, path in shard.files.items():
                blocks[name][first:last] = np.load(path, mmap_mode="r")
            blocks.done = last
            blocks.save()
            log.info("shard %s joined", shard.folder.name)
        for path in shard.files.values():
            path.unlink(missing_ok=True)
    if shards:
        blocks.totals = sum((Counter(shard.facts["totals"]) for shard in shards), Counter())
