"""Vectors in numbers of few bits, and the largest error of their products: what fast candidates are made from.

What is lost is lost in the reduced vectors, and measured there. With p a passage less the mean of all, and q' and p'
as reduced,

    |q p - q' p'| <= |q - q'| |p'| + |q| |p - p'|        (Cauchy-Schwarz; + rounding of the product)

The mean shifts all scores of a query alike; without it the vectors of encoders that do not normalise, which are almost
parallel, would have nothing but their common part in eight bits.
"""

import numpy as np
import torch

from teleport.search.flat import (
    CANDIDATES,
    OUTLIERS,
    ROUNDING,
    TRUNCATION,
    norms_of,
    outliers_by,
    prefetch,
    product_errors,
)

BLOCK_PASSAGES = 8192  # reduced at a time
SAMPLE = 65536  # rows that give the mean and the range of the passages
# The range is that of all rows of the sample but one in 1,024, with a margin: neither a huge row in the sample nor the
# larger components outside it, of which a large collection always has some, make the numbers of all others coarse. It
# is larger where else more passages would be clipped than may be outliers: the bound would be that of a clipped one.
RANGE_SHARE, RANGE_MARGIN = 1 - 1 / 1024, 1.25
SMALLEST = 1e-30  # range of vectors that are all zero
SLACK = 1.01  # on the error, for the float32 operations that compute it
FORMATS = {"int8": torch.int8, "fp16": torch.float16}
LARGEST = {"int8": 127, "fp16": 1}  # of a reduced number within the range
CEILING = {"int8": 127, "fp16": 2**15}  # of any: fp16 has numbers up to 65,504
SUM_UNIT = {"int8": ROUNDING, "fp16": TRUNCATION}  # sums of int8 products are exact in int32, and rounded once


def reduce(vectors, number_format, largest):
    """(reduced tensor, factor): reduced x factor is close to `vectors` (float32 tensor) of components to `largest`.
    Larger ones keep their precision in fp16, and are clipped in int8."""
    factor = largest / LARGEST[number_format]
    scaled = (vectors / factor).clamp_(-CEILING[number_format], CEILING[number_format])
    return (scaled.round_() if number_format == "int8" else scaled).to(FORMATS[number_format]), factor


def mean_and_range(vectors, most):
    """(mean float32 [dim], largest component of a vector less the mean) of a sample without its outliers; most: how
    many passages may be outliers"""
    sample = np.asarray(vectors[:: max(1, len(vectors) // SAMPLE)], np.float32)
    # As many rows of the sample; of a part half as many, as it may by chance have fewer than its share.
    most = -(-most * len(sample) // (len(vectors) * (1 if len(sample) == len(vectors) else 2)))
    outliers = outliers_by(norms_of(sample), most)
    mean = np.delete(sample, outliers, axis=0).mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = sample - mean
    ranges = np.abs(centred, out=centred).max(axis=1)
    usual = float(np.quantile(np.delete(ranges, outliers), RANGE_SHARE, method="lower"))
    clips_most = float(np.partition(ranges, -most - 1)[-most - 1]) if most < len(ranges) else 0.0
    return mean, max(RANGE_MARGIN * usual, clips_most, SMALLEST)


class Reduced:
    """Passages and queries in numbers of few bits, reduced and measured on `device`. The reduced passages stay there
    when they take at most `room` bytes; else they are made again from the memory map whenever they are asked for.

    vectors: float32 or float16 [n, dim]; block: passages at a time; outliers: int64, passages that `errors` does not
    hold for
    """

    step = CANDIDATES

    def __init__(
        self, vectors, number_format, threads, room, device="cpu", block=BLOCK_PASSAGES, most_outliers=OUTLIERS
    ):
        self.vectors, self.number_format, self.threads = vectors, number_format, threads
        self.device, self.block, self.most_outliers = torch.device(device), block, most_outliers
        self.overlaps = self.device.type != "cpu"
        mean, self.largest = mean_and_range(vectors, most_outliers)
        self.mean = torch.from_numpy(mean).to(self.device)
        self.factor = self.largest / LARGEST[number_format]
        dtype = FORMATS[number_format]
        fits = vectors.size * dtype.itemsize <= room
        self.kept = self.measure(torch.empty(vectors.shape, dtype=dtype, device=self.device) if fits else None)

    def measure(self, kept):
        """Find the largest norm and loss, and the outliers; returns `kept` with the reduced passages in it, or None."""
        norms_P, lost_P = (torch.empty(len(self.vectors), device=self.device) for _ in range(2))
        for first, centred in self.centred():
            rows = slice(first, first + len(centred))
            reduced, _ = reduce(centred, self.number_format, self.largest)
            near = reduced.float().mul_(self.factor)
            norms_P[rows], lost_P[rows] = near.norm(dim=1), near.sub_(centred).norm(dim=1)
            if kept is not None:
                kept[rows] = reduced
        measures = [measure.cpu().numpy() for measure in (norms_P, lost_P)]
        self.outliers = np.union1d(*(outliers_by(measure, self.most_outliers) for measure in measures))
        self.norm, self.lost = (float(np.delete(measure, self.outliers).max(initial=0)) for measure in measures)
        return kept

    def centred(self):
        """Yield (number of the first, passages less the mean), block by block; for a GPU the next is read meanwhile."""
        firsts = range(0, len(self.vectors), self.block)
        blocks = map(self.read, firsts)
        for first, passages in zip(firsts, prefetch(blocks) if self.overlaps else blocks, strict=True):
            yield first, passages.to(self.device, non_blocking=True).sub_(self.mean)

    def read(self, first):
        """The block of passages from `first` on; for a GPU in page-locked memory, which it copies while it computes."""
        block = self.vectors[first : first + self.block]
        passages = torch.empty(block.shape, pin_memory=self.device.type == "cuda")
        np.copyto(passages.numpy(), block)
        return passages

    def blocks(self):
        """Yield (number of the first, reduced passages), block by block."""
        if self.kept is None:
            yield from ((first, reduce(part, self.number_format, self.largest)[0]) for first, part in self.centred())
        else:
            yield from zip(range(0, len(self.kept), self.block), self.kept.split(self.block), strict=True)

    def reduce_queries(self, queries_QD):
        """(reduced tensor, factors float32 [Q, 1]), each query by its own range."""
        queries_QD = torch.from_numpy(queries_QD).to(self.device)
        return reduce(queries_QD, self.number_format, queries_QD.abs().amax(dim=1, keepdim=True).clamp_min(SMALLEST))

    def shifts(self, queries_QD):
        """What the mean adds to the scores of each query, float64 [Q] on the device."""
        return torch.from_numpy(queries_QD).to(self.device).double() @ self.mean.double()

    def errors(self, queries_QD):
        """The largest error of a score proposed for a passage that is no outlier, float64 [Q]."""
        reduced, factors_Q = self.reduce_queries(queries_QD)
        near, exact = reduced.double() * factors_Q, torch.from_numpy(queries_QD).to(self.device).double()
        norms_Q, lost_Q = exact.norm(dim=1), (exact - near).norm(dim=1)
        reduction_Q = SLACK * (lost_Q * self.norm + norms_Q * self.lost)
        products_Q = product_errors(norms_Q, exact.shape[1], self.norm + self.lost, SUM_UNIT[self.number_format])
        shifts_Q = 4 * ROUNDING * norms_Q * self.mean.double().norm()
        return (reduction_Q + products_Q + shifts_Q).cpu().numpy()
