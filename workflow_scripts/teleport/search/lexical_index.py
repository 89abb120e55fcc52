"""Stage `lexical_index`: bm25s's inverted index of all passages, with the score of every term in every passage.

Memory grows with the collection: 42 bytes per pair of a term and a passage, 12.4 GB for MS MARCO's 8.8 million
passages (docs/speed.md) and about 45 GB for Wikipedia's 21 million, by measurements of 600,000 passages.
"""

import json
import re
import unicodedata
from array import array

import bm25s
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import Stemmer
from bm25s.tokenization import Tokenizer

from teleport.arrays import Ragged, save_array
from teleport.refusal import Refusal
from teleport.settings.search import LexicalIndexSettings as Settings  # noqa: F401

BATCH_TEXTS = 4096  # read at a time
# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Chinese characters; and Hangul, whose words
# have endings. Like Lucene's CJKAnalyzer, plus the scripts of South-East Asia.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
UNSPACED += "\U00020000-\U0003ffff"
# The vowel signs of Hindi, Bengali and Tamil, for example. For re they are no part of a word, so it would cut there.
MARKS = "".join(chr(number) for number in range(0x300, 0x10000) if unicodedata.category(chr(number)) in ("Mn", "Mc"))
RUN = re.compile(rf"([{UNSPACED}]+)|[^\W{UNSPACED}](?:[^\W{UNSPACED}]|(?![{UNSPACED}])[{MARKS}])+")


def run(job):
    """Index "title text" of every passage (the text alone: title "none"), by words, by words and characters, or by the
    subwords of the role `tokens.passages`, numbered as in the tokenizer's vocabulary.

    Writes offsets.npy int64 [terms + 1], passages.npy int32 and scores.npy float32 [postings]. The postings of term t
    are offsets[t] to offsets[t + 1]: its passages in ascending order and its score in each (Lucene's BM25, without the
    factor k1 + 1). terms.parquet has each term, in the order of first occurrence (for a subword its number), and how
    many passages have it.

    Facts: num_passages, vocabulary (terms that a passage has), postings (pairs of a term and a passage), mean_terms
    (per passage, with repeats).
    """
    settings, num_passages, terms = job.settings, job.facts("corpus")["num_passages"], Terms()
    if settings.terms == "subwords":
        lists, names = subwords(job, "passages")
        terms.extend(lists)
    else:
        splitter = tokenizer(settings)
        for texts in read_batches(job.input("corpus", "corpus.parquet"), settings.title):
            terms.extend(splitter.streaming_tokenize(texts, allow_empty=False))
            job.progress(len(terms), num_passages, "passages")
        names = list(splitter.stem_to_sid or splitter.word_to_id)
    index = bm25s.BM25(method="lucene", k1=settings.k1, b=settings.b)
    if names:
        scored = index.build_index_from_ids(range(len(names)), terms, show_progress=False)
    else:  # bm25s divides by the mean length
        scored = {"indptr": np.zeros(1), "indices": np.zeros(0), "data": np.zeros(0)}
    offsets = scored["indptr"].astype(np.int64)
    save_array(job.output("offsets.npy"), offsets)
    save_array(job.output("passages.npy"), scored["indices"].astype(np.int32, copy=False))
    save_array(job.output("scores.npy"), scored["data"].astype(np.float32, copy=False))
    table = pa.table({"term": pa.array(names, pa.string()), "passages": np.diff(offsets).astype(np.int32)})
    pq.write_table(table, job.output("terms.parquet"))
    vocabulary = int(np.count_nonzero(np.diff(offsets)))
    counts = {"num_passages": num_passages, "vocabulary": vocabulary, "postings": int(offsets[-1])}
    return counts | {"mean_terms": len(terms.numbers) / max(num_passages, 1)}


class Terms:
    """The terms of every passage, in the form that bm25s iterates over, at 4 bytes per term."""

    def __init__(self):
        self.numbers, self.ends = array("i"), array("q", [0])

    def extend(self, lists):
        for numbers in lists:
            self.numbers.extend(numbers)
            self.ends.append(len(self.numbers))

    def __len__(self):
        return len(self.ends) - 1

    def __getitem__(self, passage):
        if passage >= len(self):
            raise IndexError(passage)
        return self.numbers[self.ends[passage] : self.ends[passage + 1]]


def read_batches(path, title):
    """Yield lists of the texts of all passages that BM25 reads: title and text, or the text alone if `title` is
    "none"."""
    columns = ["text"] if title == "none" else ["title", "text"]
    # With pre_buffer, everything read would stay in memory until the end of the file.
    for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(BATCH_TEXTS, columns=columns):
        yield [" ".join(parts) for parts in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def subwords(job, texts):
    """(lists of the subwords' numbers, a generator in the order of the texts; names of all numbers) of "passages" or
    "queries.SPLIT". Tokens that stand for no text of their own, such as [SEP] and [UNK], are left out."""
    role = f"tokens.{texts}"
    special = json.loads(job.input(role, "special.json").read_text())
    tokens = Ragged.open(*(job.input(role, f"{texts}.{what}.npy") for what in ("offsets", "ids")))
    none = [*special["before"], *special["after"], special["sep"], special["pad"], special["unk"]]
    is_term = np.ones(special["vocab_size"], bool)
    is_term[[number for number in none if number is not None]] = False
    lists = (ids[is_term[ids]].tolist() for ids in tokens)
    return lists, [str(number) for number in range(special["vocab_size"])]


def words_and_characters(text):
    """The words of a text. A run of characters in a script without spaces gives each character and each pair of
    neighbours: "猫 in 北京" → 猫, in, 北, 京, 北京."""
    for match in RUN.finditer(text):
        run = match[1]
        yield from [*run, *map("".join, zip(run, run[1:], strict=False))] if run else [match[0]]


def tokenizer(settings):
    """bm25s's Tokenizer for a LexicalIndexSettings. Raises Refusal for a stemmer or stop words that it does not
    have."""
    splitter = {"splitter": words_and_characters} if settings.terms == "characters" else {}
    if settings.stemmer and settings.stemmer not in Stemmer.algorithms():
        names = ", ".join(Stemmer.algorithms())
        raise Refusal(f"bm25.stemmer is {settings.stemmer!r}; Snowball has {names}. Choose one of them, or null.")
    stemmer = Stemmer.Stemmer(settings.stemmer) if settings.stemmer else None
    try:
        return Tokenizer(stopwords=settings.stopwords or [], stemmer=stemmer, **splitter)
    except ValueError as error:
        raise Refusal(
            f"bm25.stopwords is {settings.stopwords!r}, a list that bm25s does not have ({error}). Choose the name "
            "of one, such as english or german, or null."
        ) from None
