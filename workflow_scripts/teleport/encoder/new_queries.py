"""Computes vectors of texts that no stage has: queries typed to search a collection, and texts of a file that a
checkpoint from elsewhere judges."""

import numpy as np
import torch

from teleport.arrays import Ragged, offsets_of
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.checkpoint import sides
from teleport.encoder.completed import completed
from teleport.encoder.load import load_encoder
from teleport.encoder.model import prepare
from teleport.encoder.own_settings import head_width
from teleport.encoder.precision import pick_device, resolve_precision, to_encode
from teleport.encoder.pretrained import read
from teleport.encoder.side import Side, batches_at_once
from teleport.encoder.tokens import around_text, load_tokenizer, lower_case_first
from teleport.settings.encoder import CheckpointSource, Encoder


def encode_queries(texts, encode, checkpoint, tokens, pretrained):
    """Float32 [texts, D]: the vectors of `texts`, computed as a stage `encode` computes its queries.

    encode, checkpoint, tokens, pretrained: the finished stage (`Artefact`), and the stages that it and `tokens` read
    """
    settings, how = encode.manifest["settings"], tokens.manifest["settings"]
    device = pick_device()
    dtype = resolve_precision(settings["precision"], device)
    read = load_tokenizer(sides(pretrained.path("checkpoint"))[1], how["lower_case"])
    encoder = to_encode(load_encoder(sides(checkpoint.path("checkpoint"))[0]), device, dtype)
    encoder.truncate(settings.get("truncate_dim"))
    return encode_texts(
        encoder, [f"{how['prefix']}{text}" for text in texts], *read, settings["max_query_tokens"], dtype
    )


def published_encoder(folder):
    """Function (texts, "query" or "passage") -> float32 [texts, D] of the checkpoint in a folder, in float32. Pooling,
    prompts and maximum lengths come from its files, as if a configuration sets none of them."""
    settings = completed(Encoder(checkpoint=CheckpointSource(folder=str(folder)), projection=head_width(folder)))
    published, encoder = read(folder, settings)
    encoder, tokenizer = to_encode(encoder, pick_device()), published.backend_tokenizer
    if settings.lower_case:
        lower_case_first(tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    before, after = around_text(tokenizer)
    special = {"before": before, "after": after, "pad": published.pad_token_id}

    def encode(texts, side):
        prefix, most = getattr(settings, f"{side}_prefix"), getattr(settings, f"max_{side}_tokens")
        return encode_texts(encoder, [f"{prefix}{text}" for text in texts], tokenizer, special, most)

    return encode


@torch.inference_mode()
def encode_texts(encoder, texts, tokenizer, special, max_tokens, dtype=None):
    """Float32 [texts, D]: the vectors of `texts`, by the tokenizer and `special` of `load_tokenizer`. As in a stage, a
    CPU computes each batch on one thread, so that the bits are those of the stage."""
    if not texts:
        return np.zeros((0, encoder.dim), np.float32)
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    flat = np.array([token for tokens in ids for token in tokens], np.uint32)
    tokens = Ragged(offsets_of([len(each) for each in ids]), flat)
    side = Side(encoder, tokens, max_tokens, special, dtype, prepared=prepare(encoder, dtype))
    with batches_at_once(torch.get_num_threads()) as parallel_map:
        budget = TOKEN_BUDGET["encode"][encoder.device.type]
        return side.vectors(np.arange(len(texts)), budget, parallel_map).cpu().numpy()
