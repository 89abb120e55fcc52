"""Costs of the collection, of pools of negatives, and of evaluations."""

import math
from collections import Counter
from pathlib import Path

from commands.forecast.costs.search import BASE, NEIGHBOUR_BYTES, Cost, passage_vectors, run_bytes, run_lines
from commands.forecast.counts import in_part
from commands.forecast.flops import vector_bytes
from teleport.collection.download import FOLDER

ID_BYTES = 150  # a passage's text id in memory: as a Python string in a table of rows
PAIR_BYTES = 40  # a retrieved passage in memory: ids, scores and a sorted copy of the ids
BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
APIDOCS_TEXTS = 20  # packages are parsed: a passage takes as long as so many lines of a file
POOL_BYTES = 14  # a negative: passage 4, source 1, first episode 1, rank 4, score 4
MERGE_BUFFERS = 60e6  # the candidates of a block and their draws
ANSWER_COST = 0.25  # of a further question of a passage, in passages that are looked through for the answers of one
PROCESSES, PASSAGES = 8, 50_000  # at most so many look for answers, in so many passages each (collection.answers)
PROCESS_MEMORY = 0.45e9
RUN_BYTES = 24  # a line of a compressed run; measured on 764 queries x 1,000
MEASURES_BASE = 0.3e9  # memory of a process that has loaded what measures runs


def missing_files(stage):
    """The files that a `download` stage has to fetch (list of names); `collection.local` replaces all."""
    if stage.origins.get("local"):
        return []
    return [name for name in stage.settings.files if not (FOLDER / name).is_file()]


def download_cost(stage, counts):
    """What is there already is only hashed. Files of unknown size are what `counts.download_bytes` leaves for them."""
    files, folder = stage.settings.files, Path(stage.origins.get("local") or FOLDER)
    there = sum(path.stat().st_size for path in (folder / name for name in files) if path.is_file())
    missing = missing_files(stage)
    known = sum(files[name].bytes or 0 for name in missing)
    fetched = max(known, (counts.download_bytes or 0) - there) if missing else 0
    return Cost(fetched, work=Counter(network=fetched, disk=there))


def collection_cost(stage, counts):
    texts = counts.passages * (APIDOCS_TEXTS if stage.settings.source.source == "apidocs" else 1)
    size = counts.corpus_tokens() * BYTES_PER_TOKEN
    return Cost(size, memory=BASE + counts.passages * ID_BYTES, work=Counter(texts=texts))


def check_cost(stage, counts):
    return Cost()


def negatives_file_cost(stage, counts):
    """Ids, texts or tokens of all passages are hashed, to find those of the file."""
    size = run_bytes(*run_lines(stage, counts))
    return Cost(size, memory=BASE + 16 * counts.passages + 2 * size, work=Counter(texts=counts.passages))


def looking_for_answers(pairs, counts):
    """(work, memory) of looking for answers in so many retrieved passages, each of which is read once; at most: random
    draws would be as many different ones, and neighbours repeat more often."""
    passages = -math.expm1(-pairs / counts.passages) * counts.passages
    return passages + ANSWER_COST * (pairs - passages), min(PROCESSES, passages // PASSAGES) * PROCESS_MEMORY


def positives_cost(stage, counts):
    """At most: only questions without a judged positive are looked at."""
    lines, depth = run_lines(stage.inputs["queries"], counts)
    work, memory = looking_for_answers(lines * depth, counts)
    memory += BASE + lines * (ID_BYTES + depth * PAIR_BYTES)
    return Cost(lines * 12, memory=memory, work=Counter(answers=work))


def pool_size(stage):
    """Negatives per query of a `merge` stage."""
    return sum(draw.count for draw in stage.settings.sources.values())


def merge_cost(stage, counts):
    settings, inputs = stage.settings, stage.inputs
    queries = in_part(counts.queries["train"], settings.part)
    read = [inputs[name] for name in settings.sources if name in inputs and name != "momentum"]
    lists = [run_bytes(*run_lines(run, counts)) for run in read]
    mapped = sum(lists)
    others = sum(2 * draw.count for name, draw in settings.sources.items() if name not in inputs)  # random ones
    pairs = [*(size / NEIGHBOUR_BYTES for size in lists), queries * others]
    others += pool_size(inputs["momentum"]) if "momentum" in inputs else 0
    work = Counter(merge_rows=mapped / NEIGHBOUR_BYTES + queries * others)
    if settings.remove == "answers":  # of what each source offers, but for the last pool
        looked, memory = zip(*(looking_for_answers(number, counts) for number in pairs), strict=True)
        work["answers"], mapped = sum(looked), mapped + max(memory)
    if settings.positive_score:
        _, dim, size = passage_vectors(inputs["passages"], counts)
        mapped += size + vector_bytes(queries, dim)
        work["rescored"] = work["merge_rows"] * dim * counts.chunks(inputs["passages"])[0]
    size = queries * (pool_size(stage) * POOL_BYTES + 8)
    return Cost(size, memory=BASE + MERGE_BUFFERS + mapped + queries * ID_BYTES, work=work)


def negatives_overlap_cost(stage, counts):
    lines, depth = run_lines(stage.inputs["queries"], counts)
    rows = lines * (depth + pool_size(stage.inputs["negatives"]))
    return Cost(memory=BASE + rows * NEIGHBOUR_BYTES, work=Counter(merge_rows=rows))


def evaluate_cost(stage, counts):
    rows = counts.plan.config.evaluation.depth * counts.queries[stage.settings.split]
    return Cost(rows * RUN_BYTES, memory=MEASURES_BASE + PAIR_BYTES * rows, work=Counter(run_rows=rows))


def external_cost(stage, counts):
    """A run from elsewhere, as deep as ours; each line is a few Python objects before it is an array."""
    rows = counts.plan.config.evaluation.depth * counts.queries[stage.settings.split]
    memory = BASE + rows * ID_BYTES + counts.passages * ID_BYTES / 3
    return Cost(rows * NEIGHBOUR_BYTES, memory=memory, work=Counter(run_rows=rows))


def contrast_cost(stage, counts):
    queries = counts.queries[stage.settings.split]
    rows = 2 * counts.plan.config.evaluation.depth * queries
    return Cost(queries * 40, memory=MEASURES_BASE + PAIR_BYTES * rows, work=Counter(run_rows=rows))


def forgetting_cost(stage, counts):
    """Two searches of the training queries."""
    rows = 2 * math.prod(run_lines(stage.inputs["after"], counts))
    return Cost(memory=MEASURES_BASE + rows * NEIGHBOUR_BYTES, work=Counter(run_rows=rows))
