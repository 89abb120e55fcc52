"""Stage `lexical_index`: the inverted index of all passages, with the BM25 score of every term in every passage.

Built in two passes, so that memory holds a block at a time, whatever the collection (blocked sort-based indexing,
Manning et al., Introduction to Information Retrieval, §4.2): blocks of passages are counted by several processes, and
inverted one by one; then the postings of a range of terms are gathered from all blocks, scored and appended.
"""

import math
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import Stemmer
from bm25s.tokenization import Tokenizer
from scipy.sparse import csr_matrix

from teleport.arrays import GrowingArray, offsets_of, save_array
from teleport.collection.reader import row_group_bounds
from teleport.refusal import Refusal
from teleport.running.files import read_saved, require_free_space, sync, write_json, write_text
from teleport.running.launch import processes_apart
from teleport.running.log import Progress
from teleport.settings.search import LexicalIndexSettings as Settings  # noqa: F401

BATCH_TEXTS = 4096  # read at a time
BLOCK_GROUPS = 4  # row groups of the collection inverted at a time, after which a killed run can go on
LEAST_GROUPS = 2  # for each process: it starts in a second, and counts a group in some
RANGE_POSTINGS = 2**23  # gathered at a time, or those of one term where it has more
POSTING_BYTES = 8
NO_TERM = -1  # of a stop word, and of a term that the index does not have


def run(job):
    """Index "title text" of every passage (the text alone: title "none").

    Writes offsets.npy int64 [terms + 1], passages.npy int32 and scores.npy float32 [postings] (`LexicalIndex`), and
    terms.parquet: each term, in the order in which it first occurs, with the number of passages that have it.

    Facts: num_passages, vocabulary (terms), postings (pairs of a term and a passage), mean_terms (of a passage, with
    repeats).
    """
    num_passages = job.facts("collection")["num_passages"]
    names, count = invert(job, num_passages)
    blocks = [Block(job, number) for number in range(count)]
    frequencies = np.zeros(len(names), np.int64)
    for block in blocks:
        frequencies[block.terms] += np.diff(block.offsets)
    table = pa.table({"term": pa.array(names, pa.string()), "passages": frequencies.astype(np.int32)})
    pq.write_table(table, job.output("terms.parquet"))
    del names, table
    lengths = np.concatenate([np.zeros(0, np.int32), *(block.lengths for block in blocks)])
    offsets = offsets_of(frequencies)
    save_array(job.output("offsets.npy"), offsets)
    require_free_space(job.folder, POSTING_BYTES * offsets[-1])
    write_postings(job, blocks, offsets, lengths)
    counts = {"num_passages": num_passages, "vocabulary": len(frequencies), "postings": int(offsets[-1])}
    return counts | {"mean_terms": float(lengths.mean()) if num_passages else 0.0}


