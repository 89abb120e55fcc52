"""Loads and saves encoders in the folder form of checkpoints: only files of transformers and sentence-transformers."""

import inspect
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import MODEL_MAPPING, AutoConfig
from transformers.utils import logging as transformers_logging

from teleport.encoder.checkpoint import PASSAGE, QUERY, copy_tokenizer, dense_paths, read_modules, sides, write_modules
from teleport.encoder.model import HEAD, Encoder, Linear
from teleport.encoder.own_settings import LAYER
from teleport.refusal import Refusal
from teleport.running.files import NO_MEMORY, of_the_system

WEIGHTS = "model.safetensors"
transformers_logging.disable_progress_bar()  # a log file is not a terminal
transformers_logging.set_verbosity_error()  # its load report is about the heads that load_backbone leaves out


@contextmanager
def refusing(what):
    """Turn any error of a library in the block into a Refusal of `what`, with its first line: each library has its own
    errors for a bad file. Only calls of libraries belong in the block."""
    try:
        yield
    except BaseException as error:
        name, reason = type(error).__name__, str(error).strip().partition("\n")[0]
        if not isinstance(error, Exception) and name != "PanicException":  # a defect in a Rust library
            raise
        if of_the_system(error) == NO_MEMORY:  # the checkpoint is sound
            raise
        if name == "UnpicklingError":  # torch's own sentence advises to run the code
            raise Refusal(f"{what}: they are a pickle of more than tensors. Give them in safetensors.") from error
        remedy = "Install what it names" if isinstance(error, ImportError) else "Get the checkpoint again"
        raise Refusal(f"{what} ({name}: {reason}). {remedy}.") from error


def load_backbone(folder, weights=None, config=None):
    """The backbone of a transformers folder in float32, without pooler, in evaluation mode; never uses the network and
    runs no code of the folder. weights: {name: tensor}, config: of transformers, both instead of the folder's. Raises
    Refusal for missing weights, which transformers would draw, and for layers that config.json leaves out."""
    wrong = f"cannot read the weights in {folder}"
    with refusing(wrong):
        weights = weights or load_file(Path(folder) / WEIGHTS)
        config = config or AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model = MODEL_MAPPING[type(config)]
        options = {"config": config, "state_dict": weights, "output_loading_info": True, "dtype": torch.float32}
        options["ignore_mismatched_sizes"] = True  # they are refused below, by name
        if "add_pooling_layer" in inspect.signature(model).parameters:
            options["add_pooling_layer"] = False
        backbone, report = model.from_pretrained(None, **options)
    if missing := sorted(report["missing_keys"]):
        raise Refusal(f"{folder} lacks {len(missing)} weights of its model_type, for example {missing[0]}.")
    refuse_other_model(folder, report)
    return backbone.eval()


def refuse_other_model(folder, report):
    """Raise Refusal for weights of another shape than config.json says, and for those of layers that it leaves out.
    report: transformers' report of loading them"""
    if other := sorted(report["mismatched_keys"]):
        name, has, needs = other[0]
        raise Refusal(
            f"{folder} has {len(other)} weights of another shape than its config.json says, for example {name}: "
            f"{list(has)} instead of {list(needs)}. It is damaged or of another model: get the checkpoint again."
        )
    left_out = map(LAYER.search, report["unexpected_keys"])
    if layers := sorted({int(match[1]) for match in left_out if match}):  # others belong to heads
        raise Refusal(
            f"{folder} has weights of layer {layers[0]} and {len(layers) - 1} others that its config.json leaves out "
            "(num_hidden_layers): another model. Correct it there."
        )


def load_encoder(folder):
    """One Encoder from a folder that `save_encoder` wrote, in evaluation mode."""
    modules = read_modules(folder)
    dense = [linear_of(config) for _, config in modules.dense]
    encoder = Encoder(load_backbone(folder), modules.pooling, modules.projection, modules.normalize, dense)
    if modules.projection:
        encoder.set_head(load_file(modules.paths[name] / WEIGHTS) for name, _ in HEAD)
    if dense:
        encoder.set_dense(load_file(path / WEIGHTS) for path, _ in modules.dense)
    return encoder.eval()


def linear_of(config):
    """The `Linear` that the config.json of a layer (dict) describes."""
    activation = config["activation_function"].rpartition(".")[2]
    return Linear(config["in_features"], config["out_features"], config["bias"], activation)


def load_encoders(checkpoint):
    """(query encoder, passage encoder) of a checkpoint folder in evaluation mode; the same object when tied."""
    query, passage = sides(checkpoint)
    encoder = load_encoder(passage)
    return encoder if query == passage else load_encoder(query), encoder


def save_encoder(encoder, folder, tokenizer_source, max_tokens=None):
    """Write one encoder as a folder of transformers and sentence-transformers; see `save_encoders`."""
    encoder.backbone.save_pretrained(folder)
    copy_tokenizer(tokenizer_source, folder)
    write_modules(folder, encoder, max_tokens or encoder.max_tokens)
    if encoder.projection:
        paths = read_modules(folder).paths
        for module, (name, prefix) in zip(encoder.head, HEAD, strict=True):
            tensors = {prefix + key: tensor for key, tensor in module.state_dict().items()}
            save_file(tensors, paths[name] / WEIGHTS)
    for layer, path in zip(encoder.head, dense_paths(folder), strict=True) if encoder.dense else ():
        save_file({HEAD[0][1] + key: tensor for key, tensor in layer[0].state_dict().items()}, path / WEIGHTS)


def save_encoders(query_encoder, passage_encoder, folder, tokenizer_source, max_tokens=(None, None)):
    """Write a checkpoint folder: one folder when both are the same object (tied), else `query/` and `passage/`.

    tokenizer_source: a folder whose tokenizer files are copied; max_tokens: where sentence-transformers truncates
    queries and passages (a tied checkpoint: both like passages); None: at the model's last position
    """
    if query_encoder is not passage_encoder:
        save_encoder(query_encoder, Path(folder) / QUERY, tokenizer_source, max_tokens[0])
        folder = Path(folder) / PASSAGE
    save_encoder(passage_encoder, folder, tokenizer_source, max_tokens[1])
