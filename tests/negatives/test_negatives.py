"""The draw, and the export."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from commands.export import export
from teleport.negatives.draw import Candidates, draw_slots, hash_ids, splitmix64
from teleport.negatives.draws import uniform
from teleport.negatives.export import Corpus
from teleport.negatives.pool import Items, PoolWriter
from teleport.running.artefact import MANIFEST
from teleport.running.files import write_json

SCRIPT = Path(__file__).resolve().parents[2] / "workflow_scripts" / "manage.py"


def test_splitmix64_gives_the_published_stream():
    stream = splitmix64(np.uint64(0x9E3779B97F4A7C15) * np.arange(1, 4, dtype=np.uint64))
    assert [hex(value) for value in stream.tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_ids_hash_alike_in_any_company():
    assert hash_ids(["q1", "ü"]).tolist() == [7530267129497158631, 3976460501203677525]  # b2sum -l 64, little endian
    assert hash_ids(["ü", "q7", "q1"])[[2, 0]].tolist() == hash_ids(["q1", "ü"]).tolist()


def drawn(available, hashes, seed, count):
    return draw_slots(uniform.choose, Candidates(available, hashes, seed), count)


def test_every_available_slot_is_drawn_equally_often():
    available = np.ones((20000, 10), bool)
    available[:, 3] = False
    slots, filled = drawn(available, hash_ids(map(str, range(20000))), 42, 3)
    assert filled.all()
    assert (np.diff(slots, axis=1) > 0).all()  # ascending, so none twice
    frequency = np.bincount(slots.ravel(), minlength=10) / 20000
    expected = np.full(10, 3 / 9)
    expected[3] = 0
    assert np.abs(frequency - expected).max() < 0.015  # 4.5 standard errors


def test_pairs_of_slots_are_drawn_equally_often():
    slots, _ = drawn(np.ones((30000, 5), bool), hash_ids(map(str, range(30000))), 7, 2)
    pairs, frequency = np.unique(slots, axis=0, return_counts=True)
    assert len(pairs) == 10
    assert np.abs(frequency / 3000 - 1).max() < 0.09  # 5 standard errors


def test_short_lists_give_what_they_have():
    available = np.array([[True, False, True, False], [False] * 4, [True] * 4])
    slots, filled = drawn(available, hash_ids("abc"), 0, 3)
    assert filled.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert slots[0].tolist() == [0, 2, 0]
    slots, filled = drawn(available, hash_ids("abc"), 0, 9)
    assert [row[ok].tolist() for row, ok in zip(slots, filled, strict=True)] == [[0, 2], [], [0, 1, 2, 3]]
    assert drawn(available, hash_ids("abc"), 0, 0)[0].shape == (3, 0)


def test_a_smaller_sample_is_part_of_a_larger_one():
    available, hashes = np.ones((50, 40), bool), hash_ids(map(str, range(50)))
    small, large = (drawn(available, hashes, 1, count)[0] for count in (5, 20))
    assert all(set(a) < set(b) for a, b in zip(small.tolist(), large.tolist(), strict=True))


@pytest.fixture
def merged(stages, world):
    """A collection of two training queries, and a pool with a repeated passage for the first, none for the second."""
    judgments = [(0, 2, 2), (0, 0, 1), (1, 1, 3)]
    corpus = {"doc_id": ["d0", "d1", "d2"], "title": ["", "Ü", "T2"], "text": ["zero", "one", "two"]}
    collection = world.collection(["q0", "q1"], judgments, 2, queries=["first", "second"], **corpus)
    negatives = stages.make("merge", inputs={"collection": collection})
    writer, ones = PoolWriter(negatives.output, ["query"]), np.ones(3, np.int32)
    scores = np.full(3, np.nan, np.float32)
    writer.append(np.array([3, 0]), Items(np.array([1, 0, 1], np.int32), ones, ones, ones, scores))
    writer.close()
    stages.finish(negatives)
    path = negatives.folder / MANIFEST
    write_json(
        path,
        json.loads(path.read_text())
        | {"inputs": dict.fromkeys(("corpus", "split.train"), f"collection/{collection.key}")},
    )
    return collection, negatives


EXPORTED = (
    '{"query_id": "q0", "query": "first", '
    '"positive_passages": [{"docid": "d2", "title": "T2", "text": "two"}], '
    '"negative_passages": [{"docid": "d1", "title": "Ü", "text": "one"}, '
    '{"docid": "d0", "title": "", "text": "zero"}, {"docid": "d1", "title": "Ü", "text": "one"}]}\n'
)


def test_export_writes_tevatron_lines(merged, tmp_path):
    assert export(merged[1].folder, tmp_path / "out.jsonl") == f"1 queries in {tmp_path / 'out.jsonl'}"
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == EXPORTED
    assert len(list(tmp_path.iterdir())) == 2  # the stages, and the lines


def test_the_export_reads_passages_in_chunks(merged, tmp_path, monkeypatch):
    """Arrow's strings end at 2 GiB in one array, so nothing may join the texts of a corpus."""
    corpus = merged[0].folder / "corpus.parquet"
    monkeypatch.setattr("teleport.negatives.export.CHUNK_PASSAGES", 2)
    read_table, read = pq.read_table, []
    monkeypatch.setattr(pq, "read_table", lambda path, **columns: read.append(path) or read_table(path, **columns))
    assert export(merged[1].folder, tmp_path / "out.jsonl") == f"1 queries in {tmp_path / 'out.jsonl'}"
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == EXPORTED
    assert read and corpus not in read
    assert Corpus(corpus, str(tmp_path / "copy")).starts == [0, 2, 3]


def test_an_export_that_fails_leaves_nothing_behind(merged, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("teleport.negatives.export.json", SimpleNamespace(dumps=fail))
    with pytest.raises(OSError, match="No space left"):
        export(merged[1].folder, tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_export_command(merged, tmp_path):
    collection, negatives = merged
    command = [sys.executable, str(SCRIPT), "export", str(negatives.folder), str(tmp_path / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"1 queries in {tmp_path / 'out.jsonl'}\n", done.stderr
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == EXPORTED
    command[3] = str(collection.folder)
    refused = subprocess.run(command, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith(
        "is a stage of kind collection: give one of merge, relabel, evaluate, train, encode.\n"
    )
