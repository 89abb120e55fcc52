"""Stage `pretrained`: the checkpoint that episodes start from, brought into the folder form of all checkpoints."""

import copy
import json
import string

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, BertConfig

from teleport.encoder.checkpoint import dense_paths, modules_of, sides, write_lower_case, write_prompts
from teleport.encoder.completed import refuse_conflict
from teleport.encoder.load import linear_of, load_backbone, refusing, save_encoders
from teleport.encoder.model import HEAD, Encoder, layers_of
from teleport.encoder.own_settings import AFTER_PADDING, Dense, own_settings, read_form, read_sizes, require_sizes
from teleport.encoder.source import INDEX, KEY, find_weights, named, read_index, verified
from teleport.encoder.tokens import around_text
from teleport.refusal import Refusal, Remedy
from teleport.running.files import require_free_space
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.encoder import PretrainedSettings as Settings  # noqa: F401

# Names of the word embeddings: BERT's, ModernBERT's and decoders'. Every backbone has exactly one of them.
FIRST = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight", "embed_tokens.weight")
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # bert-base-uncased has them
# ANCE's released code: a linear layer and a LayerNorm after the first token's vector; STAR and ADORE have the same.
RELEASED_HEAD = "embeddingHead", "norm"
DPR = "dpr"  # transformers' name of BERT in DPR's classes (Karpukhin et al. 2020); it is read as BERT
# A text with many kinds of characters; a vocabulary does not have some of them.
PROBE = f"{string.printable} e\u0301 \u00df \ufb03 \u0e01 \u1780 \u6771 \u2603 \ue000 \U0001f9ff \u200d"
MOST_GROWTH = 100  # characters that a normaliser makes of one: NFKC makes 18 of some
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model")
LEAST_CHANGE = 1e-3  # of a vector, relative to its length; rounding changes it by 1e-6
QUERY_KEY = "encoder.query_checkpoint"
ELSE = Remedy("Give an encoder as it was published.")


def run(job):
    """Find the checkpoint, verify its digest, and write `checkpoint/` with pooling, head and normalisation.

    settings.query_checkpoint, if set, is the query encoder. A projection head of the source is kept, its other heads
    (pooler, masked language model, classifier) are left out.

    Facts: model_type, parameters (of one encoder), dim; those of `verified`, and for settings.query_checkpoint the same
    with the prefix `query_`; lower_case and include_prompt if the files state them, for the stage `tokens`.
    """
    settings = job.settings
    folder, weights, pinned = verified(settings.checkpoint)
    bytes_of_weights = sum(file.stat().st_size for file in weights)
    require_free_space(job.folder, bytes_of_weights * (1 if settings.tied else 2))
    tokenizer, passage_encoder = read(folder, settings)
    facts = {"parameters": sum(p.numel() for p in passage_encoder.parameters()), "dim": passage_encoder.dim} | pinned
    if settings.query_checkpoint:
        query_folder, query_encoder, pinned = read_query_side(settings, tokenizer, passage_encoder)
        facts |= {f"query_{name}": fact for name, fact in pinned.items()}
    else:
        query_folder, query_encoder = folder, passage_encoder if settings.tied else copy.deepcopy(passage_encoder)
    checkpoint, lengths, prompts = job.output("checkpoint"), [], {}
    for side, source, encoder in (("query", query_folder, query_encoder), ("passage", folder, passage_encoder)):
        file_settings = {name: setting.value for name, setting in own_settings(source).items()}
        lengths.append(min(file_settings.get("max_tokens", encoder.max_tokens), encoder.max_tokens))
        prompts |= {name: prefix for name, prefix in file_settings.items() if name == f"{side}_prefix"}
        facts |= {"lower_case": True} if file_settings.get("lower_case") else {}
        facts |= {"include_prompt": False} if not file_settings.get("include_prompt", True) else {}
    save_encoders(query_encoder, passage_encoder, checkpoint, folder, lengths)
    if "lower_case" in facts:
        write_lower_case(checkpoint)
    if prompts:
        write_prompts(checkpoint, prompts.get("query_prefix", ""), prompts.get("passage_prefix", ""))
    for side in set(sides(checkpoint)):
        # The tokenizer as transformers builds it from all the source's files, without the source's own truncation and
        # padding. A reader of this one file (stage `tokens`) gets the same ids as from transformers.
        tokenizer.backend_tokenizer.save(str(side / "tokenizer.json"))
    model_type = passage_encoder.backbone.config.model_type
    log.info("%s, %d parameters, %d dimensions, from %s", model_type, facts["parameters"], facts["dim"], folder)
    if not passage_encoder.packs:
        log.info("%s is computed in padded batches: packing, which is faster, does not support it", model_type)
    return facts | {"model_type": model_type}


