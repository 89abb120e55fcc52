"""Costs of pools of negatives, of what is read for them, and of the search for answers."""

import math
from collections import Counter

from commands.forecast.costs.amounts import (
    NEIGHBOUR_BYTES,
    chunks_of,
    encoder_of,
    in_part,
    pool_size,
    run_bytes,
    run_lines,
    stored_bytes,
)
from commands.forecast.costs.cost import BASE, ID_BYTES, PAIR_BYTES, Cost
from commands.forecast.flops import vector_bytes

POOL_BYTES = 12  # a negative: passage 4, source 1, first episode 1, rank 2, score 4
MERGE_BUFFERS = 60e6  # the candidates of a block and their draws
# What a further question of a passage costs, in passages that are looked through for the answers of one.
ANSWER_COST = 0.25
PROCESSES, PASSAGES = 8, 50_000  # at most so many look for answers, in so many passages each (collection.answers)
PROCESS_MEMORY = 0.45e9


def negatives_file_cost(stage, counts, plan):
    """Ids, texts or tokens of all passages are hashed, to find those of the file."""
    size = run_bytes(stage, counts)
    return Cost(size, memory=BASE + 16 * counts.passages + 2 * size, work=Counter(texts=counts.passages))


def looking_for_answers(pairs, counts):
    """(work, memory) of looking for answers in so many retrieved passages. Each is read once.

    At most: they are taken to be as many different ones as random draws would be, and neighbours repeat more often.
    """
    passages = -math.expm1(-pairs / counts.passages) * counts.passages
    return passages + ANSWER_COST * (pairs - passages), min(PROCESSES, passages // PASSAGES) * PROCESS_MEMORY


def positives_cost(stage, counts, plan):
    """At most: only questions without a judged positive are looked at."""
    lines, depth = run_lines(stage.inputs["queries"], counts)
    work, memory = looking_for_answers(lines * depth, counts)
    memory += BASE + lines * (ID_BYTES + depth * PAIR_BYTES)
    return Cost(lines * 12, memory=memory, work=Counter(answers=work))


def merge_cost(stage, counts, plan):
    settings, inputs = stage.settings, stage.inputs
    queries = in_part(counts.queries.get("train", 0), settings.part)
    lists = [run_bytes(inputs[name], counts) for name in settings.sources if name in inputs and name != "momentum"]
    mapped = sum(lists)
    others = sum(2 * draw.count for name, draw in settings.sources.items() if name not in inputs)  # random ones
    pairs = [*(size / NEIGHBOUR_BYTES for size in lists), queries * others]
    others += pool_size(inputs["momentum"]) if "momentum" in inputs else 0
    work = Counter(merge_rows=mapped / NEIGHBOUR_BYTES + queries * others)
    if settings.remove == "answers":  # of what each source offers, but for the last pool
        looked, memory = zip(*(looking_for_answers(number, counts) for number in pairs), strict=True)
        work["answers"], mapped = sum(looked), mapped + max(memory)
    if settings.filters.by_score:
        _, dim, _ = encoder_of(inputs["passages"])
        mapped += stored_bytes(inputs["passages"], counts) + vector_bytes(queries, dim)
        work["rescored"] = work["merge_rows"] * dim * chunks_of(inputs["passages"], counts)[0]
    size = queries * (pool_size(stage) * POOL_BYTES + 8)
    return Cost(size, memory=BASE + MERGE_BUFFERS + mapped + queries * ID_BYTES, work=work)


def negatives_overlap_cost(stage, counts, plan):
    lines, depth = run_lines(stage.inputs["queries"], counts)
    rows = lines * (depth + pool_size(stage.inputs["negatives"]))
    return Cost(memory=BASE + rows * NEIGHBOUR_BYTES, work=Counter(merge_rows=rows))
