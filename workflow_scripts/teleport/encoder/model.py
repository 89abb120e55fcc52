"""The dual encoder: texts as token ids -> vectors.

`PackedEncoder` computes it over packed texts, one after another, one row per real token: nothing is padded. It gives
what transformers computes with the same weights (`Encoder.forward`), but has one product instead of three for queries,
keys and values, and in the last layer computes only the tokens that are pooled. With bfloat16 the matrix products and
the attention are in bfloat16; the sums of the residual stream and LayerNorm stay in float32, which is 20 times as exact
as a model cast to bfloat16.
"""

from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from teleport.encoder.architectures import ARCHITECTURES
from teleport.encoder.precision import to_device

HEAD_STD = 0.02  # of the head's initial weights: ANCE's released code, the value that BERT itself was initialised with
HEAD = ("Dense", "linear."), ("LayerNorm", "norm.")  # each module's folder (`read_modules`) and prefix of its weights
HEAD_WIDTHS = 8  # CUDA's kernels want attention heads of a multiple of this width


class Encoder(nn.Module):
    """The weights of one encoder, and what follows its backbone. backbone: a `Backbone`, or transformers' model without
    its pooler; pooling: "cls" (first token) or "mean" (all but padding); projection: width of the head (linear, then
    LayerNorm: ANCE, released code), or None; normalize: whether vectors get length 1"""

    def __init__(self, backbone, pooling, projection=None, normalize=False):
        super().__init__()
        self.backbone, self.pooling, self.projection, self.normalize = backbone, pooling, projection, normalize
        self.head = nn.Identity()
        if projection:  # skip_init: torch's own initialisation would draw from the global random state
            linear = nn.utils.skip_init(nn.Linear, backbone.config.hidden_size, projection)
            self.head = nn.Sequential(linear, nn.LayerNorm(projection))

    @property
    def dim(self):
        return self.projection or self.backbone.config.hidden_size

    @property
    def device(self):
        return next(self.parameters()).device

    @property
    def max_tokens(self):
        """The longest input, special tokens included."""
        config = self.backbone.config
        return ARCHITECTURES[config.model_type].most_tokens(config.max_position_embeddings, config.pad_token_id)

    def init_head(self, generator):
        """Draw the head's weights from N(0, 0.02) with a torch.Generator; its bias is 0."""
        nn.init.normal_(self.head[0].weight, std=HEAD_STD, generator=generator)
        nn.init.zeros_(self.head[0].bias)

    def set_head(self, weights):
        """Give the head the weights {name: tensor} of its linear layer and of its LayerNorm."""
        for module, (_, prefix), tensors in zip(self.head, HEAD, weights, strict=True):
            module.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors.items()})

    def forward(self, input_ids, attention_mask):
        """Padded texts, with a backbone of transformers: int64 [B, T] -> float32 [B, D], also under autocast."""
        hidden_BTH = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "cls":
            vectors_BH = hidden_BTH[:, 0].float()
        else:
            mask_BT1 = attention_mask.unsqueeze(-1).float()
            vectors_BH = (hidden_BTH.float() * mask_BT1).sum(1) / mask_BT1.sum(1)
        with torch.autocast(vectors_BH.device.type, enabled=False):
            return self.project(vectors_BH)

    def project(self, pooled_BH):
        """Head and normalisation: float32 [B, H] -> float32 [B, D]."""
        vectors_BD = self.head(pooled_BH)
        return functional.normalize(vectors_BD, dim=-1) if self.normalize else vectors_BD


@dataclass(frozen=True)
class Spans:
    """Where the texts of a packed batch lie. lengths_B: int64 numpy, tokens of each text (none is 0)."""

    lengths_B: np.ndarray
    device: torch.device
    heads: int

    @cached_property
    def offsets(self):
        """int64 [B + 1] on the device: text i has the tokens offsets[i] to offsets[i + 1] - 1."""
        return to_device(torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths_B)])), self.device)

    @cached_property
    def offsets32(self):  # for CUDA's kernels
        return self.offsets.int()

    @cached_property
    def lengths(self):
        return to_device(torch.from_numpy(self.lengths_B), self.device)


class FusedWeights(NamedTuple):
    """(weight, bias) of a layer's matrix products, in the type that they are computed in."""

    queries: tuple | None  # where only the first token of every text is computed
    inputs: tuple  # of keys and values of every token, and of queries where these have no product of their own
    attn_out: tuple
    ffn_in: tuple
    ffn_out: tuple