def read(folder, settings):
    """(tokenizer, `Encoder`) of a transformers folder; a missing projection head is drawn from settings.seed."""
    config = supported_config(folder)
    refuse_conflict(own_settings(folder), settings, ("pooling", "normalize"))  # for the hub: not known before
    tokenizer = load_fast_tokenizer(folder)
    (backbone, head), dense = read_model(folder, config), read_dense(folder)
    if settings.layers is not None:
        backbone, head, dense = cut(backbone, settings.layers, folder), None, []  # a head belongs to the last layer
    if dense and settings.projection:
        problem = f"encoder.projection is {settings.projection}, but {KEY} ({folder}) has a head of linear layers"
        raise Refusal(f"{problem}. Set encoder.projection to null.")
    linears = [linear for linear, _ in dense]
    refuse_unfit_dense(folder, dense, backbone.config.hidden_size)
    encoder = Encoder(backbone, settings.pooling, settings.projection, settings.normalize, linears).eval()
    if dense:
        encoder.set_dense(weights for _, weights in dense)
        log.info("%d linear layers of the checkpoint, %d dimensions", len(dense), encoder.dim)
    refuse_unfit_tokenizer(folder, tokenizer, backbone.config.vocab_size, settings.pooling)
    refuse_no_weights(folder, backbone)
    refuse_read_padding(folder, encoder)
    if head:
        refuse_unfit_head(folder, head, backbone.config.hidden_size)
        if settings.projection != (width := width_of(head)):
            wrong = f"encoder.projection is {'null' if settings.projection is None else settings.projection}"
            other = f"{KEY} ({folder}) has a projection head of {width} dimensions"
            raise Refusal(f"{wrong}, but {other}. Set encoder.projection to {width}.")
        encoder.set_head(head)
        log.info("projection head of the checkpoint, %d dimensions", encoder.dim)
    elif settings.projection:
        encoder.init_head(torch.Generator().manual_seed(derive_seed(settings.seed, "projection head")))
        log.info("projection head drawn from the seed, %d dimensions", encoder.dim)
    return tokenizer, encoder


def read_query_side(settings, tokenizer, passage_encoder):
    """(folder, `Encoder`, facts that pin it) of settings.query_checkpoint, which must fit the passages' side."""
    with named(QUERY_KEY):
        folder, _, pinned = verified(settings.query_checkpoint)
        own_tokenizer, encoder = read(folder, settings)
    if encoder.dim != passage_encoder.dim:
        raise Refusal(
            f"{QUERY_KEY}: its vectors have {encoder.dim} dimensions, those of {KEY} {passage_encoder.dim}. "
            "Give the two encoders of one system."
        )
    rules = [json.loads(each.backend_tokenizer.to_str()) for each in (own_tokenizer, tokenizer)]
    same = all(rules[0][name] == rules[1][name] for name in ("normalizer", "pre_tokenizer", "model"))
    if not same or own_tokenizer.get_vocab() != tokenizer.get_vocab():
        raise Refusal(
            f"{QUERY_KEY}: its tokenizer differs from that of {KEY}, but texts are tokenised once, for both. "
            "Give the two encoders of one system."
        )
    return folder, encoder, pinned


