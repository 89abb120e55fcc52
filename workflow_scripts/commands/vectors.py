"""Exports of passage vectors for services elsewhere."""

import os
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import CHUNK_OFFSETS
from teleport.refusal import Refusal

INDEX = b"IxFI"  # how a file of faiss's IndexFlatIP begins
BLOCK = 65536  # vectors in memory at a time


def export_vectors(link, stage, output, folder):
    """Write the passage vectors of an `encode` stage to the file `output`, by its ending: Parquet (id, vector), or an
    index of faiss with the ids in a file beside it. Returns a sentence."""
    if "passages.npy" not in stage.manifest["files"]:
        raise Refusal(f"{link} has vectors of queries only. Give the stage that encodes passages.")
    vectors = np.load(stage.path("passages.npy", full=True), mmap_mode="r")
    corpus = stage.input("tokens.passages").input("corpus")
    ids = pq.read_table(corpus.path("corpus.parquet"), columns=["doc_id"])["doc_id"].combine_chunks()
    if CHUNK_OFFSETS in stage.manifest["files"]:  # an id for each vector of a passage
        ids = ids.take(np.repeat(np.arange(len(ids)), np.diff(np.load(stage.path(CHUNK_OFFSETS)))))
    writers = {".parquet": write_parquet, ".faiss": write_faiss}
    if output.suffix not in writers:
        raise Refusal(f"{output}: vectors become {' or '.join(writers)}. Give a name with that ending.")
    return writers[output.suffix](ids, vectors, output, folder)


def write_parquet(ids, vectors, output, folder):
    """Columns id and vector, in the order of the corpus."""
    width = vectors.shape[1]
    value = pa.float16() if vectors.dtype == np.float16 else pa.float32()
    schema = pa.schema({"id": pa.string(), "vector": pa.list_(value, width)})
    with pq.ParquetWriter(folder / "vectors", schema) as writer:
        for first, last in pairwise([*range(0, len(ids), BLOCK), len(ids)]):
            flat = pa.array(np.ascontiguousarray(vectors[first:last]).ravel(), value)
            block = [ids[first:last], pa.FixedSizeListArray.from_arrays(flat, width)]
            writer.write_table(pa.table(block, schema=schema))
    os.replace(folder / "vectors", output)
    return f"{len(ids):,} vectors of {width} numbers in {output}"


def write_faiss(ids, vectors, output, folder):
    """An IndexFlatIP, in which number i is the id in line i + 1 of the file of ids."""
    import faiss

    index, names = faiss.IndexFlatIP(vectors.shape[1]), output.with_name(f"{output.name}.ids.txt")
    if os.path.lexists(names):
        raise Refusal(f"{names} exists already. Remove it, or give another path.")
    for first in range(0, len(ids), BLOCK):
        index.add(np.asarray(vectors[first : first + BLOCK], np.float32))
    faiss.write_index(index, str(folder / "index"))
    (folder / "ids").write_text("".join(f"{name}\n" for name in ids.to_pylist()), encoding="utf-8")
    os.replace(folder / "index", output)  # first: a killed export may be run again, and does not replace the ids
    os.replace(folder / "ids", names)
    return f"{len(ids):,} vectors in {output}, and their ids in {names}, an id for each number"
