"""Reads the settings of an encoder from the small files of its published checkpoint.

Nobody has checked these files, so they are read in typed forms. Vectors equal those of sentence-transformers'
`encode_query` and `encode_document`, scaled to length 1 if it compares them by their cosine, or a Refusal names what is
not supported. Its versions 2 to 6 write these files; version 6 has the maximum length in tokenizer_config.json.
"""

import json
import re
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from teleport.encoder.checkpoint import modules_of
from teleport.encoder.source import KEY
from teleport.refusal import Refusal
from teleport.settings.section import not_bool

# The modules that are computed here, in the order in which they may follow each other.
MODULES = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize")
# Classes of torch.nn after a linear layer without a LayerNorm. They map each number alone, without weights or draws.
# sentence-transformers' Dense writes no arguments, and creates them by their names alone.
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "ReLU6", "LeakyReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish")
ACTIVATIONS += ("Sigmoid", "LogSigmoid", "Hardsigmoid", "Hardswish", "Hardtanh", "Softplus", "Softsign", "Tanhshrink")
ACTIVATIONS += ("Hardshrink", "Softshrink")
# Poolings, by today's and older names.
POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
POOLINGS |= {"cls_token": "cls", "mean_tokens": "mean"}
# The first name in the file counts. sentence-transformers 6 prefers its own empty `document` to the authors' `passage`.
PROMPTS = {"query_prefix": ("query",), "passage_prefix": ("document", "passage", "corpus")}
SENTENCES = "config_sentence_transformers.json"
NO_LIMIT = 10**6  # transformers writes 1e30 if a tokenizer has no maximum length
# Model types whose positions count from the padding id + 1, not from 0.
AFTER_PADDING = {"roberta", "xlm-roberta", "camembert", "mpnet"}
AFTER_PADDING |= {"xlm-roberta-xl", "roberta-prelayernorm", "data2vec-text", "ibert", "esm", "luke", "longformer"}
OWN_NAMES = {  # {name of a size in DistilBERT's config.json: common name}
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
}
LAYER = re.compile(r"\blayers?\.(\d+)\.")  # in the name of a weight

Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
# Published values are 1e-12 to 1e-5. A large one makes all vectors nearly the same, without an error.
Epsilon = Annotated[float, Field(gt=0, le=0.01, allow_inf_nan=False, strict=True)]
Words = Annotated[int, Field(ge=4), BeforeValidator(not_bool)]  # two special tokens and some text


class Module(BaseModel):
    """An entry of modules.json."""

    type: str
    path: str


class Pooling(BaseModel, extra="allow"):
    """1_Pooling/config.json; before version 6 a `pooling_mode_…` of true instead of `pooling_mode`."""

    pooling_mode: str | list[str] | None = None
    include_prompt: bool = True

    @property
    def modes(self):
        """The names of its poolings (list); the vectors of several would be joined."""
        flags = [key.removeprefix("pooling_mode_") for key, on in self.model_extra.items() if on is True]
        modes = self.pooling_mode or flags
        return [modes] if isinstance(modes, str) else modes


class Dense(BaseModel):
    """The config.json of a linear layer."""

    in_features: Count | None = None
    out_features: Count | None = None
    bias: bool = True
    activation_function: str = "torch.nn.modules.linear.Identity"
    use_residual: bool = False


class Lengths(BaseModel):
    """sentence_bert_config.json."""

    max_seq_length: Words | None = None
    do_lower_case: bool | None = False
    processing_kwargs: dict = {}  # of a tokenizer's calls (version 6)


class Tokenizer(BaseModel):
    """tokenizer_config.json."""

    model_max_length: Annotated[float, Field(ge=4), BeforeValidator(not_bool)] | None = None


class SentenceTransformers(BaseModel):
    """config_sentence_transformers.json."""

    prompts: dict[str, str | None] | None = None
    truncate_dim: Count | None = None
    similarity_fn_name: str | None = None


class Sizes(BaseModel):
    """The sizes in config.json, by BERT's names."""

    model_type: str | None = None
    hidden_size: Count | None = None
    num_hidden_layers: Count | None = None
    num_attention_heads: Count | None = None
    intermediate_size: Count | None = None
    vocab_size: Count | None = None
    max_position_embeddings: Count | None = None
    pad_token_id: Annotated[int, Field(ge=0, strict=True)] | None = None
    layer_norm_eps: Epsilon | None = None
    norm_eps: Epsilon | None = None  # ModernBERT's name
    rms_norm_eps: Epsilon | None = None  # decoders' name
    head_dim: Count | None = None
    embedding_size: Count | None = None  # ELECTRA's width of word embeddings