def read_model(folder, raw):
    """(backbone, weights of its head or None) of the source. raw: the content of its config.json"""
    file = folder / "config.json"
    try:
        weights = read_weights(folder)
        tensors = backbone_weights(weights)
        require_sizes(read_sizes(raw, file), tensors, file)
        with refusing(f"cannot read the weights in {folder}"):
            config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            # Turn off a model's other outputs: no vector depends on them, and packed texts do not have them.
            config.update({"output_attentions": False, "output_hidden_states": False, "return_dict": True})
            if config.model_type == DPR:
                named = {"model_type": "bert", "architectures": ["BertModel"]}
                config = BertConfig.from_dict(config.to_dict() | named)
        backbone = load_backbone(folder, tensors, config)
        for name, _ in backbone.named_parameters():
            if name in tensors:
                of_numbers(folder, tensors[name], name)
        return backbone, head_weights(folder, weights) or head_of_modules(folder)
    except Refusal as refusal:
        raise Refusal(str(refusal) if KEY in str(refusal) else f"{KEY}: {refusal}") from None


def read_weights(folder):
    """{name: tensor} of the weights in a folder, in safetensors or torch's form; no code in them is run."""
    wrong, weights, files = f"cannot read the weights in {folder}", {}, find_weights(folder)
    for path in files:
        with refusing(wrong):
            torch_form = path.suffix != ".safetensors"
            part = torch.load(path, map_location="cpu", weights_only=True) if torch_form else load_file(path)
        tensors = part.items() if isinstance(part, dict) else [(None, None)]
        if not all(isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in tensors):
            raise Refusal(f"{wrong}: {path.name} does not have a tensor for each name. Get the checkpoint again.")
        if twice := sorted(weights.keys() & part.keys()):
            raise Refusal(f"{wrong}: {path.name} has {twice[0]} once more. Get the checkpoint again.")
        weights |= part
    if len(files) > 1 and (missing := sorted(read_index(folder / INDEX).keys() - weights.keys())):
        raise Refusal(f"{wrong}: {INDEX} names {missing[0]}, which none of its files has. Get the checkpoint again.")
    return weights


def of_numbers(folder, tensor, name):
    """A weight in float32. Raises Refusal for types that no encoder is trained in: a library would accept integers, the
    real part of complex numbers, and codes of 8 bits without their scales."""
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        kind = str(tensor.dtype).removeprefix("torch.")
        remedy = "Give the weights in float32, float16 or bfloat16, not quantised."
        raise Refusal(f"{KEY}: the weights {name} in {folder} are {kind}. {remedy}")
    return tensor.float()


def backbone_weights(weights):
    """The weights of the one backbone, without the prefix of their names (`bert.`, `roberta.` in ANCE's code,
    `ance_encoder.roberta.` in Pyserini's copy, `model.` of decoders), and with today's names of LayerNorms."""
    starts = [name.removesuffix(first) for name in weights for first in FIRST if name.endswith(first)]
    if len(starts) != 1:
        raise Refusal(f"the file has {len(starts)} weights called {FIRST[0]}; a checkpoint of one encoder has one.")
    (start,) = starts
    return renamed({name.removeprefix(start): tensor for name, tensor in weights.items() if name.startswith(start)})


def renamed(weights):
    """The weights with today's names of LayerNorms."""
    for old, new in OLD_NAMES.items():
        weights = {name.replace(old, new): tensor for name, tensor in weights.items()}
    return weights


def head_weights(folder, weights):
    """[weights of the linear layer, of the LayerNorm], each {"weight", "bias": tensor}; None without a head."""
    first = f"{RELEASED_HEAD[0]}.weight"
    start = next((name.removesuffix(first) for name in weights if name.endswith(first)), None)
    if start is None:
        return None
    names = [[f"{start}{part}.{kind}" for kind in ("weight", "bias")] for part in RELEASED_HEAD]
    if missing := [name for pair in names for name in pair if name not in weights]:
        raise Refusal(f"the file has a projection head without {', '.join(missing)}.")
    return [{name.rpartition(".")[2]: of_numbers(folder, weights[name], name) for name in pair} for pair in names]


def cut(backbone, number, folder):
    """The backbone with its first `number` layers alone."""
    config = backbone.config
    if number > config.num_hidden_layers:
        has = f"{folder} has {config.num_hidden_layers} layers of {config.model_type}"
        raise Refusal(f"encoder.layers is {number}, but {has}. Take fewer, or another checkpoint.")
    name, layers = layers_of(backbone)
    holder, _, name = name.rpartition(".")
    setattr(backbone.get_submodule(holder), name, layers[:number])
    config.num_hidden_layers = number
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:number]
    return backbone


