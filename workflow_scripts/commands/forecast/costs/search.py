"""Costs of indexes and searches, by vectors and by words."""

from collections import Counter

from commands.forecast.costs.amounts import (
    NEIGHBOUR_BYTES,
    corpus_tokens,
    encoder_of,
    index_bytes,
    passage_vectors,
    run_bytes,
    run_lines,
    stored_bytes,
)
from commands.forecast.costs.cost import BASE, Cost
from commands.forecast.flops import search_flop, vector_bytes
from teleport.settings.search import FlatIndex

CANDIDATE_BYTES = 2**25 * 20  # search.flat.CANDIDATES: numbers, scores proposed and exact
SCORE_BYTES = 2**30  # on a GPU: search.flat_torch.QUERIES x BLOCK_PASSAGES, in float32
POSTINGS_PER_TOKEN = 0.4  # of BM25's index: without stop words and repeats, and a word is more than one token
LEXICAL_BUFFERS = 0.6e9  # search.lexical_index: a block of passages, or a range of postings
VOCABULARY_BYTES = 1.0  # a token adds to the terms in memory: 150 bytes a term, a new one in 150 tokens
QUERY_TERMS_BYTES = 500  # a query as a list of numbers
MARGIN = 32  # search.flat.MARGIN: proposed beyond the depth
RERANKED = 1000  # candidates of a query in a file
ERROR_PAIRS, ERROR_ROWS = 8192, 16384  # search.errors.BLOCK_PAIRS, BLOCK_ROWS


def index_cost(stage, counts, plan):
    _, dim, _ = encoder_of(stage.inputs["passages"])
    passages, index = passage_vectors(stage.inputs["passages"], counts), stage.settings.index
    # Of other kinds than flat, training and adding come on top: no rate is measured.
    work = Counter(disk=stored_bytes(stage.inputs["passages"], counts))
    if index.kind == "flat":
        return Cost(work=work)
    size = index_bytes(index, passages, dim)
    return Cost(size, memory=BASE + size, work=work)


def search_work(index, lines, passages, dim, depth):
    """Work of searching with so many lines. PQ adds up numbers of a table, taken to be as fast as scoring again."""
    if index.kind == "pq":
        return Counter(rescored=lines * passages * index.m)
    return Counter(search_flop=search_flop(lines, passages, dim), rescored=lines * (depth + MARGIN) * dim)


def compressed_retrieve_cost(stage, counts):
    """By codes alone, on the processor; the vectors are read for the recall of a sample."""
    _, dim, _ = encoder_of(stage.inputs["passages"])
    (lines, depth), index = run_lines(stage, counts), stage.inputs["index"]
    size = index_bytes(index.settings.index, counts.passages, dim)
    work = search_work(index.settings.index, lines, counts.passages, dim, depth)
    work["disk"] = size + stored_bytes(stage.inputs["passages"], counts)
    return Cost(run_bytes(stage, counts), memory=BASE + size + min(CANDIDATE_BYTES, lines * depth * 20), work=work)


def retrieve_cost(stage, counts, plan):
    if stage.settings.scores == "compressed":
        return compressed_retrieve_cost(stage, counts)
    _, dim, _ = encoder_of(stage.inputs["passages"])
    lines, depth = run_lines(stage, counts)
    passages = passage_vectors(stage.inputs["passages"], counts)
    found = depth * stage.inputs["passages"].settings.chunks  # search.maxp.chunks_needed
    vectors, candidates = stored_bytes(stage.inputs["passages"], counts), lines * (found + MARGIN)
    work = search_work(FlatIndex(), lines, passages, dim, found)
    return Cost(
        run_bytes(stage, counts),
        memory=BASE + vectors + min(CANDIDATE_BYTES, candidates * 20),
        device_memory=vector_bytes(passages, dim, 2) + SCORE_BYTES,  # in fp16
        copied=True,
        work=work + Counter(disk=vectors),
    )


def lexical_index_cost(stage, counts, plan):
    tokens = corpus_tokens(counts, plan)
    size = tokens * POSTINGS_PER_TOKEN * 8
    memory = BASE + LEXICAL_BUFFERS + tokens * VOCABULARY_BYTES + 12 * counts.passages
    return Cost(size, scratch=size, memory=memory, work=Counter(bm25_tokens=tokens))


def bm25_cost(stage, counts, plan):
    """The postings are memory-mapped: as much of them as the queries' terms have is in memory, at most all."""
    lines, depth = run_lines(stage, counts)
    postings = corpus_tokens(counts, plan) * POSTINGS_PER_TOKEN * 8
    work = Counter(bm25_scores=lines * counts.passages)
    return Cost(run_bytes(stage, counts), memory=BASE + postings + lines * QUERY_TERMS_BYTES, work=work)


def rerank_cost(stage, counts, plan):
    """At most: a file of candidates is not opened here, and has as many as MS MARCO's."""
    _, dim, _ = encoder_of(stage.inputs["passages"])
    depth = getattr(stage.inputs["candidates"].settings, "depth", RERANKED)
    lines = counts.queries.get(stage.settings.split, 0)
    size = lines * (depth * NEIGHBOUR_BYTES + 4)
    return Cost(size, memory=BASE + size, work=Counter(rescored=lines * depth * dim))


def errors_cost(stage, counts, plan):
    """All products on the processor, and the vectors once more for every 8,192 positives."""
    _, dim, _ = encoder_of(stage.inputs["passages"])
    pairs, vectors = counts.positives.get(stage.settings.split, 0), stored_bytes(stage.inputs["passages"], counts)
    work = Counter(search_flop=search_flop(pairs, counts.passages, dim), disk=vectors * -(-pairs // ERROR_PAIRS))
    block = min(pairs, ERROR_PAIRS) * min(counts.passages, ERROR_ROWS) * 4
    return Cost(pairs * 24, memory=BASE + vectors + block, work=work)
