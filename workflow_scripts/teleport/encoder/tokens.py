"""Stage `tokens`: every text of a collection as token ids, once; no later stage calls a tokenizer.

Ids lie flat in one array per set of texts, without special tokens and not truncated, so that every maximum length
and every episode reads the same files. The encoder's input is made from them by `packed`.
"""

import json
import os
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from teleport.encoder.checkpoint import sides
from teleport.runtime.arrays import GrowingArray, Ragged, offsets_of, save_array
from teleport.runtime.files import write_json
from teleport.settings.checkpoint import TokensSettings as Settings  # noqa: F401

# Texts in memory at a time: enough for the tokenizer's threads; 0.5 GB with its objects if all have 10,000 characters.
CHUNK_TEXTS = 2048
PERCENTILES = (50, 90, 99, 100)
FIELD_END = "\t"  # between the fields of a title, where a collection has more than one (collection/official.py)


def open_tokens(job, name):
    """The token ids of `passages` or `queries.SPLIT`: `Ragged`, without special tokens and not truncated."""
    return Ragged.open(job.input("tokens", f"{name}.offsets.npy"), job.input("tokens", f"{name}.ids.npy"))


def padded_lengths(token_map, max_tokens):
    """Tokens per text as the encoder sees them, int64 [n]: with CLS and SEP, truncated to max_tokens."""
    return np.minimum(token_map.lengths + 2, max_tokens)


def packed(token_map, rows, max_tokens, special):
    """The input of `PackedEncoder` for some texts: CLS ids SEP of each, truncated to max_tokens in all.

    rows: B text numbers; special: the content of special.json
    returns: numpy arrays (ids int64 [T], lengths int64 [B]); the texts lie behind one another in the order of `rows`
    """
    rows = np.asarray(rows)
    totals_B = np.minimum(token_map.offsets[rows + 1] - token_map.offsets[rows] + 2, max_tokens)
    return packed_parts(token_map, rows, np.zeros_like(totals_B), totals_B, totals_B, special)


def packed_parts(token_map, rows, starts_B, stops_B, totals_B, special):
    """As `packed`, of each text the tokens from `starts` to `stops` of its CLS ids SEP, which has `totals` tokens."""
    lengths_B = stops_B - starts_B
    ends_B = np.cumsum(lengths_B)
    begins_B = ends_B - lengths_B
    # Token t of the batch is token t + shift of the map; where it is none, CLS or SEP is put afterwards.
    shift_T = np.repeat(token_map.offsets[rows] + starts_B - 1 - begins_B, lengths_B)
    cls_B, sep_B = begins_B[starts_B == 0], ends_B[stops_B == totals_B] - 1
    inner_T = np.ones(ends_B[-1], bool)
    inner_T[cls_B] = inner_T[sep_B] = False
    ids_T = np.empty(len(inner_T), np.int64)
    ids_T[inner_T] = token_map.values[np.flatnonzero(inner_T) + shift_T[inner_T]]
    ids_T[cls_B], ids_T[sep_B] = special["cls"], special["sep"]
    return ids_T, lengths_B


def run(job):
    """Tokenise passages and the queries of every split with the tokenizer of the pretrained checkpoint.

    A prefix is tokenised with its text, as one. Writes passages.{ids,offsets}.npy, queries.SPLIT.{ids,offsets}.npy and
    special.json (ids of cls, sep, pad, unk, and vocab_size). Facts: vocab_size, and the number and lengths of texts,
    for passages and per split.
    """
    # Read by the tokenizer's thread pool when it starts; it would take every core otherwise.
    os.environ["RAYON_NUM_THREADS"] = str(job.threads)
    tokenizer, special = load_tokenizer(sides(job.input("pretrained", "checkpoint"))[1], job.settings.lower_case)
    write_json(job.output("special.json"), special)
    dtype = np.uint16 if special["vocab_size"] <= 2**16 else np.uint32
    separator = {"sep": f" {tokenizer.id_to_token(special['sep'])} ", "space": " ", "none": None}[job.settings.title]

    collection = job.facts("collection")
    queries = {split: counts["queries"] for split, counts in collection["splits"].items()}
    total = collection["num_passages"] + sum(queries.values())

    def tokenise(name, parquet, before, *how):
        texts = read_texts(job.input("collection", parquet), *how)
        paths = job.output(f"{name}.ids.npy"), job.output(f"{name}.offsets.npy")
        return write_tokens(tokenizer, dtype, texts, *paths, lambda done: job.progress(before + done, total, "texts"))

    facts = {"vocab_size": special["vocab_size"], "splits": {}}
    prefix, cut = job.settings.passage_prefix, job.settings.max_characters
    facts["passages"] = tokenise("passages", "corpus.parquet", 0, separator, prefix, cut)
    before = collection["num_passages"]
    for split, count in queries.items():
        parquet, prefix = f"queries.{split}.parquet", job.settings.query_prefix
        facts["splits"][split] = tokenise(f"queries.{split}", parquet, before, None, prefix)
        before += count
    return facts


