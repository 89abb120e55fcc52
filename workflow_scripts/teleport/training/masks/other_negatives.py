"""The own negatives of the batch's other queries are no negatives of a query: besides its own, only their positives are
(EmbeddingGemma, arXiv 2509.20354, Eq. 2)."""


def mask(batch, data):
    """Bool [Q, P]: which passages of a `data.Batch` are own negatives of another row alone."""
    import numpy as np  # here: loading a configuration loads this file

    masked_QP = np.zeros((len(batch.queries_Q), len(batch.passages_P)), bool)
    masked_QP[:, batch.own_columns_QN.ravel()] = True
    rows_Q1 = np.arange(len(batch.own_columns_QN))[:, None]  # remembered rows have no own negatives
    masked_QP[rows_Q1, batch.own_columns_QN] = False
    return masked_QP
