"""Stage `pretrained`: the checkpoint that episodes start from, brought into the folder form of all checkpoints."""

import copy
import json

import torch
from transformers import AutoTokenizer

from teleport.encoder.architectures import ARCHITECTURES, named_as_bert
from teleport.encoder.backbone import activation
from teleport.encoder.checkpoint import module_paths, sides, write_prompts
from teleport.encoder.model import HEAD, Encoder, save_encoders
from teleport.encoder.own_settings import own_settings, refuse_conflict
from teleport.encoder.reference import load_backbone
from teleport.encoder.sound import read_config, refuse_no_special_tokens, refuse_no_weights
from teleport.encoder.source import KEY, find_weights, locate, verified_digest
from teleport.encoder.weights import head_weights, read_weights
from teleport.runtime.files import require_free_space
from teleport.runtime.log import log
from teleport.runtime.seed import derive_seed
from teleport.settings.checkpoint import PretrainedSettings as Settings  # noqa: F401

PACKED = "computed by the packed encoder, without padding"
PLAIN = "computed by transformers' own model, padded: the packed encoder, which is faster, does not cover this one"
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")
QUERY_KEY = "encoder.query_checkpoint"


def run(job):
    """Find the checkpoint, verify its digest, and write `checkpoint/` with pooling, head and normalisation.

    With settings.query_checkpoint the encoder of queries is that one. A projection head of the source is kept, its
    other heads (pooler, masked language model, classifier) are left out.

    Facts: model_type, parameters (of one encoder), dim; of passages weights_sha256 and, from the hub, commit;
    query_weights_sha256 and query_commit when queries have a checkpoint of their own.

    Raises ValueError when a checkpoint is missing, of an unsupported kind, incomplete, or not the expected one, and
    when two do not fit together.
    """
    settings = job.settings
    folder, digest = find(settings.checkpoint)
    require_free_space(job.folder, find_weights(folder).stat().st_size * (1 if settings.tied else 2))
    tokenizer, passage_encoder = read(folder, settings)
    parameters = sum(p.numel() for p in passage_encoder.parameters())
    facts = {"parameters": parameters, "dim": passage_encoder.dim}
    facts |= what_was_found(settings.checkpoint, folder, digest)
    if settings.query_checkpoint:
        query_encoder, found = read_query_side(settings, tokenizer, passage_encoder)
        facts |= {f"query_{name}": fact for name, fact in found.items()}
    else:
        query_encoder = passage_encoder if settings.tied else copy.deepcopy(passage_encoder)
    checkpoint = job.output("checkpoint")
    own = {name: setting.value for name, setting in own_settings(folder).items()}
    length = min(own.get("max_tokens", passage_encoder.max_tokens), passage_encoder.max_tokens)
    save_encoders(query_encoder, passage_encoder, checkpoint, folder, length, length)
    if {"query_prefix", "passage_prefix"} & set(own):
        write_prompts(checkpoint, own.get("query_prefix", ""), own.get("passage_prefix", ""))
    for side in set(sides(checkpoint)):
        # The tokenizer as transformers builds it from all the source's files, without the source's own truncation and
        # padding: who reads this one file (stage `tokens`) gets the ids that transformers gives.
        tokenizer.backend_tokenizer.save(str(side / "tokenizer.json"))
    model_type = supported_type(folder)
    log.info("%s, %d parameters, %d dimensions, from %s", model_type, parameters, passage_encoder.dim, folder)
    log.info("%s", PACKED if ARCHITECTURES[model_type].packed else PLAIN)
    return facts | {"model_type": model_type}


def find(checkpoint):
    """(folder, SHA-256 of the weights) of a source, verified as far as is possible without reading the weights."""
    folder = locate(checkpoint)
    digest = verified_digest(find_weights(folder), checkpoint.sha256)
    supported_type(folder)
    return folder, digest


def what_was_found(checkpoint, folder, digest):
    """The facts that pin a source: the digest of its weights, and the commit of a hub repository (its cache's folder).

    A revision such as `main` may be another commit tomorrow; the one that was read is in the manifest.
    """
    return {"weights_sha256": digest} | ({"commit": folder.name} if checkpoint.hub else {})


def read(folder, settings):
    """(tokenizer, `Encoder`) of a transformers folder.

    Its projection head is that of the checkpoint; where it has none, one is made from settings.seed if asked for.
    """
    refuse_conflict(own_settings(folder), settings, ("pooling", "normalize"))  # of the hub: not known before
    tokenizer = load_fast_tokenizer(folder)
    backbone, head = read_model(folder)
    encoder = Encoder(backbone, settings.pooling, settings.projection, settings.normalize).eval()
    check_vocabulary(folder, tokenizer, encoder.backbone)
    refuse_no_weights(folder, encoder.backbone)
    if ARCHITECTURES[backbone.config.model_type].packed:
        activation(named_as_bert(backbone.config.to_dict()).hidden_act)  # later stages compute with it
    if head:
        check_width(folder, head, settings.projection)
        encoder.set_head(head)
        log.info("projection head of the checkpoint, %d dimensions", encoder.dim)
    elif settings.projection:
        encoder.init_head(torch.Generator().manual_seed(derive_seed(settings.seed, "projection head")))
        log.info("projection head drawn from the seed, %d dimensions", encoder.dim)
    return tokenizer, encoder


