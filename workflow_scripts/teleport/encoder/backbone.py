"""The weights of a BERT or RoBERTa backbone under the names that transformers gives them, without transformers.

Its forward is `encoder.packed`. Loading transformers takes three times as long as loading torch, in every job that
encodes or trains; what reads checkpoints from elsewhere, and what tests compare with, is `encoder.reference`.
"""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from torch import nn

WEIGHTS, CONFIG = "model.safetensors", "config.json"
TANH = partial(nn.GELU, approximate="tanh")
ACTIVATIONS = {"gelu": nn.GELU, "gelu_new": TANH, "gelu_pytorch_tanh": TANH, "relu": nn.ReLU, "silu": nn.SiLU}


class Backbone(nn.Module):
    """Embeddings and layers of a transformers config (dict, the content of config.json), their weights not set."""

    def __init__(self, config):
        super().__init__()
        self.raw_config, self.config = config, SimpleNamespace(**config)
        self.embeddings = embeddings(self.config)
        layers = nn.ModuleList(layer(self.config) for _ in range(self.config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def save_pretrained(self, folder):
        """Write config.json and model.safetensors, which transformers loads."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / CONFIG).write_text(json.dumps(self.raw_config, indent=2, sort_keys=True) + "\n")
        save_file(self.state_dict(), Path(folder) / WEIGHTS, metadata={"format": "pt"})


def embeddings(config):
    """Word, position and type embeddings. The padding token's rows get no gradient, as in transformers."""
    hidden, padding = config.hidden_size, config.pad_token_id
    no_position = None if config.model_type == "bert" else padding
    tables = {
        "word_embeddings": nn.Embedding(config.vocab_size, hidden, padding),
        "position_embeddings": nn.Embedding(config.max_position_embeddings, hidden, no_position),
        "token_type_embeddings": nn.Embedding(config.type_vocab_size, hidden),
    }
    return nn.ModuleDict(tables | norm_and_dropout(config))


def layer(config):
    """One transformer layer: attention, then two products with an activation between them."""
    hidden, wide = config.hidden_size, config.intermediate_size
    projections = {name: nn.Linear(hidden, hidden) for name in ("query", "key", "value")}
    mixing = nn.ModuleDict(projections | {"dropout": nn.Dropout(config.attention_probs_dropout_prob)})
    attention = nn.ModuleDict({"self": mixing, "output": output(hidden, config)})
    widening = nn.ModuleDict({"dense": nn.Linear(hidden, wide), "intermediate_act_fn": activation(config.hidden_act)})
    return nn.ModuleDict({"attention": attention, "intermediate": widening, "output": output(wide, config)})


def output(width, config):
    """What brings `width` numbers a token back into the residual stream."""
    return nn.ModuleDict({"dense": nn.Linear(width, config.hidden_size)} | norm_and_dropout(config))


def norm_and_dropout(config):
    norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
    return {"LayerNorm": norm, "dropout": nn.Dropout(config.hidden_dropout_prob)}


def activation(name):
    """The module of an activation. Raises ValueError for one that is not supported."""
    if name not in ACTIVATIONS:
        raise ValueError(
            f"the checkpoint's hidden_act is {name!r}; supported are {', '.join(ACTIVATIONS)}. Take another checkpoint."
        )
    return ACTIVATIONS[name]()


def load_backbone(folder):
    """The `Backbone` of a transformers folder without prefixes in its names, in float32 and evaluation mode.

    Raises ValueError when weights are missing, or of another shape than config.json says.
    """
    config = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
    with torch.device("meta"):  # no memory, and no draw from the global random state, for weights that are replaced
        backbone = Backbone(config)
    names = backbone.state_dict().keys()  # published files may have more: a pooler, constants
    weights = {name: tensor.float() for name, tensor in load_file(Path(folder) / WEIGHTS).items() if name in names}
    try:
        backbone.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{folder}: {error} Delete the stage's folder and run the workflow again.") from None
    return backbone.eval()
