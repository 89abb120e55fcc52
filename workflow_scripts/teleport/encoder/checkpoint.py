"""The folder form of a checkpoint, which transformers and sentence-transformers load without our code. A tied
checkpoint is one folder; an untied one has two, `query/` and `passage/`. Weights of the backbone and the tokenizer are
in the folder itself (transformers). `modules.json` names the modules after it (sentence-transformers), so that pooling,
head and normalisation are part of the checkpoint, not of a config."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

from teleport.refusal import Refusal
from teleport.running.files import write_json

QUERY, PASSAGE = "query", "passage"
# All files that a tokenizer may consist of; a folder has some of these.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES += ("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "tokenizer.model")
# The old spelling of the module types and of the keys below: releases from 2 to 6 of sentence-transformers read it.
TYPES = "sentence_transformers.models."
IDENTITY = "torch.nn.modules.linear.Identity"
ACTIVATION = "torch.nn."  # and the name of an activation: the library imports the class by it


def sides(checkpoint):
    """The folders (query, passage) of a checkpoint folder; the same path twice when it is tied."""
    folder = Path(checkpoint)
    return (folder / QUERY, folder / PASSAGE) if (folder / QUERY).is_dir() else (folder, folder)


def copy_tokenizer(source, folder):
    """Copy the tokenizer files of `source` (a transformers folder, or a checkpoint of ours) into `folder`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path in (sides(source)[1] / name for name in TOKENIZER_FILES):
        if path.is_file():
            shutil.copyfile(path, Path(folder) / path.name)


def write_modules(folder, encoder, max_tokens):
    """Write sentence-transformers' files of the folder of an `Encoder`, except the weights of its head. max_tokens:
    where sentence-transformers truncates a text, special tokens included"""
    folder, hidden, width = Path(folder), encoder.backbone.config.hidden_size, encoder.projection
    modes = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "", "mean_sqrt_len_tokens": ""}
    modes |= {"lasttoken": "last"} if encoder.pooling == "last" else {}
    modes = {f"pooling_mode_{name}": encoder.pooling == pooling for name, pooling in modes.items()}
    steps = [("Transformer", None), ("Pooling", {"word_embedding_dimension": hidden} | modes)]
    if width:
        dense = {"in_features": hidden, "out_features": width, "bias": True, "activation_function": IDENTITY}
        steps += [("Dense", dense), ("LayerNorm", {"dimension": width})]
    for each in encoder.dense:
        dense = {"in_features": each.width, "out_features": each.out, "bias": each.bias}
        steps.append(("Dense", dense | {"activation_function": ACTIVATION + each.activation}))
    if encoder.normalize:
        steps.append(("Normalize", {}))
    modules = []
    for i, (name, config) in enumerate(steps):
        path = f"{i}_{name}" if i else ""
        modules.append({"idx": i, "name": str(i), "path": path, "type": TYPES + name})
        if config is not None:
            write_json(folder / path / "config.json", config)
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    # Vectors are compared by inner product; without a version no release complains of a newer one.
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot", "prompts": {}})


def write_lower_case(checkpoint):
    """Let sentence-transformers lower-case texts before it tokenises them."""
    for folder in dict.fromkeys(sides(checkpoint)):
        path = folder / "sentence_bert_config.json"
        write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"do_lower_case": True})


def write_prompts(checkpoint, query_prefix, passage_prefix):
    """Write the prefixes of texts as prompts of sentence-transformers, for its `encode_query` and `encode_document`.
    If a folder encodes one side only, `encode` uses the prompt too."""
    prompts, folders = {"query": query_prefix, "document": passage_prefix}, sides(checkpoint)
    for folder, (name, prefix) in zip(folders, prompts.items(), strict=True):
        alone = {"prompts": {name: prefix}, "default_prompt_name": name}
        path = folder / "config_sentence_transformers.json"
        known = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, known | (alone if len(set(folders)) > 1 else {"prompts": prompts}))


def modules_of(folder):
    """[(module of sentence-transformers, its folder)] in order; empty without a modules.json."""
    path = Path(folder) / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return [(module["type"].rpartition(".")[2], Path(folder) / module["path"]) for module in modules]


def dense_paths(folder):
    """The folders of the linear layers of a head without LayerNorm (EmbeddingGemma, LaBSE), in order (list)."""
    modules = modules_of(folder)
    return [] if "LayerNorm" in dict(modules) else [path for name, path in modules if name == "Dense"]


def read_modules(folder):
    """Read the files of `write_modules`: pooling, projection (width or None), normalize, and `paths` {module: folder};
    dense: of each linear layer of a head without LayerNorm, its folder and config.json (dict)."""
    if not (paths := dict(modules_of(folder))):
        raise Refusal(f"{folder} has no modules.json, so its pooling is unknown: give a `checkpoint` folder.")
    config = {}
    dense = [(path, json.loads((path / "config.json").read_text(encoding="utf-8"))) for path in dense_paths(folder)]
    for path in (paths[name] / "config.json" for name in ("Pooling", *([] if dense else ["Dense"])) if name in paths):
        config |= json.loads(path.read_text(encoding="utf-8"))
    modes = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    pooling = next(name for name, key in modes.items() if config.get(f"pooling_mode_{key}"))
    projection = config.get("out_features")
    made = {"pooling": pooling, "projection": projection, "normalize": "Normalize" in paths, "paths": paths}
    return SimpleNamespace(**made, dense=dense)
