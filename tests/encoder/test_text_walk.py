"""The way of a text: which files of the library see a passage, from the line of a file to the tokens of a batch."""

from functools import partial
from types import SimpleNamespace

import numpy as np

from encoder_world import make_encoder, make_pretrained, source_folder
from teleport.arrays import Ragged
from teleport.encoder import tokens
from teleport.encoder.side import Side
from walk import files_that_hold

MARK = "zebra"  # a word that no other text has


def has_text(value, ids):
    """Whether a value is the text, a list with it, or holds its token ids."""
    if isinstance(value, str):
        return MARK in value
    if isinstance(value, Ragged):
        return has_text(np.asarray(value.values), ids)
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind in "iu" and ids is not None and bool(np.isin(ids, value).all())
    return isinstance(value, list | tuple) and any(isinstance(item, str) and MARK in item for item in value)


def test_a_passage_passes_at_most_eight_files_from_its_line_to_a_batch(stages, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    texts = ["the word was the", f"was the {MARK}", "word word"]
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t{text}\n" for i, text in enumerate(texts)))
    for split in ("train", "test"):
        (folder / f"queries.{split}.tsv").write_text("q\tthe word\n")
        (folder / f"qrels.{split}.tsv").write_text("q\t0\td0\t1\n")
    source = {"source": "tsv", "corpus": str(folder / "corpus.tsv"), "splits": {}}
    for split in ("train", "test"):
        source["splits"][split] = {role: str(folder / f"{role}.{split}.tsv") for role in ("queries", "qrels")}
    checkpoint, made = make_pretrained(stages, source_folder(tmp_path / "source")), SimpleNamespace()

    def collect_and_tokenise():
        made.collection = stages.collection(source)
        inputs = {"collection": made.collection, "pretrained": checkpoint}
        made.tokens = stages.run(tokens.run, "tokens", {"of": "passages"}, inputs)

    seen = files_that_hold(partial(has_text, ids=None), collect_and_tokenise)
    job = stages.make("encode", {}, {"tokens.passages": made.tokens})
    tokenizer, special = tokens.load_tokenizer(tmp_path / "source")
    ids = np.unique(tokenizer.encode(MARK, add_special_tokens=False).ids)
    token_map = tokens.open_tokens(job, "passages")
    side = Side(make_encoder(tmp_path), token_map, 24, special)

    def pack():
        made.batch = side.packed(side.buckets(np.arange(3), 100)[0])

    seen |= files_that_hold(partial(has_text, ids=ids), pack)
    assert {"records.py", "encoder/tokens.py", "encoder/batches.py"} <= seen, "not vacuous"
    assert np.isin(ids, made.batch[0]).all()
    assert len(seen) <= 8, seen