def invert(job, num_passages):
    """First pass: write the `Block`s that no earlier run has finished; returns (all terms, the number of blocks).

    Processes count the terms of row groups, each with numbers of its own. Here a term gets the next number where it
    first occurs, so that the index has the same bits with any number of processes.
    """
    state, path, numbers = job.resume / "blocks.json", job.input("collection", "corpus.parquet"), {}
    bounds, done = row_group_bounds(pq.ParquetFile(path)), read_saved(state).get("done", 0)
    for number in range(done):
        for term in filter(None, (job.resume / f"{number}.terms.txt").read_text(encoding="utf-8").split("\n")):
            numbers[term] = len(numbers)
    Terms(job.settings)  # settings that it refuses are refused here
    groups = range(done * BLOCK_GROUPS, len(bounds) - 1)
    blocks = -(-groups.stop // BLOCK_GROUPS)
    processes = max(1, min(job.threads, len(groups) // LEAST_GROUPS))
    with processes_apart(processes, (path, job.settings)) as parallel_map:
        counted = enumerate(parallel_map(count_terms, groups), groups.start)
        for number in range(done, blocks):
            before, first, terms, lengths = len(numbers), bounds[number * BLOCK_GROUPS], [], []
            for group, (names, of_words, of_passages) in islice(counted, BLOCK_GROUPS):
                known = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
                terms.append(known[of_words])
                lengths.append(of_passages)
                job.progress(bounds[group + 1], num_passages, "passages")
            write_block(job, number, first, np.concatenate(terms), np.concatenate(lengths), len(numbers))
            write_text(job.resume / f"{number}.terms.txt", "\n".join(islice(numbers, before, None)))
            for written in job.resume.glob(f"{number}.*"):
                sync(written)
            write_json(state, {"done": number + 1})
    return list(numbers), blocks


def count_terms(shared, group):
    """Of the passages of a row group: (their terms, each once, in the order in which they first occur (list of str);
    int32: which of them each word is; int32: how many such words each passage has). shared: (path, settings)"""
    path, settings = shared
    terms, of_words, lengths = Terms(settings), [], []
    for texts in read_batches(path, settings.title, [group]):
        of_texts = [terms.of(text) for text in texts]
        lengths += map(len, of_texts)
        of_words.append(np.fromiter(chain.from_iterable(of_texts), np.int32))
    return list(terms.numbers), np.concatenate([np.zeros(0, np.int32), *of_words]), np.array(lengths, np.int32)


def read_batches(path, title, groups=None):
    """Yield lists of what BM25 reads of passages, of some row groups or of all: title and text, or the text alone when
    `title` is "none"."""
    columns = ["text"] if title == "none" else ["title", "text"]
    # Buffered ahead, what was read of a file would stay in memory until its end.
    for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(BATCH_TEXTS, row_groups=groups, columns=columns):
        yield [" ".join(parts) for parts in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def write_block(job, number, first, terms, lengths, num_terms):
    """Invert a block of passages, from the row `first` on, and write it below the resume folder. terms: int32, those of
    all its passages in order; lengths: int32, how many of them each passage has"""
    ones, shape = np.ones(len(terms), np.int32), (len(lengths), num_terms)
    by_term = csr_matrix((ones, terms, offsets_of(lengths)), shape=shape).tocsc()
    by_term.sum_duplicates()
    present = np.flatnonzero(np.diff(by_term.indptr))
    arrays = {
        "terms": present.astype(np.int32),
        "offsets": np.append(by_term.indptr[present], by_term.indptr[-1]).astype(np.int64),
        "passages": by_term.indices.astype(np.int32) + np.int32(first),
        "counts": by_term.data,
        "lengths": lengths,
    }
    for name, array in arrays.items():
        save_array(job.resume / f"{number}.{name}.npy", array)


class Block:
    """The inverted passages of a block: memory maps, int32 but for the offsets (int64).

    terms: those that occur, rising; the postings of terms[i] are offsets[i] to offsets[i + 1]; passages: rising in a
    term; counts: how often they have the term; lengths: how many terms each passage of the block has
    """

    def __init__(self, job, number):
        for name in ("terms", "offsets", "passages", "counts", "lengths"):
            setattr(self, name, np.load(job.resume / f"{number}.{name}.npy", mmap_mode="r"))


def write_postings(job, blocks, offsets, lengths):
    """Second pass: append passages and scores of range after range of terms, idf · count / (count + norm), float32
    (Lucene's BM25, which has no factor k1 + 1). offsets: of the whole index"""
    # What a term's count is compared with: k1 · (1 - b + b · length / mean length), float64.
    (k1, b), num_terms = (job.settings.k1, job.settings.b), len(offsets) - 1
    norms_P = k1 * ((1 - b) + b * lengths / lengths.mean()) if lengths.any() else np.zeros(len(lengths))
    idf = inverse_frequencies(np.diff(offsets), len(lengths))
    passages = GrowingArray(job.output("passages.npy"), np.int32)
    scores = GrowingArray(job.output("scores.npy"), np.float32)
    first, progress = 0, Progress(job.progress.path)  # a rate of its own
    while first < num_terms:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + RANGE_POSTINGS, side="right")) - 1)
        rows, counts = gather(blocks, first, last, offsets[first : last + 1] - offsets[first])
        passages.append(rows)
        weights = np.repeat(idf[first:last], np.diff(offsets[first : last + 1]))
        scores.append(weights * (counts / (norms_P[rows] + counts)))
        progress(int(offsets[last]), int(offsets[-1]), "postings")
        first = last
    passages.close()
    scores.close()


def gather(blocks, first, last, offsets):
    """(passages, counts) of terms `first` to `last` (exclusive) of all blocks; offsets: where each begins, from 0."""
    passages, counts = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
    next_position = offsets[:-1].copy()
    for block in blocks:
        low, high = np.searchsorted(block.terms, [first, last])
        terms, ends = block.terms[low:high] - first, block.offsets[low : high + 1]
        lengths = np.diff(ends)
        # The postings of a term are consecutive in both: each moves as far as the first of its term.
        positions = np.arange(ends[0], ends[-1]) + np.repeat(next_position[terms] - ends[:-1], lengths)
        passages[positions], counts[positions] = (array[ends[0] : ends[-1]] for array in (block.passages, block.counts))
        next_position[terms] += lengths
    return passages, counts


def inverse_frequencies(frequencies, num_passages):
    """Lucene's idf, log(1 + (N - n + 0.5) / (n + 0.5)), of terms that n of N passages have, float32. By the logarithm
    of the C library, as bm25s has it: numpy's is another on every kind of processor."""
    distinct, inverse = np.unique(frequencies, return_inverse=True)
    idf = [math.log(1 + (num_passages - n + 0.5) / (n + 0.5)) for n in distinct.tolist()]
    return np.array(idf, np.float32)[inverse]


class Terms(dict):
    """{word: the number of its term, `NO_TERM` for a stop word}, filled when a word is looked up. numbers: {term: its
    number}; a new term gets the next one."""

    def __init__(self, settings):
        if settings.stemmer and settings.stemmer not in Stemmer.algorithms():
            names = ", ".join(Stemmer.algorithms())
            raise Refusal(f"bm25.stemmer is {settings.stemmer!r}; Snowball has {names}. Choose one of them, or null.")
        try:
            tokenizer = Tokenizer(stopwords=settings.stopwords or [], stemmer=None)
        except ValueError as error:
            raise Refusal(
                f"bm25.stopwords is {settings.stopwords!r}, a list that bm25s does not have ({error}). Choose the name "
                "of one, such as english or german, or null."
            ) from None
        self.split, self.stopwords, self.numbers = tokenizer.splitter, frozenset(tokenizer.stopwords), {}
        self.stem = Stemmer.Stemmer(settings.stemmer).stemWord if settings.stemmer else lambda word: word

    def __missing__(self, word):
        stopped = word in self.stopwords
        self[word] = NO_TERM if stopped else self.numbers.setdefault(self.stem(word), len(self.numbers))
        return self[word]

    def of(self, text):
        """The numbers of the terms of a text, in order and with repeats (list of int)."""
        return [number for word in self.split(text.lower()) if (number := self[word]) >= 0]
