"""The encoder of `teleport new --encoder`: a checkpoint of the hub, pinned to its commit, or a folder.

The configuration gets the checkpoint, the scale of its products, and what a run needs that its files do not name.
Pooling, normalisation, prefixes and lengths stay in these files.
"""

import os
import re

from teleport.encoder.completed import completed
from teleport.encoder.own_settings import head_width, own_settings
from teleport.encoder.source import KEY, OWN_FILES, download, find_weights, locate, read_config
from teleport.refusal import Refusal
from teleport.running.hub import HUB_NAME
from teleport.settings.encoder import CheckpointSource, Encoder
from teleport.settings.yaml_mapping import Locations, validated

OPTION = "--encoder"
WHERE = re.compile(f"{HUB_NAME}(?:@(.+))?")
SCALES = {True: (20.0, "its vectors have length 1"), False: (1.0, "its vectors are not scaled to length 1")}


def encoder_lines(where):
    """({key of `encoder`: (value, comment or "")}, sentences) of a checkpoint. where: hub:OWNER/NAME@REVISION,
    hub:OWNER/NAME or a folder. Raises Refusal for a checkpoint that is not there, or whose files allow no encoder."""
    try:
        checkpoint = checkpoint_of(where)
        lines = {"checkpoint": (checkpoint.model_dump(mode="json", exclude_none=True), "")} | lines_of(checkpoint)
        settings = {key: value for key, (value, _) in lines.items()}
        completed(validated(Encoder, settings, ("encoder",), Locations(())))
    except Refusal as error:
        raise Refusal(re.sub(rf"{KEY}(\.hub|\.folder)?", OPTION, str(error))) from None
    if "pooling" not in lines:
        return lines, []
    guess = f"{where}: its files name no pooling, so `encoder.pooling: {lines['pooling'][0]}` is a guess"
    return lines, [f"{guess}. Set the pooling that it was trained with: cls, mean or last."]


def checkpoint_of(where):
    """The `CheckpointSource` of a checkpoint, whose revision is the commit that the named one leads to now."""
    if os.path.isdir(where):
        return CheckpointSource(folder=where)
    if not (match := WHERE.fullmatch(where)):
        raise Refusal(f"{OPTION} {where}: there is no such folder. Give one, or hub:OWNER/NAME@REVISION.")
    return CheckpointSource(hub=match[1], revision=download(match[1], match[2] or "main", OWN_FILES).name)


def lines_of(checkpoint):
    """{key of `encoder`: (value, comment)} of what a run needs besides a checkpoint's files."""
    folder, lines = locate(checkpoint, OWN_FILES), {}
    if not (folder / "config.json").is_file():
        raise Refusal(f"{KEY}: {folder} has no config.json. Give a checkpoint in the form of transformers.")
    if checkpoint.folder:
        find_weights(folder)
    own = own_settings(folder)
    if "pooling" not in own:  # sentence-transformers takes these two
        decodes = "ForCausalLM" in str(read_config(folder).get("architectures"))
        lines["pooling"] = "last" if decodes else "mean", "its files name none: cls, mean or last, as it was trained"
    if head := head_width(folder):
        lines["projection"] = head, "the width of its head"
    return lines | {"scale": SCALES["cosine" in own or "normalize" in own and own["normalize"].value]}
