"""The dual encoder: token ids of texts -> vectors. A model of transformers, a pooling, maybe a head, maybe length 1."""

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from teleport.arrays import in_slots, slots_within
from teleport.encoder.attention import PACKED, Packing
from teleport.encoder.own_settings import AFTER_PADDING, most_tokens
from teleport.encoder.precision import autocast, to_device
from teleport.refusal import Refusal

HEAD_STD = 0.02  # of the head's initial weights: ANCE's released code, the value that BERT itself was initialised with
HEAD = ("Dense", "linear."), ("LayerNorm", "norm.")  # each module's folder (`read_modules`) and prefix of its weights

# The architectures whose packed texts are tested to give the vectors of padded ones (tests/encoder/test_packed.py).
# All others are computed in padded batches. DistilBERT passes no packing on, MPNet has positions inside the attention.
TAKE_PACKED = {"bert", "roberta", "xlm-roberta", "electra", "modernbert"}
TAKE_PACKED |= {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text"}


def widened(tensor):
    """The tensor, converted to float32 if it has fewer bits."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


# From token vectors [T, H] of texts packed one after another to one vector per text, [B, H], of at least 32 bits.
POOLINGS = {
    "cls": lambda hidden_TH, offsets: widened(hidden_TH[offsets[:-1]]),
    "last": lambda hidden_TH, offsets: widened(hidden_TH[offsets[1:] - 1]),
    "mean": lambda hidden_TH, offsets: torch.segment_reduce(
        widened(hidden_TH), "mean", lengths=offsets.diff(), unsafe=True
    ),
}


class Linear(NamedTuple):
    """A layer of a head: `width` inputs, `out` outputs; activation: a name of `own_settings.ACTIVATIONS`"""

    width: int
    out: int
    bias: bool
    activation: str


class Encoder(nn.Module):
    """One encoder. backbone: a model of transformers without a pooler; pooling: a name of POOLINGS; projection: width
    of the head (linear, then LayerNorm: ANCE, released code), or None; normalize: whether vectors get length 1;
    dense: the `Linear`s of another head, which is a part of the checkpoint (EmbeddingGemma, LaBSE); truncate_dim: how
    many components of the vectors are kept, None for all; not part of a checkpoint"""

    truncate_dim = None

    def __init__(self, backbone, pooling, projection=None, normalize=False, dense=()):
        super().__init__()
        self.dense = list(dense)
        self.backbone, self.pooling, self.projection, self.normalize = backbone, pooling, projection, normalize
        if self.packs:
            backbone.set_attn_implementation(PACKED)
        self.head = nn.Identity()
        if projection:  # skip_init: torch's own initialisation would draw from the global random state
            linear = nn.utils.skip_init(nn.Linear, backbone.config.hidden_size, projection)
            self.head = nn.Sequential(linear, nn.LayerNorm(projection))
        elif self.dense:
            layers = (nn.utils.skip_init(nn.Linear, each.width, each.out, bias=each.bias) for each in self.dense)
            activations = (getattr(nn, each.activation)() for each in self.dense)
            self.head = nn.Sequential(*map(nn.Sequential, layers, activations))

    @property
    def packs(self):
        """Whether texts are encoded packed, without padding. A decoder that `is_causal: false` in its config.json makes
        an encoder (gte-Qwen2) is left to transformers' own masks."""
        config = self.backbone.config
        return config.model_type in TAKE_PACKED and getattr(config, "is_causal", True)

    @property
    def dim(self):
        own = self.dense[-1].out if self.dense else self.backbone.config.hidden_size
        return self.truncate_dim or self.projection or own

    @property
    def device(self):
        return next(self.parameters()).device

    @property
    def max_tokens(self):
        """The longest input, special tokens included. LongRoPE rotates a whole batch by other factors if one text is
        longer than its original positions, so that vectors would depend on batches: no text may be."""
        config = self.backbone.config
        rope, positions = getattr(config, "rope_parameters", None) or {}, config.max_position_embeddings
        if rope.get("rope_type") == "longrope":
            positions = min(positions, rope["original_max_position_embeddings"])
        return most_tokens(config.model_type, positions, config.pad_token_id)

    def truncate(self, dim):
        """Keep the first `dim` components of every vector; None: all. Raises Refusal if there are fewer."""
        if dim and dim > self.dim:
            raise Refusal(f"encoder.truncate_dim is {dim}, but the checkpoint's vectors have {self.dim} components.")
        self.truncate_dim = dim

    def init_head(self, generator):
        """Draw the head's weights from N(0, 0.02) with a torch.Generator; its bias is 0."""
        nn.init.normal_(self.head[0].weight, std=HEAD_STD, generator=generator)
        nn.init.zeros_(self.head[0].bias)

    def set_head(self, weights):
        """Give the head the weights {name: tensor} of its linear layer and of its LayerNorm."""
        for module, (_, prefix), tensors in zip(self.head, HEAD, weights, strict=True):
            module.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in tensors.items()})

    def set_dense(self, weights):
        """Give each of the `Linear`s of the head its weights {name: tensor}."""
        for layer, tensors in zip(self.head, weights, strict=True):
            layer[0].load_state_dict({name.removeprefix(HEAD[0][1]): tensor for name, tensor in tensors.items()})

    def forward(self, ids_T, lengths_B):
        """The vectors of B texts, float32 [B, D], on the encoder's device; fastest when equal lengths are neighbours.
        ids_T: int64 numpy, ids of one text after another, special tokens included; lengths_B: int64 numpy"""
        packing = Packing.of(lengths_B, self.device)
        if self.packs:
            arrays = ids_T, positions(ids_T, lengths_B, self.backbone.config)
            return self.compute(*(to_device(torch.from_numpy(array), self.device) for array in arrays), packing)
        return self.pooled(self.hidden_padded(ids_T, lengths_B), packing)

    def compute(self, ids_T, positions_T, packing):
        """Return the same as `forward`, from tensors on the device (int64 [T]) and a `Packing`: all texts as one
        row."""
        inputs = {"input_ids": ids_T[None], "position_ids": positions_T[None]}
        return self.pooled(self.backbone(**inputs, packing=packing, use_cache=False).last_hidden_state[0], packing)

    def hidden_padded(self, ids_T, lengths_B):
        """The last layer's vectors [T, H], computed with texts as rows padded to the longest."""
        within_BS = slots_within(lengths_B)
        ids_BS = in_slots(lengths_B, ids_T, self.backbone.config.pad_token_id or 0)
        ids_BS, mask_BS = (to_device(torch.from_numpy(x.astype(np.int64)), self.device) for x in (ids_BS, within_BS))
        # Decoders fill a cache, and some encoders know none.
        uncached = {"use_cache": False} if getattr(self.backbone.config, "use_cache", False) else {}
        hidden_BSH = self.backbone(input_ids=ids_BS, attention_mask=mask_BS, **uncached).last_hidden_state
        return hidden_BSH.flatten(0, 1)[to_device(torch.from_numpy(np.flatnonzero(within_BS)), self.device)]

    def pooled(self, hidden_TH, packing):
        """Pooling, head and normalisation, in float32 also under autocast: [T, H] -> [B, D]."""
        with autocast(hidden_TH.device, None):
            vectors_BD = self.head(POOLINGS[self.pooling](hidden_TH, packing.offsets.long()))
            if self.truncate_dim:
                vectors_BD = vectors_BD[:, : self.truncate_dim]
            return functional.normalize(vectors_BD, dim=-1) if self.normalize else vectors_BD


