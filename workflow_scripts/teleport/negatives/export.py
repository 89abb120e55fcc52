"""Export a pool of negatives as JSON lines that Tevatron trains from."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import Ragged
from teleport.collection.reader import positives_of
from teleport.running.artefact import Artefact

BLOCK_QUERIES = 1000
CHUNK_PASSAGES = 4096


def export_tevatron(negatives, corpus, train, folder):
    """Write one JSON line per training query in Tevatron's form with inline passages; returns the number of lines.

    Each line has query_id, query, positive_passages and negative_passages, a passage being docid, title, text.
    Negatives keep the order and the duplicates of the pool; a query without negatives or positives, on which Tevatron
    cannot train, is left out. negatives, corpus, train: `running.artefact.Artefact`s; folder: a temporary one, of the
    file `lines`, beside which the corpus lies unpacked.
    """
    queries = pq.read_table(train.path("queries.train.parquet"), columns=["query_id", "text"]).to_pylist()
    found = negatives.manifest["inputs"].get("positives")  # the stage that the pool was made with, if it read one
    positives = positives_of(train, found and Artefact(negatives.folder.parents[1] / found), "train")
    pools = Ragged.open(negatives.path("offsets.npy"), negatives.path("passages.npy"))
    passages, num_lines = Corpus(corpus.path("corpus.parquet"), f"{folder}/corpus"), 0
    with open(f"{folder}/lines", "w", encoding="utf-8") as file:
        for first in range(0, len(queries), BLOCK_QUERIES):
            block = range(first, min(first + BLOCK_QUERIES, len(queries)))
            relevant, mined = ({q: lists[q].tolist() for q in block} for lists in (positives, pools))
            texts = passages.read({p for q in block for p in relevant[q] + mined[q]})
            for q in (q for q in block if relevant[q] and mined[q]):
                line = {"query_id": queries[q]["query_id"], "query": queries[q]["text"]}
                line["positive_passages"] = [texts[p] for p in relevant[q]]
                line["negative_passages"] = [texts[p] for p in mined[q]]
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                num_lines += 1
    return num_lines


class Corpus:
    """The passages of corpus.parquet in any order, from a memory map of them in Arrow's own form at `path`. With
    Parquet whole columns would have to be in memory, and Arrow's strings end at 2 GiB in one array."""

    def __init__(self, parquet, path):
        source, self.starts = pq.ParquetFile(parquet, pre_buffer=False), [0]  # else what was read stays in memory
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, source.schema_arrow) as writer:
            for chunk in source.iter_batches(CHUNK_PASSAGES):
                writer.write_batch(chunk)
                self.starts.append(self.starts[-1] + len(chunk))
        self.chunks = pa.ipc.open_file(pa.memory_map(path))

    def read(self, rows):
        """{row: {docid, title, text}} of the given rows (int)."""
        rows, passages = np.array(sorted(rows), np.int64), []
        for number, part in enumerate(np.split(rows, np.searchsorted(rows, self.starts[1:-1]))):
            if len(part):
                chunk = self.chunks.get_batch(number).take(pa.array(part - self.starts[number]))
                passages += chunk.rename_columns(["docid", "title", "text"]).to_pylist()
        return dict(zip(rows.tolist(), passages, strict=True))
