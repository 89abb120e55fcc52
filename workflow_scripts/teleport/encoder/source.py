"""A pretrained checkpoint as it is published: where it lies, and an encoder's settings completed by its files."""

import importlib.util
import math
from pathlib import Path

from teleport.encoder.checkpoint import TOKENIZER_FILES
from teleport.encoder.own_settings import KEY, own_settings
from teleport.refusal import Refusal

WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that exists is read
# sentence-transformers' form of a head behind the backbone (`pretrained.head_of_modules`).
HEAD_FILES = ("*_Dense/*", "*_LayerNorm/*")
# What a checkpoint says of itself there (`own_settings` reads it).
OWN_FILES = ("config.json", "modules.json", "*_Pooling/config.json", "*_Dense/config.json", "sentence_bert_config.json")
OWN_FILES += ("config_sentence_transformers.json", "tokenizer_config.json")

LENGTHS = {"max_query_tokens": 32, "max_passage_tokens": 128}  # where nobody says them (ANCE-Tele, Table 5)


def locate(checkpoint, files=None):
    """The folder of a settings.CheckpointSource: of the hub's cache, local, or inside an installed package.

    files: the patterns of those that are needed of a hub repository; by default its weights and what goes with them.
    """
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
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        if files:
            return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(files)))
        files = ["config.json", *TOKENIZER_FILES, *HEAD_FILES, *OWN_FILES]
        for name in WEIGHTS:
            folder = Path(snapshot_download(hub_id, revision=revision, allow_patterns=[*files, name]))
            if (folder / name).is_file():
                break
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
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
    """The weights file of a transformers folder: safetensors, else the older torch file.

    Raises Refusal, naming the configuration's `key`, when there is none.
    """
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


def refuse_conflict(own, settings, names=("pooling", "normalize", "query_prefix", "passage_prefix", "lower_case")):
    """Raise Refusal when `settings` (attributes) say something else than the files; None says nothing."""
    cut = {"pooling"} if getattr(settings, "layers", None) else set()  # the files speak of the last layer
    for name in set(names) & set(own) - cut:
        said, (value, file) = getattr(settings, name), own[name]
        if said is not None and said != value:
            raise Refusal(
                f"encoder.{name} is {said!r}, but {file} says {value!r}. Set it to {value!r}, or to null, which takes "
                "what the checkpoint says."
            )
    length, file = own.get("max_tokens", (math.inf, None))
    for name in LENGTHS:
        if (said := getattr(settings, name, None) or 0) > length:
            raise Refusal(
                f"encoder.{name} is {said}, but {file} says that a text has at most {length} tokens. Set it to "
                f"{length} at most, or to null, which takes that."
            )


def refuse_no_positions(own, made, silent):
    """Raise Refusal when a text may have more tokens than the model has positions; `silent`: what nobody has set."""
    most, file = own.get("positions", (math.inf, None))
    for name in LENGTHS:
        if (length := getattr(made, name)) > most:
            said = f"encoder.{name} is {length}"
            if name in silent:
                said = f"{own['max_tokens'].file} says that a text has at most {length} tokens"
            raise Refusal(f"{said}, but {file} has positions for {most}. Set encoder.{name} to {most} at most.")


def refuse_long_queries(queries, length):
    """Raise Refusal when queries may be longer (tokens) than their own checkpoint says, or has positions for."""
    for name, said in (("max_tokens", "says that a text has at most {} tokens"), ("positions", "has positions for {}")):
        most, file = queries.get(name, (math.inf, None))
        if length > most:
            raise Refusal(
                f"encoder.max_query_tokens is {length}, but {file} of encoder.query_checkpoint "
                f"{said.format(most)}. Set encoder.max_query_tokens to {most} at most."
            )


def completed(encoder):
    """A settings.Encoder in which everything is said: by the configuration, by the checkpoint's files, or as usual.

    A checkpoint on the hub is asked only where something is left out: its small files are fetched then. Raises
    Refusal when the two disagree, and when neither says the pooling.
    """
    usual = {"normalize": False, "query_prefix": "", "passage_prefix": ""}
    usual |= LENGTHS
    silent = [name for name in ("pooling", *usual) if getattr(encoder, name) is None]
    checkpoint, own, queries = encoder.checkpoint, {}, {}
    if silent or not checkpoint.hub:
        own = own_settings(locate(checkpoint, OWN_FILES))
        if encoder.query_checkpoint:
            queries = own_settings(locate(encoder.query_checkpoint, OWN_FILES))
            own.pop("query_prefix", None)
            own |= {name: queries[name] for name in queries if name == "query_prefix"}
        refuse_conflict(own, encoder)
    known = {name: value for name, (value, _) in own.items()}
    if "max_tokens" in own:
        known |= dict.fromkeys(LENGTHS, known["max_tokens"])
    elif "positions" in own:
        usual |= {name: min(usual[name], known["positions"]) for name in LENGTHS}
    if encoder.pooling is None and "pooling" not in known:
        place = checkpoint.hub or checkpoint.folder or checkpoint.package
        raise Refusal(
            f"encoder.pooling: neither the configuration nor {place} says it (there is no modules.json with a Pooling "
            "module). Set it to cls or mean, whichever the checkpoint was trained with."
        )
    if encoder.lower_case is None and "lower_case" in known:
        silent.append("lower_case")
    made = encoder.model_copy(update={name: (usual | known)[name] for name in silent})
    refuse_no_positions(own, made, silent)
    refuse_long_queries(queries, made.max_query_tokens)
    if not known.get("include_prompt", True) and (made.query_prefix or made.passage_prefix):
        raise Refusal(
            f"encoder: {own['include_prompt'].file} leaves prompts out of the pooling (include_prompt: false), which "
            "is not computed here. Take another checkpoint, or one without prompts."
        )
    return made
