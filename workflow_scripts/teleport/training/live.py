"""Live search: the passages of a step are what its queries find, as they are encoded in it (ADORE, Zhan et al. 2021).

The released code (DRhard, adore/train.py): the vectors of the queries are those of the step, dropout included; those of
the passages are frozen. The lists are labelled by judgments; the loss compares products with the vectors themselves.
"""

import time
from functools import reduce

import numpy as np
import torch

from teleport.encoder.precision import to_device
from teleport.evaluation.measures import first_hit_reciprocals
from teleport.refusal import Refusal
from teleport.search.engines import open_for_steps
from teleport.search.exact import NO_KEY, ids_of, keys_of, scores_of
from teleport.search.flat import Exact, Proposals, outliers_allowed

CUT = 10  # of the measures of every step (released)


def make_lists(ids_QK, positives, relevant, appends):
    """Ranked lists of passages and their labels: int64 [Q, K], and bool [Q, K] twice, what is positive or negative. A
    column that is neither holds a passage judged between, or, at the end, none at all.

    ids_QK: int, what the search ranked, best first; positives, relevant: of each query the passages that are trained
    on, and those that are no negatives (int arrays); appends: whether a list without a positive gets all of its query's
    at its end, for which all lists become as long
    """
    depth = ids_QK.shape[1]
    hit_QK, known_QK = (
        np.stack([np.isin(ids, own) for ids, own in zip(ids_QK, passages, strict=True)])
        for passages in (positives, relevant)
    )
    missed = [own[: len(own) * (appends and not has)] for own, has in zip(positives, hit_QK.any(1), strict=True)]
    more = ((0, 0), (0, max(map(len, missed))))
    lists = [np.pad(of.astype(dtype), more) for of, dtype in ((ids_QK, np.int64), (hit_QK, bool))]
    for row, own in enumerate(missed):
        for array, value in zip(lists, (own, True), strict=True):
            array[row, depth : depth + len(own)] = value
    return *lists, np.pad(~(hit_QK | known_QK), more)


class SharedFlat(Exact):
    """Exact search by several processes, each of which has a contiguous share of the passages (memory map) on its
    device. Proposals of all shares are joined, and each process scores those of a share of the queries, so the pairs
    that are scored do not grow with the processes; the result is that of one. spare: as `open_for_steps` takes it"""

    def __init__(self, vectors, device, threads, processes, spare=None):
        self.processes = processes
        super().__init__(
            vectors, processes.size, lambda _, own, most: open_for_steps(own, device, threads, spare, most), threads
        )
        self.engine, self.overlaps = f"{self.kind} x {processes.size}", False  # processes exchange in one order
        outliers = self.part(processes.rank).outliers + self.ranges[processes.rank][0]
        most = 2 * outliers_allowed(len(vectors))  # by their norm, and by what their reduced vectors lose
        padded = np.pad(outliers, (0, most - len(outliers)), constant_values=-1)
        gathered = np.concatenate(processes.gather_integers(padded))
        self.outliers = gathered[gathered >= 0]

    def part(self, number):
        """The engine of this process's share, whichever is asked for."""
        return super().part(self.processes.rank)

    def propose(self, queries_QD, depth, count, known_Q, state=None):
        own = self.propose_part(self.processes.rank, queries_QD, depth, count, known_Q)
        keys_QM = np.pad(own.keys_QM, ((0, 0), (0, count - own.keys_QM.shape[1])), constant_values=NO_KEY)
        bounds = [bound_Q[:, None].view(np.int64) for bound_Q in (own.others_Q, own.errors_Q)]
        shares = self.processes.gather_integers(np.hstack([keys_QM, *bounds]))
        proposals = [
            Proposals(share[:, :-2], *share[:, -2:].T.view(np.float64), self.outliers, stop - first)
            for share, (first, stop) in zip(shares, self.ranges, strict=True)
        ]
        return reduce(lambda one, two: one.join(two, count), proposals)

    def rank(self, queries_QD, depth, proposals):
        shares = np.array_split(np.arange(len(queries_QD)), self.processes.size)
        rows = shares[self.processes.rank]
        own = proposals._replace(keys_QM=proposals.keys_QM[rows], errors_Q=proposals.errors_Q[rows])
        ids_QK, scores_QK, _ = super().rank(queries_QD[rows], depth, own)
        keys_QK = np.zeros((len(shares[0]), depth), np.int64)  # the first share is the largest
        keys_QK[: len(rows)] = keys_of(scores_QK, ids_QK)
        gathered = zip(self.processes.gather_integers(keys_QK), shares, strict=True)
        keys_QK = np.concatenate([keys_QK[: len(share)] for keys_QK, share in gathered])
        return ids_of(keys_QK), scores_of(keys_QK), proposals.others_Q