def check_width(folder, head, projection):
    """Raise ValueError when the setting is not the width of a checkpoint's own head."""
    width = len(head[0]["bias"])
    if projection != width:
        raise ValueError(
            f"encoder.projection is {'null' if projection is None else projection}, but {KEY} ({folder}) has a "
            f"projection head of {width} dimensions. Set encoder.projection to {width}."
        )


def read_query_side(settings, tokenizer, passage_encoder):
    """(`Encoder`, facts that pin it) of settings.query_checkpoint, which has to fit to the passages' side."""
    try:
        folder, digest = find(settings.query_checkpoint)
        own_tokenizer, encoder = read(folder, settings)
    except ValueError as error:  # the functions below name the place of the other checkpoint
        raise ValueError(str(error).replace(KEY, QUERY_KEY)) from error
    if encoder.dim != passage_encoder.dim:
        raise ValueError(
            f"{QUERY_KEY}: its vectors have {encoder.dim} dimensions, those of {KEY} {passage_encoder.dim}. "
            "Give the two encoders of one system."
        )
    if rules(own_tokenizer) != rules(tokenizer):
        raise ValueError(
            f"{QUERY_KEY}: its tokenizer differs from that of {KEY}, but texts are tokenised once, for both. "
            "Give the two encoders of one system."
        )
    return encoder, what_was_found(settings.query_checkpoint, folder, digest)


def rules(tokenizer):
    """What decides the ids that a fast tokenizer gives: its vocabulary and its rules."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    return tokenizer.get_vocab(), [parts[name] for name in ("normalizer", "pre_tokenizer", "model")]


def supported_type(folder):
    """The model type that config.json names. Raises ValueError when it is missing or none of ARCHITECTURES."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"{KEY}: {folder} has no config.json. Give a folder in the form of transformers.")
    model_type = read_config(folder).get("model_type")
    if model_type not in ARCHITECTURES:
        raise ValueError(
            f"{KEY}: {folder}/config.json has model_type {model_type!r}. Supported are {', '.join(ARCHITECTURES)}."
        )
    return model_type


def read_model(folder):
    """(backbone, weights of its head or None) of the source; unreadable or incomplete weights become a ValueError."""
    try:
        weights = read_weights(find_weights(folder))
        return load_backbone(folder, weights), head_weights(weights) or head_of_modules(folder)
    except Exception as error:  # torch, safetensors and transformers each have exceptions of their own for a bad file
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{KEY}: cannot read the weights in {folder} ({reason}). Get the checkpoint anew.") from error


def head_of_modules(folder):
    """The weights of a linear layer and a LayerNorm that follow in sentence-transformers' form, as of `head_weights`.

    None without them. Raises ValueError for a layer that is not linear.
    """
    paths = module_paths(folder)
    if not all(name in paths for name, _ in HEAD):
        return None
    function = json.loads((paths["Dense"] / "config.json").read_text(encoding="utf-8"))["activation_function"]
    if not function.endswith("Identity"):
        raise ValueError(f"{paths['Dense']} has the activation {function}; a projection head is linear.")
    found = [read_weights(find_weights(paths[name])) for name, _ in HEAD]
    return [{name.rpartition(".")[2]: tensor.float() for name, tensor in part.items()} for part in found]


def load_fast_tokenizer(folder):
    """The source's tokenizer, without truncation and padding. Raises ValueError when there is no fast one."""
    if not any((folder / name).is_file() for name in VOCABULARIES):  # transformers would make an empty tokenizer
        raise ValueError(f"{KEY}: {folder} has none of {', '.join(VOCABULARIES)}. Add its tokenizer.json.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True)
    except Exception as error:  # json, transformers and tokenizers each have exceptions of their own for a bad file
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise ValueError(f"{KEY}: {folder} has no usable tokenizer ({reason}). Get the checkpoint anew.") from error
    if not tokenizer.is_fast:
        raise ValueError(f"{KEY}: the tokenizer of {folder} is not a fast one. Add its tokenizer.json.")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    refuse_no_special_tokens(folder, tokenizer.backend_tokenizer)
    return tokenizer


def check_vocabulary(folder, tokenizer, backbone):
    """Raise ValueError when the tokenizer gives ids that have no embedding."""
    largest = max(tokenizer.get_vocab().values())
    if largest >= backbone.config.vocab_size:
        raise ValueError(
            f"{KEY}: the tokenizer of {folder} has ids up to {largest}, but its weights have only "
            f"{backbone.config.vocab_size} embeddings. Give the tokenizer and the weights of one checkpoint."
        )
