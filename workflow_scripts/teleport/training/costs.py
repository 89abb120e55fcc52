"""The costs of training a dual encoder or a cross-encoder, including the search at every step of a live search."""

from dataclasses import dataclass

from teleport.costs import TORCH_BASE, Cost, search_flop, vector_bytes
from teleport.encoder import costs as encoder
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.shape import Shape, kept_bytes
from teleport.search.budget import TRAIN_PER_LIST
from teleport.search.costs import index_bytes
from teleport.settings.training import Training, rows_per_query
from teleport.training.budget import ITERATIONS, STEP_RESERVE
from teleport.training.schedule import training_of

STEP_BYTES = 150  # a line of losses.tsv
# Pairs from code, passages of at most 256 tokens, 8 x (1 + 31), MiniLM: the mean square of lengths was 1.4 times the
# squared mean, and the heap, which freed blocks of other sizes leave holes in, 1.2 times what lived.
SQUARES, HEAP = 1.4, 1.2
KERNELS = 0.5e9  # on a CPU: kernels of many sizes are prepared and kept, as the number of tokens differs by step
# An update of a parameter takes as long as this work: 5.7 ns in a step of a model without layers, the gradient of its
# embeddings included, where encoder.costs.HALF_WIDTH was measured.
UPDATE_FLOP = 1500
PASS_QUERIES = 70  # reading all passages takes a GPU as long as comparing this many queries with them


@dataclass(frozen=True)
class Steps:
    """What a training does. batch, dev: the texts that a step and an evaluation encode, lists of (number, tokens of
    each); parameters: updated by a step; encoders: in the checkpoint; trained: how many of them"""

    shape: Shape
    training: Training
    number: int
    batch: list
    dev: list
    parameters: float
    encoders: int = 1
    trained: int = 1

    @property
    def weights(self):
        """Bytes of an encoder's weights."""
        return 4 * self.shape.parameters


def train(stage, counts, place):
    """The cost of the steps, of the texts that they read, and of what searches or clusters beside them."""
    settings, steps = stage.settings, dual_encoder_steps(stage, counts)
    cost = of_steps(steps, place, STEP_RESERVE if settings.live else 0.0) + texts(stage, counts, place)
    if settings.live:
        cost += live(stage, counts, place, steps.number)
    if settings.training.clusters:
        cost += k_means(settings.training.clusters, counts.queries["train"], steps.shape)
    return cost


