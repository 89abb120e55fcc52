"""Costs of the downloads and of the collection made from them."""

from collections import Counter

from commands.forecast.costs.amounts import corpus_tokens
from commands.forecast.costs.cost import BASE, ID_BYTES, Cost

BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
TEXT_COST = {"apidocs": 20}  # packages are parsed: a passage takes as long as twenty lines of a file


def collection_cost(stage, counts, plan):
    texts = counts.passages * TEXT_COST.get(stage.settings.source.source, 1)
    size = corpus_tokens(counts, plan) * BYTES_PER_TOKEN
    return Cost(size, memory=BASE + counts.passages * ID_BYTES, work=Counter(texts=texts))
