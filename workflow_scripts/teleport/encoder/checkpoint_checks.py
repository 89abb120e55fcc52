"""Is a checkpoint from elsewhere what this library computes with? Asked before it is brought into our form.

What a config asks for and the packed encoder does not compute would silently be another model.
"""

from teleport.encoder.architectures import ARCHITECTURES, DPR
from teleport.encoder.own_settings import KEY, read, read_sizes
from teleport.refusal import Refusal, Remedy
from teleport.running.log import log

ELSE = Remedy("Give an encoder as it was published.")


def read_config(folder):
    """The content of config.json (dict). Raises Refusal for none, no JSON object, and a model of another kind."""
    path = folder / "config.json"
    if not path.is_file():
        raise Refusal(f"{KEY}: {folder} has no config.json. Give a folder in the form of transformers.")
    config = read(dict, path)
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        if config.get(name):
            raise Refusal(f"{KEY}: {path} has {name}, but texts are encoded, not generated. {ELSE}")
    if (positions := config.get("position_embedding_type", "absolute")) != "absolute":
        raise Refusal(f"{KEY}: {path} has position_embedding_type {positions!r}; only absolute is computed. {ELSE}")
    if "auto_map" in config or "trust_remote_code" in config:
        log.warning("%s: its auto_map or trust_remote_code is ignored: no code comes with a checkpoint", path)
    read_sizes(config, path)
    if config.get("model_type") == DPR:
        if config.get("projection_dim"):
            raise Refusal(f"{KEY}: {path} has projection_dim {config['projection_dim']}; only 0 is computed. {ELSE}")
        config |= {"model_type": "bert"}
    if (model_type := config.get("model_type")) not in ARCHITECTURES:
        raise Refusal(f"{KEY}: {path} has model_type {model_type!r}. Supported are {', '.join(ARCHITECTURES)}.")
    return config


def refuse_no_weights(folder, backbone):
    """Raise Refusal when a matrix of the backbone is all zero, or has numbers that are not finite.

    Type embeddings may be zero: RoBERTa's are, as it has no types.
    """
    for name, weights in backbone.named_parameters():
        zero = weights.ndim > 1 and "token_type" not in name and not weights.any()
        if zero or not weights.isfinite().all():
            wrong = "all zero" if zero else "not finite"
            raise Refusal(f"{KEY}: the weights {name} in {folder} are {wrong}. Get the checkpoint anew.")


def refuse_unfit_tokenizer(folder, tokenizer, vocab_size):
    """Raise Refusal when a fast tokenizer of transformers gives ids that have no embedding, or when it does not put one
    token before and one after every text."""
    if len(ids := tokenizer.backend_tokenizer.encode("").ids) != 2:
        raise Refusal(
            f"{KEY}: the tokenizer of {folder} puts {len(ids)} special tokens around a text, an encoder has 2. "
            "Give the tokenizer.json of the checkpoint."
        )
    if (largest := max(tokenizer.get_vocab().values())) >= vocab_size:
        raise Refusal(
            f"{KEY}: the tokenizer of {folder} has ids up to {largest}, but its weights have only {vocab_size} "
            "embeddings. Give the tokenizer and the weights of one checkpoint."
        )
