"""Pairs per second: the stage `cross_score` against `CrossEncoder.predict` of sentence-transformers, in float32.

    python bench/cross.py [--pairs 256] [--bert-base]
    taskset -c 0 python bench/cross.py --threads 1    # on one core

Cross-encoders of MiniLM's size with random weights score the same texts: BERT, whose pairs the stage packs without
padding (RoBERTa and XLM-R, too), and ModernBERT, which both pad. Both tokenise as they go and sort by length.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

import texts
from rounds import interleaved, report
from teleport.encoder.precision import pick_device
from teleport.encoder.ranker import load_ranker
from teleport.negatives.cross_score import score_pairs
from teleport.settings.teachers import Reads

MAX_TOKENS = texts.MAX_QUERY_TOKENS + texts.MAX_PASSAGE_TOKENS
SIZES = "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "pad_token_id"
FAMILIES = {"BERT": "bert", "ModernBERT": "modernbert"}


def cross_encoder(checkpoint, model_type, folder):
    """Write a cross-encoder of the sizes and with the tokenizer of a checkpoint; returns its folder."""
    tokenizer, like = AutoTokenizer.from_pretrained(checkpoint), AutoConfig.from_pretrained(checkpoint).to_dict()
    config = AutoConfig.for_model(model_type, num_labels=1, **{name: like[name] for name in SIZES})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def stage(folder, pairs, device):
    """A function that scores the pairs as the stage does."""
    model, tokenizer = load_ranker(folder).to(device), AutoTokenizer.from_pretrained(folder)
    score = partial(score_pairs, model, tokenizer, pairs, Reads(max_tokens=MAX_TOKENS), device)
    return torch.inference_mode()(score)


def peer(folder, pairs, device):
    """A function that scores the pairs with sentence-transformers."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(folder), max_length=MAX_TOKENS, device=str(device))
    return partial(model.predict, pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)


def main(arguments=None):
    parser = texts.parser("A cross-encoder's scores against sentence-transformers.", pairs=256)
    arguments = parser.parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    device, variants, peers, figures = pick_device(), {}, [], {}
    with TemporaryDirectory() as folder:
        checkpoint = texts.checkpoint(arguments, folder)
        world = texts.Texts(checkpoint, folder, arguments.pairs, arguments.pairs)
        pairs = list(zip(world.queries, world.passages, strict=True))
        for name, model_type in FAMILIES.items():
            made = cross_encoder(checkpoint, model_type, Path(folder, model_type))
            theirs, ours = peer(made, pairs, device), stage(made, pairs, device)
            found, expected = ours(), theirs()
            figures[f"largest difference, {name}"] = float(np.abs(found - expected).max())
            figures[f"standard deviation, {name}"] = float(expected.std())
            peers.append(f"CrossEncoder.predict, {name}")
            variants |= {peers[-1]: theirs, f"stage, {name}": ours}
        seconds = interleaved(variants, arguments.rounds)
    report("cross", seconds, peers, arguments.pairs, "pairs", arguments, **figures)


if __name__ == "__main__":
    main()
