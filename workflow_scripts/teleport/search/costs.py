"""The costs of indexes and searches, by vectors and by words: a function (stage, counts, place) → Cost per kind."""

import re
from dataclasses import replace

from teleport.costs import BASE, Cost, run_bytes, search_flop, vector_bytes
from teleport.search.budget import (
    BLOCK_ROWS,
    LEAST_QUERIES,
    LEAST_ROOM,
    ROOM,
    SAMPLE_QUERIES,
    TRAIN_PER_LIST,
    workspace,
)

CANDIDATES, CANDIDATE_BYTES = 2**25, 20  # held by a search at a time, at most: number, proposed and exact score
KEPT_BYTES = 24  # of a passage that a query keeps on a CPU, with copies
PRODUCTS = 0.35e9  # memory of the libraries that compute products on a CPU
GROWN = 1.45  # of inverted lists, whose memory doubles as they grow: measured with 4,096 lists of 8.8 million passages
POSTING_BYTES = 3.2  # of a token in BM25's index: 8 bytes a posting, 0.4 postings a token
# Bytes while the index is built, measured at 150,000 and 600,000 passages; of a token's terms.
INDEXED_POSTING_BYTES, TERM_BYTES = 42, 1.0
# Of search.bm25. A process maps the index for each task of 64 queries. The pages of their terms are .15 of it (.10 are
# their postings): measured with a million made-up passages, 0.27 GB of index, and at MS MARCO's counts, 2.1 GB.
# Each passage has a score; the quarter that shares a term with the query has its number and two copies of its score.
TASK_SHARE, SCORED_PASSAGE_BYTES = 0.15, 8
QUERY_TERMS_BYTES = 500  # a query as a list of numbers
NAME_BYTES = 0.3  # of a token: names of all terms in a dict, 175 bytes each; Wikipedia's 3e9 tokens have 5e6 terms
IVF_ITERATIONS, PQ_ITERATIONS = 10, 25  # of k-means, faiss's defaults
# A product of faiss's scan of lists takes as long as so many of a matrix product: 4.5 with 32 dimensions, 8 with 384,
# 9 with 768, on one core of an AMD EPYC.
SCANNED = 6
# On a processor, selecting from a score takes as long as multiplying so many dimensions more. A million passages on one
# core of an AMD EPYC: 256 queries took .86, 1.23 and 4.73 s with 32, 128 and 768 dimensions (bench/search.py --alone).
SELECTED, RATED = 110, 768  # RATED: the dimensions with which `search_flop` of a hardware line is measured
RERANKED = 1000  # candidates of a query in a file


def index_bytes(index, passages, dim):
    """The size of an index: codes; vectors; or vectors with links of 4 bytes, 2 M per passage."""
    if index.kind == "pq":
        return passages * index.numbers[0] * index.bits / 8
    links = 8 * index.numbers[0] if index.kind == "hnsw" else 8 if index.kind == "ivf" else 0
    return vector_bytes(passages, dim) + passages * links


def share_probed(lists, parameters):
    """The share of its lists (number) that an index searches for a query. parameters: of a `RetrieveSettings`"""
    given = re.search(r"nprobe=(\d+)", parameters)
    return min(1, (int(given[1]) if given else 1) / lists)


