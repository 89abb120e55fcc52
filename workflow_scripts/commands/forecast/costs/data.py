"""Costs of the collection, of pools of negatives, and of evaluations."""

import math
from pathlib import Path

from commands.forecast.counts import NEIGHBOUR_BYTES, in_part, run_bytes
from commands.forecast.flops import vector_bytes
from commands.forecast.hardware import BASE, Cost
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


def download(stage, counts, place):
    """What is there already is only hashed. Files of unknown size are what `counts.download_bytes` leaves for them."""
    files, local = stage.settings.files, stage.origins.get("local")  # in the place of all downloads
    paths = {name: Path(local or FOLDER) / name for name in files}
    there = sum(path.stat().st_size for path in paths.values() if path.is_file())
    missing = [] if local else [name for name, path in paths.items() if not path.is_file()]
    known, unsized = sum(files[name].bytes or 0 for name in missing), [n for n in missing if not files[n].bytes]
    fetched = max(known, (counts.download_bytes or 0) - there) if missing else 0
    lacks = f"{', '.join(unsized)}, because their sizes are unknown (counts.download_bytes)" if unsized else ""
    work = {"network": fetched, "disk": there}
    return Cost(fetched, work=work, lacks="" if counts.download_bytes else lacks)


def collection(stage, counts, place):
    form = stage.settings.source.source
    texts = counts.passages * (APIDOCS_TEXTS if form == "apidocs" else 1)
    size, memory = counts.corpus_tokens * BYTES_PER_TOKEN, BASE + counts.passages * ID_BYTES
    lacks = "what ir_datasets downloads" if form == "ir_datasets" else ""
    return Cost(size, memory=memory, work={"texts": texts}, lacks=lacks)


def check(stage, counts, place):
    return Cost()


def negatives_file(stage, counts, place):
    """Ids, texts or tokens of all passages are hashed, to find those of the file."""
    size = run_bytes(*counts.run(stage))
    return Cost(size, memory=BASE + 16 * counts.passages + 2 * size, work={"texts": counts.passages})


def looking_for_answers(pairs, counts):
    """(work, memory) of looking for answers in so many retrieved passages, each of which is read once; at most: random
    draws would be as many different ones, and neighbours repeat more often."""
    passages = -math.expm1(-pairs / counts.passages) * counts.passages
    return passages + ANSWER_COST * (pairs - passages), min(PROCESSES, passages // PASSAGES) * PROCESS_MEMORY


def positives(stage, counts, place):
    """At most: only questions without a judged positive are looked at."""
    lines, depth = counts.run(stage.inputs["queries"])
    work, memory = looking_for_answers(lines * depth, counts)
    memory += BASE + lines * (ID_BYTES + depth * PAIR_BYTES)
    return Cost(lines * 12, memory=memory, work={"answers": work})


def pool_size(stage):
    """Negatives per query of a `merge` stage."""
    return sum(draw.count for draw in stage.settings.sources.values())


def merge(stage, counts, place):
    settings, inputs = stage.settings, stage.inputs
    queries = in_part(counts.queries["train"], settings.part)
    read = [inputs[name] for name in settings.sources if name in inputs and name != "momentum"]
    lists = [run_bytes(*counts.run(run)) for run in read]
    mapped = sum(lists)
    others = sum(2 * draw.count for name, draw in settings.sources.items() if name not in inputs)  # random ones
    pairs = [*(size / NEIGHBOUR_BYTES for size in lists), queries * others]
    others += pool_size(inputs["momentum"]) if "momentum" in inputs else 0
    work = {"merge_rows": mapped / NEIGHBOUR_BYTES + queries * others}
    if settings.remove == "answers":  # of what each source offers, but for the last pool
        looked, memory = zip(*(looking_for_answers(number, counts) for number in pairs), strict=True)
        work["answers"], mapped = sum(looked), mapped + max(memory)
    if settings.positive_score:
        _, dim, size = counts.vectors(inputs["passages"])
        mapped += size + vector_bytes(queries, dim)
        work["rescored"] = work["merge_rows"] * dim * counts.chunks(inputs["passages"])[0]
    size = queries * (pool_size(stage) * POOL_BYTES + 8)
    return Cost(size, memory=BASE + MERGE_BUFFERS + mapped + queries * ID_BYTES, work=work)


def negatives_overlap(stage, counts, place):
    lines, depth = counts.run(stage.inputs["queries"])
    rows = lines * (depth + pool_size(stage.inputs["negatives"]))
    return Cost(memory=BASE + rows * NEIGHBOUR_BYTES, work={"merge_rows": rows})


def ranks(stage, counts):
    """Lines of a run of the stage's split that is evaluated."""
    return counts.plan.config.evaluation.depth * counts.queries[stage.settings.split]


def evaluate(stage, counts, place):
    rows = ranks(stage, counts)
    return Cost(rows * RUN_BYTES, memory=MEASURES_BASE + PAIR_BYTES * rows, work={"run_rows": rows})


def external(stage, counts, place):
    """A run from elsewhere, as deep as ours; each line is a few Python objects before it is an array."""
    rows = ranks(stage, counts)
    memory = BASE + rows * ID_BYTES + counts.passages * ID_BYTES / 3
    return Cost(rows * NEIGHBOUR_BYTES, memory=memory, work={"run_rows": rows})


def contrast(stage, counts, place):
    rows = 2 * ranks(stage, counts)
    size = counts.queries[stage.settings.split] * 40
    return Cost(size, memory=MEASURES_BASE + PAIR_BYTES * rows, work={"run_rows": rows})


def forgetting(stage, counts, place):
    """Two searches of the training queries."""
    rows = 2 * math.prod(counts.run(stage.inputs["after"]))
    return Cost(memory=MEASURES_BASE + rows * NEIGHBOUR_BYTES, work={"run_rows": rows})
