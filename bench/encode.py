"""Passages per second: the stage `encode` against other ways to encode, in the same number format.

    python bench/encode.py [--passages 256] [--checkpoint FOLDER | --bert-base] [--corpus corpus.tsv.gz]
    taskset -c 0 python bench/encode.py --threads 1    # on one core

Peers, in fp32 and in bf16 (on CUDA in bf16 alone), all with texts sorted by length: plain torch (transformers' model
with sdpa, on padded batches of as many tokens as the stage's, from the token map; on CUDA also compiled),
sentence-transformers, and OpenVINO if it is installed (`pip install openvino`). The last two tokenise as they go; the
stage reads the token map, which `tokens` made once for all episodes.
The machine's matrix products bound the gain of bfloat16, so their rates are measured too, and the share of them that
each variant reaches on real tokens. With --corpus the agreement of the vectors is measured on its first passages
instead of random words.
"""

import importlib.util
import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import peers
import texts
from commands.doctor import compiler_problem
from rounds import interleaved, report
from teleport.encoder.batches import Chunks
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.model import prepare
from teleport.encoder.precision import pick_device, resolve_precision
from teleport.encoder.side import Side, batches_at_once
from teleport.encoder.tokens import load_tokenizer
from teleport.records import lines

PLAIN, SENTENCE_TRANSFORMERS = "plain torch, sorted by length", "sentence-transformers, sorted by length"
OPENVINO = "OpenVINO, sorted by length"
BATCH = 32
COMPARED = 1000  # passages whose nearest neighbours are compared


def sentence_transformers_encode(world, device, dtype=torch.float32):
    """`SentenceTransformer.encode`, which sorts texts by length: padded batches of 32 on a CPU, its default; on CUDA
    batches of the stage's tokens, without padding where FlashAttention-2 is installed."""
    from sentence_transformers import SentenceTransformer

    options, batch = {"torch_dtype": dtype}, BATCH
    if device.type == "cuda":
        batch = TOKEN_BUDGET["encode"]["cuda"] // texts.MAX_PASSAGE_TOKENS
        if dtype != torch.float32 and importlib.util.find_spec("flash_attn"):
            options["attn_implementation"] = "flash_attention_2"
    model = SentenceTransformer(str(world.checkpoint), device=str(device), model_kwargs=options, local_files_only=True)
    model.max_seq_length = texts.MAX_PASSAGE_TOKENS
    return lambda: model.encode(world.passages, batch_size=batch, show_progress_bar=False)


def openvino_encode(world, threads, precision):
    """OpenVINO's compilation of the same model, in "f32" or "bf16": batches of 32, sorted by length, padded to the
    longest; every thread computes a batch of its own.
    """
    import openvino
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(world.checkpoint, local_files_only=True)
    options = {"padding": True, "truncation": True, "max_length": texts.MAX_PASSAGE_TOKENS, "return_tensors": "np"}
    example = tokenizer(world.passages[:2], **options | {"return_tensors": "pt"})
    model = openvino.convert_model(world.reference, example_input=(example["input_ids"], example["attention_mask"]))
    hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": threads}
    compiled = openvino.Core().compile_model(model, "CPU", hints | {"PERFORMANCE_HINT": "THROUGHPUT"})
    requests = openvino.AsyncInferQueue(compiled, threads)

    def run():
        order, vectors = np.argsort([-len(text) for text in world.passages]), {}
        requests.set_callback(lambda request, start: vectors.update({start: request.get_output_tensor(0).data.copy()}))
        for start in range(0, len(order), BATCH):
            batch = tokenizer([world.passages[row] for row in order[start : start + BATCH]], **options)
            requests.start_async([batch["input_ids"], batch["attention_mask"]], start)
        requests.wait_all()
        return np.concatenate([vectors[start] for start in sorted(vectors)])[np.argsort(order)]

    return run


def stage_encode(world, device, precision, compiled=False, shared=False):
    """Encode a block of passages as the stage `encode` does, with as many threads as torch has.

    shared: let all threads share every operator of one batch instead, as torch does by itself
    """
    dtype = resolve_precision(precision, device)
    with torch.inference_mode():
        prepared = prepare(world.encoder, dtype, compiled)
    tokens, limit = world.passage_map, texts.MAX_PASSAGE_TOKENS
    side = Side(world.encoder, tokens, limit, world.special, dtype, compiled, prepared)
    rows, budget = np.arange(len(tokens)), TOKEN_BUDGET["encode"][device.type]

    def run():
        with torch.inference_mode(), batches_at_once(1 if shared else torch.get_num_threads()) as each:
            return side.vectors(rows, budget, each).cpu().numpy()

    return run


