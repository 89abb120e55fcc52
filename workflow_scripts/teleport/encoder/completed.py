"""Completes an encoder's settings: from the configuration, the checkpoint's files, or defaults."""

import math
from itertools import product

from teleport.encoder.own_settings import own_settings
from teleport.encoder.source import OWN_FILES, locate, named
from teleport.refusal import Refusal
from teleport.settings.encoder import with_title

LENGTHS = {"max_query_tokens": 32, "max_passage_tokens": 128}  # defaults (ANCE-Tele, Table 5)
PREFIXES = ("query_prefix", "passage_prefix")


def refuse_conflict(file_settings, settings, names=("pooling", "normalize", *PREFIXES, "lower_case")):
    """Raise Refusal if `settings` (attributes; None: not set) differ from `file_settings`, the checkpoint's own."""
    cut = {"pooling"} if getattr(settings, "layers", None) is not None else set()  # the files describe the last layer
    for name in set(names) & set(file_settings) - cut:
        wanted, (value, file) = getattr(settings, name), file_settings[name]
        if wanted is not None and value not in (wanted, with_title(wanted) if name == "passage_prefix" else wanted):
            raise Refusal(
                f"encoder.{name} is {wanted!r}, but {file} says {value!r}. Set it to {value!r}, or to null, which "
                "takes the checkpoint's value."
            )


def refuse_too_long(file_settings, made, names=tuple(LENGTHS), silent=(), of=""):
    """Raise Refusal if the complete settings `made` allow more tokens than `file_settings` or the positions of the
    model. silent: names that the configuration does not set; of: words for the checkpoint of the files, if another"""
    for key, name in product(("max_tokens", "positions"), names):
        most, file = file_settings.get(key, (math.inf, None))
        if (length := getattr(made, name)) > most:
            rule = f"says that a text has at most {most} tokens" if key == "max_tokens" else f"has positions for {most}"
            problem = f"encoder.{name} is {length}"
            if name in silent:
                problem = f"{file_settings['max_tokens'].file} says that a text has at most {length} tokens"
            raise Refusal(f"{problem}, but {file}{of} {rule}. Set encoder.{name} to {most} at most.")


def completed(encoder):
    """A settings.Encoder with every value set: by the configuration, by the checkpoint's files, or by the defaults. The
    small files of a checkpoint on the hub are fetched only if a value is missing."""
    usual = {"normalize": False, "query_prefix": "", "passage_prefix": ""} | LENGTHS
    silent = [name for name in ("pooling", *usual) if getattr(encoder, name) is None]
    checkpoint, file_settings, queries = encoder.checkpoint, {}, {}
    if silent or not checkpoint.hub:
        file_settings = own_settings(locate(checkpoint, OWN_FILES))
        if encoder.query_checkpoint:
            with named("encoder.query_checkpoint"):
                queries = own_settings(locate(encoder.query_checkpoint, OWN_FILES))
            file_settings.pop("query_prefix", None)
            file_settings |= {name: queries[name] for name in queries if name == "query_prefix"}
        refuse_conflict(file_settings, encoder)
    known = {name: value for name, (value, _) in file_settings.items()}
    if "max_tokens" in file_settings:
        known |= dict.fromkeys(LENGTHS, known["max_tokens"])
    elif "positions" in file_settings:
        usual |= {name: min(usual[name], known["positions"]) for name in LENGTHS}
    if encoder.pooling is None and "pooling" not in known:
        raise Refusal(
            f"encoder.pooling: neither the configuration nor {checkpoint.place} sets it (there is no modules.json with "
            "a Pooling module). Set it to cls or mean, whichever the checkpoint was trained with."
        )
    if encoder.lower_case is None and "lower_case" in known:
        silent.append("lower_case")
    made = encoder.model_copy(update={name: (usual | known)[name] for name in silent})
    refuse_too_long(file_settings, made, silent=silent)
    refuse_too_long(queries, made, ["max_query_tokens"], of=" of encoder.query_checkpoint")
    if not known.get("include_prompt", True) and (made.query_prefix or made.passage_prefix):
        raise Refusal(
            f"encoder: {file_settings['include_prompt'].file} leaves prompts out of the pooling (include_prompt: "
            "false), which is not supported. Use another checkpoint, or one without prompts."
        )
    return made
