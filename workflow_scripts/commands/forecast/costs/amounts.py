"""How much the stages of a plan have to do with: shapes, vectors, lines of runs, and their bytes."""

from commands.forecast.counts import encoder_shape
from commands.forecast.flops import vector_bytes

NEIGHBOUR_BYTES = 8  # an id and a score
FILE_NEGATIVES = 100  # per query in a file of negatives: an assumption, because it is read only by its stage
NO_ENCODER_TOKENS = 100  # of a passage, where no encoder says how many it reads: DPR's passages of 100 words


def encoder_of(stage):
    """(Shape, dim, number of encoders) of the encoder that a stage makes or uses."""
    two = False
    while stage.kind != "pretrained":  # training one side alone makes two encoders of one
        two |= stage.kind == "train" and len(stage.settings.training.trains) == 1
        stage = stage.inputs["checkpoint"]
    shape, _ = encoder_shape(stage)
    return shape, stage.settings.projection or shape.hidden_size, 2 if two or not stage.settings.tied else 1


def corpus_tokens(counts, plan):
    """Tokens of all passages, without special tokens and not cut."""
    tokens = next((stage for stage in plan.stages.values() if stage.kind == "tokens"), None)
    limit = plan.encoder.max_passage_tokens if plan.encoder else NO_ENCODER_TOKENS
    return counts.passages * (counts.text_tokens(tokens, limit) if tokens else limit)


def chunks_of(stage, counts):
    """Mean vectors per passage of a stage that encodes or trains, and tokens of each: (chunks, tokens)."""
    settings, tokens = stage.settings, stage.inputs["tokens"]
    chunks = counts.chunks_per_passage(tokens, settings.max_passage_tokens, settings.chunks)
    return chunks, counts.tokens_per_text(tokens, "passages", settings.chunks * settings.max_passage_tokens) / chunks


def passage_vectors(encode, counts):
    """How many passage vectors an encode stage makes."""
    return counts.passages * chunks_of(encode, counts)[0]


def stored_bytes(stage, counts):
    """The size of the passage vectors that a stage `encode` keeps."""
    _, dim, _ = encoder_of(stage)
    return vector_bytes(passage_vectors(stage, counts), dim, 2 if stage.settings.vectors == "fp16" else 4)


def index_bytes(index, passages, dim):
    """The size of an index: codes, vectors, or vectors and links of 4 bytes, 2 M a passage."""
    if index.kind == "pq":
        return passages * index.m * index.bits / 8
    links = 8 * index.M if index.kind == "hnsw" else 8 if index.kind == "ivf" else 0
    return vector_bytes(passages, dim) + passages * links


def run_lines(stage, counts):
    """(lines, passages a line) that a stage retrieves: `retrieve`, `bm25` or `negatives_file`."""
    if stage.kind == "negatives_file":
        return counts.queries.get("train", 0), FILE_NEGATIVES
    settings = stage.settings
    of_positives = stage.kind == "retrieve" and settings.of == "positives"
    chunks = chunks_of(stage.inputs["passages"], counts)[0] if of_positives else 1
    every = of_positives and settings.anchor == "all"
    lines = (counts.positives if every else counts.queries).get(settings.split, 0)
    return chunks * (in_part(lines, settings.part) if stage.kind == "retrieve" else lines), settings.depth


def in_part(number, part):
    """How many of `number` queries, or lines of them, are in a `settings.section.Part` of the queries (None: all)."""
    first, last = part.rows(number) if part else (0, number)
    return last - first


def run_bytes(stage, counts):
    lines, depth = run_lines(stage, counts)
    return lines * (depth * NEIGHBOUR_BYTES + 4)


def pool_size(stage):
    """Negatives per query of a `merge` stage."""
    return sum(draw.count for draw in stage.settings.sources.values())