def smallest_cosine(vectors, reference):
    """The smallest cosine between a row of one array and the same row of the other."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(reference, axis=1)
    return float(((vectors * reference).sum(1) / lengths).min())


def top10_overlap(vectors, reference):
    """The share of a row's ten nearest other rows that both arrays agree on, mean over the first rows."""
    nearest = []
    for rows in (vectors, reference):
        scores = rows[:COMPARED] @ rows.T
        np.fill_diagonal(scores, -np.inf)
        nearest.append(np.argpartition(-scores, 10, axis=1)[:, :10])
    return float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*(ids.tolist() for ids in nearest), strict=True)]))


def agreement(world, folder, device, corpus, count, variants):
    """Figures on the first passages of a corpus.tsv.gz (id, title, text): the stage against plain torch."""
    if corpus:
        world.passages = [text.split("\t")[2] for _, text in itertools.islice(lines(corpus), count)]
        tokenizer, special = load_tokenizer(world.checkpoint)
        world.passage_map = texts.write_map(folder, "corpus", tokenizer, special, world.passages)
        variants = {PLAIN: peers.encode(world, device)}
        variants |= {f"stage, {p}": stage_encode(world, device, p) for p in ("fp32", "bf16")}
    reference = variants[PLAIN]()
    figures = {}
    for name in variants:
        vectors = variants[name]()
        figures[f"smallest cosine, {name}"] = smallest_cosine(vectors, reference)
        if len(vectors) > 10:
            figures[f"overlap of the nearest 10, {name}"] = top10_overlap(vectors, reference)
    return figures


def peers_of(world, device, arguments):
    """{name: function} of the peers that are installed; {} with --alone."""
    if arguments.alone:
        return {}
    with_bf16, found = resolve_precision("auto", device) is not None, {}
    formats = [("", torch.float32, "f32"), (", bf16", torch.bfloat16, "bf16")][: 1 + with_bf16]
    for suffix, dtype, precision in formats[-1:] if device.type == "cuda" else formats:
        found[PLAIN + suffix] = peers.encode(world, device, dtype)
        if device.type == "cuda" and not compiler_problem(device):
            found[f"{PLAIN}{suffix}, compiled"] = peers.encode(world, device, dtype, True)
        if importlib.util.find_spec("sentence_transformers"):
            found[SENTENCE_TRANSFORMERS + suffix] = sentence_transformers_encode(world, device, dtype)
        if device.type == "cpu" and importlib.util.find_spec("openvino"):
            found[OPENVINO + suffix] = openvino_encode(world, arguments.threads, precision)
    return found


def main(arguments=None):
    parser = texts.parser("Encoding against its peers.", passages=256)
    parser.add_argument("--alone", action="store_true", help="no peers; plain torch only for the agreement")
    parser.add_argument("--corpus", type=Path, help="corpus.tsv.gz whose first passages the agreement is measured on")
    arguments = parser.parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    device = pick_device()
    with TemporaryDirectory() as folder:
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, arguments.passages)
        world.encoder.to(device)
        world.reference.to(device)
        variants = peers_of(world, device, arguments)
        compared = list(variants)
        variants["stage, fp32"] = stage_encode(world, device, "fp32")
        if device.type == "cpu" and arguments.threads > 1:
            variants["stage, fp32, threads share a batch"] = stage_encode(world, device, "fp32", shared=True)
        if resolve_precision("auto", device) is not None:
            variants["stage, bf16"] = stage_encode(world, device, "bf16")
            if device.type == "cuda" and (lack := compiler_problem(device)):
                print(f"stage, bf16, compiled: left out. {lack}")
            elif device.type == "cuda":
                variants["stage, bf16, compiled"] = stage_encode(world, device, "bf16", True)
        seconds = interleaved(variants, arguments.rounds)
        rates = peers.product_rates(peers.shape_of(world.encoder), device, 4 * arguments.rounds)
        figures = {"products, bf16 over fp32": rates["bf16"] / rates["fp32"]}
        lengths = Chunks(world.passage_map, texts.MAX_PASSAGE_TOKENS, world.special).lengths
        figures |= peers.shares(world.encoder, lengths, 1, seconds, rates)
        variants.setdefault(PLAIN, peers.encode(world, device))
        figures |= agreement(world, folder, device, arguments.corpus, arguments.passages, variants)
        report("encode", seconds, compared, arguments.passages, "passages", arguments, **figures)


if __name__ == "__main__":
    main()
