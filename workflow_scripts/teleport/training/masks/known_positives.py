"""Known positives of a query that are in its batch for other queries are not its negatives. STAR masks them (DRhard,
model.py); neither ANCE-Tele's paper nor its released code masks anything."""


def mask(batch, data):
    """Bool [Q, P]: which passages of a `data.Batch` are known positives of a query, except the column of its positive.
    A second copy of that positive, drawn for another query, is masked too."""
    import numpy as np  # here: loading a configuration loads this file

    masked_QP = np.stack([np.isin(batch.passages_P, data.known_positives(row)) for row in batch.queries_Q])
    masked_QP[np.arange(len(masked_QP)), batch.positive_columns_Q] = False
    return masked_QP
