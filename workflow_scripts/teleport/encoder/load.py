"""Encoders from the folder form of checkpoints and into it."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from teleport.encoder.architectures import ARCHITECTURES
from teleport.encoder.backbone import CONFIG, WEIGHTS, Backbone
from teleport.encoder.checkpoint import PASSAGE, QUERY, copy_tokenizer, read_modules, sides, write_modules
from teleport.encoder.model import HEAD, Encoder
from teleport.refusal import Refusal


def load_backbone(folder):
    """The `Backbone` of a transformers folder without prefixes in its names, in float32 and evaluation mode; that of
    transformers for an architecture that `PackedEncoder` does not compute."""
    config = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
    if not ARCHITECTURES[config["model_type"]].packed:
        from teleport.encoder import reference

        return reference.load_backbone(folder)
    with torch.device("meta"):  # no memory, and no draw from the global random state, for weights that are replaced
        backbone = Backbone(config)
    stored = load_file(Path(folder) / WEIGHTS)  # published files may have more: a pooler, constants
    weights = {name: stored[own].float() for name, own in backbone.own_names().items() if own in stored}
    try:
        backbone.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise Refusal(f"{folder}: {error} Delete the stage's folder and run the workflow again.") from None
    return backbone.eval()


def load_encoder(folder, load_backbone=load_backbone):
    """One Encoder from a folder that `save_encoder` wrote, in evaluation mode; maybe by `reference.load_backbone`."""
    modules = read_modules(folder)
    encoder = Encoder(load_backbone(folder), modules.pooling, modules.projection, modules.normalize)
    if modules.projection:
        encoder.set_head(load_file(modules.paths[name] / "model.safetensors") for name, _ in HEAD)
    return encoder.eval()


def load_encoders(checkpoint, load_backbone=load_backbone):
    """(query encoder, passage encoder) of a checkpoint folder in evaluation mode; the same object when tied."""
    query, passage = sides(checkpoint)
    encoder = load_encoder(passage, load_backbone)
    return encoder if query == passage else load_encoder(query, load_backbone), encoder


def save_encoder(encoder, folder, tokenizer_source, max_tokens=None):
    """Write one encoder as a folder of transformers and sentence-transformers; see `save_encoders`."""
    encoder.backbone.save_pretrained(folder)
    copy_tokenizer(tokenizer_source, folder)
    write_modules(folder, encoder, max_tokens or encoder.max_tokens)
    if encoder.projection:
        paths = read_modules(folder).paths
        for module, (name, prefix) in zip(encoder.head, HEAD, strict=True):
            tensors = {prefix + key: tensor for key, tensor in module.state_dict().items()}
            save_file(tensors, paths[name] / "model.safetensors")


def save_encoders(query_encoder, passage_encoder, folder, tokenizer_source, max_tokens=(None, None)):
    """Write a checkpoint folder: one folder when both are the same object (tied), else `query/` and `passage/`.

    tokenizer_source: a folder whose tokenizer files are copied; max_tokens: where sentence-transformers truncates
    queries and passages (a tied checkpoint: both as passages); None: as the positions
    """
    if query_encoder is not passage_encoder:
        save_encoder(query_encoder, Path(folder) / QUERY, tokenizer_source, max_tokens[0])
        folder = Path(folder) / PASSAGE
    save_encoder(passage_encoder, folder, tokenizer_source, max_tokens[1])
