"""The sizes of an encoder, and the bytes that its tokens take: for stages that fit their batches to a device, and for
the forecast."""

from dataclasses import dataclass, fields

from teleport.encoder.own_settings import with_common_names


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


def forward_bytes(shape, half):
    """Bytes of a token in a layer without gradients, in 16 bits with `half`: the stream, its norm, queries, keys,
    values, the output of attention and two sums, each as wide as the stream; three values of the feed-forward part."""
    return (8 * shape.hidden_size + 3 * shape.intermediate_size) * (2 if half else 4)


def kept_bytes(shape, tokens, training, half):
    """Return the bytes that a step keeps of `tokens` tokens for its backward pass, by its settings. half: whether it
    computes in 16 bits"""
    kept = activation_bytes(shape, tokens, half)
    if training.gradient_checkpointing:  # all activations of one layer, and the input of each layer
        kept = kept / max(shape.num_hidden_layers, 1) + 4 * shape.num_hidden_layers * shape.hidden_size * tokens
    return kept


def activation_bytes(shape, tokens, half):
    """Return the bytes that a training step keeps of `tokens` tokens for its backward pass, if attention keeps no
    weights.

    Per token and layer, in 16 bits with `half`: the input of the layer, queries, keys, values, the output of attention
    and the input of the feed-forward part, each as wide as the stream, and both sides of GELU. Also the inputs of the
    two LayerNorms in 32 bits, two dropout masks in 8 bits, and a sum for each head.
    """
    products = (6 * shape.hidden_size + 2 * shape.intermediate_size) * (2 if half else 4)
    per_token = products + (2 * 4 + 2) * shape.hidden_size + 4 * shape.num_attention_heads
    return shape.num_hidden_layers * tokens * per_token
