"""Miniature encoders of one layer and 32 dimensions, drawn and not trained, one for each published checkpoint.

Their vectors are as spread as a trained encoder's, and a question is near the passage that has its words. Attention
depends on a token's rarity, the first dimension of its embedding; the other dimensions are drawn. If all weights were
drawn, or attention went to tokens of every text, all vectors would be nearly equal, and a search would measure ties.
Each miniature has the architecture, the kind of tokenizer and the head, if any, of the checkpoint that it replaces.
"""

import re
import shutil
import zlib
from collections import Counter

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel

from teleport.encoder.checkpoint import copy_tokenizer
from teleport.running.files import write_json

HIDDEN, HEADS, WIDE = 32, 1, 64
RARITY = 6.0  # how much more attention the rarest token gets than the most frequent one: e to this
APART = 0.1  # how much drawn embeddings differ between checkpoints: the two sides of a system must fit
POSITIONS = 512
BPE_WORDS, BPE_SIZE = 20_000, 8_000

# The architectures that are not BERT's, by the names of the checkpoints in config/.
ROBERTA = {"FacebookAI/roberta-base", "castorini/ance-msmarco-passage", "castorini/ance-msmarco-doc-maxp"}
ROBERTA |= {"data/released/star", "data/released/adore-star"}
DISTILBERT = {"sebastian-hofstaetter/distilbert-dot-tas_b-b256-msmarco"}
DPR = {"castorini/ance-dpr-context-multi": "ctx_encoder", "castorini/ance-dpr-question-multi": "question_encoder"}
# transformers' names of DistilBERT's settings and weights, by BERT's.
DISTILBERT_SETTINGS = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
DISTILBERT_SETTINGS |= {"intermediate_size": "hidden_dim", "hidden_act": "activation"}
DISTILBERT_SETTINGS |= {"hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"}
DISTILBERT_WEIGHTS = {
    "encoder.layer": "transformer.layer",
    "attention.self.query": "attention.q_lin",
    "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin",
    "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm",
    "intermediate.dense": "ffn.lin1",
    ".0.output.dense": ".0.ffn.lin2",
    ".0.output.LayerNorm": ".0.output_layer_norm",
}


def slug(checkpoint):
    """The folder's name for a checkpoint of a configuration (dict)."""
    return re.sub(r"[^a-z0-9]+", "-", name_of(checkpoint).lower()).strip("-")


def name_of(checkpoint):
    """Return the name of a checkpoint of a configuration (dict)."""
    return next(str(checkpoint[key]) for key in ("hub", "folder", "package") if checkpoint.get(key))


