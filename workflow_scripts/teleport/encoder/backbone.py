"""The weights of a backbone under the names that transformers gives those of BERT, without transformers.

Its forward is `encoder.packed`. Loading transformers takes three times as long as loading torch, in every job that
encodes or trains; what reads checkpoints from elsewhere, and what tests compare with, is `encoder.reference`.
"""

import json
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from teleport.encoder.architectures import ARCHITECTURES, named_as_bert

WEIGHTS, CONFIG = "model.safetensors", "config.json"
TANH = partial(nn.GELU, approximate="tanh")
ACTIVATIONS = {"gelu": nn.GELU, "gelu_new": TANH, "gelu_pytorch_tanh": TANH, "relu": nn.ReLU, "silu": nn.SiLU}


class Embedding(nn.Embedding):
    """A table whose weights a checkpoint brings: drawing values for them, even without memory, loads torch._dynamo,
    which takes as long as torch itself."""

    def reset_parameters(self):
        pass


class Linear(nn.Linear):
    """A product whose weights a checkpoint brings (see `Embedding`)."""

    def reset_parameters(self):
        pass


class Backbone(nn.Module):
    """Embeddings and layers of a transformers config (dict, the content of config.json), their weights not set."""

    def __init__(self, config):
        super().__init__()
        self.raw_config, self.config = config, named_as_bert(config)
        self.embeddings = embeddings(self.config)
        layers = nn.ModuleList(layer(self.config) for _ in range(self.config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})

    def own_names(self):
        """{name of a weight here: its name in the files of this architecture}."""
        architecture = ARCHITECTURES[self.config.model_type]
        return {name: architecture.own_name(name) for name in self.state_dict()}

    def save_pretrained(self, folder):
        """Write config.json and model.safetensors, which transformers loads."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / CONFIG).write_text(json.dumps(self.raw_config, indent=2, sort_keys=True) + "\n")
        own, weights = self.own_names(), self.state_dict()
        save_file({own[name]: weights[name] for name in own}, Path(folder) / WEIGHTS, metadata={"format": "pt"})


def embeddings(config):
    """Word, position and type embeddings. The padding token's rows get no gradient, as in transformers."""
    hidden, padding = config.hidden_size, config.pad_token_id
    no_position = padding if ARCHITECTURES[config.model_type].after_padding else None
    tables = {
        "word_embeddings": Embedding(config.vocab_size, hidden, padding),
        "position_embeddings": Embedding(config.max_position_embeddings, hidden, no_position),
    }
    if config.type_vocab_size:
        tables["token_type_embeddings"] = Embedding(config.type_vocab_size, hidden)
    return nn.ModuleDict(tables | norm_and_dropout(config, config.hidden_dropout_prob))


def layer(config):
    """One transformer layer: attention, then two products with an activation between them."""
    hidden, wide = config.hidden_size, config.intermediate_size
    projections = {name: Linear(hidden, hidden) for name in ("query", "key", "value")}
    mixing = nn.ModuleDict(projections | {"dropout": nn.Dropout(config.attention_probs_dropout_prob)})
    mixed = output(hidden, config, config.attention_output_dropout_prob)
    attention = nn.ModuleDict({"self": mixing, "output": mixed})
    widening = nn.ModuleDict({"dense": Linear(hidden, wide), "intermediate_act_fn": activation(config.hidden_act)})
    narrowing = output(wide, config, config.hidden_dropout_prob)
    return nn.ModuleDict({"attention": attention, "intermediate": widening, "output": narrowing})


def output(width, config, rate):
    """What brings `width` numbers a token back into the residual stream, with dropout of that rate."""
    return nn.ModuleDict({"dense": Linear(width, config.hidden_size)} | norm_and_dropout(config, rate))


def norm_and_dropout(config, rate):
    return {"LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps), "dropout": nn.Dropout(rate)}


def activation(name):
    """The module of an activation. Raises ValueError for one that is not supported."""
    if name not in ACTIVATIONS:
        raise ValueError(
            f"the checkpoint's hidden_act is {name!r}; supported are {', '.join(ACTIVATIONS)}. Take another checkpoint."
        )
    return ACTIVATIONS[name]()


def load_backbone(folder):
    """The `Backbone` of a transformers folder without prefixes in its names, in float32 and evaluation mode.

    Of an architecture that `encoder.packed` does not compute it is transformers' model.
    Raises ValueError when weights are missing, or of another shape than config.json says.
    """
    config = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
    if not ARCHITECTURES[config["model_type"]].packed:
        from teleport.encoder import reference

        return reference.load_backbone(folder)
    with torch.device("meta"):  # no memory, and no draw from the global random state, for weights that are replaced
        backbone = Backbone(config)
    found = load_file(Path(folder) / WEIGHTS)  # published files may have more: a pooler, constants
    weights = {name: found[own].float() for name, own in backbone.own_names().items() if own in found}
    try:
        backbone.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{folder}: {error} Delete the stage's folder and run the workflow again.") from None
    return backbone.eval()
