"""Costs of checkpoints from elsewhere, of tokens, of vectors, and of training."""

from collections import Counter

from commands.forecast.costs.search import BASE, TORCH_BASE, Cost, encoder_of, index_bytes, passage_vectors, search_work
from commands.forecast.counts import encoder_shape, in_part
from commands.forecast.flops import activation_bytes, forward_flop, search_flop, step_flop, vector_bytes
from teleport.encoder.source import WEIGHTS

# A batch on a CPU: encoder.batches.TOKEN_BUDGET["encode"]["cpu"] tokens, and bytes by the width of the residual stream;
# with one to eight threads the peak rose by 70 of these a thread with MiniLM, by 50 with BERT-base.
BATCH_TOKENS, TOKEN_BYTES = 4096, 64
# Reading the passages of a live search takes a GPU as long as comparing so many queries with them: 1,536 bytes in fp16
# at 4.3 TB/s (H200) against 5.1 ps a score, config/hardware.yaml; 65 on an A100.
PASS_QUERIES = 70
BUCKET_TOKENS = 21504  # encoder.batches.TOKEN_BUDGET["train"]["cuda"]


def is_fetched(source):
    """Whether the weights of a `CheckpointSource` come over the network: from the hub, and are not in its cache."""
    if not source.hub:
        return False
    from huggingface_hub import try_to_load_from_cache

    cached = (try_to_load_from_cache(source.hub, name, revision=source.revision) for name in WEIGHTS)
    return not any(isinstance(path, str) for path in cached)


def pretrained_cost(stage, counts):
    shape, _, encoders = encoder_of(stage)
    weights, sources = 4 * shape.parameters, (stage.settings.checkpoint, stage.settings.query_checkpoint)
    fetched = weights * sum(is_fetched(source) for source in sources if source)
    memory = TORCH_BASE + weights * encoders
    return Cost(weights * encoders, memory=memory, work=Counter(network=fetched), model=True)


def tokens_cost(stage, counts):
    shape, encoder = encoder_shape(stage.inputs["pretrained"])[0], counts.plan.encoder
    total = counts.passages * counts.text_tokens(stage, encoder.max_passage_tokens)
    for split, num in counts.queries.items():
        total += num * (counts.tokens_per_text(stage, f"queries.{split}", encoder.max_query_tokens) - 2)
    texts = counts.passages + sum(counts.queries.values())
    size = total * (2 if shape.vocab_size <= 2**16 else 4) + 8 * (texts + 1 + len(counts.queries))
    return Cost(size, memory=2 * BASE + 16 * counts.passages, work=Counter(tokens=total))


def encode_cost(stage, counts):
    shape, dim, encoders = encoder_of(stage)
    settings, queries, flop = stage.settings, counts.queries if "query" in stage.settings.sides else {}, 0.0
    for split, num in queries.items():
        tokens = counts.tokens_per_text(stage.inputs["tokens"], f"queries.{split}", settings.max_query_tokens)
        flop += num * forward_flop(shape, tokens)
    size = vector_bytes(sum(queries.values()), dim)
    if "passage" in settings.sides:
        passages, _, stored = passage_vectors(stage, counts)
        size += stored
        flop += passages * forward_flop(shape, counts.chunks(stage)[1])
    weights, batch = 4 * shape.parameters, TOKEN_BYTES * BATCH_TOKENS * shape.hidden_size
    memory, on_gpu = TORCH_BASE + weights * encoders, 1.5 * weights * min(encoders, len(settings.sides))
    work = Counter(encode_flop=flop)
    return Cost(size, memory=memory, device_memory=on_gpu, thread_memory=batch, work=work, model=True)


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
    _, dim, vectors = passage_vectors(stage.inputs["passages"], counts)
    live, training, passages = stage.settings.live, stage.settings.training, counts.passages
    first, last = train_steps(stage, counts.queries["train"])
    lines = (last - first) * training.batch_queries
    work = search_work(live.index, lines, passages, dim, live.depth)
    work += Counter(disk=vectors, rescored=lines * live.depth * dim)  # the vectors of a list are read for the loss
    if live.index.kind == "pq":  # codes stay with the processor
        return Cost(memory=vectors + index_bytes(live.index, passages, dim), work=work)
    compared = (last - first) * max(training.batch_queries, training.accumulate * PASS_QUERIES)
    work["search_flop"] = search_flop(compared, passages, dim)
    return Cost(memory=vectors, device_memory=vector_bytes(passages, dim, 2), work=work, in_turn=True)  # in fp16


def train_cost(stage, counts):
    shape, _, encoders = encoder_of(stage)
    settings, training, tokens = stage.settings, stage.settings.training, stage.inputs["tokens"]
    chunks, passage_tokens = counts.chunks(stage)
    query_tokens = counts.tokens_per_text(tokens, "queries.train", settings.max_query_tokens)
    # The vectors of a frozen side are read.
    queries = training.batch_queries if "query" in training.trains else 0
    passages = chunks * training.batch_queries * (1 + (1 if training.triples else training.negatives_per_query))
    passages = passages if "passage" in training.trains else 0
    first, last = train_steps(stage, counts.queries["train"])
    flop = (last - first) * step_flop(shape, queries, passages, query_tokens, passage_tokens)
    tokens_at_once = (queries * query_tokens + passages * passage_tokens) / training.accumulate
    if training.gradient_caching:
        flop *= 4 / 3  # a second forward pass
        tokens_at_once = min(tokens_at_once, BUCKET_TOKENS)
    if settings.dev:  # ranked before the first step, every so many of them and after the last one; no backward pass
        evaluations = 1 + -(-(last - first) // training.evaluate_every)
        texts = settings.dev.queries * bool(queries), settings.dev.passages * bool(passages)  # at most
        flop += evaluations * step_flop(shape, *texts, query_tokens, passage_tokens) / 3
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
        thread_memory=4 * shape.layer_weights,  # gradients of its part
        work=Counter(train_flop=flop) + live.work,
        model=True,
        in_turn=live.in_turn,
    )
