"""Who reads all passages has a few row groups of corpus.parquet in memory, however many there are."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commands.new import mean_tokens
from commands.pairs import parquet
from teleport.encoder import tokens
from teleport.negatives import file
from teleport.search import lexical_index

GROUPS, ROWS, CHARACTERS = 40, 100, 10_000  # 1 MB of text that does not compress, in each group


class Job:
    """Of a job what `passages_by` asks for."""

    def __init__(self, path):
        self.path = path

    def input(self, role, name):
        return self.path


READERS = {  # {kind: (the reader, its module and the name there of how many texts it reads at a time, if it has one)}
    "tokens": (lambda path: tokens.read_texts(path), tokens, "CHUNK_TEXTS"),
    "lexical_index": (lambda path: lexical_index.read_batches(path, "none"), lexical_index, "BATCH_TEXTS"),
    "negatives_file": (lambda path: [file.passages_by(Job(path), "text")], file, "CHUNK_TEXTS"),
    "pairs": (lambda path: parquet.rows(path, None), parquet, "BATCH"),
    "new": (lambda path: [mean_tokens(path, ["title", "text"], 4.5)],),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path, draw = tmp_path_factory.mktemp("corpus") / "corpus.parquet", np.random.default_rng(0)
    schema = pa.schema([("title", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for _ in range(GROUPS):
            letters = draw.integers(33, 127, (ROWS, CHARACTERS), np.uint8)
            writer.write_table(pa.table([[""] * ROWS, [bytes(text).decode() for text in letters]], schema=schema))
    return path


@pytest.mark.parametrize("kind", READERS)
def test_memory_does_not_grow_with_the_corpus(corpus, kind, monkeypatch):
    held, before = [], pa.total_allocated_bytes()

    class Watched(pq.ParquetFile):
        def iter_batches(self, size=ROWS, **options):
            for batch in super().iter_batches(size, **options):
                held.append(pa.total_allocated_bytes() - before)
                yield batch

    read, *size = READERS[kind]
    monkeypatch.setattr(pq, "ParquetFile", Watched)
    if size:
        monkeypatch.setattr(*size, ROWS)  # a group at a time
    for _ in read(corpus):
        pass
    assert len(held) == GROUPS and 0 < max(held) < 10 * ROWS * CHARACTERS
