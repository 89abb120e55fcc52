"""Costs of training, with a live search and a dev set where it has them."""

from collections import Counter

from commands.forecast.costs.amounts import chunks_of, encoder_of, in_part, index_bytes, stored_bytes
from commands.forecast.costs.cost import TORCH_BASE, Cost
from commands.forecast.costs.search import search_work
from commands.forecast.flops import activation_bytes, search_flop, step_flop, vector_bytes

# Reading the passages of a live search takes a GPU as long as comparing so many queries with them: 1,536 bytes in fp16
# at 4.3 TB/s (H200) against 5.1 ps a score, config/hardware.yaml; 65 on an A100.
PASS_QUERIES = 70
BUCKET_TOKENS = 21504  # training.trainer.TOKEN_BUDGET["cuda"]


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
        thread_memory=4 * shape.layer_weights,  # gradients of its part
        work=Counter(train_flop=flop) + live.work,
        model=True,
        in_turn=live.in_turn,
    )
