"""Vectors of queries that no stage has: those that somebody types to search a collection."""

import numpy as np
import torch

from teleport.arrays import Ragged, offsets_of
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.checkpoint import sides
from teleport.encoder.load import load_encoder
from teleport.encoder.model import prepare
from teleport.encoder.precision import pick_device, resolve_precision
from teleport.encoder.side import Side
from teleport.encoder.tokens import load_tokenizer


def encode_queries(texts, encode, checkpoint, tokens, pretrained):
    """Float32 [texts, D]: the vectors of `texts` as a stage `encode` makes those of its queries.

    encode, checkpoint, tokens, pretrained: the finished stage (`Artefact`), and those that it and `tokens` have read
    """
    settings, how = encode.manifest["settings"], tokens.manifest["settings"]
    device = pick_device()
    dtype = resolve_precision(settings["precision"], device)
    read = load_tokenizer(sides(pretrained.path("checkpoint"))[1], how["lower_case"])
    encoder = load_encoder(sides(checkpoint.path("checkpoint"))[0]).to(device)
    encoder.truncate(settings.get("truncate_dim"))
    return encode_texts(
        encoder, [f"{how['prefix']}{text}" for text in texts], *read, settings["max_query_tokens"], dtype
    )


@torch.inference_mode()
def encode_texts(encoder, texts, tokenizer, special, max_tokens, dtype=None):
    """Float32 [texts, D]: the vectors of `texts`, by the tokenizer and `special` of `load_tokenizer`."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    flat = np.array([token for own in ids for token in own], np.uint32)
    own = Ragged(offsets_of([len(each) for each in ids]), flat)
    side = Side(encoder, own, max_tokens, special, dtype, prepared=prepare(encoder, dtype))
    return side.vectors(np.arange(len(texts)), TOKEN_BUDGET["encode"][encoder.device.type]).cpu().numpy()
