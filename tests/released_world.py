"""Miniature checkpoints in the file forms of the real repositories, and what transformers computes with them.

Forms and names of the weights: the hub's index of 2021, and for ANCE the warning in castorini/pyserini, issue 382.
"""

import io
import json
from collections.abc import Callable
from typing import NamedTuple

import torch
from tokenizers import pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    DistilBertConfig,
    DistilBertModel,
    DPRConfig,
    DPRQuestionEncoder,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaTokenizer,
)

from collection_world import WORDS

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
WORD_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "quoted", '"']
HEAD_WIDTH = 768


class Released(NamedTuple):
    """files: {name: bytes} of the repository; encode: texts -> vectors [n, dim] as its makers compute them."""

    files: dict
    encode: Callable


def random(model, seed):
    """The model in evaluation mode with weights that show when one is lost."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            mean = float(isinstance(module, torch.nn.LayerNorm) and name == "weight")
            torch.nn.init.normal_(parameter, mean, 0.6 if parameter.ndim > 1 else 0.3, generator=generator)
    return model.eval()


def torch_file(weights):
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    return buffer.getvalue()


def repository(config, architecture, weights, vocabulary):
    """The files of a repository: config.json, weights in torch's form, and a tokenizer without tokenizer.json."""
    text = json.dumps(json.loads(config.to_json_string()) | {"architectures": [architecture]})
    return {"config.json": text.encode(), "pytorch_model.bin": torch_file(weights)} | vocabulary


def word_pieces():
    """The tokenizer files of BERT and DistilBERT, and the tokenizer that transformers makes of such."""
    options = {"do_lower_case": True, "model_max_length": 512}
    special = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    files = {"vocab.txt": "\n".join(WORD_PIECES) + "\n", "tokenizer_config.json": json.dumps(options | special)}
    files["special_tokens_map.json"] = json.dumps(special | {"mask_token": "[MASK]"})
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(WORD_PIECES)}, do_lower_case=True)
    return {name: text.encode() for name, text in files.items()}, tokenizer


def byte_pairs():
    """The tokenizer files of RoBERTa, and the tokenizer that transformers makes of such."""
    words = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġw", "or", "<mask>"]
    vocabulary, merges = {word: i for i, word in enumerate(words)}, [("Ġ", "w"), ("o", "r")]
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>"}
    special |= {"cls_token": "<s>", "mask_token": "<mask>"}
    files = {"vocab.json": json.dumps(vocabulary), "special_tokens_map.json": json.dumps(special)}
    files["merges.txt"] = "\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n"
    files["tokenizer_config.json"] = json.dumps(special | {"model_max_length": 512, "add_prefix_space": False})
    return {name: text.encode() for name, text in files.items()}, RobertaTokenizer(vocab=vocabulary, merges=merges)


def first_vectors(model, tokenizer, texts, max_tokens):
    """The last layer's first vector of each text, encoded alone."""
    with torch.no_grad():
        batches = (tokenizer(t, truncation=True, max_length=max_tokens, return_tensors="pt") for t in texts)
        return torch.cat([model(input_ids=batch["input_ids"]).last_hidden_state[:, 0] for batch in batches])


def bert(seed):
    """ANCE-Tele's and coCondenser's: a BertModel with its pooler."""
    files, tokenizer = word_pieces()
    config = BertConfig(vocab_size=len(WORD_PIECES), max_position_embeddings=512, **SIZE)
    model = random(BertModel(config), seed)

    def encode(texts, max_tokens=512):
        return first_vectors(model, tokenizer, texts, max_tokens)

    return Released(repository(config, "BertModel", model.state_dict(), files), encode)


def dpr(seed, side=DPRQuestionEncoder, **changes):
    """DPR's, and ANCE's of open-domain questions, in the classes of DPR, whose vector is the first one."""
    files, tokenizer = word_pieces()
    config = DPRConfig(vocab_size=len(WORD_PIECES), max_position_embeddings=512, **SIZE | changes)
    model = random(side(config), seed)

    def encode(texts, max_tokens=512):
        with torch.no_grad():
            batches = (tokenizer(t, truncation=True, max_length=max_tokens, return_tensors="pt") for t in texts)
            return torch.cat([model(input_ids=batch["input_ids"]).pooler_output for batch in batches])

    return Released(repository(config, side.__name__, model.state_dict(), files), encode)


def distilbert(seed):
    """TAS-B's."""
    files, tokenizer = word_pieces()
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 512}
    config = DistilBertConfig(vocab_size=len(WORD_PIECES), **sizes)
    model = random(DistilBertModel(config), seed)

    def encode(texts, max_tokens=512):
        return first_vectors(model, tokenizer, texts, max_tokens)

    return Released(repository(config, "DistilBertModel", model.state_dict(), files), encode)


def ance(seed, start="ance_encoder.", lower_case=True, prefix=""):
    """ANCE's: RoBERTa for classification, as its authors' class began, and a head; names begin with `start`.

    Pyserini's copy has `ance_encoder.`; ANCE's own checkpoints, and those of STAR and ADORE, have nothing there.
    """
    files, tokenizer = byte_pairs()
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=514, layer_norm_eps=1e-5, **SIZE)
    model = random(RobertaForSequenceClassification(config), seed)
    linear, norm = random(torch.nn.Linear(32, HEAD_WIDTH), seed + 1), random(torch.nn.LayerNorm(HEAD_WIDTH), seed + 2)
    parts = {"": model, "embeddingHead.": linear, "norm.": norm}
    weights = {f"{start}{part}{n}": t for part, module in parts.items() for n, t in module.state_dict().items()}

    def encode(texts, max_tokens=512):
        texts = [prefix + (text.lower() if lower_case else text) for text in texts]
        hidden = first_vectors(model.roberta, tokenizer, texts, max_tokens) @ linear.weight.T + linear.bias
        centred = hidden - hidden.mean(1, keepdim=True)
        spread = (centred**2).mean(1, keepdim=True)
        return (centred / torch.sqrt(spread + 1e-5) * norm.weight + norm.bias).detach()

    return Released(repository(config, "AnceEncoder", weights, files), encode)
