"""Stage `ranker`: a cross-encoder, verified and brought into one folder: transformers' sequence classification with one
label, weights as safetensors, and its own tokenizer. Sentence-transformers' CrossEncoder loads it too."""

import torch
from transformers import AutoModelForSequenceClassification

from teleport.encoder.checkpoint import copy_tokenizer
from teleport.encoder.load import refusing
from teleport.encoder.pretrained import load_fast_tokenizer
from teleport.encoder.source import verified
from teleport.refusal import Refusal
from teleport.running.files import require_free_space
from teleport.settings.teachers import RankerSettings as Settings  # noqa: F401


def run(job):
    """Find the checkpoint, verify it, and write `checkpoint/`. Facts: model_type, parameters, and those that pin it."""
    checkpoint = job.settings.checkpoint
    folder, weights, pinned = verified(checkpoint)
    if weights[0].suffix != ".safetensors":
        raise Refusal(f"{weights[0]} is a pickle, which may run code. Give the cross-encoder with model.safetensors.")
    require_free_space(job.folder, sum(file.stat().st_size for file in weights))
    load_fast_tokenizer(folder)  # refused here where it is not usable
    model = load_ranker(folder)
    output = job.output("checkpoint")
    model.save_pretrained(output)
    copy_tokenizer(folder, output)
    facts = {"model_type": model.config.model_type, "parameters": sum(p.numel() for p in model.parameters())}
    return facts | pinned


def load_ranker(folder):
    """The model of a folder in float32, in evaluation mode. Raises Refusal for several labels, and for a folder without
    the weights of its head, which transformers would draw."""
    with refusing(f"cannot read the cross-encoder in {folder}"):
        options = {"local_files_only": True, "use_safetensors": True, "trust_remote_code": False}
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder, **options, dtype=torch.float32, output_loading_info=True
        )
    if (labels := model.config.num_labels) != 1:
        raise Refusal(
            f"{folder / 'config.json'}: the cross-encoder has {labels} labels, and the score of a pair is one number. "
            "Give one with a single label."
        )
    if missing := sorted(report["missing_keys"]):
        raise Refusal(
            f"{folder} lacks {len(missing)} weights of a cross-encoder, for example {missing[0]}. Give one that was "
            "trained to score pairs."
        )
    return model.eval()
