"""Stage `index`: makes sure that vectors can be searched, and builds the index.

A flat index is the vectors themselves, which stay where `encode` wrote them. The other kinds are faiss's: `ivf`, `pq`
and `hnsw` lose neighbours. Where negatives are mined with the index, how many is measured here, where the parameters
stand: recall against exact search on a seeded sample of the training queries, written in this stage's manifest before
anything is mined. Where queries of several checkpoints search one index, the stage `retrieve` measures it.
"""

import time

import numpy as np

from teleport.running.files import require_free_space, write_json
from teleport.running.log import log
from teleport.search.exact import require_finite
from teleport.settings.search import IndexSettings as Settings  # noqa: F401

SAMPLE, COLLAPSED = 4096, 1e-4  # rows that the spread is taken from; below it: apart by a hundredth of their length


def run(job):
    """Check that all passage vectors are finite, build the index and write index.json (metric, kind, dim, rows).

    kinds but flat also write index.faiss. Facts: num_passages, dim, bytes (of the index; flat: of the vectors); of
    other kinds also build_seconds, and with a depth recall, recall_depth, recall_queries.
    """
    path = job.input("passages", "passages.npy")
    vectors = np.load(path, mmap_mode="r")
    require_finite(path, vectors, "passage", job.progress)
    if (apart := spread(vectors)) < COLLAPSED:
        log.warning(
            "%s: all vectors are nearly the same (spread %.1e), so rankings are mostly ties: the training of this "
            "checkpoint has collapsed. Train with a lower learning rate, or with precision fp32.",
            path,
            apart,
        )
    (rows, dim), kind = vectors.shape, job.settings.index.kind
    measured = {} if kind == "flat" else build_approximate(job, vectors)
    write_json(job.output("index.json"), {"metric": "inner product", "kind": kind, "dim": dim, "rows": rows})
    return {"num_passages": rows, "dim": dim, "bytes": vectors.nbytes} | measured


def spread(vectors):
    """Mean squared distance from the mean over mean squared length, of a sample: 0 where all vectors are the same."""
    sample = np.asarray(vectors[:: max(1, len(vectors) // SAMPLE)], np.float64)
    return float(((sample - sample.mean(axis=0)) ** 2).sum() / max((sample**2).sum(), np.finfo(float).tiny))


def build_approximate(job, vectors):
    """Write index.faiss; returns its facts. The log shows its recall, where that is measured."""
    import faiss

    from teleport.search.approximate import Approximate, build, check_parameters, file_bytes, sample_recall

    settings, depth = job.settings.index, job.settings.depth
    mines = depth is not None
    check_parameters(settings, *vectors.shape, "mining.index" if mines else "search_index or negatives.live.index")
    require_free_space(job.folder, file_bytes(settings, *vectors.shape))
    started, path = time.monotonic(), job.output("index.faiss")
    index = build(settings, vectors, job.threads, job.progress)
    seconds = round(time.monotonic() - started, 3)
    faiss.write_index(index, str(path))
    facts = {"bytes": path.stat().st_size, "build_seconds": seconds}
    if not mines:
        return facts
    queries, depth = np.load(job.input("queries", "queries.train.npy"), mmap_mode="r"), min(depth, len(vectors))
    searched = Approximate(index, settings, vectors, job.threads)
    recall = sample_recall(searched, vectors, queries, depth, job.threads)
    text = "%s finds %.2f %% of the %d exact neighbours of %d queries"
    log.info(text, settings.kind, 100 * recall["recall"], depth, recall["recall_queries"])
    return facts | recall
