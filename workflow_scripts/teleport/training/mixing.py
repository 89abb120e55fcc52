"""Mixed negatives: further negatives of a query, each between two of its own (MoCHi, Kalantidis et al., NeurIPS 2020,
arXiv 2010.01028). KaLM-Embedding-V2 (arXiv 2506.20923) mixes hard negatives of a query in the same form; how it draws
shares was not read. They cost no encoding. MoCHi mixes vectors of a queue, without gradient; here both get one."""

import numpy as np

from teleport.seed import derive_seed


def draw_mixtures(batch, number, seed):
    """(int64 [Q, M, 2]: the numbers of two different own negatives of each query of a `data.Batch`; float32 [Q, M]: the
    share of the first one, uniform from 0 to 1). M: `number`. The draw is a function of the seed and the batch, so it
    is the same in all processes and after a resume."""
    rng = np.random.default_rng(derive_seed(seed, "mixing", *batch.passages_P.tolist()))
    queries, own = batch.own_columns_QN.shape
    first_QM, others_QM = rng.integers(own, size=(queries, number)), rng.integers(own - 1, size=(queries, number))
    second_QM = others_QM + (others_QM >= first_QM)
    return np.stack([first_QM, second_QM], axis=2), rng.random((queries, number), np.float32)


def mix(vectors_QM2D, shares_QM, normalize):
    """[Q, M, D]: share h_i + (1 - share) h_j of pairs of vectors (tensors), scaled to length 1 if `normalize`."""
    from torch.nn.functional import normalize as unit

    first_QMD, second_QMD = vectors_QM2D.unbind(2)
    mixed_QMD = second_QMD.lerp(first_QMD, shares_QM.to(first_QMD).unsqueeze(2))
    return unit(mixed_QMD, dim=2) if normalize else mixed_QMD


def mixed_scores(queries_QD, passages_PD, scores_QP, columns_QM2, shares_QM, normalize):
    """[Q, M]: inner products of (scaled) query vectors with mixtures of passages; -inf where one of the two passages is
    left out for the query. columns_QM2: int64 tensor"""
    mixed_QMD = mix(passages_PD[columns_QM2], shares_QM, normalize)
    left_out_QM = scores_QP.gather(1, columns_QM2.flatten(1)).isneginf().unflatten(1, (-1, 2)).any(2)
    return (mixed_QMD @ queries_QD.unsqueeze(2)).squeeze(2).masked_fill(left_out_QM, float("-inf"))
