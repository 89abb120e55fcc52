"""The backbone as transformers reads and computes it: for checkpoints from elsewhere, and to compare with."""

import torch
from transformers import AutoModel
from transformers.utils import logging as transformers_logging

from teleport.encoder.sound import refuse_left_out

# Only these: pooling, positions and the plain `backbone(ids, mask)` call are tested with them.
MODEL_TYPES = ("bert", "roberta", "xlm-roberta")

transformers_logging.disable_progress_bar()  # a log file is no terminal
transformers_logging.set_verbosity_error()  # its load report is about the heads that load_backbone leaves out


def load_backbone(folder):
    """The backbone of a transformers folder in float32, without pooler, in evaluation mode; never uses the network.

    Raises ValueError when weights of the backbone are missing: transformers would fill them with random numbers.
    And when there are weights of more layers than the config has.
    """
    kind = {"add_pooling_layer": False, "attn_implementation": "sdpa", "dtype": torch.float32}
    safe = {"local_files_only": True, "weights_only": True}
    backbone, report = AutoModel.from_pretrained(folder, **kind, **safe, output_loading_info=True)
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"{folder} lacks {len(missing)} weights of its model_type, for example {missing[0]}.")
    refuse_left_out(folder, report["unexpected_keys"])
    return backbone