def read_dense(folder):
    """[(`Linear`, {name: tensor})] of the linear layers after the pooling if no LayerNorm is among them, else []."""
    layers = []
    for path in dense_paths(folder):
        weights = {name: of_numbers(path, tensor, name) for name, tensor in read_weights(path).items()}
        config = read_form(Dense, path / "config.json").model_dump()
        missing = [name for name in ("in_features", "out_features") if config[name] is None]
        if missing:
            raise Refusal(f"{KEY}: {path / 'config.json'} has no {missing[0]}. Get the checkpoint again.")
        layers.append((linear_of(config), weights))
    return layers


def refuse_unfit_dense(folder, dense, width):
    """Raise Refusal if the linear layers of `read_dense` do not fit each other or `width` inputs."""
    for linear, weights in dense:
        shapes = {"linear.weight": (linear.out, linear.width)} | ({"linear.bias": (linear.out,)} if linear.bias else {})
        if linear.width != width or {name: tuple(tensor.shape) for name, tensor in weights.items()} != shapes:
            has = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in weights.items())
            problem = f"a linear layer of {folder} has {has}; its config.json says {linear.width} to {linear.out}"
            raise Refusal(f"{KEY}: {problem}, but its input has {width} dimensions. Get the checkpoint again.")
        width = linear.out


def head_of_modules(folder):
    """Return the same as `head_weights`, for a linear layer and a LayerNorm in sentence-transformers' form; None
    without them."""
    paths = dict(modules_of(folder))
    if not all(name in paths for name, _ in HEAD):
        return None
    function = read_form(Dense, paths["Dense"] / "config.json").activation_function
    if not function.endswith("Identity"):
        raise Refusal(f"{paths['Dense']} has the activation {function}; a projection head is linear.")
    parts = [(paths[name], read_weights(paths[name])) for name, _ in HEAD]
    return [
        {name.rpartition(".")[2]: of_numbers(at, tensor, name) for name, tensor in part.items()} for at, part in parts
    ]


