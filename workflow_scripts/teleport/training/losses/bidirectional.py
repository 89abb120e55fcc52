"""InfoNCE in both directions (jina-embeddings-v2, arXiv 2310.19923; sentence-transformers' MultipleNegativesRankingLoss
with directions query_to_doc and doc_to_query, per_direction)."""


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Half the mean over the queries of -log softmax over all passages of the batch, and half that over the positives
    of -log softmax over all queries (scalar)."""
    import torch
    from torch.nn.functional import cross_entropy

    of_positives_QQ = scores_QP[:, positive_columns_Q].T
    queries_Q = torch.arange(len(scores_QP), device=scores_QP.device)
    return (cross_entropy(scores_QP, positive_columns_Q) + cross_entropy(of_positives_QQ, queries_Q)) / 2
