"""What an episode's training costs, and the search at every step of one that searches live."""

from collections import Counter

from commands.forecast.costs import encoder, negatives
from commands.forecast.costs.search import MARGIN, index_bytes, pq_work
from commands.forecast.counts import in_part
from commands.forecast.flops import activation_bytes, attention_bytes, search_flop, step_flop, vector_bytes
from commands.forecast.hardware import TORCH_BASE, Cost
from teleport.encoder.budget import TOKEN_BUDGET

# Reading the passages of a live search takes a GPU as long as comparing so many queries with them: 1,536 bytes in fp16
# at 4.3 TB/s (H200) against 5.1 ps a score, config/hardware.yaml; 65 on an A100.
PASS_QUERIES = 70
# Operations of a micro-batch, forward and backward, that are no views: counted for BERT with 4 and 12 layers, of which
# the step has 286 and 774 (61 a layer, 42 besides). Those of gradient norms, clipping and the optimiser, once a step.
LAYER_LAUNCHES, OTHER_LAUNCHES, UPDATE_LAUNCHES = 61, 42, 60
FAULT_BYTES = 2**16  # of a memory-mapped file: what Linux makes resident around a place that is read
KERNELS = 0.5e9  # on a CPU: 1,024 products of their own sizes (oneDNN's cache), as a step has another number of tokens
STEP_BYTES = 150  # a line of losses.tsv
PASSAGE_BYTES = 4  # of a negative in a pool: a training reads no more of it


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
        at_once = min(at_once, TOKEN_BUDGET["train"]["cuda"])
    if settings.dev:  # ranked before the first step, every so many of them and after the last one; no backward pass
        evaluations = 1 + -(-steps // training.evaluate_every)
        texts = settings.dev.queries * bool(queries), settings.dev.passages * bool(passages)  # at most
        flop += evaluations * step_flop(shape, *texts, query_tokens, passage_tokens) / 3
    weights, trained = 4 * shape.parameters, min(encoders, len(training.trains))
    # Weights, gradients, the two moments of AdamW and a copy of the weights in 16 bits; what the backward pass needs.
    computing = 4.5 * weights * trained + activation_bytes(shape, at_once, training.precision != "fp32")
    if not place.gpus:  # besides, each thread has the gradients of its part
        length = passage_tokens if passages else query_tokens
        computing += attention_bytes(shape, at_once, length) + place.threads * 4 * shape.layer_weights + KERNELS
    launches = OTHER_LAUNCHES + LAYER_LAUNCHES * shape.num_hidden_layers
    work = Counter(train_flop=flop, launches=steps * (training.accumulate * launches + UPDATE_LAUNCHES))
    work["exchanged"] = steps * 2 * weights * trained * (processes - 1) / processes
    searching = live(stage, counts, place) if settings.live else Cost(memory=0.0)
    pool = negatives.pool_size(stage.inputs["negatives"]) if "negatives" in stage.inputs else 0
    # Files that are mapped, and how many places of each a step reads.
    read = (encoder.tokens(tokens, counts, place).bytes, queries + passages)
    drawn = (counts.queries["train"] * pool * PASSAGE_BYTES, training.batch_queries)
    # Weights and moments, copied by one process and written while training goes on, and maybe the best weights.
    saved = (4 if training.select == "dev" else 3) * weights * trained
    held = processes * (TORCH_BASE + weights * encoders) + saved + searching.memory
    moments = 2 * weights * trained if training.continues else 0  # for the next stage
    return Cost(
        (weights + encoder.TOKENIZER) * encoders + moments + steps * STEP_BYTES,
        scratch=2 * saved,  # while it is replaced
        memory=held + (0 if place.gpus else computing),
        mapped=sum(min(size, steps * places * FAULT_BYTES) for size, places in (read, drawn)),
        device_memory=computing + searching.device_memory if place.gpus else 0.0,
        work=dict(work + Counter(searching.work)),
        at_once=(("train_flop", "launches"),),
        model=True,
    )