class Own(NamedTuple):
    """A setting of a checkpoint: its value, and the file that sets it."""

    value: object
    file: Path


def own_settings(folder):
    """{key: Own} of the settings in a folder's files: pooling, normalize, lower_case and the two prefixes of `encoder`,
    max_tokens, include_prompt; positions, the most tokens that its weights allow; cosine, if vectors of any length are
    compared by their cosine."""
    settings, sentences = {}, read_form(SentenceTransformers, folder / SENTENCES)
    if sentences.truncate_dim:
        refuse(folder / SENTENCES, f"truncate_dim {sentences.truncate_dim}")
    lengths, tokenizer = read_form(Lengths, folder / "sentence_bert_config.json"), folder / "tokenizer_config.json"
    if lengths.processing_kwargs:
        refuse(folder / "sentence_bert_config.json", f"processing_kwargs {lengths.processing_kwargs}")
    if modules := read_form(list[Module], folder / "modules.json"):
        paths = {module.type.rpartition(".")[2]: folder / module.path for module in modules}
        require_modules(folder / "modules.json", modules)
        settings |= lengths_of_vectors("Normalize" in paths, sentences.similarity_fn_name, folder)
        if "Pooling" in paths:
            file = paths["Pooling"] / "config.json"
            pooling = read_form(Pooling, file)
            if len(pooling.modes) != 1 or pooling.modes[0] not in POOLINGS:
                refuse(file, f"the pooling {' and '.join(pooling.modes) or 'none'}")
            settings["pooling"] = Own(POOLINGS[pooling.modes[0]], file)
            settings["include_prompt"] = Own(pooling.include_prompt, file)
        for file in [folder / module.path / "config.json" for module in modules if module.type.endswith(".Dense")]:
            dense = read_form(Dense, file)
            function = dense.activation_function.rpartition(".")[2]
            if dense.use_residual or "LayerNorm" in paths and not dense.bias:
                refuse(file, f"use_residual {dense.use_residual}, bias {dense.bias}")
            if "LayerNorm" not in paths and function not in ACTIVATIONS:
                refuse(file, f"the activation {function}")
        if (length := read_form(Tokenizer, tokenizer).model_max_length or NO_LIMIT) < NO_LIMIT:
            settings["max_tokens"] = Own(int(length), tokenizer)
    sizes = read_sizes(config := read_form(dict, folder / "config.json"), folder / "config.json")
    if sizes.max_position_embeddings:
        padding = 1 if sizes.pad_token_id is None else sizes.pad_token_id  # transformers' default for AFTER_PADDING
        if (most := most_tokens(config.get("model_type"), sizes.max_position_embeddings, padding)) > 0:
            settings["positions"] = Own(most, folder / "config.json")
    if lengths.max_seq_length:
        settings["max_tokens"] = Own(lengths.max_seq_length, folder / "sentence_bert_config.json")
    if lengths.do_lower_case:
        settings["lower_case"] = Own(True, folder / "sentence_bert_config.json")
    prompts = sentences.prompts or {}
    for key, names in PROMPTS.items():
        if values := [prompts[name] or "" for name in names if name in prompts]:
            settings[key] = Own(values[0], folder / SENTENCES)
    return settings


def lengths_of_vectors(normalized, similarity, folder):
    """{"normalize" or "cosine": Own} of a folder: normalized: whether it has the module Normalize; similarity: by which
    it compares vectors. Raises Refusal for one that orders vectors otherwise than their product."""
    file = folder / SENTENCES
    if similarity not in (None, "cosine", "dot", *["euclidean"] * normalized):
        raise Refusal(f"{KEY}: {file} has similarity_fn_name {similarity}. Give a checkpoint for cosine or dot.")
    if similarity == "cosine" and not normalized:
        return {"cosine": Own(True, file)}
    return {"normalize": Own(normalized, folder / "modules.json")}


def most_tokens(model_type, positions, padding):
    """The most tokens of a text, special tokens included, by a model's number of positions and its padding id."""
    return positions - (padding + 1 if model_type in AFTER_PADDING else 0)


def with_common_names(config):
    """The content of a config.json (dict), with its sizes also under the names of most architectures."""
    common = {OWN_NAMES[name]: value for name, value in config.items() if name in OWN_NAMES}
    if common:
        common["type_vocab_size"] = 0  # DistilBERT has no embeddings of token types
    # DistilBERT reads its own names alone; another model type may mean something else by them.
    return config | common if config.get("model_type") == "distilbert" else common | config


