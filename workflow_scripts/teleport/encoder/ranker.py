"""Stage `ranker`: a cross-encoder, verified and brought into one folder: transformers' sequence classification with one
label, weights as safetensors, and its own tokenizer. Sentence-transformers' CrossEncoder loads it too. With a seed it
is the start of a training and gets a head of one number if it has none."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForSequenceClassification

from teleport.encoder.checkpoint import copy_tokenizer
from teleport.encoder.load import refuse_other_model, refusing
from teleport.encoder.own_settings import most_tokens
from teleport.encoder.precision import autocast
from teleport.encoder.pretrained import (
    load_fast_tokenizer,
    of_numbers,
    read_weights,
    refuse_no_weights,
    refuse_unfit_tokenizer,
    renamed,
)
from teleport.encoder.source import find_weights, is_ranker, named, verified
from teleport.refusal import Refusal
from teleport.running.files import require_free_space
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.teachers import RankerSettings as Settings  # noqa: F401

# What a pair needs of config.json. Some models know neither: Bloom reads pairs of any length, GPT-2 never pads.
NEEDED = {
    "max_position_embeddings": "how many tokens its model reads at most",
    "pad_token_id": "the token that fills the shorter pairs of a batch",
}


def run(job):
    """Find the checkpoint, verify it, and write `checkpoint/`. Facts: model_type, parameters, drawn (weights of its
    head that come from the seed), and the facts that pin it."""
    seed = job.settings.seed
    with named("cross_encoder.checkpoint"):
        folder, weights, pinned = verified(job.settings.checkpoint)
        tokenizer = pair_tokenizer(folder)  # raises Refusal if it is not usable
        require_free_space(job.folder, sum(file.stat().st_size for file in weights))
        model, drawn = (load_ranker(folder), []) if seed is None else with_head(folder, seed)
        refuse_unfit_tokenizer(folder, tokenizer, model.config.vocab_size)
    output = job.output("checkpoint")
    model.save_pretrained(output)
    copy_tokenizer(folder, output)
    if seed is not None:  # for the stage `tokens`
        tokenizer.backend_tokenizer.save(str(output / "tokenizer.json"))
    facts = {"model_type": model.config.model_type, "parameters": sum(p.numel() for p in model.parameters())}
    return facts | ({} if seed is None else {"drawn": drawn}) | pinned


def most_pair_tokens(config):
    """The longest pair that a model reads, in tokens, special ones included."""
    return most_tokens(config.model_type, config.max_position_embeddings, config.pad_token_id)


def pair_tokenizer(folder):
    """The folder's fast tokenizer. Raises Refusal for one that cannot fill the shorter pairs of a batch."""
    tokenizer = load_fast_tokenizer(folder)
    if tokenizer.pad_token_id is None:
        raise Refusal(f"the tokenizer of {folder} has no padding token. Write its pad_token in tokenizer_config.json.")
    return tokenizer


def load_ranker(folder):
    """The model of a folder in float32, in evaluation mode. Raises Refusal for several labels, and for a folder without
    the weights of its head, which transformers would draw."""
    model, missing = load(folder)
    if missing:
        raise Refusal(
            f"{folder} lacks {len(missing)} weights of a cross-encoder, for example {missing[0]}. Give one that was "
            "trained to score pairs."
        )
    return model


def with_head(folder, seed):
    """(model, names of the weights that were drawn) of a folder as the start of a training. Like `load_ranker`, but an
    encoder's head, and its pooler if it has none, are drawn from the seed."""
    changes = {} if is_ranker(folder) else {"num_labels": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "head of a cross-encoder"))
        model, missing = load(folder, **changes)
    backbone = [name for name in missing if name.startswith(f"{model.base_model_prefix}.") and ".pooler." not in name]
    if backbone or (missing and not changes):
        name = (backbone or missing)[0]
        raise Refusal(f"{folder} lacks {len(missing)} weights of its model_type, for example {name}. Get it again.")
    log.info("%d weights of the head are drawn from the seed: %s", len(missing), ", ".join(missing) or "none")
    return model, missing


def load(folder, **changes):
    """(model in evaluation mode, names of the weights that the folder does not have). changes: to its config.json.
    Raises Refusal for weights that are no numbers of its model."""
    if (file := find_weights(folder)[0]).suffix != ".safetensors":
        raise Refusal(f"{file} is a pickle, which may run code. Give the cross-encoder with model.safetensors.")
    weights = renamed(read_weights(folder))
    with refusing(f"cannot read the cross-encoder in {folder}"):
        options = {"local_files_only": True, "trust_remote_code": False}
        config = AutoConfig.from_pretrained(folder, **options, **changes)
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder,
            **options,
            config=config,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        )
    for name, what in NEEDED.items():
        if getattr(model.config, name, None) is None:
            raise Refusal(f"{folder / 'config.json'} has no {name}, {what}. Write it there.")
    if (labels := model.config.num_labels) != 1:
        raise Refusal(
            f"{folder / 'config.json'}: the cross-encoder has {labels} labels, and the score of a pair is one number. "
            "Give one with a single label."
        )
    refuse_other_model(folder, report)
    start = f"{model.base_model_prefix}."  # an encoder's own weights do not have it
    parameters = {name.rpartition(start)[2] for name, _ in model.named_parameters()}
    for name, tensor in weights.items():
        if name.rpartition(start)[2] in parameters:
            of_numbers(folder, tensor, name)
    refuse_no_weights(folder, model)
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and layer.out_features == 1:  # the last one
            layer.forward = partial(in_float32, layer)
    return model.eval(), sorted(report["missing_keys"])


def in_float32(layer, inputs):
    """The output of a linear layer, in float32 under autocast too: a bfloat16 number has 8 bits, so half of the scores
    of a thousand passages would equal another."""
    with autocast(inputs.device, None):
        return functional.linear(inputs.float(), layer.weight, layer.bias)
