"""Stage `tokens`: tokenise every text of a corpus or of a split once; no later stage calls a tokenizer.

Ids are in one flat array, without special tokens and not truncated, so that every maximum length and every episode
reads the same files. `batches.Chunks.packed` makes the encoder's input from them.
"""

import json
import os
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import GrowingArray, Ragged, offsets_of, save_array
from teleport.encoder.budget import CHUNK_TEXTS, id_bytes
from teleport.encoder.checkpoint import sides
from teleport.refusal import Refusal
from teleport.running.files import write_json
from teleport.running.log import log
from teleport.settings.encoder import TITLE, with_title
from teleport.settings.encoder import TokensSettings as Settings  # noqa: F401

MANY_UNKNOWN = 0.05  # of the tokens: texts in the script of a vocabulary have far fewer
PERCENTILES = (50, 90, 99, 100)
FIELD_END = "\t"  # between the fields of a title, if it has several (`records.document_rows`)


def open_tokens(job, name):
    """The token ids of "passages" or "queries.SPLIT", from the role `tokens.NAME`: `Ragged`, without special tokens and
    not truncated."""
    return Ragged.open(*(job.input(f"tokens.{name}", f"{name}.{what}.npy") for what in ("offsets", "ids")))


def run(job):
    """Tokenise passages, or the queries of a split, with the tokenizer of the pretrained checkpoint, each text together
    with its prefix. Writes NAME.ids.npy and NAME.offsets.npy, where NAME is `settings.of`, and special.json (`before`
    and `after`, lists of the ids that are put around a text; ids of sep, pad and unk, or null; vocab_size). Facts:
    vocab_size, and those of `write_tokens`."""
    refuse_unread(job.facts("pretrained"), job.settings)
    # The tokenizer's thread pool reads this when it starts; otherwise it would take every core.
    os.environ["RAYON_NUM_THREADS"] = str(job.threads)
    tokenizer, special = load_tokenizer(sides(job.input("pretrained", "checkpoint"))[1], job.settings.lower_case)
    write_json(job.output("special.json"), special)
    dtype = np.dtype(f"u{id_bytes(special['vocab_size'])}")
    separator = separator_of(job.settings.title, tokenizer, special)
    name = job.settings.of
    split = name.removeprefix("queries.")
    path = job.input(*(("corpus", "corpus.parquet") if name == "passages" else (f"split.{split}", f"{name}.parquet")))
    texts = read_texts(path, separator, job.settings.prefix, job.settings.max_characters)
    total, paths = pq.read_metadata(path).num_rows, (job.output(f"{name}.ids.npy"), job.output(f"{name}.offsets.npy"))
    progress = partial(job.progress, total=total, unit="texts")
    facts = write_tokens(tokenizer, dtype, texts, *paths, progress, special["unk"])
    if facts["unknown"] > MANY_UNKNOWN:
        log.warning(
            "%.0f %% of the tokens of %s are unknown to the checkpoint's tokenizer, which does not have their script: "
            "such texts look the same. Use a checkpoint for their language.",
            *(100 * facts["unknown"], name),
        )
    return {"vocab_size": special["vocab_size"]} | facts


def refuse_unread(stated, settings):
    """Raise Refusal for what the files of a checkpoint on the hub state and the plan did not read, as the configuration
    leaves nothing to them. stated: the facts of the pretrained stage"""
    if stated.get("lower_case") and not settings.lower_case:
        raise Refusal(
            "encoder.lower_case is not true, but the checkpoint's sentence_bert_config.json says do_lower_case: true. "
            "Set it to true."
        )
    if not stated.get("include_prompt", True) and settings.prefix:
        raise Refusal(
            "encoder: the checkpoint leaves prompts out of the pooling (include_prompt: false), which is not "
            "supported. Use another checkpoint, or set both prefixes to an empty text."
        )


def separator_of(title, tokenizer, special):
    """Return the text that joins the title and the text of a passage, by `encoder.title`; None if the title is left
    out."""
    if title == "sep":
        if special["sep"] is None:
            raise Refusal(
                "encoder.title is sep, but the checkpoint's tokenizer ends no text with a special token. Set "
                "encoder.title to space or none."
            )
        return f" {tokenizer.id_to_token(special['sep'])} "
    return {"space": " ", "none": None}.get(title)


