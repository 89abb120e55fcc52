"""The forward of architectures that the packed encoder does not cover: transformers' own model, over padded texts."""

import numpy as np
import torch

from teleport.encoder.architectures import ARCHITECTURES
from teleport.encoder.packed import PackedEncoder
from teleport.encoder.precision import to_device


class PlainEncoder:
    """An `Encoder` that encodes texts as `PackedEncoder` does, its backbone a model of transformers.

    dtype: torch.bfloat16, in which products are computed then, or None for float32
    """

    def __init__(self, encoder, dtype=None):
        self.encoder, self.dtype = encoder, dtype

    @property
    def dim(self):
        """Width of the vectors."""
        return self.encoder.dim

    def __call__(self, ids_T, lengths_B):
        """As `PackedEncoder.__call__`: ids int64 [T] of texts behind one another, int64 [B] -> float32 [B, dim]."""
        device = next(self.encoder.parameters()).device
        mask_BL = np.arange(lengths_B.max()) < lengths_B[:, None]
        ids_BL = np.full(mask_BL.shape, self.encoder.backbone.config.pad_token_id, np.int64)
        ids_BL[mask_BL] = ids_T
        ids_BL, mask_BL = (to_device(torch.from_numpy(array), device) for array in (ids_BL, mask_BL.astype(np.int64)))
        with torch.autocast(device.type, dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            return self.encoder(ids_BL, mask_BL)


def packs(encoder):
    """Whether an `Encoder` encodes packed texts: where its architecture is covered (see there)."""
    return ARCHITECTURES[encoder.backbone.config.model_type].packed


def prepare(encoder, dtype=None, compiled=False):
    """What encodes with an `Encoder`, packed or plain."""
    if packs(encoder):
        return PackedEncoder(encoder, dtype, compiled)
    return PlainEncoder(encoder, dtype)
