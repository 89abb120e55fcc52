"""The architectures of backbones, each by what differs from BERT. `model.PackedEncoder` computes most, under BERT's
names, transformers' model (`side.PlainEncoder`) the others. A checkpoint on disk has the names of transformers."""

from dataclasses import dataclass, field
from types import SimpleNamespace

LAYERS = "encoder.layer"  # BERT's name of what holds the layers


@dataclass(frozen=True)
class Architecture:
    """In what an architecture differs from BERT."""

    packed: bool = True  # whether `model.PackedEncoder` computes it; settings and names below are for that
    after_padding: bool = False  # positions count from the one after the padding id, not from 0
    pooler: bool = True  # whether transformers' class has a pooler, which is left out here
    settings: dict = field(default_factory=dict)  # {BERT's name of a setting in config.json: its own}
    constants: dict = field(default_factory=dict)  # {BERT's name of a setting: the value that it always has}
    layers: str = LAYERS  # its name of what holds the layers
    modules: dict = field(default_factory=dict)  # {BERT's name of a module of a layer: its own}

    def most_tokens(self, positions, padding):
        """The longest text, special tokens included, of a model with so many positions whose padding has this id."""
        return positions - (padding + 1 if self.after_padding else 0)

    def own_name(self, name):
        """What transformers calls the weight that BERT calls `name`."""
        if not (self.modules and name.startswith(LAYERS)):
            return name
        layer, module = name.removeprefix(f"{LAYERS}.").split(".", 1)
        module, kind = module.rsplit(".", 1)
        return f"{self.layers}.{layer}.{self.modules[module]}.{kind}"


# Sanh et al. 2019: neither token types nor dropout between attention and its residual sum (transformers).
DISTILBERT = Architecture(
    pooler=False,
    settings={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
    constants={"layer_norm_eps": 1e-12, "type_vocab_size": 0, "attention_output_dropout_prob": 0.0},
    layers="transformer.layer",
    modules={
        "attention.self.query": "attention.q_lin",
        "attention.self.key": "attention.k_lin",
        "attention.self.value": "attention.v_lin",
        "attention.output.dense": "attention.out_lin",
        "attention.output.LayerNorm": "sa_layer_norm",
        "intermediate.dense": "ffn.lin1",
        "output.dense": "ffn.lin2",
        "output.LayerNorm": "output_layer_norm",
    },
)
ROBERTA = Architecture(after_padding=True)
ARCHITECTURES = {"bert": Architecture(), "roberta": ROBERTA, "xlm-roberta": ROBERTA, "distilbert": DISTILBERT}
# Relative positions in the attention (Song et al. 2020); rotations, local attention, gates (Warner et al. 2024).
ARCHITECTURES["mpnet"] = Architecture(packed=False, after_padding=True)
ARCHITECTURES["modernbert"] = Architecture(packed=False, pooler=False)
DPR = "dpr"  # transformers' name of BERT in DPR's classes (Karpukhin et al. 2020), which it becomes when it is read


def with_berts_names(raw):
    """The content of a config.json (dict), and what BERT calls it."""
    architecture = ARCHITECTURES.get(str(raw.get("model_type")), Architecture())  # some file may have a list there
    return raw | {name: raw[own] for name, own in architecture.settings.items() if own in raw} | architecture.constants


def named_as_bert(raw):
    """`with_berts_names` as a namespace, with the dropout between attention and its residual sum, which no file has."""
    config = with_berts_names(raw)
    return SimpleNamespace(**{"attention_output_dropout_prob": config["hidden_dropout_prob"]} | config)
