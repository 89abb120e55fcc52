"""What checkpoints, tokens and vectors cost."""

from dataclasses import replace

from commands.forecast.counts import encoder_shape, in_hub_cache
from commands.forecast.flops import forward_flop, vector_bytes
from commands.forecast.hardware import BASE, TORCH_BASE, Cost
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.source import WEIGHTS

# Of a batch on a CPU, for each token by the width of the residual stream; with one to eight threads the peak rose by 70
# of these a thread with MiniLM, by 50 with BERT-base.
TOKEN_BYTES = 64
TOKENIZER = 0.95e6  # bytes in each checkpoint: tokenizer.json and vocab.txt of BERT
TOKENISED, TOKENISED_BYTES = 2048, 172  # encoder.tokens.CHUNK_TEXTS; bytes of each of their tokens


def is_fetched(source):
    """Whether the weights of a `CheckpointSource` come over the network: from the hub, and are not in its cache."""
    return bool(source.hub) and not any(in_hub_cache(source, name) for name in WEIGHTS)


def pretrained(stage, counts, place):
    """The weights are fetched where they are not local, loaded and written."""
    shape, _, encoders = counts.encoder(stage)
    weights, sources = 4 * shape.parameters, (stage.settings.checkpoint, stage.settings.query_checkpoint)
    fetched = weights * sum(is_fetched(source) for source in sources if source)
    size, work = (weights + TOKENIZER) * encoders, {"network": fetched}
    return Cost(size, memory=TORCH_BASE + weights * encoders, work=work, model=True)


def tokens(stage, counts, place):
    """All texts are tokenised: 2 or 4 bytes a token, and offsets of 8 bytes a text."""
    shape, encoder = encoder_shape(stage.inputs["pretrained"])[0], counts.plan.encoder
    total = counts.passages * counts.text_tokens(stage, encoder.max_passage_tokens)
    for split, num in counts.queries.items():
        total += num * (counts.tokens_per_text(stage, f"queries.{split}", encoder.max_query_tokens) - 2)
    texts = counts.passages + sum(counts.queries.values())
    size = total * (2 if shape.vocab_size <= 2**16 else 4) + 8 * (texts + 1 + len(counts.queries))
    at_once = TOKENISED_BYTES * min(TOKENISED, texts) * total / max(1, texts)
    return Cost(size, memory=2 * BASE + 16 * counts.passages + at_once, work={"tokens": total})


def encode(stage, counts, place):
    """A forward pass of every text; token maps and vectors are memory-mapped."""
    shape, dim, encoders = counts.encoder(stage)
    settings, queries, flop = stage.settings, counts.queries if "query" in stage.settings.sides else {}, 0.0
    for split, num in queries.items():
        length = counts.tokens_per_text(stage.inputs["tokens"], f"queries.{split}", settings.max_query_tokens)
        flop += num * forward_flop(shape, length)
    size = vector_bytes(sum(queries.values()), dim)
    if "passage" in settings.sides:
        passages, _, stored = counts.vectors(stage)
        size += stored
        flop += passages * forward_flop(shape, counts.chunks(stage)[1])
    weights = 4 * shape.parameters
    computing = 1.5 * weights * min(encoders, len(settings.sides))
    batches = place.threads * TOKEN_BYTES * TOKEN_BUDGET["encode"]["cpu"] * shape.hidden_size
    return Cost(
        size,
        memory=TORCH_BASE + 16 * counts.passages + weights * encoders + (0 if place.gpus else computing + batches),
        mapped=tokens(stage.inputs["tokens"], counts, place).bytes + size,
        device_memory=computing if place.gpus else 0.0,
        work={"encode_flop": flop},
        model=True,
    )


def sharded(cost, number):
    """(Cost of each of so many shards of a stage `encode`, that of the job which joins them)."""
    work = {rate: amount / number for rate, amount in cost.work.items()}
    shard = replace(cost, bytes=cost.bytes / number, mapped=cost.mapped / number, work=work)
    return shard, replace(cost, bytes=0.0, scratch=shard.bytes, work={"disk": 2 * cost.bytes})