def positions(ids_T, lengths_B, config):
    """Each token's position, int64 [T], counted from 0, or from the padding id + 1 (RoBERTa, XLM-R). There a padding
    token in a text has the padding id as its position."""
    starts_T = np.repeat(np.cumsum(lengths_B) - lengths_B, lengths_B)
    if config.model_type not in AFTER_PADDING:
        return np.arange(len(ids_T)) - starts_T
    counted_T = (ids_T != config.pad_token_id).astype(np.int64)
    before_T = np.cumsum(counted_T) - counted_T
    return (before_T - before_T[starts_T] + 1) * counted_T + config.pad_token_id


def prepare(encoder, dtype=None, compiled=False):
    """The `Encoder` to encode with while its weights do not change. For bfloat16 it is a copy with its backbone in
    bfloat16: weights are converted once, and residual sums take half the memory traffic of float32."""
    if dtype is not None:
        # Not the buffers: angles of rotations need float32. A copy in float32 first would take twice the memory.
        copies = {id(weight): nn.Parameter(weight.data.to(dtype), False) for weight in encoder.backbone.parameters()}
        encoder = copy.deepcopy(encoder, copies).requires_grad_(False)
    return compile_layers(encoder) if compiled else encoder


def layers_of(backbone):
    """(name, ModuleList) of the layers of a transformers model; ALBERT has one, and repeats it."""
    lists = [pair for pair in backbone.named_modules() if isinstance(pair[1], nn.ModuleList)]
    return next((pair for pair in lists if len(pair[1]) == backbone.config.num_hidden_layers), lists[0])


def compile_layers(encoder):
    """Have torch.compile make one program of each kind of layer, for any number of tokens; returns the encoder. Layers
    share it, so it compiles in a tenth of the whole model's time."""
    for layer in layers_of(encoder.backbone)[1]:
        layer.compile(dynamic=True)
    return encoder
