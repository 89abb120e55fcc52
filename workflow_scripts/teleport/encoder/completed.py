"""Completes an encoder's settings: from the configuration, the checkpoint's files, or defaults."""

import math

from teleport.encoder.own_settings import own_settings
from teleport.encoder.source import OWN_FILES, locate, named
from teleport.refusal import Refusal
from teleport.settings.encoder import with_title

LENGTHS = {"max_query_tokens": 32, "max_passage_tokens": 128}  # defaults (ANCE-Tele, Table 5)
PREFIXES = ("query_prefix", "passage_prefix")
USUAL = {"normalize": False} | dict.fromkeys(PREFIXES, "") | LENGTHS  # unless the checkpoint says otherwise


def read_files(encoder):
    """{"passage", "query": `own_settings` of the checkpoint that encodes these texts} of a settings.Encoder. Both are
    empty for a checkpoint on the hub if the configuration sets every value: then nothing is fetched."""
    if encoder.checkpoint.hub and all(getattr(encoder, name) is not None for name in ("pooling", *USUAL)):
        return {"passage": {}, "query": {}}
    passage = query = own_settings(locate(encoder.checkpoint, OWN_FILES))
    if encoder.query_checkpoint:
        with named("encoder.query_checkpoint"):
            query = own_settings(locate(encoder.query_checkpoint, OWN_FILES))
    return {"passage": passage, "query": query}


def refuse_conflict(file_settings, settings, names=("pooling", "normalize", "lower_case")):
    """Raise Refusal if `settings` (attributes; None: not set) differ from `file_settings`, the checkpoint's own."""
    cut = {"pooling"} if getattr(settings, "layers", None) is not None else set()  # the files describe the last layer
    for name in set(names) & set(file_settings) - cut:
        wanted, (value, file) = getattr(settings, name), file_settings[name]
        if wanted not in (None, value):
            raise Refusal(
                f"encoder.{name} is {wanted!r}, but {file} says {value!r}. Set it to {value!r}, or to null, which "
                "takes the checkpoint's value."
            )


def completed(encoder, files=None):
    """A settings.Encoder with every value set: by the configuration, by the checkpoint's files (`read_files`), or by
    the defaults."""
    files = files or read_files(encoder)
    own = files["passage"]
    refuse_conflict(own, encoder)
    known = {name: own[name].value for name in ("pooling", "normalize") if name in own}
    # The file may only have sentence-transformers' default, so a configuration, or the other side, may differ from it.
    if "cosine" in own and files["query"].get("normalize", own["cosine"]).value:
        known["normalize"] = True
    for side, of_side in files.items():
        prefix, length = f"{side}_prefix", f"max_{side}_tokens"
        known |= {prefix: of_side[prefix].value} if prefix in of_side else {}
        if "max_tokens" in of_side:
            known[length] = of_side["max_tokens"].value
        elif "positions" in of_side:
            known[length] = min(LENGTHS[length], of_side["positions"].value)
    if encoder.pooling is None and "pooling" not in known:
        raise Refusal(
            f"encoder.pooling: neither the configuration nor {encoder.checkpoint.place} sets it (there is no modules."
            "json with a Pooling module). Set it to cls or mean, whichever the checkpoint was trained with."
        )
    made = {name: value for name, value in (USUAL | known).items() if getattr(encoder, name) is None}
    if encoder.lower_case is None and "lower_case" in own:
        made["lower_case"] = True
    made = encoder.model_copy(update=made)
    refuse_too_long(encoder, made, files)
    include = own.get("include_prompt")
    if include and not include.value and (made.query_prefix or made.passage_prefix):
        raise Refusal(
            f"encoder: {include.file} leaves prompts out of the pooling (include_prompt: false), which is not "
            "supported. Use another checkpoint, or one without prompts."
        )
    return made


def refuse_too_long(encoder, made, files):
    """Raise Refusal if the lengths of a completed encoder, `made` from one as configured, exceed the positions of a
    model."""
    for side, own in files.items():
        name, (most, file) = f"max_{side}_tokens", own.get("positions", (math.inf, None))
        if (length := getattr(made, name)) > most:
            problem = f"encoder.{name} is {length}"
            if getattr(encoder, name) is None:
                problem = f"{own['max_tokens'].file} says that a text has at most {length} tokens"
            of = " of encoder.query_checkpoint" if own is not files["passage"] else ""
            raise Refusal(f"{problem}, but {file}{of} has positions for {most}. Set encoder.{name} to {most} at most.")


def replaced(encoder, files):
    """{name: Own} of the checkpoint's prompts that a settings.Encoder, as configured, replaces, and of the lengths that
    it exceeds."""
    own = {}
    for side, of_side in files.items():
        prefix, length = (getattr(encoder, name) for name in (f"{side}_prefix", f"max_{side}_tokens"))
        prompt, longest = of_side.get(f"{side}_prefix"), of_side.get("max_tokens")
        if prompt and prompt.value and prefix is not None and prompt.value not in (prefix, with_title(prefix)):
            own[f"{side}_prefix"] = prompt
        if longest and length and length > longest.value:
            own[f"max_{side}_tokens"] = longest
    return own
