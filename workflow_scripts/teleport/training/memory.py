"""Cross-batch memory: the passages of the last batches, by the vectors that they had there, are further negatives of
every query (XBM, Wang et al., CVPR 2020, arXiv 1912.06798; for retrieval ContAccum, arXiv 2406.12356, which remembers
queries as well). They get no gradient and are not encoded again, so that a large batch's negatives cost a product."""

from dataclasses import replace

import numpy as np
import torch


class Memory:
    """The last `size` passages that a training has encoded, the oldest first. A part of the state of a training: what
    `tensors` gives, `restore` takes.

    passages_M: int64 [M], their rows; vectors_CD: what `seen.Encoded` has of them, a tensor on the device; mask_C: of
    passages in chunks
    """

    def __init__(self, size):
        self.size, self.passages_M, self.vectors_CD, self.mask_C = size, np.empty(0, np.int64), None, None
        self.noted = []  # of the micro-batches of a step

    def batch(self, batch):
        """A `data.Batch` with the passages that are remembered after its own, where masks see them."""
        return replace(batch, passages_P=np.concatenate([batch.passages_P, self.passages_M]))

    def beside(self, passages_P, encoded):
        """The `seen.Encoded` of a (micro-)batch with what is remembered after its own passages; these are noted."""
        vectors_CD, mask_C = encoded.passages_CD.detach(), encoded.mask_C
        self.noted.append((passages_P, vectors_CD, mask_C))
        if self.vectors_CD is None:
            return encoded
        mask_C = None if mask_C is None else torch.cat([mask_C, self.mask_C])
        return encoded._replace(passages_CD=torch.cat([encoded.passages_CD, self.vectors_CD]), mask_C=mask_C)

    def end_step(self, most):
        """Remember what a step has noted, in place of the oldest. most: rows that a passage takes"""
        passages, vectors, masks = zip(*self.noted, strict=True)
        self.passages_M = np.concatenate([self.passages_M, *passages])[-self.size :]
        self.vectors_CD = latest(self.vectors_CD, vectors, self.size * most)
        self.mask_C = None if masks[0] is None else latest(self.mask_C, masks, self.size * most)
        self.noted = []

    def tensors(self):
        """{name: tensor} of what is remembered, copied to the processor's memory."""
        kept = {"vectors": self.vectors_CD, "mask": self.mask_C}
        kept = {name: tensor.to("cpu", copy=True) for name, tensor in kept.items() if tensor is not None}
        return kept | {"passages": torch.from_numpy(self.passages_M.copy())}

    def restore(self, tensors, device):
        """Remember what another attempt has saved ({}: nothing)."""
        if tensors:
            self.passages_M = tensors["passages"].numpy()
            named = {name: tensors[name].to(device) if name in tensors else None for name in ("vectors", "mask")}
            self.vectors_CD, self.mask_C = named["vectors"], named["mask"]


def latest(before, more, rows):
    """The last `rows` of a tensor, or None, and of others that come after it."""
    return torch.cat([*([] if before is None else [before]), *more])[-rows:].clone()
