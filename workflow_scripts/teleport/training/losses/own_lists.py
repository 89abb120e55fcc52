"""The list of a query's positive and its own negatives, with a teacher's scores of them. Several losses share this
file; it is not a loss itself, so a loss that uses it depends on no other one."""


def own_list(scores_QP, positive_columns_Q, own_columns_QN, judged_QN):
    """(scores, teacher's scores, which of them count: bool), all [Q, 1 + N]. A masked passage has -inf in both."""
    import torch  # here: loading a configuration loads this file

    columns_QN = torch.cat([positive_columns_Q.unsqueeze(1), own_columns_QN], dim=1)
    scores_QN = scores_QP.gather(1, columns_QN)
    counted_QN = scores_QN > float("-inf")
    return scores_QN, judged_QN.to(scores_QN).masked_fill(~counted_QN, float("-inf")), counted_QN