def read_texts(path, separator=None, prefix="", max_characters=None):
    """Yield lists of texts of a Parquet file, in order, each behind `prefix`.

    separator: joins title and text, None leaves the title out. A title of several fields (URL, tab, title: the form
    msmarco-docs) is joined by it too, as released by ANCE. A passage with an empty title is its text alone.
    (ANCE-Tele's released code would begin it with [SEP].)
    max_characters: the whole is cut to so many, so that the rest of a long document costs no tokenising.
    """
    columns = ["text"] if separator is None else ["title", "text"]
    for batch in pq.ParquetFile(path).iter_batches(CHUNK_TEXTS, columns=columns):
        texts = batch.column("text").to_pylist()
        if separator is not None:
            pairs = zip(batch.column("title").to_pylist(), texts, strict=True)
            texts = [joined(title, text, separator) if title else text for title, text in pairs]
        yield [prefix + text[:max_characters] for text in texts]


def joined(title, text, separator):
    """A title, of one field or of several with a tab between them, and a text, all joined by `separator`."""
    return f"{title.replace(FIELD_END, separator)}{separator}{text}"


def load_tokenizer(folder, lower_case):
    """The fast tokenizer of a checkpoint folder and the ids that `special.json` keeps.

    lower_case: True or False override what the tokenizer does with case; None leaves it.
    """
    from tokenizers import Tokenizer

    definition = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
    if lower_case is not None:
        definition["normalizer"] = with_lower_case(definition.get("normalizer"), lower_case)
    tokenizer = Tokenizer.from_str(json.dumps(definition))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    cls, sep = tokenizer.encode("").ids  # an empty text is its special tokens alone, whatever they are called
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1  # some vocabularies have gaps
    unk = tokenizer.token_to_id(definition["model"].get("unk_token") or "<unk>")
    return tokenizer, {"cls": cls, "sep": sep, "pad": config["pad_token_id"], "unk": unk, "vocab_size": size}


def with_lower_case(normalizer, lower_case):
    """A tokenizers normalizer (its JSON, or None) that lower-cases or not."""
    if normalizer is None:
        return {"type": "Lowercase"} if lower_case else None
    if normalizer["type"] == "BertNormalizer":
        return normalizer | {"lowercase": lower_case}
    parts = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    parts = [part for part in parts if part["type"] != "Lowercase"]
    parts = [part | ({"lowercase": lower_case} if part["type"] == "BertNormalizer" else {}) for part in parts]
    return {"type": "Sequence", "normalizers": ([{"type": "Lowercase"}] if lower_case else []) + parts}


def write_tokens(tokenizer, dtype, chunks, ids_path, offsets_path, progress):
    """Tokenise lists of texts into a flat .npy of ids and one of offsets; returns counts and lengths.

    The ids are appended as they come, so memory holds one chunk.
    """
    file, lengths = GrowingArray(ids_path, dtype), [np.zeros(0, np.int64)]
    for texts in chunks:
        ids = [text.ids for text in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths.append(np.array([len(text) for text in ids], np.int64))
        file.append(np.fromiter(chain.from_iterable(ids), dtype, lengths[-1].sum()))
        progress(sum(map(len, lengths)))
    file.close()
    lengths = np.concatenate(lengths)
    save_array(offsets_path, offsets_of(lengths))
    return length_facts(lengths)


def length_facts(lengths):
    """Number of texts and tokens, mean and percentiles of tokens per text (JSON)."""
    facts = {"num": len(lengths), "tokens": int(lengths.sum())}
    if len(lengths):
        percentiles = np.percentile(lengths, PERCENTILES).round().astype(int).tolist()
        facts |= {"mean": float(lengths.mean())} | {f"p{p}": v for p, v in zip(PERCENTILES, percentiles, strict=True)}
    return facts
