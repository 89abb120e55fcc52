"""Search over contiguous shards of the passages, one per device, and the merge of what they find."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from teleport.search.exact import best
from teleport.search.flat import require_depth, search


class Sharded:
    """Exact search in which each of `count` contiguous parts of the passages has an engine of its own.

    open_shard(number, vectors): the engine of one part (FaissFlat, ReducedFlat or TorchFlat)
    engine: its name, and how many there are; overlaps: whether the host scores candidates while devices search on
    Scores are exact and ties go by passage number, so the result is the same for any number of shards.
    """

    def __init__(self, vectors, count, open_shard):
        self.total = len(vectors)
        bounds = np.linspace(0, self.total, min(count, self.total) + 1).astype(np.int64)
        self.firsts = bounds[:-1].tolist()
        parts = zip(bounds[:-1], bounds[1:], strict=True)
        self.shards = [open_shard(number, vectors[first:last]) for number, (first, last) in enumerate(parts)]
        self.engine = f"{type(self.shards[0]).__name__} x {len(self.shards)}"
        self.overlaps = self.shards[0].overlaps

    def search(self, queries_QD, depth):
        """As `flat.search`, over all passages: (ids int32, scores float32), both [Q, depth]."""
        require_depth(depth, self.total)

        def search_shard(first, shard):
            ids_QK, scores_QK = search(shard, queries_QD, min(depth, len(shard.vectors)))
            return scores_QK, ids_QK.astype(np.int64) + first

        with ThreadPoolExecutor(len(self.shards)) as pool:
            scores, ids = zip(*pool.map(search_shard, self.firsts, self.shards), strict=True)
        searched = [(first, len(shard.vectors)) for first, shard in zip(self.firsts, self.shards, strict=True)]
        check_covered(searched, self.total)
        return best(np.hstack(scores), np.hstack(ids), depth)


def check_covered(searched, total):
    """Raise RuntimeError unless the parts (first row, number of rows) are all rows of the index, each once."""
    end = 0
    for first, rows in sorted(searched):
        if first != end:
            start, stop = sorted((first, end))
            raise RuntimeError(f"passage rows {start} to {stop - 1} were not searched exactly once")
        end = first + rows
    if end != total:
        raise RuntimeError(f"{end} passage rows were searched, but the index has {total}")
