"""What indexes and searches cost, by vectors and by words."""

from commands.forecast.counts import run_bytes
from commands.forecast.flops import search_flop, vector_bytes
from commands.forecast.hardware import BASE, Cost

CANDIDATES, CANDIDATE_BYTES = 2**25, 20  # search.flat.CANDIDATES: of each its number, its score proposed and exact
SCORES, GPU_BLOCK = 2**28, 65536  # on a GPU: search.flat_torch.SCORES, BLOCK_PASSAGES
PRODUCTS = 0.35e9  # torch, which most engines take
POSTINGS_PER_TOKEN = 0.4  # of BM25's index: without stop words and repeats, and a word is more than one token
INDEXED_POSTING_BYTES = 42  # measured at 150,000 and 600,000 passages
SCORED_PASSAGE_BYTES, LEAST_QUERIES = 24, 2000  # search.bm25: scores, matches and their order; queries of a process
VOCABULARY_BYTES = 1.0  # a token adds to the terms in memory: 150 bytes a term, a new one in 150 tokens
QUERY_TERMS_BYTES = 500  # a query as a list of numbers
MARGIN = 32  # search.flat.MARGIN: proposed beyond the depth
# cpu.int8.QUERIES of each thread, WIDTH candidates a rank and NEAR; of each so much, kept and sorted several times over
INT8_LINES, INT8_WIDTH, INT8_NEAR, INT8_BYTES = 512, 8, 2560, 95
TRAIN_PER_LIST, IVF_ITERATIONS, PQ_ITERATIONS = 256, 10, 25  # search.approximate's, and faiss's of k-means
RERANKED = 1000  # candidates of a query in a file
ERROR_PAIRS, ERROR_ROWS = 8192, 16384  # analyses.errors.BLOCK_PAIRS, BLOCK_ROWS


def index_bytes(index, passages, dim):
    """The size of an index: codes, vectors, or vectors and links of 4 bytes, 2 M a passage."""
    if index.kind == "pq":
        return passages * index.m * index.bits / 8
    links = 8 * index.M if index.kind == "hnsw" else 8 if index.kind == "ivf" else 0
    return vector_bytes(passages, dim) + passages * links


def workspace(dim):
    """Bytes that must be free on a GPU beside the vectors, else they stream: search.flat_torch.workspace."""
    return 4 * (2 * SCORES + 8 * GPU_BLOCK * dim)


def index(stage, counts, place):
    """All vectors are read; only an index that is not flat is written."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    index = stage.settings.index
    if index.kind == "flat":
        return Cost(memory=BASE, mapped=vectors, work={"read": vectors})
    size, work = index_bytes(index, passages, dim), {"read": vectors}
    if index.kind == "hnsw":
        return Cost(size, memory=BASE + size, mapped=vectors, work=work, lacks="linking the passages of hnsw indexes")
    # k-means compares some vectors with all centroids, several times; adding compares each passage once.
    centroids, iterations = (index.nlist, IVF_ITERATIONS) if index.kind == "ivf" else (2**index.bits, PQ_ITERATIONS)
    compared = passages + iterations * min(passages, TRAIN_PER_LIST * centroids)
    work["host_flop"] = search_flop(compared, centroids, dim)
    return Cost(size, memory=BASE + size, mapped=vectors, work=work)


def pq_work(index, lines, passages):
    """Searching by codes adds up numbers of a table, taken to be as fast as scoring again."""
    return lines * passages * index.m


def retrieve(stage, counts, place):
    """By codes alone on the processor: there the vectors are read for the recall of a sample."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    lines, depth = counts.run(stage)
    size = run_bytes(lines, depth)
    if stage.settings.scores == "compressed":
        index = stage.inputs["index"].settings.index
        codes = index_bytes(index, counts.passages, dim)
        work = {"rescored": pq_work(index, lines, counts.passages), "read": codes + vectors}
        return Cost(size, memory=BASE + codes + min(CANDIDATES, lines * depth) * CANDIDATE_BYTES, work=work)
    depth *= stage.inputs["passages"].settings.chunks  # search.retrieve.chunks_needed
    candidates = lines * (depth + MARGIN)
    work = {"search_flop": search_flop(lines, passages, dim), "rescored": candidates * dim, "read": vectors}
    if not place.gpus:
        work["sorted"] = lines * INT8_WIDTH * depth
    in_int8 = min(lines, INT8_LINES * place.threads) * (INT8_WIDTH * depth + INT8_NEAR)
    at_a_time, each = (candidates, CANDIDATE_BYTES) if place.gpus else (in_int8, INT8_BYTES)
    reduced = 0 if place.gpus else passages * dim  # in int8, where they have room
    return Cost(
        size,
        memory=BASE + PRODUCTS + vectors + min(CANDIDATES, at_a_time) * each,
        mapped=size + reduced,
        device_memory=vector_bytes(passages, dim, 2) / place.gpus + workspace(dim) if place.gpus else 0.0,  # in fp16
        work=work,
        at_once=(("search_flop", "rescored"),),
    )


def lexical_index(stage, counts, place):
    """All texts are split and stemmed; bm25s then holds all postings several times over."""
    postings = counts.corpus_tokens * POSTINGS_PER_TOKEN
    memory = BASE + postings * INDEXED_POSTING_BYTES + counts.corpus_tokens * VOCABULARY_BYTES
    return Cost(8 * postings, memory=memory, work={"bm25_tokens": counts.corpus_tokens})


def bm25(stage, counts, place):
    """The postings are memory-mapped: as much of them as the queries' terms have is in memory, at most all. A process
    scores all passages for one query at a time."""
    lines, depth = counts.run(stage)
    processes = max(1, min(place.threads, int(lines) // LEAST_QUERIES))
    memory = BASE + counts.corpus_tokens * POSTINGS_PER_TOKEN * 8 + lines * QUERY_TERMS_BYTES
    memory += processes * (counts.passages * SCORED_PASSAGE_BYTES + BASE)
    work = {"bm25_scores": lines * counts.passages / processes}
    return Cost(run_bytes(lines, depth), memory=memory, work=work)


def rerank(stage, counts, place):
    """At most: a file of candidates is not opened here, and has as many as MS MARCO's."""
    _, dim, _ = counts.vectors(stage.inputs["passages"])
    depth = getattr(stage.inputs["candidates"].settings, "depth", RERANKED)
    lines = counts.queries[stage.settings.split]
    size = run_bytes(lines, depth)
    return Cost(size, memory=BASE + size, work={"rescored": lines * depth * dim})


def errors(stage, counts, place):
    """All products on the processor, a look at each block of a positive's, and the vectors once more for every 8,192
    positives."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    pairs = counts.positives[stage.settings.split]
    work = {
        "host_flop": search_flop(pairs, passages, dim),
        "looked": pairs * -(-passages // ERROR_ROWS),
        "read": vectors * -(-pairs // ERROR_PAIRS),
    }
    block = min(pairs, ERROR_PAIRS) * min(counts.passages, ERROR_ROWS) * 4
    return Cost(pairs * 24, memory=BASE + vectors + block, work=work)
