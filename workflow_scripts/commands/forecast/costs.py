"""What each kind of stage costs: a function (stage, counts, place) -> Cost of its name.

The work of a stage is {rate of the hardware line: amount}; `bench/calibrate.py` turns the same amounts and measured
times into rates.
"""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

from commands.forecast.counts import NEIGHBOUR_BYTES, encoder_shape, in_part, run_bytes
from commands.forecast.flops import (
    activation_bytes,
    attention_bytes,
    forward_flop,
    search_flop,
    step_flop,
    vector_bytes,
)
from commands.forecast.hardware import BASE, TORCH_BASE, Cost, Place
from teleport.collection.download import FOLDER
from teleport.encoder.source import WEIGHTS
from teleport.plan.kinds import KINDS

ON_A_GPU = Place()
# Collection, pools of negatives, evaluations.
ID_BYTES = 150  # a passage's text id in memory: as a Python string in a table of rows
PAIR_BYTES = 40  # a retrieved passage in memory: ids, scores and a sorted copy of the ids
ROW_GROUP_BYTES = 0.15e9  # collection.build.ROW_GROUP passages as strings and as columns
BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
APIDOCS_TEXTS = 20  # packages are parsed: a passage takes as long as so many lines of a file
POOL_BYTES = 14  # a negative: passage 4, source 1, first episode 1, rank 4, score 4
MERGE_BUFFERS = 60e6  # the candidates of a block and their draws
ANSWER_COST = 0.25  # of a further question of a passage, in passages that are looked through for the answers of one
PROCESSES, PASSAGES = 8, 50_000  # at most so many look for answers, in so many passages each (collection.answers)
PROCESS_MEMORY = 0.45e9
RUN_BYTES = 15  # a line of a compressed run: 12 with MS MARCO's numbers for ids, 24 with names of functions
FAULT_BYTES = 2**16  # of a memory-mapped file: what Linux makes resident around a place that is read
MEASURES_BASE = 0.3e9  # memory of a process that has loaded what measures runs
# Indexes and searches, by vectors and by words.
CANDIDATE_BYTES = 2**25 * 20  # search.flat.CANDIDATES: numbers, scores proposed and exact
SCORE_BYTES = 2**30  # on a GPU: search.flat_torch.QUERIES x BLOCK_PASSAGES, in float32
POSTINGS_PER_TOKEN = 0.4  # of BM25's index: without stop words and repeats, and a word is more than one token
LEXICAL_BUFFERS = 0.6e9  # search.lexical_index: a block of passages, or a range of postings
VOCABULARY_BYTES = 1.0  # a token adds to the terms in memory: 150 bytes a term, a new one in 150 tokens
QUERY_TERMS_BYTES = 500  # a query as a list of numbers
MARGIN = 32  # search.flat.MARGIN: proposed beyond the depth
CPU_LINES, CPU_WIDTH = 4096, 8  # search.retrieve.BLOCK_ROWS; cpu.int8.WIDTH: candidates a rank
RERANKED = 1000  # candidates of a query in a file
ERROR_PAIRS, ERROR_ROWS = 8192, 16384  # search.errors.BLOCK_PAIRS, BLOCK_ROWS
# Encoding and training.
# A batch on a CPU: encoder.batches.TOKEN_BUDGET["encode"]["cpu"] tokens, and bytes by the width of the residual stream;
# with one to eight threads the peak rose by 70 of these a thread with MiniLM, by 50 with BERT-base.
BATCH_TOKENS, TOKEN_BYTES = 4096, 64
# Reading the passages of a live search takes a GPU as long as comparing so many queries with them: 1,536 bytes in fp16
# at 4.3 TB/s (H200) against 5.1 ps a score, config/hardware.yaml; 65 on an A100.
PASS_QUERIES = 70
BUCKET_TOKENS = 21504  # encoder.batches.TOKEN_BUDGET["train"]["cuda"]
# Operations of a micro-batch, forward and backward, that are no views: counted for BERT with 4 and 12 layers, of which
# the step has 286 and 774 (61 a layer, 42 besides). Those of gradient norms, clipping and the optimiser, once a step.
LAYER_LAUNCHES, OTHER_LAUNCHES, UPDATE_LAUNCHES = 61, 42, 60


