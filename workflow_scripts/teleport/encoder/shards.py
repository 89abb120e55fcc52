"""The passages of an `encode` stage, or their chunks, in shards, each encoded by a job of its own, and their joining.

A shard is a contiguous run of whole blocks, so that the joined vectors are those of one job, bit by bit on a CPU. Each
is a file of its own and no range of a common one: two machines that write into one page of a file on NFS can lose rows.
"""

from collections import Counter

import numpy as np

from teleport.encoder.precision import computed_in
from teleport.refusal import Refusal, Remedy
from teleport.running.artefact import MANIFEST, check_file, read_manifest
from teleport.running.log import log

FILE = "passages.npy"
MADE_BY = ("dtype", "device", "compiled")  # facts in which all jobs of a stage must agree


def shard_rows(num_texts, block_texts, shard):
    """The first row of a shard and the row after its last, both multiples of `block_texts` except at the end. shard:
    "2-of-4", from 1 on; where there are fewer blocks than shards, some are empty"""
    this, shards = map(int, shard.split("-of-"))
    num_blocks = -(-num_texts // block_texts)
    first, last = ((n * num_blocks // shards) * block_texts for n in (this - 1, this))
    return first, min(last, num_texts)


class Shard:
    """A finished shard: its folder, its manifest with facts, its rows (the first, the one after the last), and the file
    of its vectors, which is there until they are joined."""

    def __init__(self, folder, stamp):
        self.folder = folder
        self.remedy = Remedy(f"Delete the folder {folder} and run the workflow again: the shard is made anew.")
        self.manifest = read_manifest(folder, Remedy(f"this shard was not finished. {self.remedy}"), self.remedy)
        if self.manifest["stamp"] != stamp:
            made = f"{folder / MANIFEST} was made by other code or from other inputs than this stage."
            raise Refusal(f"{made} {self.remedy}")
        self.facts = self.manifest["facts"]
        self.rows, self.vectors = self.facts["rows"], folder / FILE

    def summary(self):
        """Which rows were encoded where, and in how many seconds of computing (dict for the joined manifest)."""
        made = {name: self.manifest["provenance"][name] for name in ("host", "process")}
        return {"rows": self.rows, "encode_seconds": self.facts["encode_seconds"]} | made


def read_shards(job, facts, num_texts):
    """The shards that a job joins, in order (list of Shard): of its code and inputs, computed as by this process
    (`facts`)."""
    folder, row = job.shards_folder, 0
    remedy = f"Delete the folder {folder} and run the workflow again: its shards are made anew."
    shards = [Shard(folder / f"{n}-of-{job.shards}", job.stamp()) for n in range(1, job.shards + 1)]
    for shard in shards:
        made, here = (tuple(f[name] for name in MADE_BY) for f in (shard.facts, facts))
        if made != here:
            raise Refusal(
                f"{shard.folder} was computed in {computed_in(*made)}, this job computes in {computed_in(*here)}. Run "
                "this job on a machine of that kind, with the same resource `compile`, or delete the folder "
                f"{folder} to have all shards made on this kind."
            )
        if shard.rows[0] != row:
            raise Refusal(f"{shard.folder} begins at passage {shard.rows[0]} instead of {row}. {remedy}")
        row = shard.rows[1]
    if row != num_texts:
        raise Refusal(f"the shards below {folder} hold {row} passages of {num_texts}. {remedy}")
    return shards


def join(blocks, shards):
    """Fill the `RowBlocks` of all passages with shard after shard, and delete each one's vectors once they are there; a
    killed join goes on at its shard."""
    for shard in shards:
        first, last = shard.rows
        if last > blocks.done:
            check_file(shard.vectors, shard.manifest["files"][FILE], full=True, remedy=shard.remedy)
            blocks.reserve(first, last)
            blocks[FILE][first:last] = np.load(shard.vectors, mmap_mode="r")
            blocks.done = last
            blocks.save()
            log.info("shard %s joined", shard.folder.name)
        shard.vectors.unlink(missing_ok=True)
    if shards:
        blocks.totals = sum((Counter(shard.facts["totals"]) for shard in shards), Counter())
