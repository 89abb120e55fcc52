"""What indexes and searches cost, by vectors and by words."""

from commands.forecast.costs.collection import row_groups
from commands.forecast.counts import run_bytes
from commands.forecast.flops import search_flop, vector_bytes
from commands.forecast.hardware import BASE, Cost

CANDIDATES, CANDIDATE_BYTES = 2**25, 20  # search.flat.CANDIDATES: of each its number, its score proposed and exact
SCORES, GPU_BLOCK = 2**28, 65536  # on a GPU: search.flat_torch.SCORES, BLOCK_PASSAGES
PRODUCTS = 0.35e9  # torch, which most engines take
POSTINGS_PER_TOKEN = 0.4  # of BM25's index: without stop words and repeats, and a word is more than one token
LEXICAL_BUFFERS = 0.4e9  # search.lexical_index: a range of postings; and each token of BLOCK_GROUPS row groups
LEXICAL_GROUPS, BLOCK_TOKEN_BYTES = 4, 11
LEAST_GROUPS, COUNTING = 2, 0.25e9  # search.lexical_index: of each process; what it takes
INVERTING = 0.15  # of the work on a token, which one process does
VOCABULARY_BYTES = 1.0  # a token adds to the terms in memory: 150 bytes a term, a new one in 150 tokens
QUERY_TERMS_BYTES = 500  # a query as a list of numbers
MARGIN = 32  # search.flat.MARGIN: proposed beyond the depth
# cpu.int8.QUERIES of each thread, WIDTH candidates a rank and NEAR; of each so much, kept and sorted several times over
INT8_LINES, INT8_WIDTH, INT8_NEAR, INT8_BYTES = 512, 8, 2560, 95
TRAIN_PER_LIST, IVF_ITERATIONS, PQ_ITERATIONS = 256, 10, 25  # search.approximate's, and faiss's of k-means
RERANKED = 1000  # candidates of a query in a file
ERROR_PAIRS, ERROR_ROWS = 8192, 16384  # search.errors.BLOCK_PAIRS, BLOCK_ROWS


def index_bytes(index, passages, dim):
    """The size of an index: codes, vectors, or vectors and links of 4 bytes, 2 M a passage."""
    if index.kind == "pq":
        return passages * index.numbers[0] * index.bits / 8
    links = 8 * index.numbers[0] if index.kind == "hnsw" else 8 if index.kind == "ivf" else 0
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
    centroids, iterations = (
        (index.numbers[0], IVF_ITERATIONS) if index.kind == "ivf" else (2**index.bits, PQ_ITERATIONS)
    )
    compared = passages + iterations * min(passages, TRAIN_PER_LIST * centroids)
    work["host_flop"] = search_flop(compared, centroids, dim)
    return Cost(size, memory=BASE + size, mapped=vectors, work=work)


def pq_work(index, lines, passages):
    """Searching by codes adds up numbers of a table, taken to be as fast as scoring again."""
    return lines * passages * index.numbers[0]


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
    """All texts are split, stemmed and inverted; the postings are on the disk twice for a while, and read again from
    memory maps."""
    tokens = counts.corpus_tokens
    size = tokens * POSTINGS_PER_TOKEN * 8
    groups = row_groups(counts)
    processes = max(1, min(place.threads, int(groups) // LEAST_GROUPS))
    buffers = LEXICAL_BUFFERS + BLOCK_TOKEN_BYTES * tokens * min(1.0, LEXICAL_GROUPS / groups)
    buffers += COUNTING * processes if processes > 1 else 0
    memory = BASE + buffers + tokens * VOCABULARY_BYTES + 12 * counts.passages
    work = {"bm25_tokens": tokens * (INVERTING + (1 - INVERTING) / processes)}
    return Cost(size, scratch=size, memory=memory, mapped=size, work=work)


def bm25(stage, counts, place):
    """The postings are memory-mapped: as much of them as the queries' terms have is in memory, at most all."""
    lines, depth = counts.run(stage)
    postings = counts.corpus_tokens * POSTINGS_PER_TOKEN * 8
    work = {"bm25_scores": lines * counts.passages}
    return Cost(run_bytes(lines, depth), memory=BASE + postings + lines * QUERY_TERMS_BYTES, work=work)


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
