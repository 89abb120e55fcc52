"""The costs of checkpoints, tokens and vectors: a function (stage, counts, place) → Cost per kind.

Only matrix products count: embeddings, LayerNorm, softmax and GELU are left out, about 1 % at BERT-base's size.
"""

from dataclasses import dataclass, fields, replace

from teleport.costs import BASE, TORCH_BASE, Cost, vector_bytes
from teleport.encoder.budget import CHUNK_TEXTS, TOKEN_BUDGET
from teleport.encoder.own_settings import with_common_names

TOKENIZER = 0.95e6  # bytes in each checkpoint: tokenizer.json and vocab.txt of BERT
TOKEN_BYTES = 64  # of a batch on a CPU, per width of the residual stream and thread
TOKENISED_BYTES = 172  # of each token of the texts that are tokenised at a time


@dataclass(frozen=True)
class Shape:
    """Sizes of a BERT or RoBERTa backbone, under the names of transformers' config.json; the default is BERT-base."""

    num_hidden_layers: int = 12
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_attention_heads: int = 12
    vocab_size: int = 30522
    max_position_embeddings: int = 512
    type_vocab_size: int = 2

    @classmethod
    def of_config(cls, config):
        """The shape in the content of a config.json (dict); what it does not name is BERT-base's."""
        config = with_common_names(config)
        return cls(**{field.name: config[field.name] for field in fields(cls) if field.name in config})

    @classmethod
    def of(cls, model):
        """The shape of an encoder, or of a model of transformers."""
        return cls.of_config(getattr(model, "backbone", model).config.to_dict())

    @property
    def layer_weights(self):
        """Weights of the matrices of all layers: four of attention, two of the feed-forward part."""
        hidden = self.hidden_size
        return self.num_hidden_layers * (4 * hidden**2 + 2 * hidden * self.intermediate_size)

    @property
    def parameters(self):
        """All parameters without pooler and head: matrices, biases, LayerNorms and embeddings."""
        hidden, positions = self.hidden_size, self.max_position_embeddings + self.type_vocab_size
        vectors = self.num_hidden_layers * (9 * hidden + self.intermediate_size) + 2 * hidden
        return self.layer_weights + vectors + (self.vocab_size + positions) * hidden


def forward_flop(shape, tokens):
    """One text of `tokens` tokens through the backbone: 2 x weights x tokens, and the two products of attention."""
    attention = shape.num_hidden_layers * 4 * tokens**2 * shape.hidden_size
    return 2 * shape.layer_weights * tokens + attention


def forward_bytes(shape, half):
    """Bytes of a token in a layer without gradients, in 16 bits with `half`: the stream, its norm, queries, keys,
    values, the output of attention and two sums, each as wide as the stream; three values of the feed-forward part."""
    return (8 * shape.hidden_size + 3 * shape.intermediate_size) * (2 if half else 4)


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
    size = total * (2 if shape.vocab_size <= 2**16 else 4) + 8 * (texts + 1)
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
        work={"encode_flop": texts * forward_flop(shape, length)},
        model=True,
    )


def sharded(cost, number):
    """(Cost of each of `number` shards of a stage `encode`, Cost of the job that joins them)."""
    work = {rate: amount / number for rate, amount in cost.work.items()}
    shard = replace(cost, bytes=cost.bytes / number, mapped=cost.mapped / number, work=work)
    return shard, replace(cost, bytes=0.0, work={"disk": 2 * cost.bytes})
