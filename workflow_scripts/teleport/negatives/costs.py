"""What pools of negatives, and positives by answer match, cost: a function (stage, counts, place) → Cost per kind."""

from teleport.collection.costs import looking_for_answers
from teleport.costs import BASE, ID_BYTES, NEIGHBOUR_BYTES, PAIR_BYTES, Cost, run_bytes

POOL_BYTES = 14  # a negative: passage 4, source 1, first episode 1, rank 4, score 4
MERGE_BUFFERS = 60e6  # the candidates of a block and their draws
MERGED, RESCORED = 0.04, 1.5  # of a row of a run: drawing from a candidate, and scoring it again


def negatives_file(stage, counts, place):
    """Ids, texts or tokens of all passages are hashed, to find those of the file."""
    size = run_bytes(*counts.run(stage))
    return Cost(size, memory=BASE + 16 * counts.passages + 2 * size, work={"texts": counts.passages})


def positives(stage, counts, place):
    """At most: only questions without a judged positive are looked at."""
    lines, depth = counts.run(stage.inputs["queries"])
    work, memory = looking_for_answers(lines * depth, counts, place.threads)
    return Cost(lines * 12, memory=memory + BASE + lines * (ID_BYTES + depth * PAIR_BYTES), work=work)


def pool_size(stage):
    """Negatives per query of a `merge` stage."""
    return sum(draw.count for draw in stage.settings.sources.values())


def merge(stage, counts, place):
    """Candidates of all sources are drawn from and joined; with `positive_score` each is scored again."""
    settings, inputs = stage.settings, stage.inputs
    queries = counts.in_part(counts.queries["train"], settings.part)
    read = [inputs[name] for name in settings.sources if name in inputs and name != "momentum"]
    lists = [run_bytes(*counts.run(run)) for run in read]
    others = sum(2 * draw.count for name, draw in settings.sources.items() if name not in inputs)  # random ones
    pairs = [*(size / NEIGHBOUR_BYTES for size in lists), queries * others]
    others += pool_size(inputs["momentum"]) if "momentum" in inputs else 0
    candidates, mapped = sum(lists) / NEIGHBOUR_BYTES + queries * others, sum(lists)
    work = {"rows": MERGED * candidates}
    if settings.remove == "answers":  # of what each source offers, but for the last pool
        looked, memory = zip(*(looking_for_answers(number, counts, place.threads) for number in pairs), strict=True)
        work |= {rate: sum(each[rate] for each in looked) for rate in looked[0]}
        mapped += max(memory)
    if settings.positive_score:
        mapped += counts.vectors(inputs["passages"])[2]
        work["rows"] += RESCORED * candidates
    size = queries * (pool_size(stage) * POOL_BYTES + 8)
    return Cost(size, memory=BASE + MERGE_BUFFERS + mapped + queries * ID_BYTES, work=work)


def negatives_overlap(stage, counts, place):
    """The lists of a run beside the pool."""
    lines, depth = counts.run(stage.inputs["queries"])
    rows = lines * (depth + pool_size(stage.inputs["negatives"]))
    return Cost(memory=BASE + rows * NEIGHBOUR_BYTES, work={"rows": MERGED * rows})
