"""Stage `pretrained`: the checkpoint that episodes start from, brought into the folder form of all checkpoints."""

import copy
import importlib.util
import json
from pathlib import Path

import torch
from transformers import AutoTokenizer

from teleport.encoder.checkpoint import TOKENIZER_FILES, sides
from teleport.encoder.model import MODEL_TYPES, Encoder, load_backbone, save_encoders
from teleport.seed import derive_seed
from teleport.stage import log, require_free_space, sha256_file

WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that exists is read
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")
KEY = "encoder.checkpoint"  # where a reader finds these settings in the configuration


def run(job):
    """Find the checkpoint, verify its digest, and write `checkpoint/` with pooling, head and normalisation.

    Heads of the source (pooler, masked language model, its own sentence-transformers modules) are left out. Facts:
    model_type, parameters (of one encoder), dim, weights_sha256.

    Raises ValueError when the checkpoint is missing, of an unsupported kind, incomplete, or not the expected one.
    """
    settings = job.settings
    folder = locate(settings.checkpoint)
    weights = find_weights(folder)
    digest = verified_digest(weights, settings.checkpoint.sha256)
    model_type = supported_type(folder)
    require_free_space(job.folder, weights.stat().st_size * (1 if settings.tied else 2))
    tokenizer = load_fast_tokenizer(folder)
    passage_encoder = Encoder(read_backbone(folder), settings.pooling, settings.projection, settings.normalize).eval()
    check_vocabulary(folder, tokenizer, passage_encoder.backbone)
    if settings.projection:
        passage_encoder.init_head(torch.Generator().manual_seed(derive_seed(settings.seed, "projection head")))
    query_encoder = passage_encoder if settings.tied else copy.deepcopy(passage_encoder)
    checkpoint = job.output("checkpoint")
    save_encoders(query_encoder, passage_encoder, checkpoint, folder)
    for side in set(sides(checkpoint)):
        # The tokenizer as transformers builds it from all the source's files, without the source's own truncation and
        # padding: who reads this one file (stage `tokens`) gets the ids that transformers gives.
        tokenizer.backend_tokenizer.save(str(side / "tokenizer.json"))
    parameters = sum(p.numel() for p in passage_encoder.parameters())
    log.info("%s, %d parameters, %d dimensions, from %s", model_type, parameters, passage_encoder.dim, folder)
    return {
        "model_type": model_type,
        "parameters": parameters,
        "dim": passage_encoder.dim,
        "weights_sha256": digest,
    }


def locate(checkpoint):
    """The folder of the source: of the hub's cache, local, or inside an installed package.

    checkpoint: attributes hub, revision, folder, package; one of hub, folder, package is not None.
    """
    if checkpoint.hub:
        return download(checkpoint.hub, checkpoint.revision)
    if checkpoint.package:
        return folder_in_package(checkpoint.package)
    folder = Path(checkpoint.folder)
    if not folder.is_dir():
        raise ValueError(f"{KEY}.folder: {str(folder)!r} is not a folder. Give a folder with config.json and weights.")
    return folder


def download(hub_id, revision):
    """The folder of a hub repository at one commit, in the hub's cache; only the files that are needed.

    With HF_HUB_OFFLINE=1 the cache alone is used.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    files = ["config.json", *TOKENIZER_FILES]
    try:
        for name in WEIGHTS:
            folder = Path(snapshot_download(hub_id, revision=revision, allow_patterns=[*files, name]))
            if (folder / name).is_file():
                break
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ValueError(
            f"{KEY}.hub: cannot get {hub_id!r} at revision {revision!r} ({type(error).__name__}: {error}). Check both "
            f"names and the network, or download the model elsewhere and name its folder in {KEY}.folder."
        ) from error
    return folder


def folder_in_package(name):
    """The one folder with config.json and weights inside an installed package, found without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{KEY}.package: {name!r} is not an installed package. Install it into the environment first.")
    roots = [Path(root) for root in spec.submodule_search_locations]
    configs = [config for root in roots for config in sorted(root.rglob("config.json"))]
    folders = [config.parent for config in configs if any((config.parent / w).is_file() for w in WEIGHTS)]
    if len(folders) != 1:
        found = ", ".join(map(str, folders)) or "none"
        raise ValueError(
            f"{KEY}.package: {name!r} must hold one folder with config.json and weights; found {found}. "
            f"Name the folder itself in {KEY}.folder."
        )
    return folders[0]


def find_weights(folder):
    """The weights file of a transformers folder: safetensors, else the older torch file."""
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"{KEY}: {folder} has none of {', '.join(WEIGHTS)}. Give a folder with the weights in one file.")


def verified_digest(weights, expected):
    """The SHA-256 of the weights file, after comparing it with the expected one when there is one."""
    found = sha256_file(weights)
    if expected is not None and found != expected:
        raise ValueError(
            f"{KEY}.sha256: {weights} has SHA-256 {found}, expected {expected}. "
            "These are other weights: get the right file, or correct the digest if you trust this one."
        )
    return found


def supported_type(folder):
    """The model type that config.json names. Raises ValueError when it is missing or none of MODEL_TYPES."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"{KEY}: {folder} has no config.json. Give a folder in the form of transformers.")
    model_type = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"{KEY}: {folder}/config.json has model_type {model_type!r}. Supported are {', '.join(MODEL_TYPES)}."
        )
    return model_type


def read_backbone(folder):
    """The backbone of the source; unreadable or incomplete weights become a ValueError."""
    try:
        return load_backbone(folder)
    except Exception as error:  # torch, safetensors and transformers each have exceptions of their own for a bad file
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{KEY}: cannot read the weights in {folder} ({reason}). Get the checkpoint anew.") from error


def load_fast_tokenizer(folder):
    """The source's tokenizer, without truncation and padding. Raises ValueError when there is no fast one."""
    if not any((folder / name).is_file() for name in VOCABULARIES):  # transformers would make an empty tokenizer
        raise ValueError(f"{KEY}: {folder} has none of {', '.join(VOCABULARIES)}. Add its tokenizer.json.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True)
    except (OSError, ValueError, ImportError) as error:
        raise ValueError(f"{KEY}: {folder} has no usable tokenizer ({error}). Add its tokenizer.json.") from error
    if not tokenizer.is_fast:
        raise ValueError(f"{KEY}: the tokenizer of {folder} is not a fast one. Add its tokenizer.json.")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def check_vocabulary(folder, tokenizer, backbone):
    """Raise ValueError when the tokenizer gives ids that have no embedding."""
    largest = max(tokenizer.get_vocab().values())
    if largest >= backbone.config.vocab_size:
        raise ValueError(
            f"{KEY}: the tokenizer of {folder} has ids up to {largest}, but its weights have only "
            f"{backbone.config.vocab_size} embeddings. Give the tokenizer and the weights of one checkpoint."
        )
