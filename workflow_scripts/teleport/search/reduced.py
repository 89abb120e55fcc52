"""Vectors in numbers of few bits, and the largest error of their products: what fast candidates are made from.

What is lost is lost in the reduced vectors, and measured there. With p a passage less the mean of all, and q' and p'
as reduced,

    |q p - q' p'| <= |q - q'| |p'| + |q| |p - p'|        (Cauchy-Schwarz; + rounding of the product)

The mean shifts all scores of a query alike; without it the vectors of encoders that do not normalise, which are almost
parallel, would have nothing but their common part in eight bits.
"""

import numpy as np
import torch

from teleport.search.exact import rescore
from teleport.search.flat import ROUNDING, product_errors

BLOCK_PASSAGES = 8192  # reduced at a time
SAMPLE = 65536  # rows that give the mean and the range of the passages
SMALLEST = 1e-30  # range of vectors that are all zero
SLACK = 1.01  # on the error, for the float32 operations that compute it
FORMATS = {"int8": torch.int8, "bf16": torch.bfloat16, "fp16": torch.float16}
LARGEST = {"int8": 127, "bf16": 1, "fp16": 1}  # of a reduced number
PRODUCT_ROUNDING = {"int8": 0.0, "bf16": 2.0**-8, "fp16": 0.0}  # relative: on a CPU, bfloat16 products are bfloat16


def reduce(vectors, number_format, largest):
    """(reduced tensor, factor): reduced x factor is close to `vectors` (float32 tensor); larger values are clipped."""
    factor = largest / LARGEST[number_format]
    scaled = (vectors / factor).clamp_(-LARGEST[number_format], LARGEST[number_format])
    return (scaled.round_() if number_format == "int8" else scaled).to(FORMATS[number_format]), factor


class Reduced:
    """Passages and queries in numbers of few bits.

    The reduced passages stay in memory, or on `device`, when they take at most `room` bytes; else they are made again
    from the memory map for every block of queries. vectors: float32 [n, dim], an array or a memory map
    """

    def __init__(self, vectors, number_format, threads, room, device="cpu"):
        self.vectors, self.number_format, self.threads = vectors, number_format, threads
        self.device = torch.device(device)
        sample = np.asarray(vectors[:: max(1, len(vectors) // SAMPLE)])
        self.mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.largest = max(float(np.abs(sample - self.mean).max()), SMALLEST)
        self.factor = self.largest / LARGEST[number_format]
        self.norm = self.lost = 0.0
        dtype = FORMATS[number_format]
        fits = vectors.size * dtype.itemsize <= room
        kept = torch.empty(vectors.shape, dtype=dtype, device=self.device) if fits else None
        for first in range(0, len(vectors), BLOCK_PASSAGES):
            reduced = self.measure(first, min(first + BLOCK_PASSAGES, len(vectors)))
            if kept is not None:
                kept[first : first + BLOCK_PASSAGES] = reduced
        self.kept = kept

    def reduced(self, first, last):
        """(passages first to last - 1 less the mean, the same reduced)."""
        centred = torch.from_numpy(self.vectors[first:last] - self.mean).to(self.device)
        return centred, reduce(centred, self.number_format, self.largest)[0]

    def measure(self, first, last):
        """Note the largest norm and the largest loss of some passages; returns them reduced."""
        centred, reduced = self.reduced(first, last)
        near = reduced.float() * self.factor
        self.norm = max(self.norm, float(near.norm(dim=1).max()))
        self.lost = max(self.lost, float((centred - near).norm(dim=1).max()))
        return reduced

    def block(self, first, last):
        """The reduced passages first to last - 1."""
        return self.reduced(first, last)[1] if self.kept is None else self.kept[first:last]

    def reduce_queries(self, queries_QD):
        """(reduced tensor, factors float32 [Q, 1]), each query by its own range."""
        queries_QD = torch.from_numpy(queries_QD)
        return reduce(queries_QD, self.number_format, queries_QD.abs().amax(dim=1, keepdim=True).clamp_min(SMALLEST))

    def shifts(self, queries_QD):
        """What the mean adds to the scores of each query, float64 [Q]."""
        return queries_QD.astype(np.float64) @ self.mean.astype(np.float64)

    def errors(self, queries_QD):
        """The largest error of a proposed score, float64 [Q]."""
        reduced, factors_Q = self.reduce_queries(queries_QD)
        near, exact = (reduced.double() * factors_Q).numpy(), queries_QD.astype(np.float64)
        norms_Q, near_Q, lost_Q = (np.linalg.norm(vectors, axis=1) for vectors in (exact, near, exact - near))
        errors_Q = lost_Q * self.norm + norms_Q * self.lost + PRODUCT_ROUNDING[self.number_format] * near_Q * self.norm
        shift_errors_Q = ROUNDING * norms_Q * np.linalg.norm(self.mean.astype(np.float64))
        return SLACK * errors_Q + product_errors(queries_QD, self.norm + self.lost) + 4 * shift_errors_Q

    def rescore(self, queries_QD, proposed_QC, ids_QC, depth, errors_Q):
        return rescore(self.vectors, queries_QD, proposed_QC, ids_QC, depth, errors_Q, self.threads)
