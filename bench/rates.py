"""Rates of a hardware line that no stage's time gives by itself: each is timed at the size that it needs."""

import gzip
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import merge
import texts
from commands.forecast.costs.search import INT8_WIDTH, MARGIN
from commands.forecast.flops import search_flop
from rounds import REPOSITORY
from search import Timed
from teleport.collection.answers import find_answers
from teleport.collection.build import write_corpus
from teleport.collection.equal import SameText
from teleport.collection.forms.downloads import with_titles
from teleport.collection.records import Faults, Rows, passage_rows
from teleport.encoder.precision import pick_device
from teleport.encoder.tokens import load_tokenizer
from teleport.running.job import Job
from teleport.search.engines import open_exact
from vectors import make_vectors

TEXTS = 12_000  # tokenised
BM25_PASSAGES, BM25_QUERIES = 60_000, 2_000  # the former times --scale where there is no GPU
SEARCH_DIM, SEARCH_DEPTH, SEARCH_QUERIES = 768, 200, {"cpu": 1024, "cuda": 16384}
DEEP = 1000  # at which a search sorts so many candidates that it takes long
LEXICAL = "bm25s", "Stemmer", "scipy"  # packages of BM25
ANSWER_PASSAGES = 10_000
FEW_PASSAGES, SEARCH_PASSAGES = 2_000, 60_000  # the latter of `SEARCH_DIM`, and times --scale
LINES = 2**24  # that the engine is chosen for: what few lines take is not what a search of a paper's size takes
MEASURABLE = 1.5  # times as long as few passages: less may be chance
ROUNDS = 3


class Clock:
    """Seconds: of the wall, or, where others use the machine too, of this process's processors over its threads."""

    shared = False

    def __call__(self, threads=1):
        return time.process_time() / threads if self.shared else time.perf_counter()


clock = Clock()


def timed(function, threads=1):
    """Median seconds of a function that computes with `threads`, after one call that is not counted."""
    function()
    seconds = []
    for _ in range(ROUNDS):
        started = clock(threads)
        function()
        seconds.append(clock(threads) - started)
    return median(seconds)


def text_rates(folder, threads):
    """Tokens/s of the tokenizer; passages/s that are read, checked and written."""
    tokenizer, special = load_tokenizer(texts.folder_in_package(texts.PACKAGE), None)
    sizes = texts.lengths(TEXTS, 1)
    passages = texts.make_texts(texts.whole_words(tokenizer), sizes, 2)
    seconds = timed(lambda: texts.write_map(folder, "timed", tokenizer, special, passages), threads)
    given, titles = folder / "passages.tsv.gz", folder / "titles.tsv.gz"
    for path in (given, titles):
        with gzip.open(path, "wt") as file:
            file.writelines(f"{row}\t{text[:30] if path == titles else text}\n" for row, text in enumerate(passages))
    corpus = Rows(given, lambda place, wrong: with_titles(passage_rows(place, wrong=wrong), titles))
    writing = timed(
        lambda: write_corpus(folder / "corpus.parquet", corpus, Faults("made"), SameText(), lambda *progress: None)
    )
    return {"tokens": sizes.sum() / seconds, "texts": TEXTS / writing}


def lexical_rates(folder, scale, threads):
    """Tokens/s of BM25's index; passages times queries/s of its search. {} where what they need is not installed."""
    if not all(map(find_spec, LEXICAL)):
        return {}
    import bm25
    from teleport.search import lexical_index
    from teleport.search.bm25 import query_terms

    # A GPU's scale is for what computes there: 20 times these would take one core ten minutes.
    passages, folder = BM25_PASSAGES * (1 if pick_device().type == "cuda" else scale), folder / "lexical"
    asked = bm25.write_collection(folder, passages, BM25_QUERIES)
    job, _ = bm25.build_index(folder)
    indexing = Job(bm25.index_spec(), root=folder)
    shared, queries = bm25.shared_of(job, SEARCH_DEPTH), query_terms(job, asked)

    def invert():
        indexing.resume.mkdir(parents=True)
        lexical_index.run(indexing)
        shutil.rmtree(indexing.resume)

    searching = timed(lambda: bm25.search_all(shared, queries), threads)
    return {
        "bm25_tokens": passages * texts.MEAN_TOKENS / timed(invert),
        "bm25_scores": passages * BM25_QUERIES / searching,
    }


def time_search(vectors, queries, threads, depth):
    """(seconds of proposing, seconds of scoring again, FLOP) of a search; of several devices on the first."""
    index = open_exact(vectors, threads, queries, LINES, depth)
    timing = Timed(index, lambda: clock(threads))
    for _ in range(1 + ROUNDS):
        timing.search(queries, depth)
    again = median(timing.score_again() for _ in range(ROUNDS))
    return median(timing.proposing[1:]), again, search_flop(len(queries), *index.part(0).vectors.shape)


