"""GTE's improved loss (arXiv 2308.03281): one softmax over the passages for the query, the other queries for the query,
all queries for the positive, and the other queries' passages for the positive. Sentence-transformers has it as
MultipleNegativesRankingLoss with all four directions, joint."""


def loss(scores_QP, positive_columns_Q, own_columns_QN, query_query_QQ, passage_passage_QP):
    """Mean over the queries of -log of the positive's share in all four kinds of pairs (scalar). A query is not
    compared with itself, nor a positive with the passages of its own query or with what a mask leaves out for it."""
    import torch

    itself_QQ = torch.eye(len(scores_QP), dtype=torch.bool, device=scores_QP.device)
    own_columns_QN = torch.cat([positive_columns_Q.unsqueeze(1), own_columns_QN], dim=1)
    columns = [
        scores_QP,
        query_query_QQ.masked_fill(itself_QQ, float("-inf")),
        scores_QP[:, positive_columns_Q].T,
        passage_passage_QP.masked_fill(scores_QP.isneginf(), float("-inf")).scatter(1, own_columns_QN, float("-inf")),
    ]
    return torch.nn.functional.cross_entropy(torch.cat(columns, dim=1), positive_columns_Q)
