"""Checkpoints from elsewhere, their backbone as transformers computes it; tests compare with that too. Makers name
their backbones by their own classes: `bert.`, `roberta.` in ANCE's code, `ance_encoder.roberta.` in Pyserini's copy."""

import re
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import MODEL_MAPPING, AutoConfig, BertConfig
from transformers.utils import logging as transformers_logging

from teleport.encoder.architectures import ARCHITECTURES, DPR
from teleport.encoder.source import find_weights
from teleport.refusal import Refusal

# Every backbone has one of them once; the second is ModernBERT's.
FIRST = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # bert-base-uncased has them
# ANCE's released code: a linear layer and a LayerNorm behind the first token's vector; STAR and ADORE have the same.
HEAD = "embeddingHead", "norm"

transformers_logging.disable_progress_bar()  # a log file is no terminal
transformers_logging.set_verbosity_error()  # its load report is about the heads that load_backbone leaves out


@contextmanager
def refusing(what):
    """Whatever a library raises in the block becomes a Refusal of `what`, with its first line: each has errors of its
    own for a bad file. Only calls of theirs belong in it."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise Refusal(f"{what} ({reason}). Get the checkpoint anew.") from error


def read_weights(path):
    """{name: tensor} of a weights file in safetensors or torch's form; no code in it is run."""
    wrong = f"cannot read the weights in {path.parent}"
    with refusing(wrong):
        torch_form = path.suffix != ".safetensors"
        weights = torch.load(path, map_location="cpu", weights_only=True) if torch_form else load_file(path)
    if not isinstance(weights, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in weights.values()):
        raise Refusal(f"{wrong}: {path.name} does not have a tensor for each name. Get the checkpoint anew.")
    return weights


def backbone_weights(weights):
    """The weights of the one backbone, without what their names begin with, and with today's names of LayerNorms
    (transformers knows the old ones too, and would write them again)."""
    starts = [name.removesuffix(first) for name in weights for first in FIRST if name.endswith(first)]
    if len(starts) != 1:
        raise Refusal(f"the file has {len(starts)} weights called {FIRST[0]}; a checkpoint of one encoder has one.")
    (start,) = starts
    found = {name.removeprefix(start): tensor for name, tensor in weights.items() if name.startswith(start)}
    for old, new in OLD_NAMES.items():
        found = {name.replace(old, new): tensor for name, tensor in found.items()}
    return found


def head_weights(weights):
    """[weights of the linear layer, of the LayerNorm], each {"weight", "bias": tensor}; None where there is no head."""
    start = next((n.removesuffix(f"{HEAD[0]}.weight") for n in weights if n.endswith(f"{HEAD[0]}.weight")), None)
    if start is None:
        return None
    names = [[f"{start}{part}.{kind}" for kind in ("weight", "bias")] for part in HEAD]
    if missing := [name for pair in names for name in pair if name not in weights]:
        raise Refusal(f"the file has a projection head without {', '.join(missing)}.")
    return [{name.rpartition(".")[2]: weights[name].float() for name in pair} for pair in names]


def load_backbone(folder, weights=None):
    """The backbone of a transformers folder in float32, without pooler, in evaluation mode; never uses the network.
    weights: {name: tensor} where its file is read already. Missing ones, which transformers would draw, are refused."""
    weights = backbone_weights(weights or read_weights(find_weights(Path(folder))))
    wrong = f"cannot read the weights in {folder}"
    with refusing(wrong):
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if config.model_type == DPR:
        config = BertConfig.from_dict(config.to_dict() | {"model_type": "bert", "architectures": ["BertModel"]})
    kind = {"config": config, "state_dict": weights, "output_loading_info": True, "dtype": torch.float32}
    if ARCHITECTURES[config.model_type].packed:
        kind["attn_implementation"] = "sdpa"
    if ARCHITECTURES[config.model_type].pooler:
        kind["add_pooling_layer"] = False
    with refusing(wrong):
        backbone, report = MODEL_MAPPING[type(config)].from_pretrained(None, **kind)
    if missing := sorted(report["missing_keys"]):
        raise Refusal(f"{folder} lacks {len(missing)} weights of its model_type, for example {missing[0]}.")
    left_out = [re.search(r"\blayers?\.(\d+)\.", name) for name in report["unexpected_keys"]]
    if layers := sorted({int(match[1]) for match in left_out if match}):  # others are of heads
        raise Refusal(
            f"{folder} has weights of layer {layers[0]} and {len(layers) - 1} others that its config.json leaves out "
            "(num_hidden_layers): another model. Correct it there."
        )
    return backbone
