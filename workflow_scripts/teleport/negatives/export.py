"""Export a pool of negatives as JSON lines that Tevatron trains from."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from teleport.collection.reader import read_positives
from teleport.stage import Artefact

BLOCK_QUERIES = 1000


def export_tevatron(negatives, collection, output):
    """Write one JSON line per training query in Tevatron's form with inline passages; returns the number of lines.

    Each line has query_id, query, positive_passages and negative_passages, a passage being docid, title, text.
    Negatives keep the order and the duplicates of the pool; a query without negatives or without positives is
    left out, since Tevatron cannot train on it. `negatives` and `collection` are `teleport.stage.Artefact`s, `output`
    is a file to write.
    """
    queries = pq.read_table(collection.path("queries.train.parquet")).select(["query_id", "text"]).to_pylist()
    corpus = pq.read_table(collection.path("corpus.parquet")).select(["doc_id", "title", "text"])
    starts, positive_passages = positives_of_pool(negatives, collection)
    positives = [part.tolist() for part in np.split(positive_passages, starts[1:-1])]
    offsets = np.load(negatives.path("offsets.npy"))
    passages = np.load(negatives.path("passages.npy"), mmap_mode="r")
    part, num_lines = Path(f"{output}.part"), 0
    with open(part, "w", encoding="utf-8") as file:
        for first in range(0, len(queries), BLOCK_QUERIES):
            block = range(first, min(first + BLOCK_QUERIES, len(queries)))
            pools = {q: passages[offsets[q] : offsets[q + 1]].tolist() for q in block}
            texts = read_passages(corpus, {p for q in block for p in pools[q] + positives[q]})
            for q in (q for q in block if pools[q] and positives[q]):
                line = {"query_id": queries[q]["query_id"], "query": queries[q]["text"]}
                line["positive_passages"] = [texts[p] for p in positives[q]]
                line["negative_passages"] = [texts[p] for p in pools[q]]
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                num_lines += 1
    os.replace(part, output)
    return num_lines


def read_passages(corpus, rows):
    """{row: {docid, title, text}} of the given rows of the corpus table."""
    rows = sorted(rows)
    table = corpus.take(rows).rename_columns(["docid", "title", "text"])
    return dict(zip(rows, table.to_pylist(), strict=True))


def positives_of_pool(negatives, collection):
    """The positives that a pool was made with: of its stage `positives` where it read one, else the judged ones."""
    name = negatives.manifest["inputs"].get("relevant")
    if name is None:
        return read_positives(collection, "train")
    relevant = Artefact(negatives.folder.parents[1] / name)
    return tuple(np.load(relevant.path(f"{part}.npy")) for part in ("offsets", "passages"))
