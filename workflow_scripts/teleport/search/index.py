"""Stage `index`: makes sure that vectors can be searched, and describes the index.

A flat index is the vectors themselves, which stay where `encode` wrote them; other kinds would write files here.
"""

import numpy as np

from teleport.stage import write_json

BLOCK = 65536  # vectors read at a time


def run(job):
    """Check that all passage vectors are finite and write index.json (metric, kind, dim, rows).

    Facts: num_passages, dim, bytes (of the vectors). Raises ValueError naming the first passage row whose vector is
    not finite: its neighbours would be arbitrary.
    """
    if job.settings.kind != "flat":
        raise ValueError(f"index.kind is {job.settings.kind!r}; the only kind so far is 'flat'.")
    path = job.input("encode", "passages.npy")
    vectors = np.load(path, mmap_mode="r")
    for start in range(0, len(vectors), BLOCK):
        finite = np.isfinite(vectors[start : start + BLOCK]).all(axis=1)
        if not finite.all():
            raise ValueError(
                f"{path}: the vector of passage row {start + int(np.argmin(finite))} is not finite. The checkpoint "
                "that made it is broken: train with a lower learning rate, or with precision fp32."
            )
        job.progress(min(start + BLOCK, len(vectors)), len(vectors), "vectors")
    rows, dim = vectors.shape
    write_json(job.output("index.json"), {"metric": "inner product", "kind": "flat", "dim": dim, "rows": rows})
    return {"num_passages": rows, "dim": dim, "bytes": vectors.nbytes}
