"""InfoNCE in both directions (jina-embeddings-v2, arXiv 2310.19923; sentence-transformers' MultipleNegativesRankingLoss
with directions query_to_doc and doc_to_query, per_direction)."""

from teleport.refusal import Refusal
from teleport.settings.section import Section


class Settings(Section):
    """The softmax over the passages, and that over the queries."""

    def require(self, training, has_pool):
        """Raise Refusal if the other settings of an episode do not go with these."""
        if training.positive == "all":
            raise Refusal(
                "training.positive all repeats a query, and loss bidirectional compares a positive with every query "
                "of the batch once: set positive to rotate, or take another loss"
            )


def loss(scores_QP, positive_columns_Q, own_columns_QN):
    """Half the mean over the queries of -log softmax over all passages of the batch, and half that over the positives
    of -log softmax over all queries (scalar)."""
    import torch
    from torch.nn.functional import cross_entropy

    of_positives_QQ = scores_QP[:, positive_columns_Q].T
    queries_Q = torch.arange(len(scores_QP), device=scores_QP.device)
    return (cross_entropy(scores_QP, positive_columns_Q) + cross_entropy(of_positives_QQ, queries_Q)) / 2
