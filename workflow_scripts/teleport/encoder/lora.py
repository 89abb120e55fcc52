"""Adapters of low rank (LoRA, Hu et al. 2021) by peft: a training changes them and leaves the backbone as it is.

The checkpoint of this training has its adapters merged into the weights, so that it loads like any other. Its folder
`adapter` has them separately, in peft's form, for users with the start's weights and for an episode that continues
them on the same start.
"""

import json

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from teleport.refusal import Refusal
from teleport.running.files import sha256_file

FOLDER, WEIGHTS, CONFIG = "adapter", "adapter_model.safetensors", "adapter_config.json"
NAME = "default"  # peft's name of the one adapter that it adds
START = "base_model.model."  # prefix of the names in its files, from the classes that wrap a model


def add_adapters(encoder, lora, seed):
    """Put adapters into the backbone of an `Encoder`. The backbone's weights then require no gradient; its head's still
    do. lora: settings.encoder.Lora; seed: of the first matrix of each adapter; the second one starts at zero"""
    from peft import LoraConfig, inject_adapter_in_model

    layers = [name.rpartition(".")[2] for name, each in encoder.backbone.named_modules() if isinstance(each, nn.Linear)]
    known = list(dict.fromkeys(layers))
    if unknown := [name for name in lora.targets or [] if name not in known]:
        model_type = encoder.backbone.config.model_type
        problem = f"has {unknown[0]!r}, but the linear layers of {model_type} are {', '.join(known)}"
        raise Refusal(f"encoder.lora.targets {problem}. Name some of these, or null for all.")
    options = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.targets or known)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(options, encoder.backbone)


def adapters(backbone):
    """{name in peft's files: parameter} of the adapters in a backbone."""
    parameters = backbone.named_parameters()
    return {START + name.replace(f".{NAME}.", "."): each for name, each in parameters if f".{NAME}." in name}


def save_adapters(encoder, folder, base):
    """Write the adapters of an `Encoder` into the `adapter` folder of its `folder`. base: the folder of the weights
    that they were trained on; their digest is written for `load_adapters`"""
    folder = folder / FOLDER
    encoder.backbone.peft_config[NAME].save_pretrained(folder)
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in adapters(encoder.backbone).items()}
    # Only one entry: safetensors writes several in any order, but equal trainings must have equal files.
    save_file(tensors, folder / WEIGHTS, metadata={"base": sha256_file(base / "model.safetensors")})


def load_adapters(encoder, folder, base):
    """Give the adapters of an `Encoder` the weights that `save_adapters` wrote in `folder`. Raises Refusal if they have
    another form, or were trained on other weights than those in the folder `base`."""
    folder, config = folder / FOLDER, encoder.backbone.peft_config[NAME]
    saved = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    for name, key in (("r", "rank"), ("lora_alpha", "alpha"), ("target_modules", "targets")):
        values = getattr(config, name), saved[name]
        given, saved_value = map(sorted, values) if key == "targets" else values
        if given != saved_value:
            problem = f"encoder.lora.{key} is {given}, but the adapters in {folder}, which the episode continues, have"
            raise Refusal(f"{problem} {saved_value}. Set it to that, or training.start_from to pretrained.")
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        trained_on = file.metadata()["base"]
    if trained_on != (digest := sha256_file(base / "model.safetensors")):
        raise Refusal(
            f"the adapters in {folder}, which the episode continues, belong to another base: they were trained on "
            f"weights with the SHA-256 {trained_on[:12]}…, and those in {base} have {digest[:12]}…. Start from that "
            "base, or set encoder.lora to null, which trains all weights of its start."
        )
    tensors = load_file(folder / WEIGHTS)
    for name, parameter in adapters(encoder.backbone).items():
        parameter.data.copy_(tensors[name])


def merge_adapters(encoder):
    """Add the adapters of an `Encoder` to the weights of its backbone, and remove them from it."""
    from peft.tuners.lora import LoraLayer

    backbone = encoder.backbone
    for name, module in [pair for pair in backbone.named_modules() if isinstance(pair[1], LoraLayer)]:
        module.merge()
        holder, _, child = name.rpartition(".")
        setattr(backbone.get_submodule(holder), child, module.get_base_layer())
    del backbone.peft_config
    backbone._hf_peft_config_loaded = False  # else transformers would save adapters alone
