"""The backbone as transformers reads and computes it: for checkpoints from elsewhere, and to compare with."""

from pathlib import Path

import torch
from transformers import MODEL_MAPPING, AutoConfig
from transformers.utils import logging as transformers_logging

from teleport.encoder.architectures import ARCHITECTURES
from teleport.encoder.sound import refuse_left_out
from teleport.encoder.source import find_weights
from teleport.encoder.weights import backbone_weights, read_weights

transformers_logging.disable_progress_bar()  # a log file is no terminal
transformers_logging.set_verbosity_error()  # its load report is about the heads that load_backbone leaves out


def load_backbone(folder, weights=None):
    """The backbone of a transformers folder in float32, without pooler, in evaluation mode; never uses the network.

    weights: {name: tensor} where its weights file is read already
    Raises ValueError when weights of the backbone are missing: transformers would fill them with random numbers.
    And when there are weights of more layers than the config has.
    """
    weights = backbone_weights(weights or read_weights(find_weights(Path(folder))))
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    kind = {"dtype": torch.float32}
    if ARCHITECTURES[config.model_type].packed:
        kind["attn_implementation"] = "sdpa"
    if ARCHITECTURES[config.model_type].pooler:
        kind["add_pooling_layer"] = False
    model = MODEL_MAPPING[type(config)]
    backbone, report = model.from_pretrained(None, config=config, state_dict=weights, output_loading_info=True, **kind)
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"{folder} lacks {len(missing)} weights of its model_type, for example {missing[0]}.")
    refuse_left_out(folder, report["unexpected_keys"])
    return backbone