def read_texts(path, separator=None, prefix="", max_characters=None):
    """Yield lists of texts of a Parquet file, in order, each cut to `max_characters`, with `prefix` (`with_title`)
    before it. separator: joins title and text, and the fields of a title (URL, tab, title: the form msmarco-docs), as
    in ANCE's released code; None leaves the title out. A passage with an empty title is its text alone (ANCE-Tele's
    released code puts [SEP] before it)."""
    columns = ["title", "text"] if separator is not None or TITLE in prefix else ["text"]
    # With pre_buffer, all that was read would stay in memory until the end of the file.
    for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(CHUNK_TEXTS, columns=columns):
        texts = batch.column("text").to_pylist()
        if separator is not None:
            fields = zip(batch.column("title").to_pylist(), texts, strict=True)
            texts = [f"{t.replace(FIELD_END, separator)}{separator}{text}" if t else text for t, text in fields]
        prefixes = [prefix] * len(texts)
        if TITLE in prefix:
            titles = batch.column("title").to_pylist()
            prefixes = [with_title(prefix, title.replace(FIELD_END, " ")) for title in titles]
        yield [before + text[:max_characters] for before, text in zip(prefixes, texts, strict=True)]


def load_tokenizer(folder, lower_case=False):
    """(fast tokenizer of a checkpoint folder, content of special.json). lower_case: whether texts are lower-cased
    first"""
    from tokenizers import Tokenizer

    path = Path(folder) / "tokenizer.json"
    tokenizer, definition = Tokenizer.from_file(str(path)), json.loads(path.read_text(encoding="utf-8"))
    if lower_case:
        lower_case_first(tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    before, after = around_text(tokenizer)
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1  # some vocabularies have gaps
    names = definition["model"].get("unk_token"), "<unk>", "[UNK]"
    unk = next((found for name in filter(None, names) if (found := tokenizer.token_to_id(name)) is not None), None)
    special = {"before": before, "after": after, "sep": after[-1] if after else None, "unk": unk}
    return tokenizer, special | {"pad": config.get("pad_token_id"), "vocab_size": size}


def lower_case_first(tokenizer):
    """Let a tokenizer lower-case texts, but not special tokens, as sentence-transformers does for `do_lower_case`."""
    from tokenizers.normalizers import Lowercase, Sequence

    own = tokenizer.normalizer
    tokenizer.normalizer = Sequence([Lowercase(), *([own] if own else [])])


def around_text(tokenizer):
    """The ids that a tokenizer puts before a text, and after it (two lists): CLS and SEP, a decoder's BOS or EOS, or
    none."""
    encoded = tokenizer.encode("a")
    own = [place for place, added in enumerate(encoded.special_tokens_mask) if not added]
    first, last = (own[0], own[-1] + 1) if own else (len(encoded.ids), len(encoded.ids))
    return encoded.ids[:first], encoded.ids[last:]


def write_tokens(tokenizer, dtype, chunks, ids_path, offsets_path, progress, unk=None):
    """Tokenise lists of texts into a growing flat .npy of ids and one of offsets. Returns the numbers of texts and
    tokens, the share of tokens that are `unk`, mean and percentiles of tokens per text (JSON)."""
    file, lengths, done, unknown = GrowingArray(ids_path, dtype), [np.zeros(0, np.int64)], 0, 0
    for texts in chunks:
        ids = [text.ids for text in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths.append(np.array([len(text) for text in ids], np.int64))
        flat = np.fromiter(chain.from_iterable(ids), dtype, lengths[-1].sum())
        unknown += 0 if unk is None else int(np.count_nonzero(flat == unk))
        file.append(flat)
        done += len(texts)
        progress(done)
    file.close()
    lengths = np.concatenate(lengths)
    save_array(offsets_path, offsets_of(lengths))
    facts = {"num": len(lengths), "tokens": (tokens := int(lengths.sum())), "unknown": unknown / max(tokens, 1)}
    if len(lengths):
        percentiles = np.percentile(lengths, PERCENTILES).round().astype(int).tolist()
        facts |= {"mean": float(lengths.mean())} | {f"p{p}": v for p, v in zip(PERCENTILES, percentiles, strict=True)}
    return facts
