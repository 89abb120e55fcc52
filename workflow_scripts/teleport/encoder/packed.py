"""The encoder's forward over packed texts: one row per real token, and no padding in any operation.

It computes what transformers computes with the parameters of a backbone (`Encoder.forward`, which tests compare with),
but without rows for padding, with one product instead of three for queries, keys and values, and in the last layer only
for the tokens that are pooled. With bfloat16 the matrix products and the attention are in bfloat16; the sums of the
residual stream and LayerNorm stay in float32, which is 20 times as exact as a model cast to bfloat16.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch.nn.functional import layer_norm

from teleport.encoder.architectures import ARCHITECTURES
from teleport.encoder.attention import Spans, attention
from teleport.encoder.dropout import dropout
from teleport.encoder.parts import in_parts
from teleport.encoder.precision import to_device
from teleport.encoder.products import laid_out, linear


class Linears(NamedTuple):
    """(weight, bias) of a layer's matrix products, in the type that they are computed in.

    queries: of the queries where only the first token of every text is computed, else None; inputs: of what is made of
    every token: queries (where they have no product of their own), keys and values.
    """

    queries: tuple | None
    inputs: tuple
    mixed: tuple
    wide: tuple
    narrow: tuple


class PackedEncoder:
    """An `Encoder` that encodes packed texts. Its weights are converted here: for encoding make one and keep it; for
    training make one per call, so that the gradients reach the encoder's parameters.

    dtype: torch.bfloat16, or None for that of the parameters (float32)
    compiled: have torch.compile join what lies between the products into few kernels (for CUDA)
    """

    def __init__(self, encoder, dtype=None, compiled=False):
        self.encoder, self.dtype = encoder, dtype or next(encoder.parameters()).dtype
        self.finish = compiled_finish() if compiled else finish
        *layers, last = encoder.backbone.encoder.layer
        self.linears = [linears(layer, self.dtype) for layer in layers]
        self.linears.append(linears(last, self.dtype, first_only=encoder.pooling == "cls"))

    @property
    def dim(self):
        """Width of the vectors."""
        return self.encoder.dim

    def __call__(self, ids_T, lengths_B):
        """The vectors of B texts, float32 [B, dim], on the encoder's device.

        ids_T: int64 numpy, the ids of one text after another, special tokens included; lengths_B: int64 numpy, how many
        of them each text has. Fast on a CPU when texts of equal length are neighbours.
        """
        backbone, device = self.encoder.backbone, next(self.encoder.parameters()).device
        spans = Spans(lengths_B, device, backbone.config.num_attention_heads)
        hidden_TH = embed(backbone, to_device(torch.from_numpy(ids_T), device), spans)
        return self.encoder.project(in_parts(self.pooled, hidden_TH, spans, self.weights()))

    def pooled(self, hidden_TH, spans):
        """The layers and the pooling: what is embedded, float32 [T, H] -> float32 [B, H]."""
        for layer, products in zip(self.encoder.backbone.encoder.layer, self.linears, strict=True):
            hidden_TH, mixed = attend(layer, products, hidden_TH, spans)
            hidden_TH = self.finish(layer, products, hidden_TH, mixed)
        if self.encoder.pooling == "mean":
            return torch.segment_reduce(hidden_TH, "mean", lengths=spans.lengths, unsafe=True)
        return hidden_TH  # of the last layer, which went on with a row a text

    def weights(self):
        """All tensors that `pooled` reads."""
        norms = [
            tensor
            for layer in self.encoder.backbone.encoder.layer
            for module in (layer.attention.output, layer.output)
            for tensor in module.LayerNorm.parameters()
        ]
        return [tensor for products in self.linears for pair in products if pair for tensor in pair] + norms


def linears(layer, dtype, first_only=False):
    """The `Linears` of a layer; differentiable outside of inference mode."""
    attention = layer.attention.self
    parts = attention.query, attention.key, attention.value
    queries = product(parts[:1], dtype) if first_only else None
    others = layer.attention.output.dense, layer.intermediate.dense, layer.output.dense
    return Linears(queries, product(parts[first_only:], dtype), *(product([module], dtype) for module in others))


def product(modules, dtype):
    """(weight, bias) of one product instead of those of several linear modules with the same input."""
    parts = [module.weight for module in modules], [module.bias for module in modules]
    weight, bias = (torch.cat(tensors) if len(modules) > 1 else tensors[0] for tensors in parts)
    return laid_out(weight.to(dtype)), bias.to(dtype)


def embed(backbone, ids_T, spans):
    """Sum of word, position and maybe type embeddings, LayerNorm and dropout: float32 [T, H]."""
    embeddings, places_T = backbone.embeddings, positions(ids_T, spans, backbone.config)
    hidden_TH = embeddings.word_embeddings(ids_T)
    if backbone.config.type_vocab_size:
        hidden_TH = hidden_TH + embeddings.token_type_embeddings.weight[0]
    hidden_TH = embeddings.LayerNorm(hidden_TH + embeddings.position_embeddings(places_T))
    return dropout(hidden_TH, rate(embeddings))


def rate(module):
    """The rate of a module's dropout, 0 in evaluation mode."""
    return module.dropout.p if module.training else 0.0


def positions(ids_T, spans, config):
    """Each token's row in the position embeddings, int64 [T].

    Counted from 0, or from after the padding id, whose own row a padding token in a text gets (RoBERTa, XLM-R).
    """
    starts_T = spans.offsets[:-1].repeat_interleave(spans.lengths, output_size=len(ids_T))
    if not ARCHITECTURES[config.model_type].after_padding:
        return torch.arange(len(ids_T), device=ids_T.device) - starts_T
    counted_T = (ids_T != config.pad_token_id).long()
    before_T = counted_T.cumsum(0)
    places_T = before_T - (before_T - counted_T)[starts_T]
    return places_T * counted_T + config.pad_token_id


def attend(layer, products, hidden_TH, spans):
    """The first half of a layer (Vaswani et al. 2017): the rows it goes on with, and what attention mixes for them.

    Both are [T, H], the first in float32; [B, H], the first token of each text, where queries have their own product.
    """
    queries, dtype = None, products.mixed[1].dtype  # the type of a bias
    inputs = linear(hidden_TH.to(dtype), *products.inputs)
    if products.queries:
        hidden_TH = hidden_TH[spans.offsets[:-1]]
        queries = linear(hidden_TH.to(dtype), *products.queries)
    return hidden_TH, attention(queries, inputs, spans, rate(layer.attention.self))


def finish(layer, products, hidden_TH, mixed):
    """The second half of a layer, LayerNorm after each sum, from what `attend` gives: float32 [T, H] or [B, H]."""
    hidden_TH = add_and_norm(layer.attention.output, linear(mixed, *products.mixed), hidden_TH)
    wide = linear(hidden_TH.to(mixed.dtype), *products.wide, layer.intermediate.intermediate_act_fn)
    return add_and_norm(layer.output, linear(wide, *products.narrow), hidden_TH)


@cache
def compiled_finish():
    """`finish` as torch.compile makes it, for any number of rows: one program for all layers."""
    return torch.compile(finish, dynamic=True)


def add_and_norm(module, change_TH, hidden_TH):
    """LayerNorm of the residual stream (float32) and a dropped-out change to it."""
    norm = module.LayerNorm
    summed_TH = hidden_TH + dropout(change_TH, rate(module))
    return layer_norm(summed_TH, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
