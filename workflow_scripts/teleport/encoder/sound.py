"""Is a checkpoint from elsewhere what this library computes with? Asked before it is brought into our form.

What a config asks for and the packed encoder does not compute would silently be another model.
"""

import json
import re

from teleport.encoder.source import KEY
from teleport.runtime.log import log

ELSE = "Give an encoder as it was published."


def read_config(folder):
    """The content of config.json (dict). Raises ValueError for a file that is none, and for a model of another kind."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{KEY}: {path} is not JSON in UTF-8 ({error}). Get the checkpoint anew.") from None
    if not isinstance(config, dict):
        raise ValueError(f"{KEY}: {path} is a {type(config).__name__}, not an object. Get the checkpoint anew.")
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        if config.get(name):
            raise ValueError(f"{KEY}: {path} has {name}, but texts are encoded, not generated. {ELSE}")
    if (positions := config.get("position_embedding_type", "absolute")) != "absolute":
        raise ValueError(f"{KEY}: {path} has position_embedding_type {positions!r}; only absolute is computed. {ELSE}")
    if "auto_map" in config or "trust_remote_code" in config:
        log.warning("%s: its auto_map or trust_remote_code is ignored: no code comes with a checkpoint", path)
    return config


def refuse_left_out(folder, names):
    """Raise ValueError when `names`, of weights that the config has no place for, are of layers (others are heads)."""
    layers = sorted({int(match[1]) for name in names if (match := re.search(r"\blayers?\.(\d+)\.", name))})
    if layers:
        raise ValueError(
            f"{folder} has weights of layer {layers[0]} and {len(layers) - 1} others that its config.json leaves out "
            "(num_hidden_layers): another model. Correct it there."
        )


def refuse_no_weights(folder, backbone):
    """Raise ValueError when a matrix of the backbone is all zero, or has numbers that are not finite.

    Type embeddings may be zero: RoBERTa's are, as it has no types.
    """
    for name, weights in backbone.named_parameters():
        zero = weights.ndim > 1 and "token_type" not in name and not weights.any()
        if zero or not weights.isfinite().all():
            wrong = "all zero" if zero else "not finite"
            raise ValueError(f"{KEY}: the weights {name} in {folder} are {wrong}. Get the checkpoint anew.")


def refuse_no_special_tokens(folder, tokenizer):
    """Raise ValueError when a tokenizers.Tokenizer does not put one token before and one after every text."""
    ids = tokenizer.encode("").ids
    if len(ids) != 2:
        raise ValueError(
            f"{KEY}: the tokenizer of {folder} puts {len(ids)} special tokens around a text, an encoder has 2. "
            "Give the tokenizer.json of the checkpoint."
        )
