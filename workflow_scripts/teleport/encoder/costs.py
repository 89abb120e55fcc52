"""The costs of checkpoints, tokens and vectors: a function (stage, counts, place) → Cost per kind."""

from dataclasses import replace

from teleport.costs import BASE, TORCH_BASE, Cost, vector_bytes
from teleport.encoder.budget import CHUNK_TEXTS, TOKEN_BUDGET, id_bytes
from teleport.encoder.shape import Shape

TOKENIZER = 0.95e6  # bytes in each checkpoint: tokenizer.json and vocab.txt of BERT
TOKEN_BYTES = 64  # of a batch on a CPU, per width of the residual stream and thread
TOKENISED_BYTES = 172  # of each token of the texts that are tokenised at a time
# Layers this wide reach half the FLOP/s of very wide ones: LayerNorm, GELU, softmax, dropout and copies take time in
# proportion to the width, products to its square. Processor seconds of one thread of an AMD EPYC with avx512_bf16, in
# bfloat16, by bench/encode.py's `stage_encode` and bench/train.py's `stage_step` with 31 negatives a query, on random
# texts and weights (bench/texts.py's `RandomTexts`), gave these GFLOP/s of products, encoding and in a step:
#   width 32: 28, 16.5; 128: 149, 95; 384: 248, 183; 768: 328, 239
HALF_WIDTH = 400


def forward_flop(shape, tokens):
    """One text of `tokens` tokens through the backbone: 2 x weights x tokens, and the two products of attention."""
    attention = shape.num_hidden_layers * 4 * tokens**2 * shape.hidden_size
    return 2 * shape.layer_weights * tokens + attention


def forward_work(shape, tokens):
    """The work of a text's forward pass, in FLOP of a model as wide as BERT-base that take as long."""
    slower = (1 + HALF_WIDTH / shape.hidden_size) / (1 + HALF_WIDTH / Shape().hidden_size)
    return forward_flop(shape, tokens) * slower


def trained_parameters(shape, lora):
    """The number of trained parameters of a backbone: all, or those of the adapters of `lora` (settings.encoder.Lora),
    rank x (width before + width after) each. This is too many if only some layers have an adapter."""
    if lora is None:
        return shape.parameters
    widths = 8 * shape.hidden_size + 2 * (shape.hidden_size + shape.intermediate_size)
    return shape.num_hidden_layers * lora.rank * widths


def pretrained(stage, counts, place):
    """The weights are fetched unless they are local, loaded and written."""
    shape, _, encoders = counts.encoder(stage)
    weights, sources = 4 * shape.parameters, (stage.settings.checkpoint, stage.settings.query_checkpoint)
    fetched = weights * sum(counts.is_fetched(source) for source in sources if source)
    memory = TORCH_BASE + weights * encoders
    return Cost((weights + TOKENIZER) * encoders, memory=memory, work={"network": fetched}, model=True)


def ranker(stage, counts, place):
    """Return the cost like `pretrained`, for a cross-encoder of BERT-base's size."""
    weights = 4 * Shape().parameters
    fetched = weights * counts.is_fetched(stage.settings.checkpoint)
    return Cost(weights + TOKENIZER, memory=TORCH_BASE + weights, work={"network": fetched}, model=True)


def tokens(stage, counts, place):
    """All texts are tokenised: 2 or 4 bytes a token, and an offset of 8 bytes a text."""
    shape, of = counts.shape(stage.inputs["pretrained"]), stage.settings.of
    texts = counts.texts(of)
    if of == "passages":
        total = texts * counts.text_tokens(stage, counts.limit("passage"))
    else:
        total = texts * (counts.tokens_per_text(stage, of, counts.limit("query")) - 2)
    size = total * id_bytes(shape.vocab_size) + 8 * (texts + 1)
    at_once = TOKENISED_BYTES * min(CHUNK_TEXTS, texts) * total / max(1, texts)
    return Cost(size, memory=2 * BASE + 16 * texts + at_once, work={"tokens": total})


def encode(stage, counts, place):
    """A forward pass of every text; token maps and vectors are memory-mapped."""
    (shape, dim, _), of = counts.encoder(stage), stage.settings.of
    token_map = stage.inputs[f"tokens.{of}"]
    if of == "passages":
        texts, _, size = counts.vectors(stage)
        length = counts.chunks(stage)[1]
    else:
        texts = counts.texts(of)
        size, length = vector_bytes(texts, dim), counts.tokens_per_text(token_map, of, stage.settings.max_query_tokens)
    weights = 4 * shape.parameters
    computing = 1.5 * weights
    batches = place.threads * TOKEN_BYTES * TOKEN_BUDGET["encode"]["cpu"] * shape.hidden_size
    return Cost(
        size,
        memory=TORCH_BASE + 16 * texts + weights + (0 if place.gpus else computing + batches),
        mapped=tokens(token_map, counts, place).bytes + size,
        device_memory=computing if place.gpus else 0.0,
        work={"encode_flop": texts * forward_work(shape, length)},
        model=True,
    )


def sharded(cost, number):
    """(Cost of each of `number` shards of a stage `encode`, Cost of the job that joins them)."""
    work = {rate: amount / number for rate, amount in cost.work.items()}
    shard = replace(cost, bytes=cost.bytes / number, mapped=cost.mapped / number, work=work)
    return shard, replace(cost, bytes=0.0, work={"disk": 2 * cost.bytes})
