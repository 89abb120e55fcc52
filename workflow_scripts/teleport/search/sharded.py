"""Search over contiguous shards of the passages, one per device, and the merge of what they find."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from teleport.search.exact import best
from teleport.search.flat import search


class Sharded:
    """Exact search in which each of `count` contiguous parts of the passages has an engine of its own.

    open_shard(number, vectors): the engine of one part (FaissFlat, ReducedFlat or TorchFlat)
    Scores are exact and ties go by passage number, so the result is the same for any number of shards.
    """

    def __init__(self, vectors, count, open_shard):
        self.total = len(vectors)
        bounds = np.linspace(0, self.total, min(count, self.total) + 1).astype(np.int64)
        self.firsts = bounds[:-1].tolist()
        parts = zip(bounds[:-1], bounds[1:], strict=True)
        self.shards = [open_shard(number, vectors[first:last]) for number, (first, last) in enumerate(parts)]

    @property
    def engine(self):
        """The name of the engine, and how many there are."""
        return f"{type(self.shards[0]).__name__} x {len(self.shards)}"

    @property
    def overlaps(self):
        """Whether the shards are searched on devices, step by step, while the host scores candidates."""
        return self.shards[0].overlaps

    def search(self, queries_QD, depth):
        """As `flat.search`, over all passages: (ids int32, scores float32), both [Q, depth]."""
        if depth > self.total:
            raise ValueError(
                f"depth {depth} is more than the collection's {self.total} passages: lower mining.depth or "
                "evaluation.depth."
            )

        def one(first, shard):
            ids_QK, scores_QK = search(shard, queries_QD, min(depth, len(shard.vectors)))
            return first, len(shard.vectors), ids_QK.astype(np.int64) + first, scores_QK

        with ThreadPoolExecutor(len(self.shards)) as pool:
            found = list(pool.map(one, self.firsts, self.shards))
        check_covered([(first, rows) for first, rows, _, _ in found], self.total)
        return best(np.hstack([scores for *_, scores in found]), np.hstack([ids for *_, ids, _ in found]), depth)


def check_covered(searched, total):
    """Raise RuntimeError unless the parts (first row, number of rows) are all rows of the index, each once."""
    end = 0
    for first, rows in sorted(searched):
        if first != end:
            raise RuntimeError(
                f"passage rows {min(first, end)} to {max(first, end) - 1} were not searched exactly once"
            )
        end = first + rows
    if end != total:
        raise RuntimeError(f"{end} passage rows were searched, but the index has {total}")
