"""Stage `index`: makes sure that vectors can be searched, and builds the index.

A flat index is the vectors themselves, which stay where `encode` wrote them. The other kinds are faiss's: `ivf`, `pq`
and `hnsw` lose neighbours, and how many is measured here, where the parameters stand: recall against exact search on
a seeded sample of the training queries, written in this stage's manifest before anything is mined with the index.
"""

import numpy as np

from teleport.runtime.files import require_free_space, write_json
from teleport.runtime.log import log
from teleport.search.flat import FaissFlat, require_finite, search
from teleport.settings.search import IndexSettings as Settings  # noqa: F401

BLOCK = 65536  # vectors read at a time
SAMPLE_SEED, SAMPLE_QUERIES = 77, 200  # that recall is measured on
OVERHEAD = 1.6  # bytes of an index file per byte of the vectors, at most (hnsw with M 64)


def run(job):
    """Check that all passage vectors are finite, build the index and write index.json (metric, kind, dim, rows).

    kinds but flat also write index.faiss. Facts: num_passages, dim, bytes (of the vectors); of other kinds also
    recall (at depth), recall_depth, recall_queries. Raises ValueError naming the first passage row whose vector is
    not finite (its neighbours would be arbitrary), or parameters that do not fit the collection.
    """
    path = job.input("passages", "passages.npy")
    vectors = np.load(path, mmap_mode="r")
    for start in range(0, len(vectors), BLOCK):
        require_finite(path, vectors[start : start + BLOCK], "passage", start)
        job.progress(min(start + BLOCK, len(vectors)), len(vectors), "vectors")
    (rows, dim), kind = vectors.shape, job.settings.index.kind
    measured = {} if kind == "flat" else build_approximate(job, vectors)
    write_json(job.output("index.json"), {"metric": "inner product", "kind": kind, "dim": dim, "rows": rows})
    return {"num_passages": rows, "dim": dim, "bytes": vectors.nbytes} | measured


def build_approximate(job, vectors):
    """Write index.faiss; returns the facts of its recall, which the log shows too."""
    import faiss

    from teleport.search.approximate import Approximate, build, check_parameters, recall

    settings, depth = job.settings.index, job.settings.depth
    check_parameters(settings, *vectors.shape)
    require_free_space(job.folder, OVERHEAD * vectors.nbytes)
    index = build(settings, vectors, job.threads, job.progress)
    faiss.write_index(index, str(job.output("index.faiss")))
    queries = np.load(job.input("queries", "queries.train.npy"), mmap_mode="r")
    count = min(len(queries), SAMPLE_QUERIES)
    sample = queries[np.sort(np.random.default_rng(SAMPLE_SEED).choice(len(queries), count, replace=False))]
    exact, _ = search(FaissFlat(vectors, job.threads), sample, depth)
    found, _ = Approximate(index, settings, vectors, job.threads).search(sample, depth)
    share = round(recall(found, exact), 4)
    log.info("%s finds %.2f %% of the %d exact neighbours of %d queries", settings.kind, 100 * share, depth, count)
    return {"recall": share, "recall_depth": depth, "recall_queries": count}