def load_fast_tokenizer(folder):
    """The source's fast tokenizer, without truncation and padding."""
    if not any((folder / name).is_file() for name in VOCABULARIES):  # transformers would make an empty tokenizer
        raise Refusal(f"{KEY}: {folder} has none of {', '.join(VOCABULARIES)}. Add its tokenizer.json.")
    with refusing(f"{KEY}: {folder} has no usable tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True)
    if not tokenizer.is_fast:
        raise Refusal(f"{KEY}: the tokenizer of {folder} is not a fast one. Add its tokenizer.json.")
    if tokenizer.truncation_side != "right":
        problem = f"the tokenizer of {folder} has truncation_side left, but here long texts lose their end"
        raise Refusal(f"{KEY}: {problem}. Set it to right in tokenizer_config.json, or give another checkpoint.")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def supported_config(folder):
    """The content of config.json (dict). Raises Refusal for options that are not supported: without them the model
    would silently be another one."""
    path = folder / "config.json"
    if not path.is_file():
        raise Refusal(f"{KEY}: {folder} has no config.json. Give a folder in the form of transformers.")
    config = read_form(dict, path)
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        if config.get(name):
            raise Refusal(f"{KEY}: {path} has {name}, but texts are encoded, not generated. {ELSE}")
    if (positions := config.get("position_embedding_type", "absolute")) != "absolute":
        raise Refusal(f"{KEY}: {path} has position_embedding_type {positions!r}; only absolute is computed. {ELSE}")
    if "auto_map" in config or "trust_remote_code" in config:
        log.warning("%s: its auto_map or trust_remote_code is ignored: no code comes with a checkpoint", path)
    read_sizes(config, path)
    if config.get("model_type") == DPR:
        if config.get("projection_dim"):
            raise Refusal(f"{KEY}: {path} has projection_dim {config['projection_dim']}; only 0 is computed. {ELSE}")
        config |= {"model_type": "bert"}
    model_type = config.get("model_type")
    try:
        encodes = not AutoConfig.for_model(model_type).is_encoder_decoder
    except (ValueError, TypeError):  # transformers does not know it, or it is not a name at all
        encodes = False
    if not encodes:
        known = "an encoder or a decoder of texts that transformers has, such as bert or qwen3"
        raise Refusal(f"{KEY}: {path} has model_type {model_type!r}. Give {known}.")
    if config.get("pad_token_id", 0) is None and model_type in {*AFTER_PADDING, "modernbert"}:
        raise Refusal(f"{KEY}: {path} has pad_token_id null, which {model_type} cannot use. Write its number.")
    return config


def width_of(head):
    """The number of dimensions of a projection head's vectors; 0 without a bias."""
    return head[0]["bias"].numel() if "bias" in head[0] else 0


def refuse_unfit_head(folder, head, hidden):
    """Raise Refusal for a head that is not a linear layer of `hidden` inputs with a LayerNorm after it."""
    width = width_of(head)
    expected = {"weight": (width, hidden), "bias": (width,)}, dict.fromkeys(("weight", "bias"), (width,))
    part_shapes = [{name: tuple(tensor.shape) for name, tensor in part.items()} for part in head]
    for part, shapes, wanted in zip(("linear layer", "LayerNorm"), part_shapes, expected, strict=True):
        if shapes != wanted:
            actual = " and ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            needs = " and ".join(f"{name} {list(shape)}" for name, shape in wanted.items())
            raise Refusal(f"{KEY}: the {part} of the projection head of {folder} has {actual}, not {needs}. {ELSE}")


def refuse_no_weights(folder, backbone):
    """Raise Refusal if a matrix of the backbone, except token types (RoBERTa), is all zero, or a weight not finite."""
    for name, weights in backbone.named_parameters():
        zero = weights.ndim > 1 and "token_type" not in name and not weights.any()
        if zero or not weights.isfinite().all():
            wrong = "all zero" if zero else "not finite"
            raise Refusal(f"{KEY}: the weights {name} in {folder} are {wrong}. Get the checkpoint again.")


def refuse_read_padding(folder, encoder):
    """Raise Refusal if a text's vector depends on a longer text in its batch, as the model reads the padding beside it
    (ConvBERT, MobileBERT, FNet): vectors would depend on batches."""
    lengths = np.array([3, min(12, encoder.max_tokens)])
    ids = np.arange(lengths.sum()) % encoder.backbone.config.vocab_size
    with torch.inference_mode():
        alone, beside = encoder(ids[:3], lengths[:1])[0], encoder(ids, lengths)[0]
    if (alone - beside).norm() > LEAST_CHANGE * alone.norm():
        raise Refusal(
            f"{KEY}: {folder} has model_type {encoder.backbone.config.model_type!r}, which reads the padding of a "
            f"batch, so that a text's vector depends on the others. {ELSE}"
        )


def refuse_unfit_tokenizer(folder, tokenizer, vocab_size, pooling=None):
    """Raise Refusal unless every id has an embedding, there are words, and for `pooling: cls` a token comes before the
    text. From a damaged file the library may load only special tokens, or none."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise Refusal(
            f"{KEY}: the tokenizer of {folder} has special tokens only. Give the tokenizer.json of the checkpoint."
        )
    with refusing(f"{KEY}: {folder} has no usable tokenizer"):
        normal = backend.normalizer.normalize_str(PROBE) if (backend := tokenizer.backend_tokenizer).normalizer else ""
    if len(normal) > MOST_GROWTH * len(PROBE):
        grows = f"makes {len(normal):,} characters of {len(PROBE)}"
        raise Refusal(f"{KEY}: the normaliser in the tokenizer.json of {folder} {grows}. Get the checkpoint again.")
    with refusing(f"{KEY}: {folder} has no usable tokenizer"):
        tokenizer.backend_tokenizer.encode(PROBE)  # a text with unknown characters
    if pooling == "cls" and not around_text(tokenizer.backend_tokenizer)[0]:
        raise Refusal(
            f"{KEY}: the tokenizer of {folder} puts no token before a text, whose vector encoder.pooling cls takes. "
            "Give the tokenizer.json of the checkpoint, or another pooling."
        )
    if (largest := max(tokenizer.get_vocab().values())) >= vocab_size:
        raise Refusal(
            f"{KEY}: the tokenizer of {folder} has ids up to {largest}, but its weights have only {vocab_size} "
            "embeddings. Give the tokenizer and the weights of one checkpoint."
        )
