"""Candidates for exact search by blocked products of fp16 numbers on a CUDA device (or, in tests, the CPU)."""

import math

import torch

from teleport.running.log import log
from teleport.search.flat import GPU_STEP, OUTLIERS
from teleport.search.reduced import Reduced

BLOCK_PASSAGES = 65536  # at a time: launching the kernels of a block costs little beside them
SCORES = 2**28  # of queries with a block of passages at a time: 1 GB in float32
STEP_BLOCK = 2**21  # where a few dozen queries are searched at a time: few kernels to launch
LEAST_GROUP = 4  # scores per group from which looking at their maxima first is worth it


def products(queries_QD, passages_PD):
    """Float32 [Q, P]: inner products of fp16 numbers, which on a GPU are never rounded to fp16 themselves."""
    if queries_QD.is_cuda:
        return torch.mm(queries_QD, passages_PD.T, out_dtype=torch.float32)
    return queries_QD.float() @ passages_PD.T.float()


def workspace(dim):
    """Bytes of device memory that a search takes besides its vectors: scores and what is selected from them, and some
    blocks of vectors in float32, as read, as centred and as they come back from their reduction."""
    return 4 * (2 * SCORES + 8 * BLOCK_PASSAGES * dim)


class TorchFlat(Reduced):
    """The same as `FaissFlat`: fp16 numbers multiplied by tensor cores, summed and given out in float32. The
    reduced vectors stay on the device when they take at most `room` bytes (by default what is free and not needed for
    the search), else they stream. The host computes exact scores, with the bits of a run without a GPU."""

    def __init__(self, vectors, device, threads=1, room=None, most_outliers=OUTLIERS):
        if room is None:
            room = torch.cuda.mem_get_info(device)[0] - workspace(vectors.shape[1])
        super().__init__(vectors, "fp16", threads, room, device, BLOCK_PASSAGES, most_outliers)
        if self.kept is not None:  # else each step reads all passages
            self.step = GPU_STEP
        state = "stay on" if self.kept is not None else "are streamed in every search to"
        sizes = f"{2 * vectors.size / 1e9:.1f} GB in fp16, room for {max(0, room) / 1e9:.1f} GB beside the search"
        log.info("%d vectors %s %s: %s", len(vectors), state, self.device, sizes)

    def first_count(self, depth):
        return depth + depth // 4 + 64

    @torch.inference_mode()
    def propose(self, queries_QD, depth, count, errors_Q, last_Q):
        reduced, factors_Q = self.reduce_queries(queries_QD)
        groups, lists = reduced.split(SCORES // self.block), {}
        for first, passages_PD in self.blocks():
            for group, reduced_QD in enumerate(groups):
                scores_QM, columns_QM = top(products(reduced_QD, passages_PD), count)
                lists[group] = join(lists.get(group), scores_QM, columns_QM + first, count)
        scores_QM, ids_QM = map(torch.cat, zip(*lists.values(), strict=True))
        scores_QM, order_QM = scores_QM.sort(dim=1, descending=True)
        ids_QM = ids_QM.gather(1, order_QM)
        units_Q = factors_Q.double() * self.factor
        scores_QM = (scores_QM * units_Q + self.shifts(queries_QD)[:, None]).cpu().numpy()
        return scores_QM, ids_QM.cpu().numpy(), scores_QM[:, -1]


def join(others, scores_QM, ids_QM, count):
    """The `count` (or all) largest of some scores and of `others` (scores, ids; or None), in any order."""
    if others is None:
        return scores_QM, ids_QM
    scores_QM, ids_QM = (torch.cat(pair, 1) for pair in zip(others, (scores_QM, ids_QM), strict=True))
    scores_QM, order_QM = scores_QM.topk(min(count, scores_QM.shape[1]), sorted=False)
    return scores_QM, ids_QM.gather(1, order_QM)


def top(scores_QP, count):
    """The `count` (or all) largest scores of each query, in any order: (scores, columns int64), both [Q, count].
    torch.topk reads all scores several times; but only the `count` groups of scores with the largest maxima can hold
    one of them, so the others are read once, for their maxima."""
    total = scores_QP.shape[1]
    size = math.isqrt(total // count)  # as many maxima as scores in the groups that are looked into
    if size < LEAST_GROUP:
        return scores_QP.topk(min(count, total), sorted=False)
    groups = total // size
    # A group has every `groups`-th score: the maxima of neighbouring groups read neighbouring scores.
    maxima = scores_QP[:, : size * groups].unflatten(1, (size, groups)).amax(1)
    chosen = maxima.topk(count, sorted=False).indices
    starts = torch.arange(0, size * groups, groups, device=scores_QP.device)
    rest = torch.arange(size * groups, total, device=scores_QP.device).expand(len(scores_QP), -1)
    columns_QM = torch.cat([(chosen[:, None] + starts[:, None]).flatten(1), rest], 1)
    scores_QM, order_QM = scores_QP.gather(1, columns_QM).topk(count, sorted=False)
    return scores_QM, columns_QM.gather(1, order_QM)
