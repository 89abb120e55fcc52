"""The encoder's forward over packed texts: one row per real token, and no padding in any operation.

It reads the parameters of the transformers backbone and computes what `Encoder.forward` computes, which the tests
compare with. It differs in what it does not do: no row for padding, one product for queries, keys and values instead
of three, and in the last layer only the tokens that are pooled. With bfloat16 the matrix products and the attention
are in bfloat16; the sums of the residual stream and LayerNorm stay in float32, as under autocast.
"""

from typing import NamedTuple

import torch
from torch.nn.functional import layer_norm, linear

from teleport.encoder.attention import Spans, attention
from teleport.encoder.dropout import dropout


class Linears(NamedTuple):
    """(weight, bias) of a layer's matrix products, in the type that they are computed in."""

    queries_keys_values: tuple
    mixed: tuple
    wide: tuple
    narrow: tuple


class PackedEncoder:
    """An `Encoder` that encodes packed texts.

    The weights are converted here: for encoding make one and keep it; for training make one per call, so that the
    gradients reach the encoder's parameters. dtype: torch.bfloat16, or None for that of the parameters (float32).
    """

    def __init__(self, encoder, dtype=None):
        self.encoder, self.dtype = encoder, dtype or encoder.backbone.dtype
        self.linears = [linears(layer, self.dtype) for layer in encoder.backbone.encoder.layer]

    @property
    def dim(self):
        """Width of the vectors."""
        return self.encoder.dim

    def __call__(self, ids_T, lengths_B):
        """The vectors of B texts, float32 [B, dim], on the encoder's device.

        ids_T: int64 numpy, the ids of all texts behind one another, special tokens included; lengths_B: int64 numpy,
        how many of them each text has. Fast on a CPU when texts of equal length lie beside one another.
        """
        backbone, pooling = self.encoder.backbone, self.encoder.pooling
        device = backbone.embeddings.word_embeddings.weight.device
        spans = Spans(lengths_B, device)
        with torch.autocast(device.type, enabled=False):  # the types are chosen here
            hidden_TH = embed(backbone, torch.from_numpy(ids_T).to(device), spans)
            *layers, last = zip(backbone.encoder.layer, self.linears, strict=True)
            for layer, products in layers:
                hidden_TH = transform(layer, products, hidden_TH, spans)
            pooled_BH = transform(*last, hidden_TH, spans, first_only=pooling == "cls")
            if pooling == "mean":
                pooled_BH = torch.segment_reduce(pooled_BH, "mean", lengths=spans.lengths, unsafe=True)
            return self.encoder.project(pooled_BH)


def linears(layer, dtype):
    """The `Linears` of a transformers layer; differentiable."""
    attention = layer.attention.self
    fused = [
        torch.cat([getattr(part, name) for part in (attention.query, attention.key, attention.value)]).to(dtype)
        for name in ("weight", "bias")
    ]
    others = layer.attention.output.dense, layer.intermediate.dense, layer.output.dense
    return Linears(tuple(fused), *((module.weight.to(dtype), module.bias.to(dtype)) for module in others))


def embed(backbone, ids_T, spans):
    """Sum of word, position and type embeddings, LayerNorm and dropout: float32 [T, H]."""
    embeddings = backbone.embeddings
    places_T = positions(ids_T, spans, backbone.config)
    hidden_TH = embeddings.word_embeddings(ids_T) + embeddings.token_type_embeddings.weight[0]
    hidden_TH = embeddings.LayerNorm(hidden_TH + embeddings.position_embeddings(places_T))
    return dropout(hidden_TH, rate(embeddings))


def rate(module):
    """The rate of a transformers module's dropout, 0 in evaluation mode."""
    return module.dropout.p if module.training else 0.0


def positions(ids_T, spans, config):
    """Each token's row in the position embeddings, int64 [T].

    BERT counts from 0. RoBERTa and XLM-R count behind the padding id, and give that id's own row to a padding token
    that stands in a text.
    """
    starts_T = spans.offsets[:-1].repeat_interleave(spans.lengths, output_size=len(ids_T))
    if config.model_type == "bert":
        return torch.arange(len(ids_T), device=ids_T.device) - starts_T
    counted_T = (ids_T != config.pad_token_id).long()
    before_T = counted_T.cumsum(0)
    places_T = before_T - (before_T - counted_T)[starts_T]
    return places_T * counted_T + config.pad_token_id


def transform(layer, products, hidden_TH, spans, first_only=False):
    """One transformer layer (Vaswani et al. 2017, LayerNorm behind each sum): float32 [T, H].

    first_only: compute the first token of every text alone, [B, H]; it attends to all tokens of its text.
    """
    module = layer.attention.self
    dtype, width = products.mixed[0].dtype, hidden_TH.shape[1]
    inputs_TH = hidden_TH.to(dtype)
    if first_only:
        weight, bias = products.queries_keys_values
        hidden_TH = hidden_TH[spans.offsets[:-1]]
        queries = linear(hidden_TH.to(dtype), weight[:width], bias[:width])
        keys_values = linear(inputs_TH, weight[width:], bias[width:])
    else:
        queries, keys_values = linear(inputs_TH, *products.queries_keys_values).split([width, 2 * width], dim=1)
    mixed = attention(queries, keys_values, spans, module.num_attention_heads, rate(module))
    hidden_TH = add_and_norm(layer.attention.output, linear(mixed, *products.mixed), hidden_TH)
    wide = layer.intermediate.intermediate_act_fn(linear(hidden_TH.to(dtype), *products.wide))
    return add_and_norm(layer.output, linear(wide, *products.narrow), hidden_TH)


def add_and_norm(module, change_TH, hidden_TH):
    """LayerNorm of the residual stream (float32) and a dropped-out change to it."""
    norm = module.LayerNorm
    summed_TH = hidden_TH + dropout(change_TH, rate(module))
    return layer_norm(summed_TH, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
