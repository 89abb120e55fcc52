"""Cross-batch memory: passages of the last batches, with their vectors from then, are further negatives of every query
(XBM, Wang et al., CVPR 2020, arXiv 1912.06798; for retrieval ContAccum, arXiv 2406.12356, which remembers queries too).
They get no gradient and are not encoded again, so a large batch's negatives cost only a matrix product."""

from dataclasses import replace

import numpy as np
import torch


class Memory:
    """The last `size` passages that a training has encoded, the oldest first. It is part of the training's state:
    `tensors` saves it, `restore` reads it back.

    passages_M: int64 [M], their rows; vectors_CD: as in `seen.Encoded`, a tensor on the device; mask_C: for passages in
    chunks
    """

    def __init__(self, size):
        self.size, self.passages_M, self.vectors_CD, self.mask_C = size, np.empty(0, np.int64), None, None
        self.noted = []  # by the micro-batches of the current step

    def batch(self, batch):
        """A `data.Batch` with the remembered passages after its own, for the masks."""
        return replace(batch, passages_P=np.concatenate([batch.passages_P, self.passages_M]))

    def beside(self, passages_P, encoded):
        """Return the `seen.Encoded` of a (micro-)batch with the remembered passages after its own, and note its own."""
        vectors_CD, mask_C = encoded.passages_CD.detach(), encoded.mask_C
        self.noted.append((passages_P, vectors_CD, mask_C))
        if self.vectors_CD is None:
            return encoded
        mask_C = None if mask_C is None else torch.cat([mask_C, self.mask_C])
        return encoded._replace(passages_CD=torch.cat([encoded.passages_CD, self.vectors_CD]), mask_C=mask_C)

    def end_step(self, most):
        """Remember the passages noted in a step instead of the oldest. most: rows that a passage takes"""
        passages, vectors, masks = zip(*self.noted, strict=True)
        self.passages_M = np.concatenate([self.passages_M, *passages])[-self.size :]
        self.vectors_CD = latest(self.vectors_CD, vectors, self.size * most)
        self.mask_C = None if masks[0] is None else latest(self.mask_C, masks, self.size * most)
        self.noted = []

    def tensors(self):
        """{name: tensor} of the memory, copied to the CPU."""
        kept = {"vectors": self.vectors_CD, "mask": self.mask_C}
        kept = {name: tensor.to("cpu", copy=True) for name, tensor in kept.items() if tensor is not None}
        return kept | {"passages": torch.from_numpy(self.passages_M.copy())}

    def restore(self, tensors, device):
        """Restore the memory that an earlier attempt saved ({}: nothing)."""
        if tensors:
            self.passages_M = tensors["passages"].numpy()
            named = {name: tensors[name].to(device) if name in tensors else None for name in ("vectors", "mask")}
            self.vectors_CD, self.mask_C = named["vectors"], named["mask"]


def latest(before, more, rows):
    """The last `rows` rows of a tensor (or None) followed by others."""
    return torch.cat([*([] if before is None else [before]), *more])[-rows:].clone()
