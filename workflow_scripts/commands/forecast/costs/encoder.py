"""Costs of checkpoints from elsewhere, of tokens and of vectors."""

from collections import Counter

from commands.forecast.costs.amounts import chunks_of, encoder_of, passage_vectors, stored_bytes
from commands.forecast.costs.cost import BASE, TORCH_BASE, Cost
from commands.forecast.counts import encoder_shape
from commands.forecast.flops import forward_flop, vector_bytes
from teleport.encoder.source import WEIGHTS

# A batch on a CPU: encode.TOKEN_BUDGET["cpu"] tokens, and bytes by the width of the residual stream; with one to eight
# threads the peak rose by 70 of these a thread with MiniLM, by 50 with BERT-base.
BATCH_TOKENS, TOKEN_BYTES = 4096, 64


def is_fetched(source):
    """Whether the weights of a `CheckpointSource` come over the network: from the hub, and are not in its cache."""
    if not source.hub:
        return False
    from huggingface_hub import try_to_load_from_cache

    cached = (try_to_load_from_cache(source.hub, name, revision=source.revision) for name in WEIGHTS)
    return not any(isinstance(path, str) for path in cached)


def pretrained_cost(stage, counts, plan):
    shape, _, encoders = encoder_of(stage)
    weights, sources = 4 * shape.parameters, (stage.settings.checkpoint, stage.settings.query_checkpoint)
    fetched = weights * sum(is_fetched(source) for source in sources if source)
    memory = TORCH_BASE + weights * encoders
    return Cost(weights * encoders, memory=memory, work=Counter(network=fetched), model=True)


def tokens_cost(stage, counts, plan):
    shape, encoder = encoder_shape(stage.inputs["pretrained"])[0], plan.encoder
    total = counts.passages * counts.text_tokens(stage, encoder.max_passage_tokens)
    for split, num in counts.queries.items():
        total += num * (counts.tokens_per_text(stage, f"queries.{split}", encoder.max_query_tokens) - 2)
    texts = counts.passages + sum(counts.queries.values())
    size = total * (2 if shape.vocab_size <= 2**16 else 4) + 8 * (texts + 1 + len(counts.queries))
    return Cost(size, memory=2 * BASE + 16 * counts.passages, work=Counter(tokens=total))


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
        thread_memory=TOKEN_BYTES * BATCH_TOKENS * shape.hidden_size,
        work=Counter(encode_flop=flop),
        model=True,
    )
