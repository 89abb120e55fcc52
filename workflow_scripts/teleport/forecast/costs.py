"""What a stage costs: bytes on disk, memory, and work, in units that a hardware line turns into seconds.

The work of a stage is {rate: amount}; `hardware.Hardware.seconds` makes a time of it. `bench/calibrate.py` turns the
same amounts and measured times into rates.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from teleport.forecast.counts import encoder_shape
from teleport.forecast.flops import activation_bytes, forward_flop, search_flop, step_flop, vector_bytes
from teleport.negatives.draw import mixture_counts

BASE, TORCH_BASE = 0.15e9, 0.65e9  # memory of a process that has loaded numpy and pyarrow, and torch besides
BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
ID_BYTES = 150  # a passage's text id in memory: as a Python string in a table of rows
POOL_BYTES = 12  # a negative: passage 4, source 1, first episode 1, rank 2, score 4
RUN_BYTES = 24  # a line of a compressed run; measured on 764 queries x 1,000
NEIGHBOUR_BYTES = 8  # an id and a score
MERGE_BUFFERS = 60e6  # the candidates of a block and their draws
CANDIDATE_BYTES = 2**25 * 20  # search.flat.CANDIDATES: numbers, scores proposed and exact
SCORE_BYTES = 2**30  # on a GPU: search.flat_torch.QUERIES x BLOCK_PASSAGES, in float32
MARGIN = 32  # search.flat.MARGIN: proposed beyond the depth
CHUNK_TOKENS = 21504  # training.trainer.TOKEN_BUDGET["cuda"]
TEXT_COST = {"apidocs": 20}  # packages are parsed: a passage takes as long as twenty lines of a file


@dataclass(frozen=True)
class Cost:
    """bytes: size of the artefacts; scratch: more bytes while it runs; memory: bytes at the peak.

    device_memory: bytes besides, on the GPU, or in memory too where there is none, unless they are a copy of what is
    there (`copied`).
    work: {rate of the hardware line: amount}; model: whether the job loads torch and a checkpoint.
    """

    bytes: float = 0.0
    scratch: float = 0.0
    memory: float = BASE
    device_memory: float = 0.0
    copied: bool = False
    work: Counter = field(default_factory=Counter)
    model: bool = False

    def on_processor(self):
        """The same without a GPU: all is in memory."""
        besides = 0.0 if self.copied else self.device_memory
        return replace(self, memory=self.memory + besides, device_memory=0.0)


def tokens_of(stage):
    return stage.inputs["tokens"]


def pretrained_of(stage):
    """The `pretrained` stage that the encoder of a stage descends from."""
    while stage.kind != "pretrained":
        stage = stage.inputs.get("pretrained") or stage.inputs["checkpoint"]
    return stage


def encoder_of(stage):
    """(Shape, dim, number of encoders) of the encoder that a stage makes or uses."""
    pretrained = pretrained_of(stage)
    shape, _ = encoder_shape(pretrained)
    dim = pretrained.settings["projection"] or shape.hidden_size
    return shape, dim, 1 if pretrained.settings["tied"] else 2


def collection_cost(stage, counts, plan):
    tokens = next((s for s in plan.stages.values() if s.kind == "tokens"), None)
    limit = plan.config.encoder.max_passage_tokens
    per_passage = counts.text_tokens(tokens, limit) if tokens else limit
    size = counts.passages * per_passage * BYTES_PER_TOKEN
    texts = counts.passages * TEXT_COST.get(stage.settings["source"], 1)
    return Cost(size, memory=BASE + counts.passages * ID_BYTES, work=Counter(texts=texts))


def pretrained_cost(stage, counts, plan):
    shape, _, encoders = encoder_of(stage)
    return Cost(4 * shape.parameters * encoders, memory=TORCH_BASE + 4 * shape.parameters * encoders, model=True)


def tokens_cost(stage, counts, plan):
    shape, _ = encoder_shape(stage.inputs["pretrained"])
    encoder = plan.config.encoder
    total = counts.passages * counts.text_tokens(stage, encoder.max_passage_tokens)
    for split, num in counts.queries.items():
        total += num * (counts.tokens_per_text(stage, f"queries.{split}", encoder.max_query_tokens) - 2)
    texts = counts.passages + sum(counts.queries.values())
    size = total * (2 if shape.vocab_size <= 2**16 else 4) + 8 * (texts + 1 + len(counts.queries))
    return Cost(size, memory=2 * BASE + 16 * counts.passages, work=Counter(tokens=total))


def encode_cost(stage, counts, plan):
    shape, dim, encoders = encoder_of(stage)
    tokens, limits = tokens_of(stage), stage.settings
    length = counts.tokens_per_text(tokens, "passages", limits["max_passage_tokens"])
    flop = counts.passages * forward_flop(shape, length)
    for split, num in counts.queries.items():
        length = counts.tokens_per_text(tokens, f"queries.{split}", limits["max_query_tokens"])
        flop += num * forward_flop(shape, length)
    size = vector_bytes(counts.passages + sum(counts.queries.values()), dim)
    weights = 4 * shape.parameters * encoders
    return Cost(
        size, memory=TORCH_BASE + weights, device_memory=1.5 * weights, work=Counter(encode_flop=flop), model=True
    )


def index_cost(stage, counts, plan):
    _, dim, _ = encoder_of(stage.inputs["encode"])
    vectors, settings = vector_bytes(counts.passages, dim), stage.settings
    work = Counter(disk=vectors)  # of other kinds than flat, training and adding come on top: no rate is measured
    if settings["kind"] == "flat":
        return Cost(work=work)
    links = counts.passages * (8 * settings["M"] if settings["kind"] == "hnsw" else 8)  # 4 bytes each; 2 M a passage
    size = counts.passages * settings["m"] * settings["bits"] / 8 if settings["kind"] == "pq" else vectors + links
    return Cost(size, memory=BASE + size, work=work)


def retrieve_cost(stage, counts, plan):
    _, dim, _ = encoder_of(stage.inputs["encode"])
    settings = stage.settings
    every = settings["of"] == "positives" and settings["anchor"] == "all"
    lines = (counts.positives if every else counts.queries).get(settings["split"], 0)
    vectors = vector_bytes(counts.passages, dim)
    rescored = lines * (settings["depth"] + MARGIN) * dim
    block = min(CANDIDATE_BYTES, lines * (settings["depth"] + MARGIN) * 20)
    work = Counter(search_flop=search_flop(lines, counts.passages, dim), rescored=rescored, disk=vectors)
    return Cost(
        lines * (settings["depth"] * NEIGHBOUR_BYTES + 4),
        memory=BASE + vectors + block,
        device_memory=vectors / 2 + SCORE_BYTES,  # in fp16
        copied=True,
        work=work,
    )


def bm25_cost(stage, counts, plan):
    settings, lines = stage.settings, counts.queries.get(stage.settings["split"], 0)
    tokens = next((s for s in plan.stages.values() if s.kind == "tokens"), None)
    limit = plan.config.encoder.max_passage_tokens
    total = counts.passages * (counts.text_tokens(tokens, limit) if tokens else limit)
    work = Counter(bm25_tokens=total, bm25_scores=lines * counts.passages)
    # Term numbers and weights of the passages, 8 bytes a word, while the texts (5 bytes a word) are in memory too.
    return Cost(lines * (settings["depth"] * NEIGHBOUR_BYTES + 4), memory=BASE + 25 * total, work=work)


def pool_size(stage):
    """Negatives per query of a `merge` stage; in mode `released` the pool grows by every episode."""
    settings = stage.settings
    if settings["mode"] == "mixture":
        wanted = mixture_counts(settings["pool"], settings["sources"], settings.get("alpha"), settings.get("beta"))
        return sum(wanted.values())
    new = settings["per_source"] * sum(source != "momentum" for source in settings["sources"])
    return new + (pool_size(stage.inputs["momentum"]) if "momentum" in stage.inputs else 0)


def merge_cost(stage, counts, plan):
    queries = counts.queries.get("train", 0)
    candidates, mapped = 0, 0
    for role in ("queries", "positives"):
        if role in stage.inputs:
            retrieval = retrieve_cost(stage.inputs[role], counts, plan)
            mapped += retrieval.bytes
            candidates += retrieval.bytes / NEIGHBOUR_BYTES
    if "momentum" in stage.inputs:
        candidates += queries * pool_size(stage.inputs["momentum"])
    size = queries * (pool_size(stage) * POOL_BYTES + 8)
    return Cost(size, memory=BASE + MERGE_BUFFERS + mapped + queries * ID_BYTES, work=Counter(merge_rows=candidates))


def train_steps(training, queries):
    """Steps that an episode does: its schedule (whole batches only), or fewer when it stops early."""
    schedule = training["steps"] or training["epochs"] * (queries // training["batch_queries"])
    return min(schedule, training["stop_after_steps"] or schedule)


def train_cost(stage, counts, plan):
    shape, _, encoders = encoder_of(stage)
    settings, training, tokens = stage.settings, stage.settings["training"], tokens_of(stage)
    queries = training["batch_queries"]
    passages = queries * (1 + training["negatives_per_query"])
    query_tokens = counts.tokens_per_text(tokens, "queries.train", settings["max_query_tokens"])
    passage_tokens = counts.tokens_per_text(tokens, "passages", settings["max_passage_tokens"])
    steps = train_steps(training, counts.queries.get("train", 0))
    flop = steps * step_flop(shape, queries, passages, query_tokens, passage_tokens)
    # Weights, gradients and the two moments of AdamW, and a copy of the weights in 16 bits.
    states = 18 * shape.parameters * encoders
    tokens_at_once = (queries * query_tokens + passages * passage_tokens) / training.get("accumulate", 1)
    if training.get("gradient_caching"):
        flop *= 4 / 3  # a second forward pass
        tokens_at_once = min(tokens_at_once, CHUNK_TOKENS)
    kept = activation_bytes(shape, tokens_at_once, passage_tokens)
    weights = 4 * shape.parameters * encoders
    return Cost(
        weights,
        scratch=6 * weights,  # weights and moments of the resume state, twice while it is replaced
        memory=TORCH_BASE + weights,
        device_memory=states + kept,
        work=Counter(train_flop=flop),
        model=True,
    )


def evaluate_cost(stage, counts, plan):
    depth = stage.inputs["run"].settings.get("depth", plan.config.evaluation.depth)
    rows = depth * counts.queries.get(stage.settings["split"], 0)
    # Ids, scores and a sorted copy of the ids, and the ids of the corpus: about 40 bytes a line.
    return Cost(rows * RUN_BYTES, memory=0.3e9 + 40 * rows, work=Counter(run_rows=rows))


def check_cost(stage, counts, plan):
    return Cost()


COSTS = {
    "collection": collection_cost,
    "check": check_cost,
    "pretrained": pretrained_cost,
    "tokens": tokens_cost,
    "bm25": bm25_cost,
    "encode": encode_cost,
    "index": index_cost,
    "retrieve": retrieve_cost,
    "merge": merge_cost,
    "train": train_cost,
    "evaluate": evaluate_cost,
}


def stage_cost(stage, counts, plan):
    """The Cost of a planned stage, or None for a kind that has no estimate."""
    estimate = COSTS.get(stage.kind)
    return estimate(stage, counts, plan) if estimate else None
