"""Locates and verifies a published checkpoint: in the hub's cache, in a folder, or in installed packages."""

import hashlib
import importlib.util
import json
import re
from contextlib import contextmanager, suppress
from pathlib import Path

from teleport.encoder.checkpoint import TOKENIZER_FILES
from teleport.encoder.packages import folder_in_packages
from teleport.refusal import Refusal
from teleport.running.files import require_planned, sha256_file
from teleport.running.hub import hub_errors

KEY = "encoder.checkpoint"  # where a reader finds these settings in the configuration
INDEX = "model.safetensors.index.json"  # of weights in several files: {"weight_map": {weight: file}}
WEIGHTS = ("model.safetensors", INDEX, "pytorch_model.bin")  # the first that exists is read
PARTS = "model-*-of-*.safetensors"  # the files that an index names
# Encoders to which transformers can add the head of a sequence classification, as tried here.
RANKERS = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "mpnet", "modernbert")
# sentence-transformers' form of a head behind the backbone (`pretrained.head_of_modules`).
HEAD_FILES = ("*_Dense/*", "*_LayerNorm/*")
# The files in which a checkpoint describes itself (`own_settings` reads them).
OWN_FILES = ("config.json", "modules.json", "*_Pooling/config.json", "*_Dense/config.json", "sentence_bert_config.json")
OWN_FILES += ("config_sentence_transformers.json", "tokenizer_config.json")
# The files that go with the weights of a checkpoint.
WITH_WEIGHTS = ("config.json", *TOKENIZER_FILES, *HEAD_FILES, *OWN_FILES)


@contextmanager
def named(key):
    """Let the mistakes in a checkpoint other than the encoder's name the `key` of the configuration that gives it."""
    try:
        yield
    except Refusal as error:
        message = str(error).replace(KEY, key)
        raise Refusal(message if key in message else f"{key}: {message}") from error


def locate(checkpoint, files=None):
    """The folder of a settings.CheckpointSource: in the hub's cache, local, or inside an installed package. files:
    patterns of the files that are needed from a hub repository or from several packages; by default the weights and
    WITH_WEIGHTS."""
    if checkpoint.hub:
        return download(checkpoint.hub, checkpoint.revision, files)
    if checkpoint.package:
        return folder_in_package(checkpoint.package)
    if checkpoint.packages:
        weights = () if files else [(name, PARTS) if name == INDEX else (name,) for name in WEIGHTS]
        return folder_in_packages(checkpoint.packages, files or WITH_WEIGHTS, weights, KEY)
    folder = Path(checkpoint.folder)
    if not folder.is_dir():
        raise Refusal(f"{KEY}.folder: {str(folder)!r} is not a folder. Give a folder with config.json and weights.")
    return folder


def download(hub_id, revision, files=None):
    """The folder of a hub repository at one commit, in the hub's cache. With HF_HUB_OFFLINE=1 nothing is downloaded."""
    from huggingface_hub import snapshot_download

    remedy = f"Check both names and the network, or download the model elsewhere and name its folder in {KEY}.folder."
    with hub_errors(f"{KEY}.hub: cannot get {hub_id!r} at revision {revision!r}", remedy):
        if files:
            return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(files)))
        for name in WEIGHTS:
            patterns = [*WITH_WEIGHTS, name, *([PARTS] if name == INDEX else [])]
            folder = Path(snapshot_download(hub_id, revision=revision, allow_patterns=patterns))
            if (folder / name).is_file():
                break
    return folder


def in_hub_cache(source, name):
    """The Path of a file of a `CheckpointSource` on the hub, None if it would have to be downloaded."""
    from huggingface_hub import try_to_load_from_cache

    cached = None
    with suppress(ValueError):  # no name of a repository, which `download` refuses
        cached = try_to_load_from_cache(source.hub, name, revision=source.revision)
    return Path(cached) if isinstance(cached, str) else None


def folder_in_package(name):
    """The one folder with config.json and weights inside an installed package, which is not imported."""
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
    """The files (list, sorted) with the weights of a transformers folder: one file of safetensors or of the older form,
    or the files that an index names. key: of the configuration"""
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise Refusal(
            f"{key}: {folder} has none of {', '.join(WEIGHTS)}. Give a folder with weights. If they are in several "
            "pytorch_model-….bin, transformers' from_pretrained and save_pretrained write them as safetensors."
        )
    if file.name != INDEX:
        return [file]
    files = sorted(set(read_index(file, key).values()))
    if missing := [name for name in files if not (folder / name).is_file()]:
        raise Refusal(
            f"{key}: {file} names {len(missing)} files that are not there, for example {missing[0]}. Add them."
        )
    return [folder / name for name in files]


def read_index(path, key=KEY):
    """{weight: name of its file} of the index of weights in several files beside it."""
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        if names and all(
            isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]*\.safetensors", name) for name in names.values()
        ):
            return names
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # ValueError: no JSON, or not in UTF-8
        pass
    form = '{"weight_map": {WEIGHT: FILE.safetensors}}, of files beside it'
    raise Refusal(f"{key}: {path} is not of the form {form}. Get the checkpoint again.")


def is_ranker(folder):
    """Whether the config.json of a folder names a sequence classification, which a cross-encoder is."""
    return any(
        str(name).endswith("ForSequenceClassification") for name in read_config(folder).get("architectures") or ()
    )


def require_ranker(folder, key, starts):
    """Raise Refusal for a cross-encoder with several labels and, if a training `starts` from it, for another model_type
    than RANKERS. key: of the configuration"""
    config, path = read_config(folder), Path(folder) / "config.json"
    labels = config.get("num_labels") or len(config.get("id2label") or ("LABEL_0", "LABEL_1"))  # transformers' default
    if is_ranker(folder) and labels != 1:
        raise Refusal(
            f"{key}: {path} has {labels} labels, and the score of a pair is one number. Give one with a single label, "
            "or an encoder to start from."
        )
    if starts and (kind := config.get("model_type")) not in RANKERS:
        raise Refusal(
            f"{key}: {path} has model_type {kind!r}. A cross-encoder starts from one of {', '.join(RANKERS)}."
        )


def read_config(folder):
    """The content of config.json (dict); {} if it is missing or not JSON, which the stages refuse."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def digest_of_weights(files, digests):
    """The SHA-256 (hex) of weights: the digest of one file; for several the output of `sha256sum FILES | sha256sum` in
    the folder, files in the order of their names. digests: of the files (list of hex)"""
    if len(files) == 1:
        return digests[0]
    lines = "".join(f"{digest}  {file.name}\n" for file, digest in zip(files, digests, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()


def verified(checkpoint):
    """(folder, files of its weights, facts that pin it) of a source, compared with the digests that the plan read. The
    facts are the weights' digest, and the commit of a hub repository, because `main` may move."""
    folder = locate(checkpoint)
    weights = find_weights(folder)
    names = {file.name for file in weights}
    require_planned({str(folder / name): digest for name, digest in checkpoint.files.items() if name not in names})
    digest = digest_of_weights(weights, [sha256_file(file) for file in weights])
    require_digest(weights, digest, checkpoint.sha256)
    return folder, weights, {"weights_sha256": digest} | ({"commit": folder.name} if checkpoint.hub else {})


def require_digest(files, digest, expected, key=KEY):
    """Raise Refusal, naming the configuration's `key`, if the `digest` of the weights `files` is not `expected`."""
    if expected not in (None, digest):
        raise Refusal(
            f"{key}.sha256: {', '.join(map(str, files))} has SHA-256 {digest}, expected {expected}. These are other "
            "weights: get the right file, or correct the digest if you trust this one."
        )
