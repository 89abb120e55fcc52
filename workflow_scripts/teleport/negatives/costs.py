"""The costs of pools of negatives, and of positives by answer match: a function (stage, counts, place) → Cost per
kind."""

from pathlib import Path

from teleport.collection.costs import looking_for_answers
from teleport.costs import BASE, ID_BYTES, NEIGHBOUR_BYTES, PAIR_BYTES, TORCH_BASE, Cost, run_bytes, vector_bytes
from teleport.encoder.costs import forward_work
from teleport.encoder.shape import Shape
from teleport.negatives.budget import POOL_BYTES
from teleport.settings.registry import roles_of

SCORE_BYTES = 8  # a scored pair: passage 4, score 4
MERGE_BUFFERS = 60e6  # the candidates of a block and their draws
MERGED, RESCORED = 0.04, 1.5  # relative to a row of a run: drawing from a candidate, and scoring it again


def negatives_file(stage, counts, place):
    """Ids, texts or tokens of all passages are hashed, to find those of the file."""
    lines, depth = counts.run(stage)
    size = run_bytes(lines, depth)
    memory = BASE + 16 * counts.passages + 4 * size
    return Cost(size + lines * (depth + 1) * SCORE_BYTES, memory=memory, work={"texts": counts.passages})


def positives(stage, counts, place):
    """Return an upper bound: only questions without a judged positive are searched."""
    lines, depth = counts.run(stage.inputs["queries"])
    work, memory = looking_for_answers(lines * depth, counts, place.threads)
    return Cost(lines * 12, memory=memory + BASE + lines * (ID_BYTES + depth * PAIR_BYTES), work=work)


def scores_file(stage, counts, place):
    """Lines as they are written, and the ids of all passages; a line has about as many bytes as a pair in memory."""
    size = Path(stage.settings.path).stat().st_size
    return Cost(size, memory=BASE + 16 * counts.passages + 10 * size, work={"texts": counts.passages})


def pool_size(stage):
    """Negatives per query of a `merge` stage."""
    return sum(draw.count for draw in stage.settings.sources.values())


def offered(stage, counts, place):
    """Return upper bounds: (candidates of a `merge` or `score` stage, with the last pool; bytes of what they are read
    from; work). Passages with an answer are looked for in what each source offers; in the last pool, if it may have
    some."""
    settings, inputs, work, looked = stage.settings, stage.inputs, {}, []
    read = {name: roles_of(name, inputs) for name in settings.sources}
    lists = [run_bytes(*counts.run(inputs[role])) for name in read if name != "momentum" for role in read[name]]
    random = sum(2 * draw.count for name, draw in settings.sources.items() if not read[name])
    last = pool_size(inputs["momentum"]) if "momentum" in inputs and "momentum" in settings.sources else 0
    pairs = [*(size / NEIGHBOUR_BYTES for size in lists), queries_of(stage, counts) * random]
    if settings.remove == "answers":
        old = [queries_of(stage, counts) * last] if last and inputs["momentum"].settings.remove != "answers" else []
        looked = [looking_for_answers(number, counts, place.threads) for number in pairs + old]
        work = {rate: sum(each[rate] for each, _ in looked) for rate in looked[0][0]}
    memory = max((memory for _, memory in looked), default=0)
    return sum(pairs) + queries_of(stage, counts) * last, sum(lists) + memory, work


def queries_of(stage, counts):
    """How many training queries a stage has."""
    return counts.in_part(counts.queries["train"], stage.settings.part)


def scored(stage, counts):
    """Pairs that a `score` stage scores besides candidates: positives, and the pool that is relabelled."""
    pool = pool_size(stage.inputs["negatives"]) if "negatives" in stage.inputs else 0
    return queries_of(stage, counts) * (1 + pool)


def score(stage, counts, place):
    """Inner products of pairs: candidates, or a pool, and the positives."""
    candidates, read, work = offered(stage, counts, place)
    queries, number = queries_of(stage, counts), candidates + scored(stage, counts)
    _, dim, size = counts.vectors(stage.inputs["passages"])
    memory = BASE + MERGE_BUFFERS + read + size + vector_bytes(queries, dim) + queries * ID_BYTES
    return Cost(number * SCORE_BYTES, memory, work=work | {"rows": RESCORED * number})


def cross_score(stage, counts, place):
    """A forward pass of every pair, at its maximum length, through a model of BERT-base's size."""
    candidates, read, work = offered(stage, counts, place)
    number, shape = candidates + scored(stage, counts), Shape()
    work |= {"encode_flop": number * forward_work(shape, stage.settings.max_tokens)}
    size, computing = number * SCORE_BYTES, 1.5 * 4 * shape.parameters
    memory = TORCH_BASE + MERGE_BUFFERS + 3 * size + (0 if place.gpus else computing)
    return Cost(size, memory, mapped=read, device_memory=computing if place.gpus else 0.0, work=work, model=True)


def merge(stage, counts, place):
    """Negatives are drawn from the candidates of all sources and joined; compared scores are looked up."""
    (number, read, work), queries = offered(stage, counts, place), queries_of(stage, counts)
    tables = sum(role.startswith(("scores.", "anchors.")) for role in stage.inputs)
    memory = BASE + MERGE_BUFFERS + read + tables * number * SCORE_BYTES + queries * ID_BYTES
    size = queries * (pool_size(stage) * POOL_BYTES + 8)
    return Cost(size, memory, work=work | {"rows": MERGED * number * (1 + tables)})


def relabel(stage, counts, place):
    """Return the cost of a pool at most as large as the one before, with the scores of each judge or a search for
    answers."""
    pool, rule = stage.inputs["negatives"], stage.settings.relabel
    number = counts.in_part(counts.queries["train"], pool.settings.part) * pool_size(pool)
    tables = sum(role.startswith("scores.") for role in stage.inputs)
    work, memory = {"rows": MERGED * number * (1 + tables)}, 0
    if rule.kind == "answers" or rule.own.get("answers", "") is None:
        looked, memory = looking_for_answers(number, counts, place.threads)
        work |= looked
    size = number * POOL_BYTES + counts.queries["train"] * 16
    memory += BASE + MERGE_BUFFERS + 16 * counts.passages
    return Cost(size, memory=memory, mapped=number * (POOL_BYTES + tables * SCORE_BYTES), work=work)