def search_rates(folder, scale, threads, dim=None):
    """FLOP/s of search and numbers/s of scoring again, and on a processor candidates/s that are sorted; dim: of the
    vectors, else `SEARCH_DIM`.

    The part of proposing that grows with the passages is products and selection. The part that does not is work on
    candidates, as scoring them again is; what grows with the depth is sorting them.
    """
    lines, dim = SEARCH_QUERIES[pick_device().type], dim or SEARCH_DIM
    queries = np.array(make_vectors(folder / "queries.npy", lines, dim, 1, threads))
    few_vectors, vectors = (
        make_vectors(folder / f"{count}.npy", count, dim, 2, threads)
        for count in (FEW_PASSAGES, SEARCH_PASSAGES * scale * SEARCH_DIM // dim)
    )
    few, _, few_flop = time_search(few_vectors, queries, threads, SEARCH_DEPTH)
    many, again, flop = time_search(vectors, queries, threads, SEARCH_DEPTH)
    if many > MEASURABLE * few:
        rate = (flop - few_flop) / (many - few)
    else:
        print(
            f"search_flop is a lower bound: {len(vectors):,} passages take {many / few:.1f} times as long as "
            f"{FEW_PASSAGES:,}, so most of that is what a search costs in any case. A larger --scale tells more."
        )
        rate = flop / many
    on_candidates = again + max(0.0, few - few_flop / rate)
    rates = {"search_flop": rate, "rescored": lines * (SEARCH_DEPTH + MARGIN) * dim / on_candidates}
    if pick_device().type == "cpu":
        deep, _, _ = time_search(vectors, queries, threads, DEEP)
        if deep > many:  # else it is chance, and the usual rate holds
            rates["sorted"] = lines * INT8_WIDTH * (DEEP - SEARCH_DEPTH) / (deep - many)
    return rates


def product_rate(rows=2048):
    """FLOP/s of float32 products on the processor, with as many threads as its library takes."""
    left, right = (np.random.default_rng(seed).random((rows, SEARCH_DIM), np.float32) for seed in (1, 2))
    return 2 * rows * rows * SEARCH_DIM / timed(lambda: left @ right.T)


def merge_rate(queries=5000, depth=200):
    """Candidates/s of the merge."""
    ids = merge.retrievals(queries, depth)
    return 2 * queries * depth / timed(lambda: merge.merge_arrays(merge.make_merge(ids, 60)))


def answer_rate(folder, threads):
    """Passages/s that are looked through for the answers of one question each: of a process, times `threads`."""
    tokenizer, _ = load_tokenizer(texts.folder_in_package(texts.PACKAGE), None)
    words = texts.whole_words(tokenizer)
    passages = texts.make_texts(words, texts.lengths(ANSWER_PASSAGES, 1), 2)
    pq.write_table(pa.table({"text": passages}), folder / "corpus.parquet")
    answers = texts.make_texts(words, texts.lengths(ANSWER_PASSAGES, 3, mean=2), 4)
    # Of real questions, every sixth or seventh retrieved passage has a word of an answer, and is taken apart.
    answers = [[passage[:9] if row % 6 == 0 else answers[row]] for row, passage in enumerate(passages)]
    rows = np.arange(ANSWER_PASSAGES, dtype=np.int32)[:, None]
    return threads * ANSWER_PASSAGES / timed(lambda: find_answers(folder / "corpus.parquet", rows, answers))


def disk_rate(folder, megabytes=256):
    """Bytes/s of writing a file through to the disk and hashing it."""
    block = np.random.default_rng(0).bytes(2**20)

    started = time.perf_counter()  # the disk's own time is no processor time
    with open(folder / "block", "wb") as file:
        for _ in range(megabytes):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    with open(folder / "block", "rb") as file:
        hashlib.file_digest(file, "sha256")
    return megabytes * 2**20 / (time.perf_counter() - started)


def read_rate(folder, rows=2**16):
    """Bytes/s of reading vectors through a memory map, as searches do, which the system has no more in its cache."""
    path, block = folder / "vectors.npy", np.zeros((rows, SEARCH_DIM), np.float32)
    np.save(path, np.random.default_rng(0).random(block.shape, np.float32))
    with open(path, "rb") as file:
        os.fsync(file.fileno())  # what is not on the disk yet stays
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = time.perf_counter()
    np.copyto(block, np.load(path, mmap_mode="r"))
    return block.nbytes / (time.perf_counter() - started)


def subprocess_seconds(command, environment):
    """The shortest of a few runs; with --shared, in processor seconds of the child."""

    def child_clock():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime if clock.shared else time.perf_counter()

    seconds = []
    for _ in range(ROUNDS):
        started = child_clock()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        seconds.append(child_clock() - started)
    return min(seconds)


def process_seconds():
    """(startup, load): of a process that runs a stage, and what torch and a checkpoint add to it."""
    scripts = str(REPOSITORY / "workflow_scripts")
    folder = str(texts.folder_in_package(texts.PACKAGE))
    load_code = f"from teleport.encoder.load import load_encoder; load_encoder({folder!r})"
    commands = [f"{scripts}/run_stage.py", "--help"], ["-c", load_code]
    environment = os.environ | {"PYTHONPATH": scripts}
    startup, loaded = (subprocess_seconds([sys.executable, *command], environment) for command in commands)
    return {"startup": startup, "load": max(0.0, loaded - startup)}