class PackedEncoder:
    """An `Encoder` that encodes packed texts; `side.prepare` makes it. Its weights are converted here: for encoding
    once, for training at every call, so that the gradients reach its parameters. dtype: torch.bfloat16, or None for
    that of the parameters (float32); compiled: whether torch.compile joins what lies between the products (for CUDA)"""

    def __init__(self, encoder, dtype=None, compiled=False):
        self.encoder, self.dtype = encoder, dtype or next(encoder.parameters()).dtype
        if compiled:
            self.feed_forward = partial(compiled_feed_forward(), self)
        *layers, last = encoder.backbone.encoder.layer
        self.weights = [self.fuse(layer) for layer in layers] + [self.fuse(last, encoder.pooling == "cls")]

    def __call__(self, ids_T, lengths_B):
        """The vectors of B texts, float32 [B, D], on the encoder's device; fast when equal lengths are neighbours.
        ids_T: int64 numpy, those of one text after another, special tokens included; lengths_B: int64 numpy"""
        device = self.encoder.device
        spans = Spans(lengths_B, device, self.encoder.backbone.config.num_attention_heads)
        hidden_TH = self.embed(to_device(torch.from_numpy(ids_T), device), spans)
        return self.encoder.project(self.pooled(hidden_TH, spans))

    def pooled(self, hidden_TH, spans):
        """All layers and the pooling, from the embedded tokens: float32 [T, H] -> float32 [B, H]."""
        for layer, weights in zip(self.encoder.backbone.encoder.layer, self.weights, strict=True):
            hidden_TH, mixed_TH = self.attend(layer, weights, hidden_TH, spans)
            hidden_TH = self.feed_forward(layer, weights, hidden_TH, mixed_TH)
        if self.encoder.pooling == "mean":
            return torch.segment_reduce(hidden_TH, "mean", lengths=spans.lengths, unsafe=True)
        return hidden_TH  # of the last layer, which went on with one row per text

    def embed(self, ids_T, spans):
        """Sum of word, position and maybe type embeddings, LayerNorm and dropout: float32 [T, H]."""
        embeddings, config = self.encoder.backbone.embeddings, self.encoder.backbone.config
        hidden_TH = embeddings.word_embeddings(ids_T)
        if config.type_vocab_size:
            hidden_TH = hidden_TH + embeddings.token_type_embeddings.weight[0]
        hidden_TH = hidden_TH + embeddings.position_embeddings(positions(ids_T, spans, config))
        return self.dropout(embeddings.LayerNorm(hidden_TH), rate(embeddings))

    def attend(self, layer, weights, hidden_TH, spans):
        """The first half of a layer (Vaswani et al. 2017): the rows it goes on with, and what attention mixes for them,
        both [T, H], the first in float32; [B, H], of the first tokens, where queries have their own product."""
        queries, dtype = None, weights.attn_out[1].dtype  # the type of a bias
        inputs = self.linear(hidden_TH.to(dtype), *weights.inputs)
        if weights.queries:
            hidden_TH = hidden_TH[spans.offsets[:-1]]
            queries = self.linear(hidden_TH.to(dtype), *weights.queries)
        return hidden_TH, self.attention(queries, inputs, spans, rate(layer.attention.self))

    def feed_forward(self, layer, weights, hidden_TH, mixed_TH):
        """The second half of a layer, LayerNorm after each sum, from what `attend` gives: float32 [T, H] or [B, H]."""
        change_TH = self.linear(mixed_TH, *weights.attn_out)
        hidden_TH = self.add_and_norm(layer.attention.output, change_TH, hidden_TH)
        inner = self.linear(hidden_TH.to(mixed_TH.dtype), *weights.ffn_in, layer.intermediate.intermediate_act_fn)
        return self.add_and_norm(layer.output, self.linear(inner, *weights.ffn_out), hidden_TH)

    def add_and_norm(self, module, change_TH, hidden_TH):
        """LayerNorm of the residual stream (float32) and a dropped-out change to it."""
        return module.LayerNorm(hidden_TH + self.dropout(change_TH, rate(module)))

    def fuse(self, layer, first_only=False):
        """The `FusedWeights` of a layer; differentiable outside of inference mode."""
        own = layer.attention.self
        queries = self.product(own.query) if first_only else None
        inputs = self.product(own.key, own.value) if first_only else self.product(own.query, own.key, own.value)
        others = layer.attention.output.dense, layer.intermediate.dense, layer.output.dense
        return FusedWeights(queries, inputs, *map(self.product, others))

    def product(self, *modules):
        """(weight, bias) of one product instead of those of several linear modules with the same input."""
        tensors = [module.weight for module in modules], [module.bias for module in modules]
        return tuple((torch.cat(own) if len(own) > 1 else own[0]).to(self.dtype) for own in tensors)

    @staticmethod
    def linear(x, weight, bias, activation=None):
        """x @ weight.T + bias, then the activation (a module)."""
        y = functional.linear(x, weight, bias)
        return activation(y) if activation else y

    @staticmethod
    def dropout(x, rate):
        """x with every element set to 0 with probability `rate`, else divided by 1 - rate (0 <= rate < 1)."""
        return functional.dropout(x, rate)

    @staticmethod
    def attention(queries, inputs, spans, rate):
        """Softmax attention of every text to itself, by one call of `varlen`: [B, H] or [T, H]. queries: [B, H] where
        one token of each text asks, else None; inputs: keys and values [T, 2H], or queries, keys and values [T, 3H]"""
        longest, offsets = int(spans.lengths_B.max()), spans.offsets32
        operands = inputs.view(len(inputs), 3 if queries is None else 2, spans.heads, -1).unbind(1)
        if queries is None:
            return varlen(*operands, offsets, offsets, longest, longest, rate).flatten(1)
        first = torch.arange(len(queries) + 1, dtype=torch.int32, device=inputs.device)
        queries = queries.view(len(queries), spans.heads, -1)
        return varlen(queries, *operands, first, offsets, 1, longest, rate).flatten(1)


