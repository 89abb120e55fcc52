"""Where a published checkpoint lies: in the hub's cache, in a folder, or in an installed package."""

import importlib.util
from pathlib import Path

from teleport.encoder.checkpoint import TOKENIZER_FILES
from teleport.refusal import Refusal

KEY = "encoder.checkpoint"  # where a reader finds these settings in the configuration
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that exists is read
# sentence-transformers' form of a head behind the backbone (`pretrained.head_of_modules`).
HEAD_FILES = ("*_Dense/*", "*_LayerNorm/*")
# What a checkpoint says of itself there (`own_settings` reads it).
OWN_FILES = ("config.json", "modules.json", "*_Pooling/config.json", "*_Dense/config.json", "sentence_bert_config.json")
OWN_FILES += ("config_sentence_transformers.json", "tokenizer_config.json")


def locate(checkpoint, files=None):
    """The folder of a settings.CheckpointSource: of the hub's cache, local, or inside an installed package. files: the
    patterns of those that are needed of a hub repository; by default its weights and what goes with them."""
    if checkpoint.hub:
        return download(checkpoint.hub, checkpoint.revision, files)
    if checkpoint.package:
        return folder_in_package(checkpoint.package)
    folder = Path(checkpoint.folder)
    if not folder.is_dir():
        raise Refusal(f"{KEY}.folder: {str(folder)!r} is not a folder. Give a folder with config.json and weights.")
    return folder


def download(hub_id, revision, files=None):
    """The folder of a hub repository at one commit, in the hub's cache. With HF_HUB_OFFLINE=1 nothing is downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, HTTPError  # the latter: whatever its HTTP library raises

    try:
        if files:
            return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(files)))
        files = ["config.json", *TOKENIZER_FILES, *HEAD_FILES, *OWN_FILES]
        for name in WEIGHTS:
            folder = Path(snapshot_download(hub_id, revision=revision, allow_patterns=[*files, name]))
            if (folder / name).is_file():
                break
    except (HTTPError, HFValidationError, OSError) as error:
        raise Refusal(
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
        raise Refusal(f"{KEY}.package: {name!r} is not an installed package. Install it into the environment first.")
    configs = [path for root in spec.submodule_search_locations for path in sorted(Path(root).rglob("config.json"))]
    folders = [path.parent for path in configs if any((path.parent / weights).is_file() for weights in WEIGHTS)]
    if len(folders) != 1:
        raise Refusal(
            f"{KEY}.package: {name!r} must hold one folder with config.json and weights; found "
            f"{', '.join(map(str, folders)) or 'none'}. Name the folder itself in {KEY}.folder."
        )
    return folders[0]


def find_weights(folder, key=KEY):
    """The weights file of a transformers folder, safetensors or the older form; `key`: of the configuration."""
    if found := [folder / name for name in WEIGHTS if (folder / name).is_file()]:
        return found[0]
    raise Refusal(f"{key}: {folder} has none of {', '.join(WEIGHTS)}. Give a folder with the weights in one file.")


def require_digest(weights, found, expected, key=KEY):
    """Raise Refusal, naming the configuration's `key`, when a weights file has not the digest expected of it."""
    if expected not in (None, found):
        raise Refusal(
            f"{key}.sha256: {weights} has SHA-256 {found}, expected {expected}. These are other weights: get the right "
            "file, or correct the digest if you trust this one."
        )
