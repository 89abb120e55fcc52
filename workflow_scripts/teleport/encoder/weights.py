"""The weights file of a checkpoint from elsewhere: its backbone, and its projection head where it has one.

Makers save their own classes, so that the backbone's names begin with what they called it: `bert.`, or `roberta.` in
ANCE's code, `ance_encoder.roberta.` in Pyserini's copy of it.
"""

import torch
from safetensors.torch import load_file

# Every backbone has one of them once; the second is ModernBERT's.
FIRST = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # bert-base-uncased has them
# ANCE's released code: a linear layer and a LayerNorm behind the first token's vector; STAR and ADORE have the same.
HEAD = "embeddingHead", "norm"


def read_weights(path):
    """{name: tensor} of a weights file in safetensors or torch's form; no code in it is run."""
    if path.suffix == ".safetensors":
        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def backbone_weights(weights):
    """The weights of the one backbone, without what their names begin with, and with today's names of LayerNorms.

    (transformers knows the old ones too, and would write them again.) Raises ValueError unless there is just one.
    """
    starts = [name.removesuffix(first) for name in weights for first in FIRST if name.endswith(first)]
    if len(starts) != 1:
        raise ValueError(f"the file has {len(starts)} weights called {FIRST[0]}; a checkpoint of one encoder has one.")
    (start,) = starts
    found = {name.removeprefix(start): tensor for name, tensor in weights.items() if name.startswith(start)}
    for old, new in OLD_NAMES.items():
        found = {name.replace(old, new): tensor for name, tensor in found.items()}
    return found


def head_weights(weights):
    """[weights of the linear layer, of the LayerNorm], each {"weight", "bias": tensor}; None where there is no head.

    Raises ValueError when a part of the head is missing.
    """
    start = next((n.removesuffix(f"{HEAD[0]}.weight") for n in weights if n.endswith(f"{HEAD[0]}.weight")), None)
    if start is None:
        return None
    names = [[f"{start}{part}.{kind}" for kind in ("weight", "bias")] for part in HEAD]
    if missing := [name for pair in names for name in pair if name not in weights]:
        raise ValueError(f"the file has a projection head without {', '.join(missing)}.")
    return [{name.rpartition(".")[2]: weights[name].float() for name in pair} for pair in names]