@cache
def compiled_feed_forward():
    """`feed_forward` as torch.compile makes it, for any number of rows: one program for all layers."""
    return torch.compile(PackedEncoder.feed_forward, dynamic=True)


def rate(module):
    """The rate of a module's dropout, 0 in evaluation mode."""
    return module.dropout.p if module.training else 0.0


def positions(ids_T, spans, config):
    """Each token's row in the position embeddings, int64 [T]: counted from 0, or from after the padding id, whose own
    row a padding token in a text gets (RoBERTa, XLM-R)."""
    starts_T = spans.offsets[:-1].repeat_interleave(spans.lengths, output_size=len(ids_T))
    if not ARCHITECTURES[config.model_type].after_padding:
        return torch.arange(len(ids_T), device=ids_T.device) - starts_T
    counted_T = (ids_T != config.pad_token_id).long()
    before_T = counted_T.cumsum(0)
    positions_T = before_T - (before_T - counted_T)[starts_T]
    return positions_T * counted_T + config.pad_token_id


def varlen(q, k, v, offsets_q, offsets_k, longest_q, longest_k, rate):
    """Softmax attention of text i's queries, rows offsets_q[i] to offsets_q[i + 1] - 1 of q, to its keys and values. q,
    k, v: [rows, heads, width of a head], strided; offsets: int32 [B + 1] on the device; returns as q.

    In bfloat16 FlashAttention 2, in float32 the memory-efficient kernel, called as by torch's attention of nested
    tensors, which spends more time in Python than the GPU works. torch's `varlen_attn` has neither dropout nor float32.
    A CPU has no such kernel: text by text.
    """
    if q.device.type == "cpu":
        tokens = [offsets.diff().tolist() for offsets in (offsets_q, offsets_k, offsets_k)]
        texts = zip(*(x.transpose(0, 1).split(n, 1) for x, n in zip((q, k, v), tokens, strict=True)), strict=True)
        attend = partial(functional.scaled_dot_product_attention, dropout_p=rate)
        return torch.cat([attend(*text) for text in texts], 1).transpose(0, 1)
    width, lengths = q.shape[-1], (offsets_q, offsets_k, longest_q, longest_k)
    if width % HEAD_WIDTHS:
        q, k, v = (functional.pad(x, (0, -width % HEAD_WIDTHS)) for x in (q, k, v))
    if q.dtype == torch.float32:
        q, k, v = (x.unsqueeze(0) for x in (q, k, v))  # a batch of one, in which the offsets tell the texts apart
        saved = torch.is_grad_enabled()
        result = torch.ops.aten._efficient_attention_forward(q, k, v, None, *lengths, rate, 0, saved, scale=width**-0.5)
        return result[0].squeeze(0)[..., :width]
    result = torch.ops.aten._flash_attention_forward(q, k, v, *lengths, rate, False, False, scale=width**-0.5)
    return result[0][..., :width]
