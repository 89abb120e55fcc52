"""Qwen3-Embedding's loss (arXiv 2506.05176, Eq. 1-2) as ms-swift computes it (swift/loss/embedding.py)."""

from pydantic import Field

from teleport.settings.section import Number, Section


class Settings(Section):
    """The softmax over passages, other queries, and passages for the positive, without likely positives (Qwen3)."""

    margin: Number = Field(
        0.1, ge=0, description="Passages and queries that score this much above s+, by q·d, are left out."
    )


def loss(scores_QP, positive_columns_Q, own_columns_QN, scale, query_query_QQ, passage_passage_QP, margin=0.1):
    """Mean over the queries of -log of the positive's share among all passages for the query, all other queries for the
    query, and all other passages for the positive, its own negatives included (scalar). For the query, passages and
    queries that score above s+ + margin are left out; for the positive, only what a mask leaves out for the query."""
    import torch

    itself_QQ = torch.eye(len(scores_QP), dtype=torch.bool, device=scores_QP.device)
    columns_Q1 = positive_columns_Q.unsqueeze(1)
    most_Q1 = scores_QP.detach().gather(1, columns_Q1) + scale * margin
    columns = [
        scores_QP.masked_fill(scores_QP > most_Q1, float("-inf")),
        query_query_QQ.masked_fill(itself_QQ | (query_query_QQ > most_Q1), float("-inf")),
        passage_passage_QP.masked_fill(scores_QP.isneginf(), float("-inf")).scatter(1, columns_Q1, float("-inf")),
    ]
    return torch.nn.functional.cross_entropy(torch.cat(columns, dim=1), positive_columns_Q)
