"""Floating-point operations of the stages, from counts. One multiplication and one addition are two operations.

Counted are matrix products: embeddings, LayerNorm, softmax and GELU are left out, about 1 % at BERT-base's size.
"""

from dataclasses import dataclass


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


def step_flop(shape, queries, passages, query_tokens, passage_tokens):
    """One training step: the backward pass costs twice the forward pass."""
    texts = queries * forward_flop(shape, query_tokens) + passages * forward_flop(shape, passage_tokens)
    return 3 * texts


def search_flop(lines, passages, dim):
    """Inner products of `lines` vectors with those of all passages."""
    return 2 * lines * passages * dim


def vector_bytes(texts, dim, bytes_per_number=4):
    """Vectors on disk or in memory; fp32 unless said otherwise."""
    return texts * dim * bytes_per_number


def activation_bytes(shape, tokens, half=True):
    """What a training step keeps of `tokens` tokens for its backward pass, where attention keeps no weights (`varlen`).

    Per token and layer: what enters the layer, queries, keys, values, what attention gives and what enters the
    feed-forward part, each as wide as the stream, and the two sides of GELU, all in 16 bits with `half`; what the two
    LayerNorms read in 32 bits; two masks of dropout in 8; a sum for each head.
    """
    products = (6 * shape.hidden_size + 2 * shape.intermediate_size) * (2 if half else 4)
    per_token = products + (2 * 4 + 2) * shape.hidden_size + 4 * shape.num_attention_heads
    return shape.num_hidden_layers * tokens * per_token


def attention_bytes(shape, tokens, length):
    """What a step on a CPU keeps besides: attention weights in float32, before and after dropout (`cpu.attention`)."""
    return shape.num_hidden_layers * tokens * 2 * 4 * shape.num_attention_heads * length
