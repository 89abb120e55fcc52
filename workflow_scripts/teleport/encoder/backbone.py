"""The weights of a backbone under the names that transformers gives those of BERT, without transformers, which takes
three times as long to load as torch. `model.PackedEncoder` computes with them; what reads checkpoints from elsewhere,
and what tests compare with, is `encoder.reference`."""

import json
from functools import partial
from pathlib import Path

from safetensors.torch import save_file
from torch import nn

from teleport.encoder.architectures import ARCHITECTURES, named_as_bert
from teleport.refusal import Refusal

WEIGHTS, CONFIG = "model.safetensors", "config.json"
TANH = partial(nn.GELU, approximate="tanh")
ACTIVATIONS = {"gelu": nn.GELU, "gelu_new": TANH, "gelu_pytorch_tanh": TANH, "relu": nn.ReLU, "silu": nn.SiLU}


class NotDrawn:
    """A module whose weights a checkpoint brings: drawing values, even without memory, loads torch._dynamo for
    seconds."""

    def reset_parameters(self):
        pass


class Embedding(NotDrawn, nn.Embedding):
    pass


class Linear(NotDrawn, nn.Linear):
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
    attn = nn.ModuleDict(projections | {"dropout": nn.Dropout(config.attention_probs_dropout_prob)})
    attn_out = output(hidden, config, config.attention_output_dropout_prob)
    ffn_in = nn.ModuleDict({"dense": Linear(hidden, wide), "intermediate_act_fn": activation(config.hidden_act)})
    ffn_out = output(wide, config, config.hidden_dropout_prob)
    attention = nn.ModuleDict({"self": attn, "output": attn_out})
    return nn.ModuleDict({"attention": attention, "intermediate": ffn_in, "output": ffn_out})


def output(width, config, rate):
    """What brings `width` values a token back into the residual stream, with dropout of that rate."""
    return nn.ModuleDict({"dense": Linear(width, config.hidden_size)} | norm_and_dropout(config, rate))


def norm_and_dropout(config, rate):
    """{"LayerNorm", "dropout": module}, under the names of BERT's checkpoints."""
    return {"LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps), "dropout": nn.Dropout(rate)}


def activation(name):
    """The module of an activation, by its name. Raises Refusal for one that is not supported."""
    if name not in ACTIVATIONS:
        raise Refusal(
            f"the checkpoint's hidden_act is {name!r}; supported are {', '.join(ACTIVATIONS)}. Take another checkpoint."
        )
    return ACTIVATIONS[name]()