def write_miniature(folder, checkpoint, tokenizers, head=False):
    """Write the miniature of a checkpoint (dict) in transformers' form, with safetensors.

    tokenizers: {"bert" or "roberta": (folder whose tokenizer is copied, {token id: its frequency in texts; other tokens
    never occur}, size of the vocabulary)}; head: whether to write a projection head of HIDDEN dimensions
    """
    name = name_of(checkpoint)
    kind = "roberta" if name in ROBERTA else "distilbert" if name in DISTILBERT else "dpr" if name in DPR else "bert"
    source, frequency, vocabulary_size = tokenizers["roberta" if kind == "roberta" else "bert"]
    folder.mkdir(parents=True)
    model, first = drawn_bert(frequency, vocabulary_size, zlib.crc32(name.encode())), 0
    config = model.config.to_dict() | {"model_type": kind, "architectures": None}
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items() if "position_ids" not in key}
    if kind == "roberta":  # positions are counted from after the padding's id
        first = config["pad_token_id"] = 1
        config |= {"bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
        weights["embeddings.token_type_embeddings.weight"] = weights["embeddings.token_type_embeddings.weight"][:1]
        positions = weights["embeddings.position_embeddings.weight"]
        weights["embeddings.position_embeddings.weight"] = torch.cat([positions[: first + 1], positions])
        config["max_position_embeddings"] += first + 1
        weights = {f"roberta.{key}": tensor for key, tensor in weights.items()}
    if kind == "distilbert":
        config |= {own: config[bert] for bert, own in DISTILBERT_SETTINGS.items()}
        del weights["embeddings.token_type_embeddings.weight"]
        for bert, own in DISTILBERT_WEIGHTS.items():
            weights = {key.replace(bert, own): tensor for key, tensor in weights.items()}
    if kind == "dpr":
        config["projection_dim"] = 0
        weights = {f"{DPR[name]}.bert_model.{key}": tensor for key, tensor in weights.items()}
    if head:
        weights |= {"embeddingHead.weight": torch.eye(HIDDEN) * 2, "embeddingHead.bias": torch.full((HIDDEN,), 0.01)}
        weights |= {"norm.weight": torch.full((HIDDEN,), 1.1), "norm.bias": torch.full((HIDDEN,), 0.01)}
    save_file({key: tensor.contiguous() for key, tensor in weights.items()}, folder / "model.safetensors")
    write_json(folder / "config.json", config)
    copy_tokenizer(source, folder)
    if kind == "roberta":
        shutil.copyfile(source / "tokenizer_config.json", folder / "tokenizer_config.json")
    else:
        write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})


def drawn_bert(frequency, vocabulary_size, seed):
    """The model. All miniatures have the same embeddings, plus a small part drawn from `seed`."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        intermediate_size=WIDE,
        max_position_embeddings=POSITIONS,
    )
    model = BertModel(config, add_pooling_layer=False)
    rarity = torch.ones(vocabulary_size)
    ids = torch.tensor(sorted(frequency, key=frequency.get, reverse=True))
    rarity[ids] = torch.log1p(torch.arange(len(ids)).float()) / np.log1p(len(ids))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.02)  # nearly 0, but not 0: trained checkpoints have no zeros
        words = torch.randn(vocabulary_size, HIDDEN)
        words += APART * torch.randn(words.shape, generator=torch.Generator().manual_seed(seed))
        words[:, 0] = (rarity - 0.5) * HIDDEN**0.5
        model.embeddings.word_embeddings.weight.copy_(words)
        layer = model.encoder.layer[0]
        for norm in (model.embeddings.LayerNorm, layer.attention.output.LayerNorm, layer.output.LayerNorm):
            norm.weight.fill_(1.0)
        attention = layer.attention.self
        attention.query.bias[0] = HIDDEN**0.5
        attention.key.weight[0, 0] = RARITY / HIDDEN**0.5
        attention.value.weight.copy_(torch.eye(HIDDEN))
        attention.value.weight[0, 0] = 0.0
        layer.attention.output.dense.weight.copy_(16 * torch.eye(HIDDEN))
    return model


def write_bpe(folder, words):
    """Write a tokenizer of RoBERTa's kind (cased, byte pairs), trained on the most frequent `words` (`Words`)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=BPE_SIZE, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((f" {word}" for word in words.vocabulary[:BPE_WORDS].tolist()), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    write_json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "RobertaTokenizer"} | {f"{name}_token": token for name, token in names.items()},
    )


def token_frequency(tokenizer, words):
    """{token id: its frequency per word of a text}; the sum is the mean number of tokens of a word."""
    texts = [f" {word}" for word in words.vocabulary.tolist()]  # as within a text
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    frequency = Counter()
    for tokens, share in zip(encoded, words.shares.tolist(), strict=True):
        for token in tokens.ids:
            frequency[token] += share
    return dict(frequency)


def tokenizer_of(folder, words):
    """(folder, frequency of its tokens, including those around every text, size of the vocabulary) of a tokenizer."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    every_text = {token: 1.0 for token in tokenizer.encode("").ids}
    return folder, every_text | token_frequency(tokenizer, words), tokenizer.get_vocab_size()
