"""Which estimate is that of which kind of stage."""

from commands.forecast.costs.collection import collection_cost, download_cost
from commands.forecast.costs.cost import Cost
from commands.forecast.costs.encoder import encode_cost, pretrained_cost, tokens_cost
from commands.forecast.costs.evaluation import contrast_cost, evaluate_cost, external_cost, forgetting_cost
from commands.forecast.costs.negatives import merge_cost, negatives_file_cost, negatives_overlap_cost, positives_cost
from commands.forecast.costs.search import (
    bm25_cost,
    errors_cost,
    index_cost,
    lexical_index_cost,
    rerank_cost,
    retrieve_cost,
)
from commands.forecast.costs.training import train_cost

COSTS = {
    "download": download_cost,
    "collection": collection_cost,
    "check": lambda stage, counts, plan: Cost(),
    "pretrained": pretrained_cost,
    "tokens": tokens_cost,
    "lexical_index": lexical_index_cost,
    "bm25": bm25_cost,
    "encode": encode_cost,
    "index": index_cost,
    "retrieve": retrieve_cost,
    "positives": positives_cost,
    "negatives_file": negatives_file_cost,
    "merge": merge_cost,
    "train": train_cost,
    "evaluate": evaluate_cost,
    "external": external_cost,
    "rerank": rerank_cost,
    "errors": errors_cost,
    "contrast": contrast_cost,
    "negatives_overlap": negatives_overlap_cost,
    "forgetting": forgetting_cost,
}


def stage_cost(stage, counts, plan):
    """The Cost of a planned stage, or None for a kind that has no estimate."""
    estimate = COSTS.get(stage.kind)
    return estimate(stage, counts, plan) if estimate else None
