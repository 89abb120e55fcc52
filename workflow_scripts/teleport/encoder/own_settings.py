"""What a checkpoint says of itself in the files of sentence-transformers: pooling, normalisation, prefixes, lengths."""

import json
from pathlib import Path
from typing import NamedTuple

from teleport.encoder.checkpoint import module_paths
from teleport.encoder.source import KEY, OWN_FILES, locate

MODULES = {"Transformer", "Pooling", "Dense", "LayerNorm", "Normalize"}  # what is computed here
POOLINGS = {"cls": "cls", "mean": "mean", "cls_token": "cls", "mean_tokens": "mean"}  # by today's and older names
PROMPTS = {"query_prefix": ("query",), "passage_prefix": ("document", "passage", "corpus")}


class Own(NamedTuple):
    """A setting of a checkpoint: its value, and the file that says so."""

    value: object
    file: Path


def own_settings(folder):
    """{key of `encoder`: Own} of a folder: pooling, normalize, the two prefixes, max_tokens, as far as it says them.

    Raises ValueError for a file that is no JSON object, and for modules and poolings that are not computed here.
    """
    folder, found = Path(folder), {}
    if paths := module_paths(folder):
        if others := sorted(set(paths) - MODULES) or ("Dense" in paths and "LayerNorm" not in paths and ["Dense"]):
            raise ValueError(
                f"{KEY}: {folder / 'modules.json'} has the module {others[0]}, which is not computed here. Give a "
                "checkpoint of transformer, pooling, maybe normalisation, and at most a linear layer with a LayerNorm."
            )
        found["normalize"] = Own("Normalize" in paths, folder / "modules.json")
        if "Pooling" in paths:
            file = paths["Pooling"] / "config.json"
            found["pooling"] = Own(pooling_of(read_object(file), file), file)
    if length := read_object(folder / "sentence_bert_config.json").get("max_seq_length"):
        found["max_tokens"] = Own(length, folder / "sentence_bert_config.json")
    prompts = read_object(folder / "config_sentence_transformers.json").get("prompts") or {}
    for key, names in PROMPTS.items():
        for name in names:
            if name in prompts and key not in found:
                found[key] = Own(prompts[name], folder / "config_sentence_transformers.json")
    return found


def pooling_of(config, file):
    """ "cls" or "mean" of the config of a Pooling module (dict). Raises ValueError for another one, or several."""
    modes = config.get("pooling_mode") or [
        key.removeprefix("pooling_mode_") for key, on in config.items() if key.startswith("pooling_mode_") and on
    ]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ValueError(
            f"{KEY}: {file} has the pooling {' and '.join(modes) or 'none'}, which is not computed here; cls and mean "
            "are. Take another checkpoint."
        )
    return POOLINGS[modes[0]]


def read_object(path):
    """The content of a JSON file (dict), {} where there is none. Raises ValueError for what is no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{KEY}: {path} is not JSON in UTF-8 ({error}). Get the checkpoint anew.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{KEY}: {path} is a {type(content).__name__}, not an object. Get the checkpoint anew.")
    return content


def refuse_conflict(own, settings, names=("pooling", "normalize", "query_prefix", "passage_prefix")):
    """Raise ValueError when `settings` (attributes) say something else than the files; None says nothing."""
    for name in set(names) & set(own):
        said, (value, file) = getattr(settings, name), own[name]
        if said is not None and said != value:
            raise ValueError(
                f"encoder.{name} is {said!r}, but {file} says {value!r}. Set it to {value!r}, or to null, which takes "
                "what the checkpoint says."
            )
    for name in ("max_query_tokens", "max_passage_tokens"):
        said = getattr(settings, name, None)
        if said is not None and "max_tokens" in own and said > own["max_tokens"].value:
            length, file = own["max_tokens"]
            raise ValueError(
                f"encoder.{name} is {said}, but {file} says max_seq_length {length}. Set it to {length} at most, or "
                "to null, which takes that."
            )


def completed(encoder):
    """A settings.Encoder in which everything is said: by the configuration, by the checkpoint's files, or as usual.

    A checkpoint on the hub is asked only where something is left out: its small files are fetched then. Raises
    ValueError when the two disagree, and when neither says the pooling.
    """
    usual = {"normalize": False, "query_prefix": "", "passage_prefix": ""}
    usual |= {"max_query_tokens": 32, "max_passage_tokens": 128}  # ANCE-Tele, Table 5
    silent = [name for name in ("pooling", *usual) if getattr(encoder, name) is None]
    checkpoint, own = encoder.checkpoint, {}
    if silent or not checkpoint.hub:
        own = own_settings(locate(checkpoint, OWN_FILES))
        if encoder.query_checkpoint:
            queries = own_settings(locate(encoder.query_checkpoint, OWN_FILES))
            own = {name: own[name] for name in own if name != "query_prefix"}
            own |= {name: queries[name] for name in queries if name == "query_prefix"}
        refuse_conflict(own, encoder)
    known = {name: own[name].value for name in own if name != "max_tokens"}
    if "max_tokens" in own:
        known |= dict.fromkeys(("max_query_tokens", "max_passage_tokens"), own["max_tokens"].value)
    if encoder.pooling is None and "pooling" not in known:
        place = checkpoint.hub or checkpoint.folder or checkpoint.package
        raise ValueError(
            f"encoder.pooling: neither the configuration nor {place} says it (there is no modules.json with a Pooling "
            "module). Set it to cls or mean, whichever the checkpoint was trained with."
        )
    return encoder.model_copy(update={name: (usual | known)[name] for name in silent})