def cross_train(stage, counts, place):
    """The cost of steps over pairs of a query and a passage, and of the dev queries' lists of pairs."""
    settings, training = stage.settings, training_of(stage.settings.training)
    shape, names = counts.shape(stage.inputs["checkpoint"]), ("queries.train", "passages")
    lengths = [counts.tokens_per_text(stage.inputs[f"tokens.{name}"], name, settings.max_tokens) for name in names]
    tokens = min(sum(lengths), settings.max_tokens)
    number = training.steps or training.epochs * (counts.queries["train"] // training.batch_queries)
    batch = [(training.batch_queries * (1 + training.negatives_per_query), tokens)]
    dev = [(settings.dev.queries * (1 + settings.dev.depth), tokens)] if settings.dev else []
    return of_steps(Steps(shape, training, number, batch, dev, shape.parameters), place)


def dual_encoder_steps(stage, counts):
    """The `Steps` of a stage `train`. A frozen side has no texts: its vectors are read."""
    settings, training, (shape, _, encoders) = stage.settings, stage.settings.training, counts.encoder(stage)
    chunks, passage_tokens = counts.chunks(stage)
    tokens = stage.inputs["tokens.queries.train"]
    lengths = {"passage": passage_tokens}
    lengths["query"] = counts.tokens_per_text(tokens, "queries.train", settings.max_query_tokens)

    def encoded(**numbers):
        return [(number, lengths[side]) for side, number in numbers.items() if side in training.trains]

    rows, positives = training.batch_queries, positives_of_query(training, counts)
    own = 1 if training.triples else training.negatives_per_query
    batch = encoded(query=rows * positives, passage=chunks * rows * (positives + own))
    dev = encoded(query=settings.dev.queries, passage=chunks * settings.dev.passages) if settings.dev else []  # at most
    (first, last), trained = train_steps(stage, counts), min(encoders, len(training.trains))
    parameters = trained * encoder.trained_parameters(shape, settings.lora)
    return Steps(shape, training, last - first, batch, dev, parameters, encoders, trained)


def train_steps(stage, counts):
    """Steps done before a stage, in the stages that it continues, and by its end; an epoch has whole batches only."""
    training, queries = stage.settings.training, counts.queries["train"]
    rows = counts.in_part(queries, stage.settings.part) * rows_per_query(training)
    schedule = training.steps or training.epochs * (rows // training.batch_queries)
    goes_on = training.continues is True and "continued" in stage.inputs
    before = train_steps(stage.inputs["continued"], counts)[1] if goes_on else 0
    return before, min(schedule, before + (training.stop_after_steps or schedule))


def positives_of_query(training, counts):
    """The mean positives of a query in a step; each has a row of its own with `positive: all`."""
    if training.positive != "all" or not counts.queries["train"]:
        return 1.0
    return min(training.max_positives, max(1.0, counts.positives["train"] / counts.queries["train"]))


def of_steps(steps, place, reserve=0.0):
    """The `Cost` of `Steps` alone. reserve: bytes of a GPU that they have at least"""
    processes, moments = max(place.gpus, 1), 8 * steps.parameters * bool(steps.training.continues)  # for the next stage
    held = processes * (TORCH_BASE + steps.weights * steps.encoders) + state_bytes(steps)
    computing = computing_bytes(steps, processes) if place.gpus else cpu_bytes(steps, place.threads)
    return Cost(
        (steps.weights + encoder.TOKENIZER) * steps.encoders + moments + steps.number * STEP_BYTES,
        memory=held + (0 if place.gpus else computing),
        device_memory=max(computing, reserve) if place.gpus else 0.0,
        work={"train_flop": steps_work(steps)},
        model=True,
    )


def steps_work(steps):
    """The work of forward passes of the batches, backward passes of twice the cost, a forward pass for each option that
    saves memory, updates, and forward passes of the dev set."""
    training, evaluations = steps.training, 0
    passes = 3 + training.gradient_caching + training.gradient_checkpointing
    if steps.dev:  # ranked before the first step, every `evaluate_every` steps and after the last one
        evaluations = 1 + -(-steps.number // training.evaluate_every)
    step = passes * forward(steps.shape, steps.batch) + UPDATE_FLOP * steps.parameters
    return steps.number * step + evaluations * forward(steps.shape, steps.dev)


def forward(shape, texts):
    """The work of a forward pass of texts, a list of (number, tokens of each)."""
    return sum(number * encoder.forward_work(shape, tokens) for number, tokens in texts)


def state_bytes(steps):
    """What main memory holds to continue after a kill: the trained weights, their moments, maybe the best weights."""
    return 4 * steps.parameters * (4 if steps.training.select == "dev" else 3)


def computing_bytes(steps, processes):
    """What a process holds where it computes: weights and a 16-bit copy, gradients and the two moments of AdamW, and
    the activations for the backward pass."""
    training, tokens = steps.training, tokens_at_once(steps, processes)
    activations = kept_bytes(steps.shape, tokens, training, training.precision != "fp32")
    return 1.5 * steps.weights * steps.trained + 12 * steps.parameters + activations


def cpu_bytes(steps, threads):
    """What a process holds on a CPU: what it computes with, gradients of each thread's part, and kernels."""
    living = computing_bytes(steps, 1) + attention_bytes(steps)
    return HEAP * living + threads * 4 * steps.shape.layer_weights + KERNELS


def attention_bytes(steps):
    """What attention with dropout keeps on a CPU, where it is no kernel: weights before and after dropout and the mask,
    all in float32."""
    shape, (_, tokens) = steps.shape, steps.batch[-1]  # passages come last
    squares = tokens_at_once(steps) * SQUARES * tokens
    return shape.num_hidden_layers * shape.num_attention_heads * 12 * squares


def tokens_at_once(steps, processes=1):
    """How many tokens a process keeps the activations of."""
    tokens = sum(number * tokens for number, tokens in steps.batch) / steps.training.accumulate / processes
    return min(tokens, TOKEN_BUDGET["train"]["cuda"]) if steps.training.gradient_caching else tokens


def texts(stage, counts, place):
    """The token maps, the rows of all passages, and the vectors of a cross-batch memory."""
    maps, chunks = [read for role, read in stage.inputs.items() if role.startswith("tokens.")], counts.chunks(stage)[0]
    remembered = vector_bytes(chunks * stage.settings.training.memory, counts.encoder(stage)[0].hidden_size)
    mapped = sum(encoder.tokens(read, counts, place).bytes for read in maps)
    return Cost(memory=16 * counts.passages * chunks + remembered, mapped=mapped)


def live(stage, counts, place, steps):
    """Return the cost that searching at every step adds: every micro-batch reads all passages once, of a PQ index the
    vectors decoded from its codes."""
    passages, dim, vectors = counts.vectors(stage.inputs["passages"])
    training, index = stage.settings.training, stage.settings.live.index
    codes = index_bytes(index, passages, dim) if index.kind == "pq" else 0
    compared = steps * max(training.batch_queries, training.accumulate * PASS_QUERIES)
    on_device, work = vector_bytes(passages, dim, 2), {"search_flop": search_flop(compared, passages, dim)}
    if not place.gpus:
        return Cost(memory=vectors + codes + on_device, work=work | {"read": vectors})
    return Cost(memory=vectors + codes, device_memory=on_device / place.gpus, work=work | {"read": vectors})


def k_means(clusters, queries, shape):
    """Distances of the sampled queries to all centroids in every iteration, and of all queries at the end."""
    compared = ITERATIONS * min(queries, TRAIN_PER_LIST * clusters.number) + queries
    work = {"host_flop": search_flop(compared, clusters.number, shape.hidden_size)}
    return Cost(memory=2 * vector_bytes(queries, shape.hidden_size), work=work)
