"""Cross-batch memory: passages of the last batches, with their vectors from then, are further negatives of every query
(XBM, Wang et al., CVPR 2020, arXiv 1912.06798). They get no gradient and are not encoded again, so a large batch's
negatives cost only a matrix product. With the queries of these batches, each with its positive, they are further rows
of the softmax, which have gradients for the passages of the batch (ContAccum, NeurIPS 2024, arXiv 2406.12356)."""

from dataclasses import replace

import numpy as np
import torch

from teleport.encoder.precision import to_device

NO_ROWS = np.empty(0, np.int64)


class Memory:
    """The last `size` passages that a training has encoded, the oldest first, and, if `with_queries`, the rows of the
    batches whose positive is one of them. It is part of the training's state: `tensors` saves it, `restore` reads it
    back.

    passages_M: int64 [M], their rows; vectors_CD: as in `encoded.Encoded`, a tensor on the device; queries_R,
    positives_R: int64 [R], the query of each remembered row, and the place of its positive among the passages;
    query_vectors_RD: a tensor on the device
    """

    def __init__(self, size, with_queries=False):
        self.size, self.with_queries = size, with_queries
        self.passages_M, self.vectors_CD = NO_ROWS, None
        self.queries_R, self.positives_R, self.query_vectors_RD = NO_ROWS, NO_ROWS, None
        self.noted = []  # by the micro-batches of the current step

    def batch(self, batch):
        """A `data.Batch` with the remembered passages and rows after its own, for the loss and the masks. Remembered
        rows have no own negatives."""
        return replace(
            batch,
            passages_P=np.concatenate([batch.passages_P, self.passages_M]),
            queries_Q=np.concatenate([batch.queries_Q, self.queries_R]),
            positive_columns_Q=np.concatenate([batch.positive_columns_Q, len(batch.passages_P) + self.positives_R]),
        )

    def beside(self, batch, queries_QD, vectors_CD):
        """(queries_QD, vectors_CD) of a (micro-)batch with what is remembered after its own; its own are noted."""
        self.noted.append((batch, queries_QD.detach(), vectors_CD.detach()))
        if self.vectors_CD is None:
            return queries_QD, vectors_CD
        if self.with_queries:
            queries_QD = torch.cat([queries_QD, self.query_vectors_RD])
        return queries_QD, torch.cat([vectors_CD, self.vectors_CD])

    def end_step(self, most):
        """Remember what was noted in a step instead of the oldest. most: rows that a passage takes"""
        batches, queries, vectors = zip(*self.noted, strict=True)
        passages = [self.passages_M, *(batch.passages_P for batch in batches)]
        if self.with_queries:
            self.remember_rows(batches, queries, np.cumsum([len(each) for each in passages]))
        self.passages_M = np.concatenate(passages)[-self.size :]
        self.vectors_CD = latest(self.vectors_CD, vectors, self.size * most)
        self.noted = []

    def remember_rows(self, batches, queries, ends):
        """Remember the rows of batches whose positive stays in the memory. queries: the vectors of each batch; ends:
        int64, how many passages are remembered before each batch, and after the last"""
        places = [start + batch.positive_columns_Q for start, batch in zip(ends, batches, strict=False)]
        positives_R = np.concatenate([self.positives_R, *places]) - max(0, ends[-1] - self.size)
        stays_R = positives_R >= 0
        vectors = torch.cat([*([] if self.query_vectors_RD is None else [self.query_vectors_RD]), *queries])
        kept = torch.from_numpy(np.flatnonzero(stays_R))  # a mask on the device would make the host wait
        self.query_vectors_RD = vectors[to_device(kept, vectors.device)]
        self.queries_R = np.concatenate([self.queries_R, *(batch.queries_Q for batch in batches)])[stays_R]
        self.positives_R = positives_R[stays_R]

    def tensors(self):
        """{name: tensor} of the memory, copied to the CPU."""
        kept = {"vectors": self.vectors_CD, "query_vectors": self.query_vectors_RD}
        kept = {name: tensor.to("cpu", copy=True) for name, tensor in kept.items() if tensor is not None}
        numbers = {"passages": self.passages_M}
        numbers |= {"queries": self.queries_R, "positives": self.positives_R} if self.with_queries else {}
        return kept | {name: torch.from_numpy(array.copy()) for name, array in numbers.items()}

    def restore(self, tensors, device):
        """Restore the memory that an earlier attempt saved ({}: nothing)."""
        if tensors:
            self.passages_M = tensors["passages"].numpy()
            names = "vectors", "query_vectors"
            named = (tensors[name].to(device) if name in tensors else None for name in names)
            self.vectors_CD, self.query_vectors_RD = named
        if tensors and self.with_queries:
            self.queries_R, self.positives_R = tensors["queries"].numpy(), tensors["positives"].numpy()


def latest(before, more, rows):
    """The last `rows` rows of a tensor (or None) followed by others."""
    return torch.cat([*([] if before is None else [before]), *more])[-rows:].clone()
