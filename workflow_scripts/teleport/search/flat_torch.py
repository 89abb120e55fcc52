"""Candidates for exact search by blocked matrix products on a CUDA device (or, in tests, the CPU)."""

import numpy as np
import torch

BLOCK_PASSAGES = 65536  # torch.topk took 2.9 times as long on blocks of 8,192
PAIR_NUMBERS = 2**26  # numbers in memory at a time while scores are computed again: 0.5 GB in float64
RESIDENT_SHARE = 0.6  # of the free device memory that the vectors may take; the rest is for scores and candidates


class TorchFlat:
    """The same as `flat.FaissFlat`, with torch.

    The vectors stay on the device when they fit; a larger collection streams from its memory map, once per block of
    queries. vectors: float32 [n, dim], an array or a memory map (copy-on-write: torch wants it writable)
    """

    def __init__(self, vectors, device):
        torch.set_float32_matmul_precision("highest")  # TF32 rounds to 11 bits: `flat.search` counts on 24
        self.vectors, self.device = vectors, torch.device(device)
        self.data = torch.from_numpy(vectors)
        if self.device.type == "cuda" and vectors.nbytes < RESIDENT_SHARE * torch.cuda.mem_get_info(self.device)[0]:
            self.data = self.data.to(self.device)

    @torch.inference_mode()
    def nearest(self, queries_QD, count):
        """(scores float32, passage numbers int64), both [Q, count]; rounding and ties as they fall."""
        queries_QD = torch.from_numpy(queries_QD).to(self.device)
        best_QC = queries_QD.new_empty((len(queries_QD), 0))
        ids_QC = best_QC.long()
        for start in range(0, len(self.data), BLOCK_PASSAGES):
            scores_QP = queries_QD @ self.data[start : start + BLOCK_PASSAGES].to(self.device).T
            top_QC, places_QC = scores_QP.topk(min(count, scores_QP.shape[1]), sorted=False)
            best_QC, ids_QC = torch.cat([best_QC, top_QC], 1), torch.cat([ids_QC, places_QC + start], 1)
            best_QC, places_QC = best_QC.topk(min(count, best_QC.shape[1]), sorted=False)
            ids_QC = ids_QC.gather(1, places_QC)
        return best_QC.cpu().numpy(), ids_QC.cpu().numpy()

    @torch.inference_mode()
    def exact_scores(self, queries_QD, ids_QC):
        """Inner products of each query with its candidates: float64 sums rounded to float32 [Q, C]."""
        queries_QD = torch.from_numpy(queries_QD).to(self.device)
        ids = torch.from_numpy(ids_QC.ravel()).to(self.data.device)
        rows = torch.arange(len(ids_QC), device=self.device).repeat_interleave(ids_QC.shape[1])
        scores = np.empty(len(ids), np.float32)
        step = max(1, PAIR_NUMBERS // self.data.shape[1])
        for start in range(0, len(ids), step):
            part = slice(start, start + step)
            products = self.data[ids[part]].to(self.device).double() * queries_QD[rows[part]]
            scores[part] = products.sum(1).float().cpu().numpy()
        return scores.reshape(ids_QC.shape)