def stage_cost(stage, counts, place=ON_A_GPU):
    """The `Cost` of a planned stage in a `Place`; of a kind without a function that of a process alone."""
    function = globals().get(stage.kind) if stage.kind in KINDS else None
    return function(stage, counts, place) if function else Cost(lacks=f"{stage.kind}, of which there is no estimate")


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
    """Passages are read, checked and written; their ids are in memory."""
    form = stage.settings.source.source
    texts = counts.passages * (APIDOCS_TEXTS if form == "apidocs" else 1)
    size, memory = counts.corpus_tokens * BYTES_PER_TOKEN, BASE + ROW_GROUP_BYTES + counts.passages * ID_BYTES
    lacks = "what ir_datasets downloads" if form == "ir_datasets" else ""
    return Cost(size, memory=memory, work={"texts": texts}, lacks=lacks)


def check(stage, counts, place):
    """Counts of the collection are compared: a process, and nothing besides."""
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
    """Candidates of all sources are drawn from and joined; with `positive_score` each is scored again."""
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
    """The lists of a run beside the pool."""
    lines, depth = counts.run(stage.inputs["queries"])
    rows = lines * (depth + pool_size(stage.inputs["negatives"]))
    return Cost(memory=BASE + rows * NEIGHBOUR_BYTES, work={"merge_rows": rows})


def ranks(stage, counts):
    """Lines of a run of the stage's split that is evaluated."""
    return counts.plan.config.evaluation.depth * counts.queries[stage.settings.split]


def evaluate(stage, counts, place):
    """A run is measured, and written compressed."""
    rows = ranks(stage, counts)
    return Cost(rows * RUN_BYTES, memory=MEASURES_BASE + PAIR_BYTES * rows, work={"run_rows": rows})


def external(stage, counts, place):
    """A run from elsewhere, as deep as ours; each line is a few Python objects before it is an array."""
    rows = ranks(stage, counts)
    memory = BASE + rows * ID_BYTES + counts.passages * ID_BYTES / 3
    return Cost(rows * NEIGHBOUR_BYTES, memory=memory, work={"run_rows": rows})


def contrast(stage, counts, place):
    """Two runs are measured and compared."""
    rows = 2 * ranks(stage, counts)
    size = counts.queries[stage.settings.split] * 40
    return Cost(size, memory=MEASURES_BASE + PAIR_BYTES * rows, work={"run_rows": rows})


def forgetting(stage, counts, place):
    """Two runs of the training queries are compared."""
    rows = 2 * math.prod(counts.run(stage.inputs["after"]))
    return Cost(memory=MEASURES_BASE + rows * NEIGHBOUR_BYTES, work={"run_rows": rows})


def index_bytes(index, passages, dim):
    """The size of an index: codes, vectors, or vectors and links of 4 bytes, 2 M a passage."""
    if index.kind == "pq":
        return passages * index.m * index.bits / 8
    links = 8 * index.M if index.kind == "hnsw" else 8 if index.kind == "ivf" else 0
    return vector_bytes(passages, dim) + passages * links


