"""Live search: in each step, the queries search for their own passages with their current vectors (ADORE, Zhan et al.
2021).

As in the released code (DRhard, adore/train.py), query vectors are those of the step, dropout included, and passage
vectors are frozen. Judgments label the lists; the loss compares inner products with the vectors themselves.
"""

import time

import numpy as np
import torch

from teleport.encoder.precision import to_device
from teleport.evaluation.measures import first_hit_reciprocals
from teleport.refusal import Refusal
from teleport.search.exact import Exact
from teleport.search.pairs import ranked
from teleport.training.budget import STEP_RESERVE

CUT = 10  # of the measures of every step (released)


def make_lists(ids_QK, positives, relevant, appends):
    """Ranked lists of passages and their labels: int64 [Q, K], and bool [Q, K] twice, the positives and the negatives.
    A column that is neither holds a passage judged between, or, at the end, no passage.

    ids_QK: int, the ranking of the search, best first; positives, relevant: for each query the passages that are
    trained on, and those that are no negatives (int arrays); appends: whether a list without a positive gets all
    positives of its query at its end, which makes all lists longer
    """
    depth = ids_QK.shape[1]
    hit_QK, known_QK = (
        np.stack([np.isin(ids, own) for ids, own in zip(ids_QK, passages, strict=True)])
        for passages in (positives, relevant)
    )
    missing = [own if appends and not has else own[:0] for own, has in zip(positives, hit_QK.any(1), strict=True)]
    more = ((0, 0), (0, max(map(len, missing))))
    lists = [np.pad(of.astype(dtype), more) for of, dtype in ((ids_QK, np.int64), (hit_QK, bool))]
    for row, own in enumerate(missing):
        for array, value in zip(lists, (own, True), strict=True):
            array[row, depth : depth + len(own)] = value
    return *lists, np.pad(~(hit_QK | known_QK), more)


class SharedExact:
    """Exact search by several processes, each with a contiguous share of the passages on its device. Each process
    searches its share for all queries; the merged lists equal those of one process."""

    def __init__(self, vectors, device, threads, processes):
        bounds = np.linspace(0, len(vectors), processes.size + 1).astype(np.int64).tolist()
        self.vectors, self.processes = vectors, processes
        self.first, last = bounds[processes.rank : processes.rank + 2]
        room = torch.cuda.mem_get_info(device)[0] - STEP_RESERVE if device.type == "cuda" else None
        self.index = Exact(vectors[self.first : last], device, threads, room)
        if not self.index.kept and device.type == "cuda":
            raise Refusal(
                f"negatives.live: {len(vectors):,} passages take {2 * np.prod(vectors.shape) / 1e9:.1f} GB in float16, "
                "for which the GPU has no room beside the training. Let several GPUs share them (--set-resources "
                "train:gpu=4)."
            )
        self.engine = f"{self.index.engine} x {processes.size}"

    def search(self, queries_QD, depth):
        """Return the same as `Exact.search`."""
        own = min(depth, len(self.index.vectors))
        ids_QK, scores_QK = self.index.search(queries_QD, own) if own else np.zeros((2, len(queries_QD), 0))
        if self.processes.size == 1:
            return ids_QK, scores_QK
        scores_QM = np.full((len(queries_QD), depth), -np.inf, np.float32)
        ids_QM = np.full((len(queries_QD), depth), len(self.vectors), np.int64)
        scores_QM[:, :own], ids_QM[:, :own] = scores_QK, ids_QK + self.first
        lists = self.processes.gather_integers(np.hstack([scores_QM.view(np.int32), ids_QM]))
        scores_QM = np.hstack([part[:, :depth] for part in lists]).astype(np.int32).view(np.float32)
        return ranked(scores_QM, np.hstack([part[:, depth:] for part in lists]), depth)


class LiveSearch:
    """The search of a training that searches at every step.

    index: has `search`; compared: the vectors that the loss compares, an array or `index.Decoded`; data: a
    `data.QuerySet`; live: settings.Live; device: where the step computes
    """

    def __init__(self, index, compared, data, live, device):
        self.index, self.compared, self.data, self.live, self.device = index, compared, data, live, device
        self.engine = index.engine
        self.cuts = list(dict.fromkeys((CUT, live.depth)))
        self.measures = [f"RR@{CUT}", *(f"R@{cut}" for cut in self.cuts)]
        self.measured, self.seconds = [], 0.0

    def lists(self, queries_Q, vectors_QD):
        """Search for a (micro-)batch with the vectors of its queries. Returns the vectors of the lists' passages [Q, K,
        D] on the device, and two bool tensors [Q, K] on the CPU: which of them are positives, and which negatives."""
        queries_QD, started = vectors_QD.float().cpu().numpy(), time.monotonic()
        # A vector that is not finite must not search; its loss is not finite either, so training ends with a Refusal.
        finite_Q = np.isfinite(queries_QD).all(axis=1)
        ids_QK = np.tile(np.arange(self.live.depth), (len(queries_QD), 1))
        if finite_Q.any():
            ids_QK[finite_Q], _ = self.index.search(queries_QD[finite_Q], self.live.depth)
        positives, relevant = ([of[row] for row in queries_Q] for of in (self.data.positives, self.data.relevant))
        passages_QK, *labels = make_lists(ids_QK, positives, relevant, self.live.append_positives == "all")
        vectors_QKD = torch.from_numpy(self.compared.take(passages_QK, axis=0)).to(vectors_QD.dtype)
        self.measured.append(measure(labels[0][:, : self.live.depth], [len(own) for own in positives], self.cuts))
        self.seconds += time.monotonic() - started
        return to_device(vectors_QKD, self.device), *map(torch.from_numpy, labels)

    def take_result(self):
        """(means of `measures` over the queries, seconds of searching) since the last call: those of a step."""
        measured, seconds, self.measured, self.seconds = self.measured, self.seconds, [], 0.0
        return np.concatenate(measured).mean(axis=0).tolist(), seconds


def measure(positive_QK, positives_Q, cuts):
    """float64 [Q, 1 + cuts]: reciprocal rank at `CUT`, and recall at each of the `cuts` (int). positive_QK: bool, for
    lists with the best first; positives_Q: how many positives each query has"""
    recalls = (positive_QK[:, :cut].sum(axis=1) / positives_Q for cut in cuts)
    return np.stack([first_hit_reciprocals(positive_QK[:, :CUT]), *recalls], axis=1)


def open_search(job, data, passages, processes):
    """The `LiveSearch` of a train job. passages: the frozen side; processes: those that train together"""
    live, vectors = job.settings.live, np.asarray(passages.array)  # no copy; numpy's class for memory maps is slower
    if live.depth > len(vectors):
        lack = f"negatives.live.depth is {live.depth}, but the collection has {len(vectors)} passages"
        raise Refusal(f"{lack}. Set it to {len(vectors)} at most.")
    if live.index.kind == "flat":
        index = SharedExact(vectors, passages.device, job.threads, processes)
    else:
        from teleport.search.index import read_codes

        decoded = read_codes(job.input("index", "index.faiss"))
        index = SharedExact(decoded, passages.device, job.threads, processes)
    compared = index.vectors if live.scores == "compressed" else vectors
    return LiveSearch(index, compared, data, live, passages.device)
