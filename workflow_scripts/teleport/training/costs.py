"""The costs of training a dual encoder or a cross-encoder, including the search at every step of a live search."""

from teleport.costs import TORCH_BASE, Cost, search_flop, vector_bytes
from teleport.encoder import costs as encoder
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.shape import activation_bytes, kept_bytes
from teleport.search.costs import index_bytes
from teleport.training.budget import EPOCHS, ITERATIONS, STEP_RESERVE

STEP_BYTES = 150  # a line of losses.tsv
KERNELS = 0.5e9  # on a CPU: kernels of many sizes are prepared and kept, as the number of tokens differs by step
PER_CENTROID = 256  # of k-means: faiss's own number
UPDATE_FLOP = 1500  # an update of a parameter takes as long as this much of products; their rate includes it
PASS_QUERIES = 70  # reading all passages takes a GPU as long as comparing this many queries with them


def train_steps(stage, counts):
    """Steps done before a stage, in the stages that it continues, and by its end; an epoch has whole batches only."""
    training, queries = stage.settings.training, counts.queries["train"]
    rows = counts.in_part(queries, stage.settings.part) * (training.negatives_per_query if training.triples else 1)
    schedule = training.steps or training.epochs * (rows // training.batch_queries)
    goes_on = training.continues is True and "continued" in stage.inputs
    before = train_steps(stage.inputs["continued"], counts)[1] if goes_on else 0
    return before, min(schedule, before + (training.stop_after_steps or schedule))


def train(stage, counts, place):
    """Forward and backward passes (twice the forward) of the steps, forward passes of the dev set, and live search."""
    shape, _, encoders = counts.encoder(stage)
    settings, training = stage.settings, stage.settings.training
    chunks, passage_tokens = counts.chunks(stage)
    tokens = stage.inputs["tokens.queries.train"]
    query_tokens = counts.tokens_per_text(tokens, "queries.train", settings.max_query_tokens)
    queries = training.batch_queries * ("query" in training.trains)  # a frozen side's vectors are read
    own = 1 if training.triples else training.negatives_per_query
    positives, rows = 1.0, counts.queries["train"]
    if training.positive == "all" and rows:  # a row of its own for each
        positives = min(training.max_positives, max(1.0, counts.positives["train"] / rows))
    queries *= positives
    passages = chunks * training.batch_queries * (positives + own) * ("passage" in training.trains)
    first, last = train_steps(stage, counts)
    steps, processes, weights = last - first, max(place.gpus, 1), 4 * shape.parameters

    def forward(queries, passages):
        flop = queries * encoder.forward_flop(shape, query_tokens)
        return flop + passages * encoder.forward_flop(shape, passage_tokens)

    # A forward pass, a backward pass of twice the cost, and one forward pass per memory-saving option.
    flop = steps * (3 + training.gradient_caching + training.gradient_checkpointing) * forward(queries, passages)
    at_once = (queries * query_tokens + passages * passage_tokens) / training.accumulate / processes
    if training.gradient_caching:
        at_once = min(at_once, TOKEN_BUDGET["train"]["cuda"])
    if settings.dev:  # ranked before the first step, every `evaluate_every` steps and after the last one
        texts = settings.dev.queries * bool(queries), settings.dev.passages * bool(passages)  # at most
        flop += (1 + -(-steps // training.evaluate_every)) * forward(*texts)
    trained = min(encoders, len(training.trains))
    parameters = encoder.trained_parameters(shape, settings.lora) * trained
    flop, changing = max(flop, steps * UPDATE_FLOP * parameters), 4 * parameters  # most of it with few layers
    # Weights, a 16-bit copy, gradients and the two moments of AdamW; and the activations for the backward pass.
    computing = 1.5 * weights * trained + 3 * changing + kept_bytes(shape, at_once, training)
    if not place.gpus:  # attention keeps its weights, and each thread has the gradients of its part
        length = passage_tokens if passages else query_tokens
        computing += shape.num_hidden_layers * at_once * 8 * shape.num_attention_heads * length
        computing += place.threads * 4 * shape.layer_weights + KERNELS
    saved = (4 if training.select == "dev" else 3) * changing  # weights, moments, maybe the best weights
    searching = live(stage, counts, place, steps) if settings.live else Cost(memory=0.0)
    clustering = k_means(training.clusters, rows, shape) if training.clusters else Cost(memory=0.0)
    saved += vector_bytes(chunks * training.memory, shape.hidden_size)
    held = processes * (TORCH_BASE + weights * encoders) + saved + searching.memory + clustering.memory
    moments = 2 * changing if training.continues else 0  # for the next stage
    token_maps = [read for role, read in stage.inputs.items() if role.startswith("tokens.")]
    on_device = searching.device_memory + max(computing, STEP_RESERVE if settings.live else 0.0)
    return Cost(
        (weights + encoder.TOKENIZER) * encoders + moments + steps * STEP_BYTES,
        memory=held + (0 if place.gpus else computing) + 16 * counts.passages * chunks,
        mapped=sum(encoder.tokens(read, counts, place).bytes for read in token_maps),
        device_memory=on_device if place.gpus else 0.0,
        work={"train_flop": flop} | searching.work | clustering.work,
        model=True,
    )


def k_means(clusters, queries, shape):
    """Distances of the sampled queries to all centroids in every iteration, and of all queries at the end."""
    compared = ITERATIONS * min(queries, PER_CENTROID * clusters.number) + queries
    work = {"host_flop": search_flop(compared, clusters.number, shape.hidden_size)}
    return Cost(memory=2 * vector_bytes(queries, shape.hidden_size), work=work)


def cross_train(stage, counts, place):
    """Forward and backward passes over the pairs of the steps, and forward passes over the dev queries' lists."""
    settings, training = stage.settings, stage.settings.training
    shape = counts.shape(stage.inputs["checkpoint"])
    texts = (("queries.train", stage.inputs["tokens.queries.train"]), ("passages", stage.inputs["tokens.passages"]))
    tokens = sum(counts.tokens_per_text(stage, of, settings.max_tokens) for of, stage in texts)
    forward = encoder.forward_flop(shape, min(tokens, settings.max_tokens))
    passes = counts.queries["train"] // training.batch_queries
    steps = training.steps or (training.epochs or EPOCHS) * passes
    pairs = training.batch_queries * (1 + training.negatives_per_query)
    flop = 3 * steps * pairs * forward
    if settings.dev:
        lists = settings.dev.queries * (1 + settings.dev.depth)
        flop += (1 + -(-steps // training.evaluate_every)) * lists * forward
    weights, at_once = 4 * shape.parameters, pairs * min(tokens, settings.max_tokens) / training.accumulate
    computing = 4.5 * weights + activation_bytes(shape, at_once, training.precision != "fp32")
    if not place.gpus:
        length = min(tokens, settings.max_tokens)
        computing += shape.num_hidden_layers * at_once * 8 * shape.num_attention_heads * length + KERNELS
    held = TORCH_BASE + (4 + (training.select == "dev")) * weights
    return Cost(
        weights + encoder.TOKENIZER + steps * STEP_BYTES,
        memory=held + (0 if place.gpus else computing),
        device_memory=computing if place.gpus else 0.0,
        work={"train_flop": flop},
        model=True,
    )


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
