"""The softmax over a query's positive and its own negatives alone (llama-embed-nemotron-8b, arXiv 2511.07025, Section
6.1, "HNs only"; FlagEmbedding's no_in_batch_neg_flag)."""


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Mean over the queries of -log softmax(scores)[positive] over their positive and own negatives (scalar)."""
    import torch

    scores_QN = scores_QP.gather(1, torch.cat([positive_columns_Q.unsqueeze(1), own_columns_QN], dim=1))
    return torch.nn.functional.cross_entropy(scores_QN, torch.zeros_like(positive_columns_Q))
