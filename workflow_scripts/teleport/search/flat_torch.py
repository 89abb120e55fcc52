"""Candidates for exact search by blocked products of fp16 numbers on a CUDA device (or, in tests, the CPU)."""

import math

import torch

from teleport.search.reduced import Reduced

BLOCK_PASSAGES = 65536  # at a time: launching the kernels of a block costs little beside them
QUERIES = 4096  # scores of a block: 1 GB in float32
STEP_BLOCK = 2**21  # where a few dozen queries are searched at a time: the same room, and few kernels to launch
RESIDENT_SHARE = 0.6  # of the free device memory that the vectors may take; the rest is for scores and candidates
STEP = 8192  # queries that are proposed for while the host scores the candidates of as many others
LEAST_GROUP = 4  # scores per group from which looking at their maxima first is worth it


class TorchFlat(Reduced):
    """The same as `flat.FaissFlat`: fp16 numbers multiplied by tensor cores, summed and given out in float32.

    The reduced vectors stay on the device when they fit, else they stream from the memory map. Exact scores are
    computed on the host, so that their last bits are those of a run without a GPU.
    """

    def __init__(self, vectors, device, threads=1, room=None):
        if room is None:
            room = RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]
        super().__init__(vectors, "fp16", threads, room, device, BLOCK_PASSAGES)
        if self.kept is not None:  # else each step reads all passages
            self.step = STEP

    def first_count(self, depth):
        """How many candidates to propose at first."""
        return depth + depth // 4 + 64

    @torch.inference_mode()
    def propose(self, queries_QD, depth, count, errors_Q):
        """(scores float64 [Q, count] best first, passage numbers int64 [Q, count], what no other score exceeds [Q])."""
        reduced, factors_Q = self.reduce_queries(queries_QD)
        parts = [Best(part, count) for part in reduced.split(QUERIES)]
        for first, passages in self.blocks():
            for part in parts:
                part.add(passages, first)
        scores_QC, order_QC = torch.cat([part.scores_QC for part in parts]).sort(dim=1, descending=True)
        ids_QC = torch.cat([part.ids_QC for part in parts]).gather(1, order_QC)
        units_Q = factors_Q.double() * self.factor
        scores_QC = (scores_QC * units_Q + self.shifts(queries_QD)[:, None]).cpu().numpy()
        return scores_QC, ids_QC.cpu().numpy(), scores_QC[:, -1]


class Best:
    """The `count` best of a part of the queries while the passages go by."""

    def __init__(self, queries, count):
        self.queries, self.count = queries, count
        self.scores_QC = torch.empty(len(queries), 0, device=queries.device)
        self.ids_QC = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)

    def add(self, passages, first):
        """Compare the queries with reduced passages, of which the first has the number `first`."""
        top_QC, places_QC = top(multiply(self.queries, passages.T), self.count)
        scores_QC, ids_QC = torch.cat([self.scores_QC, top_QC], 1), torch.cat([self.ids_QC, places_QC + first], 1)
        self.scores_QC, places_QC = scores_QC.topk(min(self.count, scores_QC.shape[1]), sorted=False)
        self.ids_QC = ids_QC.gather(1, places_QC)


def top(scores_QP, count):
    """The `count` (or all) largest scores of each query, in any order: (scores, places int64), both [Q, count].

    As torch.topk, which reads all scores several times. Of groups of scores only the `count` with the largest maxima
    can hold a score among the `count` largest, so the others are read once, for their maxima.
    """
    total = scores_QP.shape[1]
    size = math.isqrt(total // count)  # as many maxima as scores in the groups that are looked into
    if size < LEAST_GROUP:
        return scores_QP.topk(min(count, total), sorted=False)
    groups = total // size
    # A group has every `groups`-th score: the maxima of neighbouring groups read neighbouring scores.
    maxima_QG = scores_QP[:, : size * groups].unflatten(1, (size, groups)).amax(1)
    found_QG = maxima_QG.topk(count, sorted=False).indices
    starts = torch.arange(0, size * groups, groups, device=scores_QP.device)
    rest = torch.arange(size * groups, total, device=scores_QP.device).expand(len(scores_QP), -1)
    places_QC = torch.cat([(found_QG[:, None] + starts[:, None]).flatten(1), rest], 1)
    scores_QC, chosen_QC = scores_QP.gather(1, places_QC).topk(count, sorted=False)
    return scores_QC, places_QC.gather(1, chosen_QC)


def multiply(left, right):
    """The float32 product of two fp16 matrices, which on CUDA never exists in fp16."""
    if left.device.type == "cuda":
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()