def index(stage, counts, place):
    """All vectors are read; only an index that is not flat is written."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    flat = stage.settings.index.kind == "flat"
    size = 0.0 if flat else index_bytes(stage.settings.index, passages, dim)
    lacks = "" if flat else "training the indexes that are not flat, and adding the passages"
    return Cost(size, memory=BASE + size, mapped=vectors, work={"read": vectors}, lacks=lacks)


def pq_work(index, lines, passages):
    """Searching by codes adds up numbers of a table, taken to be as fast as scoring again."""
    return lines * passages * index.m


def retrieve(stage, counts, place):
    """By codes alone on the processor: there the vectors are read for the recall of a sample."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    lines, depth = counts.run(stage)
    size = run_bytes(lines, depth)
    if stage.settings.scores == "compressed":
        index = stage.inputs["index"].settings.index
        codes = index_bytes(index, counts.passages, dim)
        work = {"rescored": pq_work(index, lines, counts.passages), "read": codes + vectors}
        return Cost(size, memory=BASE + codes + min(CANDIDATE_BYTES, lines * depth * 20), work=work)
    depth *= stage.inputs["passages"].settings.chunks  # search.retrieve.chunks_needed
    candidates = lines * (depth + MARGIN)
    work = {"search_flop": search_flop(lines, passages, dim), "rescored": candidates * dim, "read": vectors}
    proposed = candidates if place.gpus else min(lines, CPU_LINES) * (CPU_WIDTH * depth + MARGIN)
    reduced = 0 if place.gpus else passages * dim  # in int8, where they have room
    return Cost(
        size,
        memory=BASE + vectors + min(CANDIDATE_BYTES, proposed * 20),
        mapped=size + reduced,
        device_memory=vector_bytes(passages, dim, 2) / place.gpus + SCORE_BYTES if place.gpus else 0.0,  # in fp16
        work=work,
        at_once=(("search_flop", "rescored"),),
    )


def lexical_index(stage, counts, place):
    """All texts are split, stemmed and inverted; the postings are on the disk twice for a while, and read again from
    memory maps."""
    tokens = counts.corpus_tokens
    size = tokens * POSTINGS_PER_TOKEN * 8
    memory = BASE + LEXICAL_BUFFERS + tokens * VOCABULARY_BYTES + 12 * counts.passages
    return Cost(size, scratch=size, memory=memory, mapped=size, work={"bm25_tokens": tokens})


def bm25(stage, counts, place):
    """The postings are memory-mapped: as much of them as the queries' terms have is in memory, at most all."""
    lines, depth = counts.run(stage)
    postings = counts.corpus_tokens * POSTINGS_PER_TOKEN * 8
    work = {"bm25_scores": lines * counts.passages}
    return Cost(run_bytes(lines, depth), memory=BASE + postings + lines * QUERY_TERMS_BYTES, work=work)


def rerank(stage, counts, place):
    """At most: a file of candidates is not opened here, and has as many as MS MARCO's."""
    _, dim, _ = counts.vectors(stage.inputs["passages"])
    depth = getattr(stage.inputs["candidates"].settings, "depth", RERANKED)
    lines = counts.queries[stage.settings.split]
    size = run_bytes(lines, depth)
    return Cost(size, memory=BASE + size, work={"rescored": lines * depth * dim})


