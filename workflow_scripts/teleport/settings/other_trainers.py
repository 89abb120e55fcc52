"""Names of our settings, losses and measures in other trainers, if their spelling is not similar to ours: Tevatron,
FlagEmbedding, sentence-transformers, DPR, ANCE and Hugging Face's Trainer. A refusal of their name gives ours."""

import re

# Their count of passages includes the positive, and their batch size is that of one device.
OWN_NEGATIVES, GROUP = "training.negatives_per_query", "training.negatives_per_query (without the positive: one less)"
BATCH = "training.batch_queries (the queries of a step, on all devices and in all micro-batches)"
KEYS = {
    "n_negatives": OWN_NEGATIVES,
    "num_negatives": OWN_NEGATIVES,
    "hard_negatives": OWN_NEGATIVES,
    "num_hard_negatives": OWN_NEGATIVES,
    "train_n_passages": GROUP,
    "train_group_size": GROUP,
    "per_device_train_batch_size": BATCH,
    "per_gpu_train_batch_size": BATCH,
    "train_batch_size": BATCH,
    "gradient_accumulation_steps": "training.accumulate",
    "num_train_epochs": "training.epochs",
    "lr": "training.learning_rate",
    "fp16": "training.precision",
    "bf16": "training.precision",
    "eval_steps": "training.evaluate_every",
    "early_stopping_patience": "training.patience",
    "load_best_model_at_end": "training.select",
    "metric_for_best_model": "training.dev.measure",
    "matryoshka_dims": "training.widths",
    "seed": "seeds (a list, outside of training)",
    "teacher": "scores (a name under teachers)",
    "temperature": "encoder.scale (1 / temperature)",
    "max_seq_length": "encoder.max_query_tokens and encoder.max_passage_tokens",
    "q_max_len": "encoder.max_query_tokens",
    "query_max_len": "encoder.max_query_tokens",
    "p_max_len": "encoder.max_passage_tokens",
    "passage_max_len": "encoder.max_passage_tokens",
    "query_instruction_for_retrieval": "encoder.query_prefix",
    "sentence_pooling_method": "encoder.pooling",
    "untie_encoder": "encoder.tied (the opposite)",
    "model_name_or_path": "encoder.checkpoint",
    "range_min": "negatives.filters.skip_ranks",
    "sampling_strategy": "negatives.draw",
}
# In lower case.
VALUES = {
    "infonce": "softmax",
    "contrastive": "softmax",
    "cross_entropy": "softmax",
    "mnrl": "softmax",
    "multiplenegativesrankingloss": "softmax",
    "cachedmultiplenegativesrankingloss": "softmax, with training.gradient_caching",
    "map": "AP",
    "mrr": "RR",
    "recip_rank": "RR",
    "ndcg": "nDCG",
    "ndcg_cut": "nDCG",
    "recall": "R",
    "precision": "P",
    "accuracy": "Success",
}


def our_value(name):
    """Our name of a loss or a measure that another trainer calls `name`, such as RR@10 for mrr@10 and nDCG@10 for
    ndcg_cut_10; None if it is unknown."""
    word, cutoff = re.fullmatch(r"(.*?)(?:[@_](\d+))?", name.lower(), re.DOTALL).groups()
    return VALUES.get(word) and VALUES[word] + (f"@{cutoff}" if cutoff else "")
