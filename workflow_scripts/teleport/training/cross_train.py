"""Stage `cross_train`: trains a cross-encoder on positives and the negatives of a pool, by the loop of `train` stages.

RocketQA's second step (Qu et al., NAACL 2021, Section 4.3): negatives mined by a dual encoder train a model that reads
query and passage together. Its scores then remove false negatives, or teach.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow.parquet as pq
import torch
from torch.nn import functional
from transformers import AutoTokenizer

from teleport.arrays import Ragged, Run, in_slots, offsets_of
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.checkpoint import copy_tokenizer
from teleport.encoder.pair_texts import PairTexts, pair_form
from teleport.encoder.precision import autocast, computed_in, dtype_name, pick_device, resolve_precision
from teleport.encoder.ranker import load_ranker, most_pair_tokens
from teleport.encoder.tokens import open_tokens
from teleport.evaluation.evaluate import own_pairs
from teleport.evaluation.measures import Judgments, score_run
from teleport.reader import positives_of_job
from teleport.refusal import Refusal
from teleport.running.devices import out_of_memory
from teleport.running.files import read_saved, write_json
from teleport.seed import derive_seed
from teleport.settings.teachers import CrossTrainSettings as Settings  # noqa: F401
from teleport.settings.teachers import RankerDev
from teleport.training.data import TrainingSet
from teleport.training.dev_queries import open_queries
from teleport.training.loop import facts, train
from teleport.training.resume import load_state
from teleport.training.schedule import schedule_steps, training_of
from teleport.training.selection import Selection
from teleport.training.step import Steps
from teleport.training.step_metrics import mean_where, write_curves

LARGER = "Raise training.accumulate of the cross-encoder, or lower its max_tokens."


@out_of_memory(LARGER)
def run(job):
    """Train from the checkpoint in `job`, or from its resume state, and write `checkpoint/` and the curves. Facts: as
    of a `train` stage. Raises SystemExit(143) after saving on SIGTERM."""
    torch.set_num_threads(job.threads)
    settings, seed = job.settings, derive_seed(job.settings.seed, "cross_train")
    training = training_of(settings.training)
    data = read_pairs(job, training, seed)
    trainer = CrossTrainer(job, data, training, schedule_steps(training, data), seed)
    copies = 8 if training.select == "dev" else 6  # the state twice while it is replaced, and the outputs
    job.require_room(sum(copies * p.nbytes for p in trainer.encoders.parameters()))
    selection = Selection(trainer, open_reranking(job, trainer) if settings.dev else None)
    computed = computed_in(dtype_name(trainer.dtype), trainer.device.type, False)
    state = load_state(job.resume, trainer.encoders, trainer.optimizer, computed)
    resumed_from, earlier = state.step if state.curves else 0, state.seconds + state.dev_seconds
    state.attempts += 1
    train(job, trainer, state, trainer.total, selection)
    selection.publish(state)
    write_checkpoint(job, trainer.model)
    write_curves(job, trainer, state)
    selection.log_cost(state)
    made = facts(trainer, state) | selection.facts(state)
    return made | {"resumed_from": resumed_from, "earlier_seconds": earlier}


def read_pairs(job, training, seed):
    """The `TrainingSet` whose batches are queries, one positive of each, and negatives of the pool."""
    queries = pq.read_table(job.input("split.train", "queries.train.parquet"), columns=["query_id"])
    pools = Ragged.open(job.input("negatives", "offsets.npy"), job.input("negatives", "passages.npy"))
    return TrainingSet(queries["query_id"].to_pylist(), positives_of_job(job, "train"), pools, training, seed)


class CrossTrainer(Steps):
    """The `Steps` of a cross-encoder: the loss of a batch is computed from its pairs."""

    def __init__(self, job, data, training, total, seed):
        folder, device = job.input("checkpoint", "checkpoint"), pick_device()
        self.model = load_ranker(folder).to(device)
        self.dtype, self.compiled, self.trained = resolve_precision(training.precision, device), False, [self]
        super().__init__([self.model], data, training, total, seed, device)
        self.texts = open_texts(job, folder, self.model.config)
        self.loss = LOSSES[training.loss.kind]

    def forward(self, batch, masked):
        """([loss of a `data.Batch` with its graph, float32 scalar]; mean scores of positives and of negatives, [2])."""
        columns_QK = np.column_stack([batch.positive_columns_Q, batch.own_columns_QN])
        passages_QK = batch.passages_P[columns_QK]
        rows = np.repeat(batch.queries_Q, columns_QK.shape[1])
        scores_QK = self.scores(self.texts, rows, passages_QK.ravel(), self.token_budget).view(columns_QK.shape)
        is_positive_QK = torch.zeros_like(scores_QK, dtype=torch.bool)
        is_positive_QK[:, 0] = True
        means = [mean_where(scores_QK.detach(), which_QK) for which_QK in (is_positive_QK, ~is_positive_QK)]
        return [self.loss(scores_QK)], torch.stack(means)

    def scores(self, texts, rows, passages, token_budget):
        """Float32 [M] of M pairs, in the precision of the training."""
        with autocast(self.device, self.dtype):
            return texts.scores(self.model, rows, passages, token_budget)

    def real_tokens(self, batch):
        """How many tokens the pairs of a batch have."""
        rows = np.concatenate([batch.queries_Q, np.repeat(batch.queries_Q, batch.own_columns_QN.shape[1])])
        columns = np.concatenate([batch.positive_columns_Q, batch.own_columns_QN.ravel()])
        return int(self.texts.lengths(rows, batch.passages_P[columns]).sum())


def binary(scores_QK):
    """Cross-entropy of each pair: the first of a query is relevant, the others are not (RocketQA). Its released code
    has two labels, whose difference is the score here."""
    wanted_QK = torch.zeros_like(scores_QK)
    wanted_QK[:, 0] = 1
    return functional.binary_cross_entropy_with_logits(scores_QK, wanted_QK)


def softmax(scores_QK):
    """Cross-entropy of the first passage of each query among all of its passages (Tevatron's reranker,
    sentence-transformers' MultipleNegativesRankingLoss without negatives of other queries)."""
    return functional.cross_entropy(scores_QK, scores_QK.new_zeros(len(scores_QK), dtype=torch.long))


LOSSES = {"binary": binary, "softmax": softmax}


def open_texts(job, folder, config):
    """The `PairTexts` of the training queries and of all passages. Raises Refusal for pairs longer than the model's
    positions, and for pairs without room for a text."""
    form = pair_form(AutoTokenizer.from_pretrained(folder, local_files_only=True))
    length, most = job.settings.max_tokens, most_pair_tokens(config)
    if not form.added + 2 <= length <= most:
        raise Refusal(
            f"max_tokens of the cross-encoder is {length}, but must be from {form.added + 2} to {most}. Change it."
        )
    return PairTexts(open_tokens(job, "queries.train"), open_tokens(job, "passages"), form, length)


@dataclass(frozen=True, eq=False)
class Reranking:
    """The dev set: queries (rows_Q, ascending), and the passages to rank for each, in the order of the corpus. rows_M,
    passages_P: of all pairs; offsets: where the pairs of each query begin"""

    trainer: CrossTrainer
    texts: PairTexts
    rows_Q: np.ndarray
    rows_M: np.ndarray
    passages_P: np.ndarray
    offsets: np.ndarray
    judgments: Judgments
    settings: RankerDev

    def values(self):
        """The measure of each query under the model's current weights, float64 [Q]; ties as in every search."""
        budget = TOKEN_BUDGET["encode"][self.trainer.device.type]
        with torch.inference_mode():
            scores_M = self.trainer.scores(self.texts, self.rows_M, self.passages_P, budget).cpu().numpy()
        best = np.lexsort((-scores_M, self.rows_M))
        lengths_Q = np.diff(self.offsets)
        ranked_QK = in_slots(lengths_Q, self.passages_P[best], -1)
        return score_run(ranked_QK, self.rows_Q, self.judgments, [self.settings.measure])[1][self.settings.measure]

    def score(self):
        return float(self.values().mean())


def open_reranking(job, trainer):
    """The `Reranking` of a job: the positives and first neighbours of each query, as in sentence-transformers'
    CrossEncoderRerankingEvaluator."""
    dev, (_, positives, rows_Q, judgments) = job.settings.dev, open_queries(job)
    near = Run.read(job, "dev").ids[rows_Q, : dev.depth]
    lists = [np.union1d(positives[row], own[own >= 0]) for row, own in zip(rows_Q, near, strict=True)]
    if job.settings.ignore_own_text:
        lengths = list(map(len, lists))
        own_M = own_pairs(job, dev.split, np.repeat(rows_Q, lengths), np.concatenate(lists))
        parts = np.split(own_M, np.cumsum(lengths)[:-1])
        lists = [each[~own] for each, own in zip(lists, parts, strict=True)]
    lengths_Q = np.array([len(own) for own in lists])
    texts = replace(trainer.texts, queries=open_tokens(job, f"queries.{dev.split}"))
    rows_M, passages_P = np.repeat(rows_Q, lengths_Q), np.concatenate(lists)
    return Reranking(trainer, texts, rows_Q, rows_M, passages_P, offsets_of(lengths_Q), judgments, dev)


def write_checkpoint(job, model):
    """Save the model and its tokenizer, which cuts pairs to the trained length."""
    folder, source = job.output("checkpoint"), job.input("checkpoint", "checkpoint")
    model.save_pretrained(folder)
    copy_tokenizer(source, folder)
    path = folder / "tokenizer_config.json"
    write_json(path, read_saved(path) | {"model_max_length": job.settings.max_tokens})