def require_modules(file, modules):
    """Raise Refusal for a module that is not supported, for a repeated one that is not Dense, and for another order."""
    names, places = [module.type.rpartition(".")[2] for module in modules], []
    for module, name in zip(modules, names, strict=True):
        misplaced = name == "LayerNorm" and names.count("Dense") != 1 or name == "Dense" and "Pooling" not in names
        if name not in MODULES or misplaced or not module.type.startswith("sentence_transformers."):  # custom_st.…
            refuse(file, f"the module {module.type}")
        if name == "Transformer" and Path(module.path) != Path():
            refuse(file, f"the transformer in a folder of its own, {module.path!r}")
        if Path(module.path).is_absolute() or ".." in Path(module.path).parts:
            raise Refusal(f"{KEY}: {file} has the path {module.path!r}, outside the checkpoint. Get it again.")
        if name != "Dense" or names[: len(places)][-1:] != ["Dense"]:
            places.append(MODULES.index(name))
    if places != sorted(set(places)) or names[0] != MODULES[0]:
        refuse(file, f"the modules {', '.join(names)} in this order")


def refuse(file, what):
    """Raise Refusal: a file of the checkpoint has the setting or part `what`, which is not supported."""
    raise Refusal(
        f"{KEY}: {file} has {what}, which is not supported. Give a checkpoint of transformer, pooling (cls, "
        "mean or lasttoken), maybe linear layers, at most one with a LayerNorm, maybe normalisation."
    )


def read_sizes(config, file):
    """The `Sizes` of the content of config.json (dict). Raises Refusal for impossible sizes."""
    sizes = checked(Sizes, with_common_names(config), file)
    heads, width = sizes.num_attention_heads, sizes.hidden_size
    if width and heads and not sizes.head_dim and width % heads:
        wrong = f"hidden_size {width}, which is not a multiple of num_attention_heads {heads}"
        raise Refusal(f"{KEY}: {file} has {wrong}. Get the checkpoint again.")
    return sizes


def require_sizes(sizes, weights, file):
    """Raise Refusal if config.json has more layers or larger sizes than the weights have, before a model of that size
    is built. weights: {name: tensor} of the backbone"""
    layers = {match[1] for match in map(LAYER.search, weights) if match}
    present = {"num_hidden_layers": len(layers)} if layers else {}  # ALBERT repeats one, of another name
    for name, tensor in weights.items():
        if name.endswith(("word_embeddings.weight", "tok_embeddings.weight", "embed_tokens.weight")):
            width = "embedding_size" if sizes.embedding_size else "hidden_size"
            present |= dict(zip(("vocab_size", width), tensor.shape, strict=False))  # torch refuses other shapes
        elif name.endswith(("intermediate.dense.bias", "ffn.lin1.bias")):
            present["intermediate_size"] = tensor.numel()
        elif name.endswith("position_embeddings.weight"):
            present["max_position_embeddings"] = next(iter(tensor.shape), 1)
    for name, number in present.items():
        if (getattr(sizes, name) or 0) > number:
            problem = f"{name} {getattr(sizes, name)}, the weights have {number}"
            raise Refusal(f"{KEY}: {file} has {problem}. Get the checkpoint again.")


def read_form(form, path):
    """The content of a JSON file as a pydantic form; an empty form if there is no file."""
    if not path.is_file():
        return TypeAdapter(form).validate_python([] if form == list[Module] else {})
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_number)
        json.dumps(content, ensure_ascii=False).encode("utf-8")  # an escape may stand for half a surrogate pair
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{KEY}: {path} is not JSON in UTF-8 ({error}). Get the checkpoint again.") from None
    return checked(form, content, path)


def dense_width(folder):
    """The width after the last linear layer that sentence-transformers' files in a folder name; None without one."""
    modules = read_form(list[Module], folder / "modules.json")
    dense = [module for module in modules if module.type.endswith(".Dense")]
    return read_form(Dense, folder / dense[-1].path / "config.json").out_features if dense else None


def head_width(folder):
    """The width of a checkpoint's projection head, a linear layer and a LayerNorm after it; None without one."""
    return dense_width(folder) if "LayerNorm" in dict(modules_of(folder)) else None


def no_number(name):
    """Refuse NaN and Infinity, which Python's JSON accepts: no check of a range catches a dropout of NaN."""
    raise ValueError(f"{name} is not a number")


def checked(form, content, path):
    """`content` as a pydantic form. Raises Refusal that names the file and the key."""
    try:
        return TypeAdapter(form).validate_python(content)
    except ValidationError as error:
        mistake = error.errors()[0]
        key, given = ".".join(map(str, mistake["loc"])) or "its content", repr(mistake["input"])[:60]
        raise Refusal(f"{KEY}: {path}: {key}: {mistake['msg']}, not {given}. Get the checkpoint again.") from None