class LiveSearch:
    """What a training that searches at every step asks for its passages.

    index: has `search`; compared: the vectors that the loss compares, an array or `approximate.Decoded`; data: a
    `data.QuerySet`; live: settings.Live; device: where the step computes
    """

    def __init__(self, index, compared, data, live, device):
        self.index, self.compared, self.data, self.live, self.device = index, compared, data, live, device
        self.engine = index.engine
        self.measures = [f"RR@{CUT}", f"R@{CUT}", f"R@{live.depth}"]
        self.measured, self.seconds = [], 0.0

    def lists(self, queries_Q, vectors_QD):
        """Search for a (micro-)batch with the vectors of its queries: those of the lists' passages [Q, K, D] on the
        device, and bool tensors [Q, K] on the CPU that say which of them are positives, and which negatives."""
        queries_QD, started = vectors_QD.float().cpu().numpy(), time.monotonic()
        # A vector that is not finite makes the loss so, and the training ends with a sentence; it must not search.
        finite_Q = np.isfinite(queries_QD).all(axis=1)
        ids_QK = np.tile(np.arange(self.live.depth), (len(queries_QD), 1))
        if finite_Q.any():
            ids_QK[finite_Q], _ = self.index.search(queries_QD[finite_Q], self.live.depth)
        positives, relevant = ([of[row] for row in queries_Q] for of in (self.data.positives, self.data.relevant))
        passages_QK, *labels = make_lists(ids_QK, positives, relevant, self.live.append_positives == "all")
        vectors_QKD = torch.from_numpy(self.compared.take(passages_QK, axis=0)).to(vectors_QD.dtype)
        self.measured.append(measure(labels[0][:, : self.live.depth], [len(own) for own in positives]))
        self.seconds += time.monotonic() - started
        return to_device(vectors_QKD, self.device), *map(torch.from_numpy, labels)

    def take_result(self):
        """(means of `measures` over the queries, seconds of searching) since it was taken last: those of a step."""
        measured, seconds, self.measured, self.seconds = self.measured, self.seconds, [], 0.0
        return np.concatenate(measured).mean(axis=0).tolist(), seconds


def measure(positive_QK, positives_Q):
    """float64 [Q, 3]: reciprocal rank and recall at `CUT`, and the recall of the whole list. positive_QK: bool, of
    lists best first; positives_Q: how many positives each query has"""
    recalls = (positive_QK[:, :cut].sum(axis=1) / positives_Q for cut in (CUT, None))
    return np.stack([first_hit_reciprocals(positive_QK[:, :CUT]), *recalls], axis=1)


def open_search(job, data, passages, processes):
    """The `LiveSearch` of a train job. passages: the frozen side; processes: those that train together."""
    live, vectors = job.settings.live, np.asarray(passages.array)  # no copy; a memory map's own class takes longer
    if live.depth > len(vectors):
        lack = f"negatives.live.depth is {live.depth}, but the collection has {len(vectors)} passages"
        raise Refusal(f"{lack}. Set it to {len(vectors)} at most.")
    if live.index.kind == "flat":
        index = SharedFlat(vectors, passages.device, job.threads, processes)
    else:  # on a GPU without room for the decoded vectors by the codes, on its host
        from teleport.search.approximate import PqCodes, read_codes

        decoded = read_codes(job.input("index", "index.faiss"))
        index = SharedFlat(decoded, passages.device, job.threads, processes, PqCodes)
    compared = index.vectors if live.scores == "compressed" else vectors
    return LiveSearch(index, compared, data, live, passages.device)
