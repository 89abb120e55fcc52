"""Passages per second: the stage `encode` against other ways to encode, in the same number format.

    python bench/encode.py [--passages 256] [--checkpoint FOLDER | --bert-base] [--corpus corpus.tsv.gz]
    taskset -c 0 python bench/encode.py --threads 1    # on one core

Peers, in fp32 and in bf16, all with texts sorted by length: plain torch (transformers' model, which the tests compare
with, on padded batches from the token map), sentence-transformers, and OpenVINO if it is installed (`pip install
openvino`). The last two tokenise as they go; the stage reads the token map, which `tokens` made once for all episodes.
The machine's matrix products bound the gain of bfloat16, so their rates are measured too, and the share of them that
each variant reaches on real tokens. With --corpus the agreement of the vectors is measured on its first passages
instead of random words.
"""

import copy
import importlib.util
import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import texts
from commands.doctor import lack_of_compiler
from padding import padded
from products import product_rates, shape_of, shares
from rounds import interleaved, report
from teleport.collection.records import lines
from teleport.encoder.batches import Chunks
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.model import prepare
from teleport.encoder.precision import pick_device, resolve_precision
from teleport.encoder.side import Side, batches_at_once
from teleport.encoder.tokens import load_tokenizer

PLAIN, SENTENCE_TRANSFORMERS = "plain torch, sorted by length", "sentence-transformers, sorted by length"
OPENVINO = "OpenVINO, sorted by length"
BATCH = 32
COMPARED = 1000  # passages whose nearest neighbours are compared


def plain_encode(world, device, dtype=torch.float32):
    """transformers' model, uncompiled: batches of 32 of the token map, sorted by length, padded to the longest."""
    model = world.reference if dtype == torch.float32 else copy.deepcopy(world.reference).to(dtype)

    def run():
        lengths = Chunks(world.passage_map, texts.MAX_PASSAGE_TOKENS, world.special).lengths
        order, vectors = np.argsort(-lengths, kind="stable"), []
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                batch = padded(world.passage_map, rows, texts.MAX_PASSAGE_TOKENS, world.special)
                vectors.append(model(*(tensor.to(device) for tensor in batch)).float().cpu().numpy())
        return np.concatenate(vectors)[np.argsort(order)]

    return run


def sentence_transformers_encode(world, device, dtype=torch.float32):
    """`SentenceTransformer.encode`: batches of 32, which it sorts by length and pads to the longest."""
    from sentence_transformers import SentenceTransformer

    options = {"model_kwargs": {"torch_dtype": dtype}, "local_files_only": True}
    model = SentenceTransformer(str(world.checkpoint), device=str(device), **options)
    model.max_seq_length = texts.MAX_PASSAGE_TOKENS
    return lambda: model.encode(world.passages, batch_size=BATCH, show_progress_bar=False)


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
        tokenizer, special = load_tokenizer(world.checkpoint, None)
        world.passage_map = texts.write_map(folder, "corpus", tokenizer, special, world.passages)
        variants = {PLAIN: plain_encode(world, device)}
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
    for suffix, dtype, precision in [("", torch.float32, "f32"), (", bf16", torch.bfloat16, "bf16")][: 1 + with_bf16]:
        found[PLAIN + suffix] = plain_encode(world, device, dtype)
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
        peers = list(variants)
        variants["stage, fp32"] = stage_encode(world, device, "fp32")
        if device.type == "cpu" and arguments.threads > 1:
            variants["stage, fp32, threads share a batch"] = stage_encode(world, device, "fp32", shared=True)
        if resolve_precision("auto", device) is not None:
            variants["stage, bf16"] = stage_encode(world, device, "bf16")
            if device.type == "cuda" and (lack := lack_of_compiler(device)):
                print(f"stage, bf16, compiled: left out. {lack}")
            elif device.type == "cuda":
                variants["stage, bf16, compiled"] = stage_encode(world, device, "bf16", True)
        seconds = interleaved(variants, arguments.rounds)
        rates = product_rates(shape_of(world.encoder), device, 4 * arguments.rounds)
        figures = {"products, bf16 over fp32": rates["bf16"] / rates["fp32"]}
        lengths = Chunks(world.passage_map, texts.MAX_PASSAGE_TOKENS, world.special).lengths
        figures |= shares(world.encoder, lengths, 1, seconds, rates)
        variants.setdefault(PLAIN, plain_encode(world, device))
        figures |= agreement(world, folder, device, arguments.corpus, arguments.passages, variants)
        report("encode", seconds, peers, arguments.passages, "passages", arguments, **figures)


if __name__ == "__main__":
    main()
