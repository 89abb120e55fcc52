"""The passages that an exact search keeps of each query while blocks of passages go by (exact.py): those whose product
plus its bound reaches the last rank so far."""

import torch

from teleport.search.budget import HITS
from teleport.search.reaching import append_reaching, kernel_exists

GROUP = 64  # products per group, at most: the maximum is compared first, as most groups do not reach the last rank
GROUPS = 4  # least groups per rank, so that their maxima bound the last rank
ALIGNED = 8  # tensor cores need a multiple of this many passages; other kernels have a tenth of the speed
SLACK = 1.01  # factor on bounds, for the rounding in their own computation
PRODUCT = 2.0**8  # the largest scaled products of a usual passage, about


class Candidates:
    """The passages that a group of queries has kept so far.

    lower_QR, upper_QR, ids_QR: bounds on the scores of passages, and their ids, in the first count_Q columns of each
    row; one extra column takes those without room
    floor_Q: lower bound on the exact score of the last rank; crowded_Q: which queries had too little room
    """

    def __init__(self, queries_QD, depth, room, dtype, device, usual):
        self.depth, self.room, self.device = depth, room, device
        self.by_kernel, self.next_drop = dtype == torch.float16 and kernel_exists(device), 0
        self.exact_QD = torch.from_numpy(queries_QD).to(device, torch.float64)
        # Scaled by a power of two, since scores of one query are only compared with each other. Usual products and
        # components are then far from the limits of float16.
        length = min(max(PRODUCT / usual, 0.25), 2.0**15)
        norms_Q1 = self.exact_QD.norm(dim=1, keepdim=True).clamp_min(2.0**-149)
        scaled_QD = self.exact_QD * torch.exp2(torch.floor(torch.log2(length / norms_Q1)))
        self.queries_QD = scaled_QD.to(dtype)
        lost_QD = scaled_QD - self.queries_QD
        self.lengths_Q2 = torch.stack([scaled_QD.norm(dim=1), lost_QD.norm(dim=1)], 1).mul_(SLACK).float()
        count = len(queries_QD)
        kept_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.lower_QR, self.upper_QR = torch.zeros(2, count, room + 1, dtype=kept_dtype, device=device)
        self.ids_QR = torch.zeros((count, room + 1), dtype=torch.int32, device=device)
        self.count_Q = torch.zeros(count, dtype=torch.int64, device=device)
        self.floor_Q = torch.full((count,), -torch.inf, dtype=kept_dtype, device=device)
        self.crowded_Q = torch.zeros(count, dtype=torch.bool, device=device)

    def add(self, first, passages_PD, errors_P2):
        """Process a block of passages; the first one has the number `first`."""
        scores_QP, end = products(self.queries_QD, passages_PD), first + len(passages_PD)
        if self.by_kernel and first:
            self.add_by_kernel(first, scores_QP, errors_P2)
        else:
            self.add_by_groups(first, scores_QP, errors_P2, self.crowded_Q)
        if end >= self.next_drop:
            self.next_drop = 2 * end
            self.drop()

    def add_by_kernel(self, first, scores_QP, errors_P2):
        """Do the same as `add`, in one pass over the products. Queries without room for the result go through the
        groups, which make room as they go."""
        before_Q = self.count_Q.clone()
        append_reaching(self, scores_QP, errors_P2, first)
        full_Q = self.count_Q > self.room
        if full_Q.any():
            self.count_Q = torch.where(full_Q, before_Q, self.count_Q)
            self.add_by_groups(first, scores_QP, errors_P2, ~full_Q)

    def add_by_groups(self, first, scores_QP, errors_P2, left_out_Q):
        """Do the same as `add`, for the queries that are not left out: the maximum of a group of products tells whether
        any of them reaches the last rank."""
        passages, size = len(errors_P2), GROUP
        while size > 1 and passages < size * GROUPS * self.depth:
            size //= 2
        if extra := -passages % size:
            scores_QP = torch.nn.functional.pad(scores_QP, (0, extra), value=-torch.inf)
            errors_P2 = torch.nn.functional.pad(errors_P2, (0, 0, 0, extra))
        groups = scores_QP.shape[1] // size
        # A group has every `groups`-th product: the maxima of neighbouring groups read neighbouring products.
        maxima_QG = scores_QP.unflatten(1, (size, groups)).amax(1) if size > 1 else scores_QP
        bounds_QG = self.lengths_Q2 @ errors_P2.unflatten(0, (size, groups)).amax(0).T
        if first == 0 and groups >= self.depth:  # at least `depth` passages, one per group, reach this
            self.floor_Q = lower_bounds(maxima_QG, bounds_QG).topk(self.depth, sorted=False).values.amin(1)
        # A NaN counts as reaching everything, so that it is not lost.
        below_QG = (upper_bounds(maxima_QG, bounds_QG) < self.floor_Q[:, None]) | left_out_Q[:, None]
        columns_S = groups * torch.arange(size, device=self.device)
        for hits in below_QG.logical_not_().nonzero().split(HITS[self.device.type] // size):
            rows_H, columns_HS = hits[:, 0], hits[:, 1, None] + columns_S
            errors_HS = (errors_P2[columns_HS] * self.lengths_Q2[rows_H, None]).sum(-1)
            scores_HS = scores_QP[rows_H[:, None], columns_HS]
            upper_HS = upper_bounds(scores_HS, errors_HS)
            below_HS = (upper_HS < self.floor_Q[rows_H, None]) | self.crowded_Q[rows_H, None]
            places = (~below_HS & (columns_HS < passages)).nonzero().unbind(1)
            lower_N, ids_N = lower_bounds(scores_HS[places], errors_HS[places]), first + columns_HS[places]
            self.keep(rows_H[places[0]], lower_N, upper_HS[places], ids_N)

    def keep(self, rows_N, lower_N, upper_N, ids_N):
        """Keep some passages; rows_N: ascending, the query of each. When a query has no room left, passages that can no
        longer be in its list are dropped; a query that stays full is crowded."""
        every_Q = torch.arange(len(self.count_Q) + 1, device=self.device)
        while len(rows_N):
            starts_Q = torch.searchsorted(rows_N, every_Q)
            slots_N = self.count_Q[rows_N] + torch.arange(len(rows_N), device=self.device) - starts_Q[rows_N]
            left_N = slots_N >= self.room
            slots_N = slots_N.clamp_max(self.room)
            for kept_QR, values_N in ((self.lower_QR, lower_N), (self.upper_QR, upper_N), (self.ids_QR, ids_N)):
                kept_QR[rows_N, slots_N] = values_N.to(kept_QR.dtype)
            self.count_Q = (self.count_Q + starts_Q.diff()).clamp_max(self.room)
            if not left_N.any():
                return
            self.drop()
            waiting_Q = torch.zeros_like(self.crowded_Q).index_fill_(0, rows_N[left_N], True)
            self.crowded_Q |= waiting_Q & (8 * self.count_Q > 7 * self.room)
            left_N &= ~(upper_N < self.floor_Q[rows_N]) & ~self.crowded_Q[rows_N]
            rows_N, lower_N, upper_N, ids_N = (array[left_N] for array in (rows_N, lower_N, upper_N, ids_N))

    def drop(self):
        """Raise the floor to the last rank so far, and drop passages that can no longer be in the list."""
        filled_QR = torch.arange(self.room + 1, device=self.device) < self.count_Q[:, None]
        lower_QR = self.lower_QR.masked_fill(~filled_QR, -torch.inf)
        self.floor_Q = self.floor_Q.maximum(lower_QR.topk(self.depth, sorted=False).values.amin(1))
        kept_QR = filled_QR & ~(self.upper_QR < self.floor_Q[:, None])
        slots_QR = torch.where(kept_QR, kept_QR.cumsum(1) - 1, self.room)
        self.lower_QR, self.upper_QR, self.ids_QR = (
            torch.empty_like(array).scatter_(1, slots_QR, array)
            for array in (self.lower_QR, self.upper_QR, self.ids_QR)
        )
        self.count_Q = kept_QR.sum(1)

    def kept(self):
        """(how many passages of each query may be in its list, int64, 0 for crowded queries; the passages [Q, M])."""
        self.drop()
        self.count_Q.masked_fill_(self.crowded_Q, 0)
        width = max(self.depth, int(self.count_Q.max()))
        filled_QM = torch.arange(width, device=self.device) < self.count_Q[:, None]
        return self.count_Q, self.ids_QR[:, :width].long().masked_fill_(~filled_QM, 0)


def lower_bounds(scores, errors):
    """Return lower bounds on exact scores; -inf if a product or its bound exceeds its number format."""
    return (scores - errors).nan_to_num_(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)


def upper_bounds(scores, errors):
    """Return upper bounds on exact scores; a NaN may stand for any score."""
    return scores.clamp_min(torch.finfo(scores.dtype).min) + errors


def products(queries_QD, passages_PD):
    """[Q, P]: inner products; float16 numbers are summed in float32 and rounded to float16."""
    if queries_QD.dtype == torch.float16 and not queries_QD.is_cuda:
        return (queries_QD.float() @ passages_PD.T.float()).half()
    if extra := -len(passages_PD) % ALIGNED:
        filled_PD = torch.nn.functional.pad(passages_PD, (0, 0, 0, extra))
        return (queries_QD @ filled_PD.T)[:, : len(passages_PD)]
    return queries_QD @ passages_PD.T
