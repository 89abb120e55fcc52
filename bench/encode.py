"""Passages per second: the stage `encode` against a plain transformers loop and sentence-transformers.

    python bench/encode.py [--passages 96] [--checkpoint FOLDER]

Both peers tokenise as they go, in fp32; the stage reads the token map, which `tokens` made once for all episodes.
"""

from tempfile import TemporaryDirectory

import numpy as np
import torch

import texts
from rounds import interleaved, report
from teleport.encoder.encode import Side
from teleport.encoder.precision import autocast, pick_device, resolve_precision
from teleport.encoder.tokens import padded_lengths

PADDED, SENTENCE_TRANSFORMERS = "transformers, padded to 128", "sentence-transformers encode()"
BATCH = 32


def transformers_loop(world, device):
    """The usual loop: batches of 32 in their given order, each padded to 128 tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(world.checkpoint, local_files_only=True)
    options = {"padding": "max_length", "truncation": True, "max_length": texts.MAX_PASSAGE_TOKENS}

    def run():
        vectors = []
        with torch.inference_mode():
            for start in range(0, len(world.passages), BATCH):
                batch = tokenizer(world.passages[start : start + BATCH], return_tensors="pt", **options).to(device)
                vectors.append(world.encoder(batch["input_ids"], batch["attention_mask"]).cpu().numpy())
        return np.concatenate(vectors)

    return run


def sentence_transformers_encode(world, device):
    """`SentenceTransformer.encode`: batches of 32, sorted by length, padded to the longest."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(world.checkpoint), device=str(device), local_files_only=True)
    model.max_seq_length = texts.MAX_PASSAGE_TOKENS
    return lambda: model.encode(world.passages, batch_size=BATCH, show_progress_bar=False)


def stage_encode(world, device, precision):
    """What the stage `encode` does with a block of passages."""
    side = Side(world.encoder, texts.MAX_PASSAGE_TOKENS, world.special, device)
    lengths = padded_lengths(world.passage_map, side.max_tokens)
    dtype = resolve_precision(precision, device)

    def run():
        vectors = np.empty((len(lengths), world.encoder.dim), np.float32)
        with torch.inference_mode(), autocast(device, dtype):
            side.encode(world.passage_map, np.arange(len(lengths)), lengths, vectors)
        return vectors

    return run


def smallest_cosine(vectors, reference):
    """The smallest cosine between a row of one array and the same row of the other."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(reference, axis=1)
    return float(((vectors * reference).sum(1) / lengths).min())


def main(arguments=None):
    arguments = texts.parser("Encoding against its peers.", passages=96).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    device = pick_device()
    with TemporaryDirectory() as folder:
        world = texts.Texts(arguments.checkpoint, folder, arguments.passages)
        world.encoder.to(device)
        variants = {
            PADDED: transformers_loop(world, device),
            SENTENCE_TRANSFORMERS: sentence_transformers_encode(world, device),
            "stage, fp32": stage_encode(world, device, "fp32"),
        }
        if resolve_precision("auto", device) is not None:
            variants["stage, bf16"] = stage_encode(world, device, "bf16")
        reference = variants[PADDED]()
        cosines = {f"smallest cosine, {name}": smallest_cosine(run(), reference) for name, run in variants.items()}
        seconds = interleaved(variants, arguments.rounds)
        peers = (PADDED, SENTENCE_TRANSFORMERS)
        report("encode", seconds, peers, arguments.passages, "passages", arguments, **cosines)


if __name__ == "__main__":
    main()