def index(stage, counts, place):
    """All vectors are read; only an index other than Flat is written."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    index = stage.settings.index
    if index.kind == "flat":
        return Cost(mapped=vectors, work={"read": vectors})
    size, work = index_bytes(index, passages, dim), {"read": vectors}
    if index.kind == "hnsw":
        return Cost(size, memory=BASE + size, mapped=vectors, work=work, lacks="linking the passages of hnsw indexes")
    # k-means compares some vectors with all centroids, several times; adding compares each passage once.
    inverted = index.kind == "ivf"
    centroids, iterations = (index.numbers[0], IVF_ITERATIONS) if inverted else (2**index.bits, PQ_ITERATIONS)
    compared = passages + iterations * min(passages, TRAIN_PER_LIST * centroids)
    memory = BASE + PRODUCTS + size * (GROWN if inverted else 1)
    return Cost(size, memory, vectors, work=work | {"host_flop": search_flop(compared, centroids, dim)})


def retrieve(stage, counts, place):
    """Return the cost of a search. A search by the codes of a pq index is exact search of the vectors that they decode
    to. With an index other than Flat it also reads the vectors, for the recall of a sample."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    lines, depth = counts.run(stage)
    size, ranks = run_bytes(lines, depth), depth * stage.inputs["passages"].settings.chunks
    kept = lines * ranks
    compared = dim if place.gpus else RATED * (dim + SELECTED) / (RATED + SELECTED)
    index, work = stage.inputs["index"].settings.index, {"search_flop": search_flop(lines, passages, compared)}
    if index.kind == "ivf":
        lists = index.numbers[0]
        products = lists + SCANNED * passages * share_probed(lists, stage.settings.parameters)
        sample = search_flop(min(lines, SAMPLE_QUERIES), passages, compared)
        work = {"host_flop": search_flop(lines, products, dim), "search_flop": sample}
    work["read"] = vectors
    mapped = 0 if index.kind == "flat" else vectors
    vectors = index_bytes(index, passages, dim) if mapped else vectors  # what is held in memory
    if place.gpus:
        # One GPU searches. With less room than this it reads the vectors from the disk in every search.
        on_device = vector_bytes(passages, dim, 2) + workspace(dim)
        memory = BASE + PRODUCTS + vectors + min(CANDIDATES, kept) * CANDIDATE_BYTES
        return Cost(size, memory, size, on_device, work)
    work["rows"] = kept  # sorting takes no time on a GPU
    room = min(passages, ROOM * ranks + LEAST_ROOM)  # of an exact search; faiss takes less
    memory = BASE + PRODUCTS + vectors + min(lines, BLOCK_ROWS) * room * KEPT_BYTES
    return Cost(size, memory, size + mapped, work=work)


def sharded(cost, number):
    """(Cost of each of `number` shards of a stage `retrieve`, cost of the job that joins them); each shard reads all
    vectors."""
    work = {rate: amount if rate == "read" else amount / number for rate, amount in cost.work.items()}
    return replace(cost, bytes=cost.bytes / number, work=work), Cost(work={"disk": 2 * cost.bytes})


def lexical_index(stage, counts, place):
    """All texts are split and stemmed; bm25s then holds all postings several times over."""
    tokens = counts.corpus_tokens
    size = tokens * POSTING_BYTES
    memory = BASE + size / 8 * INDEXED_POSTING_BYTES + tokens * TERM_BYTES
    return Cost(size, memory, work={"bm25_tokens": tokens})


def bm25(stage, counts, place):
    """A process scores all passages for one query at a time, and maps the postings of a task's terms, which it shares
    with the others. The names of all terms are in memory too."""
    (lines, depth), tokens = counts.run(stage), counts.corpus_tokens
    processes = max(1, min(place.threads, int(lines) // LEAST_QUERIES))
    started = BASE if processes > 1 else 0  # one alone is this process
    memory = BASE + lines * QUERY_TERMS_BYTES + tokens * NAME_BYTES
    memory += processes * (counts.passages * SCORED_PASSAGE_BYTES + started)
    memory += min(1, processes * TASK_SHARE) * tokens * POSTING_BYTES
    return Cost(run_bytes(lines, depth), memory, work={"bm25_scores": lines * counts.passages / processes})


def rerank(stage, counts, place):
    """Return an upper bound: a file of candidates is not opened here, and is assumed to have as many as MS MARCO's."""
    depth = getattr(stage.inputs["candidates"].settings, "depth", RERANKED)
    lines = counts.queries[stage.settings.split]
    size = run_bytes(lines, depth)
    return Cost(size, memory=BASE + size, work={"rows": lines * depth})
