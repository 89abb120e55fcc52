"""Stage `cross_score`: the scores of pairs by a cross-encoder, which reads the query and the passage together.

A passage is read as its title and its text, tokenised by the cross-encoder's own tokenizer as a pair with the query and
cut to `max_tokens` from the longer of the two. The pairs are those of the stage `score`. They are scored in the order
of their passages, so that each part of the corpus is read once.
"""

from contextlib import nullcontext

import numpy as np
import pyarrow.parquet as pq
import torch
from transformers import AutoTokenizer

from teleport.arrays import rows_and_values
from teleport.encoder.attention import PACKED, Packing
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.model import positions
from teleport.encoder.precision import autocast, dtype_name, pick_device, resolve_precision, to_device, to_encode
from teleport.encoder.pretrained import refuse_unfit_tokenizer
from teleport.encoder.ranker import load_ranker, most_pair_tokens, pair_tokenizer
from teleport.encoder.tokens import FIELD_END
from teleport.negatives.score import pairs_of_job
from teleport.negatives.scores import require_informative, write_table
from teleport.reader import positives_of_job, read_passages
from teleport.refusal import Refusal
from teleport.running.blocks import RowBlocks
from teleport.running.devices import LARGER, out_of_memory
from teleport.settings.teachers import CrossScoreSettings as Settings  # noqa: F401
from teleport.settings.teachers import Reads

BLOCK_PAIRS = 4096  # a kill costs at most so many; batches are made inside a block and do not depend on kills


@out_of_memory(LARGER["encode"])
def run(job):
    """Write a `scores.PairTable`. Facts: pairs, queries (that have some), device, dtype,
    earlier_seconds (before this process)."""
    torch.set_num_threads(job.threads)
    settings, device = job.settings, pick_device()
    dtype = resolve_precision(settings.precision, device)
    queries = pq.read_table(job.input("split.train", "queries.train.parquet"), columns=["text"])["text"].to_pylist()
    blocks_of_pairs = pairs_of_job(job, positives_of_job(job, "train"))
    keys = np.concatenate([np.zeros(0, np.int64), *(pairs for *_, pairs in blocks_of_pairs)])
    rows, passages = rows_and_values(keys)
    order = np.lexsort((rows, passages))
    folder = job.input("ranker", "checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = to_encode(load_ranker(folder), device)
    if settings.max_tokens > (most := most_pair_tokens(model.config)):
        raise Refusal(
            f"max_tokens of the cross-encoder is {settings.max_tokens}, and its model reads {most}. Lower it."
        )
    made = {"device": device.type, "dtype": dtype_name(dtype)}
    scores, earlier = np.zeros(0, np.float32), 0.0
    if len(keys):
        blocks = RowBlocks(job, {"scores.npy": (np.float32, (len(keys),))}, BLOCK_PAIRS, made)
        earlier = round(blocks.earlier, 3)
        with torch.inference_mode(), autocast(device, dtype) if dtype else nullcontext():
            for start, stop in blocks:
                part = order[start:stop]
                pairs = texts_of(job, queries, rows[part], passages[part])
                blocks["scores.npy"][start:stop] = score_pairs(model, tokenizer, pairs, settings, device)
                job.progress(stop, len(keys), "pairs")
        scores = np.empty(len(keys), np.float32)
        scores[order] = blocks["scores.npy"]
    if len(wrong := np.flatnonzero(~np.isfinite(scores))):
        pair = f"query row {rows[wrong[0]]} with passage row {passages[wrong[0]]}"
        raise Refusal(f"{folder}: the score of {pair} is not finite. Set precision to fp32, or give another model.")
    require_informative(scores, folder)
    write_table(job, rows, passages, scores, len(queries))
    return {"pairs": len(keys), "queries": len(np.unique(rows)), "earlier_seconds": earlier} | made


def texts_of(job, queries, rows, passages):
    """[(query, passage)] of the texts of pairs whose passages (int) ascend."""
    wanted, places = np.unique(passages, return_inverse=True)
    columns = ("title", "text") if job.settings.title == "space" else ("text",)
    read = read_passages(job.input("corpus", "corpus.parquet"), wanted.astype(np.int64), list(columns))
    # A title's fields are joined as in a pair that a cross-encoder trains on (stage `tokens`).
    fields = ((*(title.replace(FIELD_END, " ") for title in titles), text) for *titles, text in read)
    texts = [" ".join(filter(None, each)) for each in fields]
    return [(queries[row], texts[place]) for row, place in zip(rows, places, strict=True)]


def score_pairs(model, tokenizer, pairs, settings, device):
    """float32 [pairs]: the score of the model's one label for each pair of texts, in batches of similar length."""
    encoded = tokenizer(
        *map(list, zip(*pairs, strict=True)), truncation="longest_first", max_length=settings.max_tokens
    )
    lengths = np.array([len(ids) for ids in encoded["input_ids"]])
    order, scores = np.argsort(-lengths, kind="stable"), np.empty(len(pairs), np.float32)
    if packs := model.config.model_type in HEADS:
        model.set_attn_implementation(PACKED)
    start = 0
    while start < len(order):
        size = max(1, TOKEN_BUDGET["encode"][device.type] // int(lengths[order[start]]))
        part = order[start : start + size]
        batch = {name: [each[i] for i in part] for name, each in encoded.items()}
        if packs:
            logits = packed_logits(model, batch, device)
        else:
            logits = model(**tokenizer.pad(batch, return_tensors="pt").to(device)).logits
        logits = logits.squeeze(1).float()
        scores[part] = (logits.sigmoid() if settings.sigmoid else logits).cpu().numpy()
        start += size
    return scores


def published_cross_encoder(folder):
    """Function ([(query, passage)]) -> float32 [pairs] of the cross-encoder in a folder, in float32, with the settings
    of a configuration that names none. Pairs longer than its model reads are cut."""
    device, tokenizer = pick_device(), pair_tokenizer(folder)
    model = to_encode(load_ranker(folder), device)
    refuse_unfit_tokenizer(folder, tokenizer, model.config.vocab_size)
    settings = Reads(max_tokens=min(Reads().max_tokens, most_pair_tokens(model.config)))

    @torch.inference_mode()
    def score(pairs):
        return score_pairs(model, tokenizer, pairs, settings, device) if pairs else np.zeros(0, np.float32)

    return score


# The models whose pairs are packed without padding, and their heads, which read the first token of each pair:
# [pairs, 1, hidden] -> [pairs, 1]. On one core this scored MiniLM's size 1.2 times as fast as in padded batches.
HEADS = {
    "bert": lambda model, first: model.classifier(model.bert.pooler(first)),
    "roberta": lambda model, first: model.classifier(first),
    "xlm-roberta": lambda model, first: model.classifier(first),
}


def packed_logits(model, batch, device):
    """float [pairs, 1], computed with the pairs as one row of tokens. model: one of HEADS whose attention is PACKED;
    batch: {output of the tokenizer: a list for each pair}"""
    lengths = np.array([len(ids) for ids in batch["input_ids"]])
    ids = np.concatenate(batch["input_ids"])
    inputs = {"input_ids": ids, "position_ids": positions(ids, lengths, model.config)}
    if "token_type_ids" in batch:
        inputs["token_type_ids"] = np.concatenate(batch["token_type_ids"])
    inputs = {name: to_device(torch.from_numpy(array)[None], device) for name, array in inputs.items()}
    packing = Packing.of(lengths, device)
    hidden = model.base_model(**inputs, packing=packing).last_hidden_state[0]
    return HEADS[model.config.model_type](model, hidden[packing.offsets[:-1].long(), None])