def errors(stage, counts, place):
    """All products on the processor, a look at each block of a positive's, and the vectors once more for every 8,192
    positives."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    pairs = counts.positives[stage.settings.split]
    work = {
        "host_flop": search_flop(pairs, passages, dim),
        "looked": pairs * -(-passages // ERROR_ROWS),
        "read": vectors * -(-pairs // ERROR_PAIRS),
    }
    block = min(pairs, ERROR_PAIRS) * min(counts.passages, ERROR_ROWS) * 4
    return Cost(pairs * 24, memory=BASE + vectors + block, work=work)


def is_fetched(source):
    """Whether the weights of a `CheckpointSource` come over the network: from the hub, and are not in its cache."""
    if not source.hub:
        return False
    from huggingface_hub import try_to_load_from_cache

    cached = (try_to_load_from_cache(source.hub, name, revision=source.revision) for name in WEIGHTS)
    return not any(isinstance(path, str) for path in cached)


def pretrained(stage, counts, place):
    """The weights are fetched where they are not local, loaded and written."""
    shape, _, encoders = counts.encoder(stage)
    weights, sources = 4 * shape.parameters, (stage.settings.checkpoint, stage.settings.query_checkpoint)
    fetched = weights * sum(is_fetched(source) for source in sources if source)
    return Cost(weights * encoders, memory=TORCH_BASE + weights * encoders, work={"network": fetched}, model=True)


def tokens(stage, counts, place):
    """All texts are tokenised: 2 or 4 bytes a token, and offsets of 8 bytes a text."""
    shape, encoder = encoder_shape(stage.inputs["pretrained"])[0], counts.plan.encoder
    total = counts.passages * counts.text_tokens(stage, encoder.max_passage_tokens)
    for split, num in counts.queries.items():
        total += num * (counts.tokens_per_text(stage, f"queries.{split}", encoder.max_query_tokens) - 2)
    texts = counts.passages + sum(counts.queries.values())
    size = total * (2 if shape.vocab_size <= 2**16 else 4) + 8 * (texts + 1 + len(counts.queries))
    return Cost(size, memory=2 * BASE + 16 * counts.passages, work={"tokens": total})


def encode(stage, counts, place):
    """A forward pass of every text; token maps and vectors are memory-mapped."""
    shape, dim, encoders = counts.encoder(stage)
    settings, queries, flop = stage.settings, counts.queries if "query" in stage.settings.sides else {}, 0.0
    for split, num in queries.items():
        length = counts.tokens_per_text(stage.inputs["tokens"], f"queries.{split}", settings.max_query_tokens)
        flop += num * forward_flop(shape, length)
    size = vector_bytes(sum(queries.values()), dim)
    if "passage" in settings.sides:
        passages, _, stored = counts.vectors(stage)
        size += stored
        flop += passages * forward_flop(shape, counts.chunks(stage)[1])
    weights = 4 * shape.parameters
    computing = 1.5 * weights * min(encoders, len(settings.sides))
    batches = place.threads * TOKEN_BYTES * BATCH_TOKENS * shape.hidden_size
    return Cost(
        size,
        memory=TORCH_BASE + 16 * counts.passages + weights * encoders + (0 if place.gpus else computing + batches),
        mapped=tokens(stage.inputs["tokens"], counts, place).bytes + size,
        device_memory=computing if place.gpus else 0.0,
        work={"encode_flop": flop},
        model=True,
    )


def sharded(cost, number):
    """(Cost of each of so many shards of a stage `encode`, that of the job which joins them)."""
    work = {rate: amount / number for rate, amount in cost.work.items()}
    shard = replace(cost, bytes=cost.bytes / number, mapped=cost.mapped / number, work=work)
    return shard, replace(cost, bytes=0.0, scratch=shard.bytes, work={"disk": 2 * cost.bytes})


def train_steps(stage, queries):
    """Steps before a stage, in those that it continues, and by its end; an epoch has whole batches only."""
    training = stage.settings.training
    rows = in_part(queries, stage.settings.part) * (training.negatives_per_query if training.triples else 1)
    schedule = training.steps or training.epochs * (rows // training.batch_queries)
    goes_on = training.continues is True and "continued" in stage.inputs
    before = train_steps(stage.inputs["continued"], queries)[1] if goes_on else 0
    return before, min(schedule, before + (training.stop_after_steps or schedule))


def live(stage, counts, place):
    """What searching at every step adds to a train stage: every micro-batch reads all passages once.

    A GPU searches what the codes of a PQ index stand for, decoded once; a processor by the codes, and so does the host
    of a GPU without room, of which there is no forecast.
    """
    _, dim, vectors = counts.vectors(stage.inputs["passages"])
    settings, training, passages = stage.settings.live, stage.settings.training, counts.passages
    first, last = train_steps(stage, counts.queries["train"])
    lines = (last - first) * training.batch_queries
    read = lines * settings.depth * dim  # the vectors of a list are read for the loss
    work, memory = {"read": vectors, "listed": lines * settings.depth}, vectors
    decoded = 0
    if settings.index.kind == "pq":
        memory += index_bytes(settings.index, passages, dim)
        decoded = passages * dim
        if not place.gpus:
            return Cost(memory=memory, work=work | {"rescored": pq_work(settings.index, lines, passages) + read})
    compared = (last - first) * max(training.batch_queries, training.accumulate * PASS_QUERIES)
    work |= {"search_flop": search_flop(compared, passages, dim)}
    work |= {"rescored": lines * (settings.depth + MARGIN) * dim + read + decoded}
    on_device = vector_bytes(passages, dim, 2)  # in fp16; each GPU has a part
    if not place.gpus:
        return Cost(memory=memory + on_device, work=work)
    return Cost(memory=memory, device_memory=on_device / place.gpus, work=work)


def train(stage, counts, place):
    """Forward and backward passes of the steps, forward ones of the dev set, and live search where there is one."""
    shape, _, encoders = counts.encoder(stage)
    settings, training, tokens = stage.settings, stage.settings.training, stage.inputs["tokens"]
    chunks, passage_tokens = counts.chunks(stage)
    query_tokens = counts.tokens_per_text(tokens, "queries.train", settings.max_query_tokens)
    # The vectors of a frozen side are read.
    queries = training.batch_queries if "query" in training.trains else 0
    passages = chunks * training.batch_queries * (1 + (1 if training.triples else training.negatives_per_query))
    passages = passages if "passage" in training.trains else 0
    first, last = train_steps(stage, counts.queries["train"])
    steps, processes = last - first, max(place.gpus, 1)
    flop = steps * step_flop(shape, queries, passages, query_tokens, passage_tokens)
    at_once = (queries * query_tokens + passages * passage_tokens) / training.accumulate / processes
    if training.gradient_caching:
        flop *= 4 / 3  # a second forward pass
        at_once = min(at_once, BUCKET_TOKENS)
    if settings.dev:  # ranked before the first step, every so many of them and after the last one; no backward pass
        evaluations = 1 + -(-steps // training.evaluate_every)
        texts = settings.dev.queries * bool(queries), settings.dev.passages * bool(passages)  # at most
        flop += evaluations * step_flop(shape, *texts, query_tokens, passage_tokens) / 3
    weights, trained = 4 * shape.parameters, min(encoders, len(training.trains))
    # Weights, gradients, the two moments of AdamW and a copy of the weights in 16 bits; what the backward pass needs.
    computing = 4.5 * weights * trained + activation_bytes(shape, at_once, training.precision != "fp32")
    if not place.gpus:  # besides, each thread has the gradients of its part
        length = passage_tokens if passages else query_tokens
        computing += attention_bytes(shape, at_once, length) + place.threads * 4 * shape.layer_weights
    launches = OTHER_LAUNCHES + LAYER_LAUNCHES * shape.num_hidden_layers
    work = Counter(train_flop=flop, launches=steps * (training.accumulate * launches + UPDATE_LAUNCHES))
    work["exchanged"] = steps * 2 * weights * trained * (processes - 1) / processes
    searching = live(stage, counts, place) if settings.live else Cost(memory=0.0)
    return Cost(
        weights * (encoders + (2 * trained if training.continues else 0)),  # and two moments for the next stage
        # Weights and moments of the resume state, and maybe the best weights, twice while it is replaced.
        scratch=(8 if training.select == "dev" else 6) * weights * trained,
        memory=processes * (TORCH_BASE + weights * encoders) + searching.memory + (0 if place.gpus else computing),
        mapped=min(stage_cost(tokens, counts).bytes, steps * (queries + passages) * FAULT_BYTES),
        device_memory=computing + searching.device_memory if place.gpus else 0.0,
        work=dict(work + Counter(searching.work)),
        at_once=(("train_flop", "launches"),),
        model=True,
    )
