"""What a stage costs: bytes on disk, memory, and work, in units that a hardware line turns into seconds.

The work of a stage is {rate: amount}; `hardware.Hardware.seconds` makes a time of it. `bench/calibrate.py` turns the
same amounts and measured times into rates.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from commands.forecast.counts import encoder_shape
from commands.forecast.flops import activation_bytes, forward_flop, search_flop, step_flop, vector_bytes
from teleport.settings.search import FlatIndex

BASE, TORCH_BASE = 0.15e9, 0.65e9  # memory of a process that has loaded numpy and pyarrow, and torch besides
BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
ID_BYTES = 150  # a passage's text id in memory: as a Python string in a table of rows
POOL_BYTES = 12  # a negative: passage 4, source 1, first episode 1, rank 2, score 4
RUN_BYTES = 24  # a line of a compressed run; measured on 764 queries x 1,000
NEIGHBOUR_BYTES = 8  # an id and a score
FILE_NEGATIVES = 100  # per query in a file of negatives: an assumption, because it is read only by its stage
MERGE_BUFFERS = 60e6  # the candidates of a block and their draws
CANDIDATE_BYTES = 2**25 * 20  # search.flat.CANDIDATES: numbers, scores proposed and exact
SCORE_BYTES = 2**30  # on a GPU: search.flat_torch.QUERIES x BLOCK_PASSAGES, in float32
POSTINGS_PER_TOKEN = 0.4  # of BM25's index: without stop words and repeats, and a word is more than one token
LEXICAL_BUFFERS = 0.6e9  # search.lexical_index: a block of passages, or a range of postings
VOCABULARY_BYTES = 1.0  # a token adds to the terms in memory: 150 bytes a term, a new one in 150 tokens
QUERY_TERMS_BYTES = 500  # a query as a list of numbers
MARGIN = 32  # search.flat.MARGIN: proposed beyond the depth
# Reading the passages of a live search takes a GPU as long as comparing so many queries with them: 1,536 bytes in fp16
# at 4.3 TB/s (H200) against 5.1 ps a score, config/hardware.yaml; 65 on an A100.
PASS_QUERIES = 70
RERANKED = 1000  # candidates of a query in a file
ERROR_PAIRS, ERROR_ROWS = 8192, 16384  # search.errors.BLOCK_PAIRS, BLOCK_ROWS
BUCKET_TOKENS = 21504  # training.trainer.TOKEN_BUDGET["cuda"]
TEXT_COST = {"apidocs": 20}  # packages are parsed: a passage takes as long as twenty lines of a file
NO_ENCODER_TOKENS = 100  # of a passage, where no encoder says how many it reads: DPR's passages of 100 words
PAIR_BYTES = 40  # a retrieved passage in memory: ids, scores and a sorted copy of the ids


@dataclass(frozen=True)
class Cost:
    """bytes: size of the artefacts; scratch: more bytes while it runs; memory: bytes at the peak.

    device_memory: bytes besides, on the GPU, or in memory too where there is none, unless they are a copy of what is
    there (`copied`).
    work: {rate of the hardware line: amount}; model: whether the job loads torch and a checkpoint;
    in_turn: whether candidates are scored while nothing else is computed, as in a training step.
    """

    bytes: float = 0.0
    scratch: float = 0.0
    memory: float = BASE
    device_memory: float = 0.0
    copied: bool = False
    work: Counter = field(default_factory=Counter)
    model: bool = False
    in_turn: bool = False

    def on_processor(self):
        """The same without a GPU: all is in memory."""
        besides = 0.0 if self.copied else self.device_memory
        return replace(self, memory=self.memory + besides, device_memory=0.0)


def encoder_of(stage):
    """(Shape, dim, number of encoders) of the encoder that a stage makes or uses."""
    two = False
    while stage.kind != "pretrained":  # training one side alone makes two encoders of one
        two |= stage.kind == "train" and len(stage.settings.training.trains) == 1
        stage = stage.inputs["checkpoint"]
    shape, _ = encoder_shape(stage)
    return shape, stage.settings.projection or shape.hidden_size, 2 if two or not stage.settings.tied else 1


def corpus_tokens(counts, plan):
    """Tokens of all passages, without special tokens and not cut."""
    tokens = next((stage for stage in plan.stages.values() if stage.kind == "tokens"), None)
    limit = plan.encoder.max_passage_tokens if plan.encoder else NO_ENCODER_TOKENS
    return counts.passages * (counts.text_tokens(tokens, limit) if tokens else limit)


def chunks_of(stage, counts):
    """Mean vectors per passage of a stage that encodes or trains, and tokens of each: (chunks, tokens)."""
    settings, tokens = stage.settings, stage.inputs["tokens"]
    chunks = counts.chunks_per_passage(tokens, settings.max_passage_tokens, settings.chunks)
    return chunks, counts.tokens_per_text(tokens, "passages", settings.chunks * settings.max_passage_tokens) / chunks


def passage_vectors(encode, counts):
    """How many passage vectors an encode stage makes."""
    return counts.passages * chunks_of(encode, counts)[0]


def run_lines(stage, counts):
    """(lines, passages a line) that a stage retrieves: `retrieve`, `bm25` or `negatives_file`."""
    if stage.kind == "negatives_file":
        return counts.queries.get("train", 0), FILE_NEGATIVES
    settings = stage.settings
    of_positives = stage.kind == "retrieve" and settings.of == "positives"
    chunks = chunks_of(stage.inputs["passages"], counts)[0] if of_positives else 1
    every = of_positives and settings.anchor == "all"
    lines = (counts.positives if every else counts.queries).get(settings.split, 0)
    return chunks * (in_part(lines, settings.part) if stage.kind == "retrieve" else lines), settings.depth


def in_part(number, part):
    """How many of `number` queries, or lines of them, are in a `settings.section.Part` of the queries (None: all)."""
    first, last = part.rows(number) if part else (0, number)
    return last - first


def run_bytes(stage, counts):
    lines, depth = run_lines(stage, counts)
    return lines * (depth * NEIGHBOUR_BYTES + 4)


def collection_cost(stage, counts, plan):
    texts = counts.passages * TEXT_COST.get(stage.settings.source.source, 1)
    size = corpus_tokens(counts, plan) * BYTES_PER_TOKEN
    return Cost(size, memory=BASE + counts.passages * ID_BYTES, work=Counter(texts=texts))


def pretrained_cost(stage, counts, plan):
    shape, _, encoders = encoder_of(stage)
    return Cost(4 * shape.parameters * encoders, memory=TORCH_BASE + 4 * shape.parameters * encoders, model=True)


def tokens_cost(stage, counts, plan):
    shape, encoder = encoder_shape(stage.inputs["pretrained"])[0], plan.encoder
    total = counts.passages * counts.text_tokens(stage, encoder.max_passage_tokens)
    for split, num in counts.queries.items():
        total += num * (counts.tokens_per_text(stage, f"queries.{split}", encoder.max_query_tokens) - 2)
    texts = counts.passages + sum(counts.queries.values())
    size = total * (2 if shape.vocab_size <= 2**16 else 4) + 8 * (texts + 1 + len(counts.queries))
    return Cost(size, memory=2 * BASE + 16 * counts.passages, work=Counter(tokens=total))


def stored_bytes(stage, counts):
    """The size of the passage vectors that a stage `encode` keeps."""
    _, dim, _ = encoder_of(stage)
    return vector_bytes(passage_vectors(stage, counts), dim, 2 if stage.settings.vectors == "fp16" else 4)


def encode_cost(stage, counts, plan):
    shape, dim, encoders = encoder_of(stage)
    settings, flop = stage.settings, 0.0
    texts = {f"queries.{split}": num for split, num in counts.queries.items()} if "query" in settings.sides else {}
    for name, num in texts.items():
        tokens = counts.tokens_per_text(stage.inputs["tokens"], name, settings.max_query_tokens)
        flop += num * forward_flop(shape, tokens)
    size = vector_bytes(sum(texts.values()), dim)
    if "passage" in settings.sides:
        size += stored_bytes(stage, counts)
        flop += passage_vectors(stage, counts) * forward_flop(shape, chunks_of(stage, counts)[1])
    weights = 4 * shape.parameters
    return Cost(
        size,
        memory=TORCH_BASE + weights * encoders,
        device_memory=1.5 * weights * min(encoders, len(settings.sides)),
        work=Counter(encode_flop=flop),
        model=True,
    )


def index_cost(stage, counts, plan):
    _, dim, _ = encoder_of(stage.inputs["passages"])
    passages, index = passage_vectors(stage.inputs["passages"], counts), stage.settings.index
    # Of other kinds than flat, training and adding come on top: no rate is measured.
    work = Counter(disk=stored_bytes(stage.inputs["passages"], counts))
    if index.kind == "flat":
        return Cost(work=work)
    size = index_bytes(index, passages, dim)
    return Cost(size, memory=BASE + size, work=work)


def index_bytes(index, passages, dim):
    """The size of an index: codes, vectors, or vectors and links of 4 bytes, 2 M a passage."""
    if index.kind == "pq":
        return passages * index.m * index.bits / 8
    links = 8 * index.M if index.kind == "hnsw" else 8 if index.kind == "ivf" else 0
    return vector_bytes(passages, dim) + passages * links


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


def negatives_file_cost(stage, counts, plan):
    """Ids, texts or tokens of all passages are hashed, to find those of the file."""
    size = run_bytes(stage, counts)
    return Cost(size, memory=BASE + 16 * counts.passages + 2 * size, work=Counter(texts=counts.passages))


def positives_cost(stage, counts, plan):
    """At most: only questions without a judged positive are looked at, and a passage is read once, as fast as texts."""
    lines, depth = run_lines(stage.inputs["queries"], counts)
    work = Counter(texts=min(counts.passages, lines * depth))
    return Cost(lines * 12, memory=BASE + lines * (ID_BYTES + depth * PAIR_BYTES), work=work)


def pool_size(stage):
    """Negatives per query of a `merge` stage."""
    return sum(draw.count for draw in stage.settings.sources.values())


def merge_cost(stage, counts, plan):
    settings, inputs = stage.settings, stage.inputs
    queries = in_part(counts.queries.get("train", 0), settings.part)
    mapped = sum(run_bytes(inputs[name], counts) for name in settings.sources if name in inputs and name != "momentum")
    others = sum(2 * draw.count for name, draw in settings.sources.items() if name not in inputs)  # random ones
    others += pool_size(inputs["momentum"]) if "momentum" in inputs else 0
    work = Counter(merge_rows=mapped / NEIGHBOUR_BYTES + queries * others)
    if settings.filters.by_score:
        _, dim, _ = encoder_of(inputs["passages"])
        mapped += stored_bytes(inputs["passages"], counts) + vector_bytes(queries, dim)
        work["rescored"] = work["merge_rows"] * dim * chunks_of(inputs["passages"], counts)[0]
    size = queries * (pool_size(stage) * POOL_BYTES + 8)
    return Cost(size, memory=BASE + MERGE_BUFFERS + mapped + queries * ID_BYTES, work=work)


def train_steps(stage, queries):
    """Steps before a stage, in those that it continues, and by its end; an epoch has whole batches only."""
    training = stage.settings.training
    rows = in_part(queries, stage.settings.part) * (training.negatives_per_query if training.triples else 1)
    schedule = training.steps or training.epochs * (rows // training.batch_queries)
    goes_on = training.continues is True and "continued" in stage.inputs
    before = train_steps(stage.inputs["continued"], queries)[1] if goes_on else 0
    return before, min(schedule, before + (training.stop_after_steps or schedule))


def live_cost(stage, counts):
    """What searching at every step adds to a train stage: every micro-batch reads all passages once."""
    _, dim, _ = encoder_of(stage.inputs["passages"])
    live, training, passages = stage.settings.live, stage.settings.training, counts.passages
    first, last = train_steps(stage, counts.queries.get("train", 0))
    lines, vectors = (last - first) * training.batch_queries, stored_bytes(stage.inputs["passages"], counts)
    work = search_work(live.index, lines, passages, dim, live.depth)
    work += Counter(disk=vectors, rescored=lines * live.depth * dim)  # the vectors of a list are read for the loss
    if live.index.kind == "pq":  # codes stay with the processor
        return Cost(memory=vectors + index_bytes(live.index, passages, dim), work=work)
    compared = (last - first) * max(training.batch_queries, training.accumulate * PASS_QUERIES)
    work["search_flop"] = search_flop(compared, passages, dim)
    return Cost(memory=vectors, device_memory=vector_bytes(passages, dim, 2), work=work, in_turn=True)  # in fp16


def dev_flop(stage, shape, steps, queries, passages, query_tokens, passage_tokens):
    """What ranking the dev queries before the first of `steps`, every so many of them and after the last one takes.

    queries, passages: of a training step, 0 where their vectors are read; a pool never has more than the settings say
    """
    dev, evaluations = stage.settings.dev, 1 + -(-steps // stage.settings.training.evaluate_every)
    texts = dev.queries * bool(queries), dev.passages * bool(passages)
    return evaluations * step_flop(shape, *texts, query_tokens, passage_tokens) / 3  # without the backward pass


def train_cost(stage, counts, plan):
    shape, _, encoders = encoder_of(stage)
    settings, training, tokens = stage.settings, stage.settings.training, stage.inputs["tokens"]
    queries = training.batch_queries if "query" in training.trains else 0  # the vectors of a frozen side are read
    chunks, passage_tokens = chunks_of(stage, counts)
    passages = chunks * training.batch_queries * (1 + (1 if training.triples else training.negatives_per_query))
    passages = passages if "passage" in training.trains else 0
    query_tokens = counts.tokens_per_text(tokens, "queries.train", settings.max_query_tokens)
    first, last = train_steps(stage, counts.queries.get("train", 0))
    flop = (last - first) * step_flop(shape, queries, passages, query_tokens, passage_tokens)
    tokens_at_once = (queries * query_tokens + passages * passage_tokens) / training.accumulate
    if training.gradient_caching:
        flop *= 4 / 3  # a second forward pass
        tokens_at_once = min(tokens_at_once, BUCKET_TOKENS)
    if settings.dev:
        flop += dev_flop(stage, shape, last - first, queries, passages, query_tokens, passage_tokens)
    live = live_cost(stage, counts) if settings.live else Cost(memory=0.0)
    kept = activation_bytes(shape, tokens_at_once, passage_tokens if passages else query_tokens)
    weights, trained = 4 * shape.parameters, min(encoders, len(training.trains))
    return Cost(
        weights * (encoders + (2 * trained if training.continues else 0)),  # and two moments for the next stage
        # Weights and moments of the resume state, and maybe the best weights, twice while it is replaced.
        scratch=(8 if training.select == "dev" else 6) * weights * trained,
        memory=TORCH_BASE + weights * encoders + live.memory,
        # Weights, gradients and the two moments of AdamW, and a copy of the weights in 16 bits.
        device_memory=4.5 * weights * trained + kept + live.device_memory,
        work=Counter(train_flop=flop) + live.work,
        model=True,
        in_turn=live.in_turn,
    )


def evaluate_cost(stage, counts, plan):
    rows = plan.config.evaluation.depth * counts.queries.get(stage.settings.split, 0)
    return Cost(rows * RUN_BYTES, memory=0.3e9 + PAIR_BYTES * rows, work=Counter(run_rows=rows))


def external_cost(stage, counts, plan):
    """A run from elsewhere, as deep as ours; each line is a few Python objects before it is an array."""
    rows = plan.config.evaluation.depth * counts.queries.get(stage.settings.split, 0)
    size = rows * NEIGHBOUR_BYTES
    return Cost(size, memory=BASE + rows * ID_BYTES + counts.passages * ID_BYTES / 3, work=Counter(run_rows=rows))


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


def contrast_cost(stage, counts, plan):
    rows = 2 * plan.config.evaluation.depth * counts.queries.get(stage.settings.split, 0)
    return Cost(
        counts.queries.get(stage.settings.split, 0) * 40, memory=0.3e9 + PAIR_BYTES * rows, work=Counter(run_rows=rows)
    )


def negatives_overlap_cost(stage, counts, plan):
    lines, depth = run_lines(stage.inputs["queries"], counts)
    rows = lines * (depth + pool_size(stage.inputs["negatives"]))
    return Cost(memory=BASE + rows * NEIGHBOUR_BYTES, work=Counter(merge_rows=rows))


def forgetting_cost(stage, counts, plan):
    lines, depth = run_lines(stage.inputs["after"], counts)
    rows = 2 * lines * depth
    return Cost(memory=0.3e9 + PAIR_BYTES * rows, work=Counter(run_rows=rows))


COSTS = {
    "collection": collection_cost,
    "check": lambda stage, counts, plan: Cost(),
    "pretrained": pretrained_cost,
    "tokens": tokens_cost,
    "lexical_index": lexical_index_cost,
    "bm25": bm25_cost,
    "encode": encode_cost,
    "index": index_cost,
    "retrieve": retrieve_cost,
    "positives": positives_cost,
    "negatives_file": negatives_file_cost,
    "merge": merge_cost,
    "train": train_cost,
    "evaluate": evaluate_cost,
    "external": external_cost,
    "rerank": rerank_cost,
    "errors": errors_cost,
    "contrast": contrast_cost,
    "negatives_overlap": negatives_overlap_cost,
    "forgetting": forgetting_cost,
}


def stage_cost(stage, counts, plan):
    """The Cost of a planned stage, or None for a kind that has no estimate."""
    estimate = COSTS.get(stage.kind)
    return estimate(stage, counts, plan) if estimate else None
