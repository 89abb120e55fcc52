"""Candidates for exact search by blocked products of fp16 numbers on a CUDA device (or, in tests, the CPU)."""

import torch

from teleport.search.reduced import Reduced

BLOCK_PASSAGES = 65536  # torch.topk took 2.9 times as long on blocks of 8,192
QUERIES = 4096  # scores of a block: 1 GB in float32
RESIDENT_SHARE = 0.6  # of the free device memory that the vectors may take; the rest is for scores and candidates


class TorchFlat(Reduced):
    """The same as `flat.FaissFlat`: fp16 numbers multiplied by tensor cores, summed and given out in float32.

    The reduced vectors stay on the device when they fit, else they stream from the memory map. Exact scores are
    computed on the host, so that their last bits are those of a run without a GPU.
    """

    def __init__(self, vectors, device, threads=1, room=None):
        if room is None:
            room = RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]
        super().__init__(vectors, "fp16", threads, room, device)

    def first_count(self, depth):
        """How many candidates to propose at first."""
        return depth + depth // 4 + 64

    @torch.inference_mode()
    def propose(self, queries_QD, depth, count):
        """(scores float64 [Q, count] best first, passage numbers int64 [Q, count], what no other score exceeds [Q])."""
        reduced, factors_Q = self.reduce_queries(queries_QD)
        parts = [Best(part.to(self.device), count) for part in reduced.split(QUERIES)]
        for first in range(0, len(self.vectors), BLOCK_PASSAGES):
            passages = self.block(first, min(first + BLOCK_PASSAGES, len(self.vectors)))
            for part in parts:
                part.add(passages, first)
        scores_QC, order_QC = torch.cat([part.scores_QC for part in parts]).cpu().sort(dim=1, descending=True)
        ids_QC = torch.cat([part.ids_QC for part in parts]).cpu().gather(1, order_QC)
        units_Q = factors_Q.double().numpy() * self.factor
        scores_QC = scores_QC.double().numpy() * units_Q + self.shifts(queries_QD)[:, None]
        return scores_QC, ids_QC.numpy(), scores_QC[:, -1]


class Best:
    """The `count` best of some queries while the passages go by."""

    def __init__(self, queries, count):
        self.queries, self.count = queries, count
        self.scores_QC = torch.empty(len(queries), 0, device=queries.device)
        self.ids_QC = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)

    def add(self, passages, first):
        """Compare the queries with reduced passages, of which the first has the number `first`."""
        scores_QP = multiply(self.queries, passages.T)
        top_QC, places_QC = scores_QP.topk(min(self.count, scores_QP.shape[1]), sorted=False)
        scores_QC, ids_QC = torch.cat([self.scores_QC, top_QC], 1), torch.cat([self.ids_QC, places_QC + first], 1)
        self.scores_QC, places_QC = scores_QC.topk(min(self.count, scores_QC.shape[1]), sorted=False)
        self.ids_QC = ids_QC.gather(1, places_QC)


def multiply(left, right):
    """The float32 product of two fp16 matrices, which on CUDA never exists in fp16."""
    if left.device.type == "cuda":
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()
