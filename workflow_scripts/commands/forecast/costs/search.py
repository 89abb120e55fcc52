"""What a cost is, how much a stage has to do with, and the costs of indexes and searches, by vectors and by words.

The work of a stage is {rate: amount}; `hardware.Hardware.seconds` makes a time of it. `bench/calibrate.py` turns the
same amounts and measured times into rates.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from commands.forecast.counts import encoder_shape, in_part
from commands.forecast.flops import search_flop, vector_bytes
from teleport.settings.search import FlatIndex

BASE, TORCH_BASE = 0.15e9, 0.65e9  # memory of a process that has loaded numpy and pyarrow, and torch besides
NEIGHBOUR_BYTES = 8  # an id and a score
FILE_NEGATIVES = 100  # per query in a file of negatives: an assumption, because it is read only by its stage
CANDIDATE_BYTES = 2**25 * 20  # search.flat.CANDIDATES: numbers, scores proposed and exact
SCORE_BYTES = 2**30  # on a GPU: search.flat_torch.QUERIES x BLOCK_PASSAGES, in float32
POSTINGS_PER_TOKEN = 0.4  # of BM25's index: without stop words and repeats, and a word is more than one token
LEXICAL_BUFFERS = 0.6e9  # search.lexical_index: a block of passages, or a range of postings
VOCABULARY_BYTES = 1.0  # a token adds to the terms in memory: 150 bytes a term, a new one in 150 tokens
QUERY_TERMS_BYTES = 500  # a query as a list of numbers
MARGIN = 32  # search.flat.MARGIN: proposed beyond the depth
RERANKED = 1000  # candidates of a query in a file
ERROR_PAIRS, ERROR_ROWS = 8192, 16384  # search.errors.BLOCK_PAIRS, BLOCK_ROWS


@dataclass(frozen=True)
class Cost:
    """What a stage costs; sizes in bytes."""

    bytes: float = 0.0  # of the artefacts
    scratch: float = 0.0  # more while it runs
    memory: float = BASE  # at the peak
    device_memory: float = 0.0  # besides, on the GPU; where there is none, in memory too, unless `copied`
    copied: bool = False  # whether `device_memory` is a copy of what is in memory
    thread_memory: float = 0.0  # besides for each thread, where there is no GPU
    work: Counter = field(default_factory=Counter)  # {rate of the hardware line: amount}
    model: bool = False  # whether the job loads torch and a checkpoint
    in_turn: bool = False  # whether candidates are scored while nothing else is computed, as in a training step

    def on_processor(self, threads):
        """The same without a GPU: all is in memory."""
        besides = threads * self.thread_memory + (0.0 if self.copied else self.device_memory)
        return replace(self, memory=self.memory + besides, device_memory=0.0)


def encoder_of(stage):
    """(Shape, dim, number of encoders) of the encoder that a stage makes or uses."""
    two = False
    while stage.kind != "pretrained":  # training one side alone makes two encoders of one
        two |= stage.kind == "train" and len(stage.settings.training.trains) == 1
        stage = stage.inputs["checkpoint"]
    shape, _ = encoder_shape(stage)
    return shape, stage.settings.projection or shape.hidden_size, 2 if two or not stage.settings.tied else 1


def passage_vectors(encode, counts):
    """(number, dimension, bytes on the disk) of the passage vectors that a stage `encode` makes."""
    number, (_, dim, _) = counts.passages * counts.chunks(encode)[0], encoder_of(encode)
    return number, dim, vector_bytes(number, dim, 2 if encode.settings.vectors == "fp16" else 4)


def run_lines(stage, counts):
    """(lines, passages a line) that a stage retrieves: `retrieve`, `bm25` or `negatives_file`."""
    if stage.kind == "negatives_file":
        return counts.queries["train"], FILE_NEGATIVES
    settings = stage.settings
    if stage.kind == "bm25":
        return counts.queries[settings.split], settings.depth
    of_positives = settings.of == "positives"
    texts = counts.positives if of_positives and settings.anchor == "all" else counts.queries
    chunks = counts.chunks(stage.inputs["passages"])[0] if of_positives else 1
    return chunks * in_part(texts[settings.split], settings.part), settings.depth


def run_bytes(lines, depth):
    return lines * (depth * NEIGHBOUR_BYTES + 4)


def index_bytes(index, passages, dim):
    """The size of an index: codes, vectors, or vectors and links of 4 bytes, 2 M a passage."""
    if index.kind == "pq":
        return passages * index.m * index.bits / 8
    links = 8 * index.M if index.kind == "hnsw" else 8 if index.kind == "ivf" else 0
    return vector_bytes(passages, dim) + passages * links


def index_cost(stage, counts):
    """Of other kinds than flat, training and adding come on top: no rate is measured."""
    passages, dim, vectors = passage_vectors(stage.inputs["passages"], counts)
    index, work = stage.settings.index, Counter(disk=vectors)
    size = 0.0 if index.kind == "flat" else index_bytes(index, passages, dim)
    return Cost(size, memory=BASE + size, work=work)


def search_work(index, lines, passages, dim, depth):
    """Work of searching with so many lines. PQ adds up numbers of a table, taken to be as fast as scoring again."""
    if index.kind == "pq":
        return Counter(rescored=lines * passages * index.m)
    return Counter(search_flop=search_flop(lines, passages, dim), rescored=lines * (depth + MARGIN) * dim)


def retrieve_cost(stage, counts):
    """By codes alone on the processor: there the vectors are read for the recall of a sample."""
    passages, dim, vectors = passage_vectors(stage.inputs["passages"], counts)
    lines, depth = run_lines(stage, counts)
    size = run_bytes(lines, depth)
    if stage.settings.scores == "compressed":
        index = stage.inputs["index"].settings.index
        codes, candidates = index_bytes(index, counts.passages, dim), lines * depth
        work = search_work(index, lines, counts.passages, dim, depth) + Counter(disk=codes + vectors)
        return Cost(size, memory=BASE + codes + min(CANDIDATE_BYTES, candidates * 20), work=work)
    depth *= stage.inputs["passages"].settings.chunks  # search.retrieve.chunks_needed
    memory = BASE + vectors + min(CANDIDATE_BYTES, lines * (depth + MARGIN) * 20)
    on_gpu = vector_bytes(passages, dim, 2) + SCORE_BYTES  # in fp16
    work = search_work(FlatIndex(), lines, passages, dim, depth) + Counter(disk=vectors)
    return Cost(size, memory=memory, device_memory=on_gpu, copied=True, work=work)


def lexical_index_cost(stage, counts):
    tokens = counts.corpus_tokens()
    size = tokens * POSTINGS_PER_TOKEN * 8
    memory = BASE + LEXICAL_BUFFERS + tokens * VOCABULARY_BYTES + 12 * counts.passages
    return Cost(size, scratch=size, memory=memory, work=Counter(bm25_tokens=tokens))


def bm25_cost(stage, counts):
    """The postings are memory-mapped: as much of them as the queries' terms have is in memory, at most all."""
    lines, depth = run_lines(stage, counts)
    postings = counts.corpus_tokens() * POSTINGS_PER_TOKEN * 8
    work = Counter(bm25_scores=lines * counts.passages)
    return Cost(run_bytes(lines, depth), memory=BASE + postings + lines * QUERY_TERMS_BYTES, work=work)


def rerank_cost(stage, counts):
    """At most: a file of candidates is not opened here, and has as many as MS MARCO's."""
    _, dim, _ = passage_vectors(stage.inputs["passages"], counts)
    depth = getattr(stage.inputs["candidates"].settings, "depth", RERANKED)
    lines = counts.queries[stage.settings.split]
    size = run_bytes(lines, depth)
    return Cost(size, memory=BASE + size, work=Counter(rescored=lines * depth * dim))


def errors_cost(stage, counts):
    """All products on the processor, and the vectors once more for every 8,192 positives."""
    _, dim, vectors = passage_vectors(stage.inputs["passages"], counts)
    pairs = counts.positives[stage.settings.split]
    work = Counter(search_flop=search_flop(pairs, counts.passages, dim), disk=vectors * -(-pairs // ERROR_PAIRS))
    block = min(pairs, ERROR_PAIRS) * min(counts.passages, ERROR_ROWS) * 4
    return Cost(pairs * 24, memory=BASE + vectors + block, work=work)
