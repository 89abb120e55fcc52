"""The same training here and in sentence-transformers: same start, batches, loss, optimiser and rates, on a collection.

    python bench/beside.py config/mine.yaml [MORE.yaml …] [--steps 100] [--seeds 5] [--queries 32]

The configuration's corpus, splits and start must be finished: `snakemake --cores all --configfile config/mine.yaml
--until split pretrained`. The only negatives are the passages of the batch's other queries: the losses are `softmax`
here and MultipleNegativesRankingLoss there. Steps of both take turns; their seconds are CPU seconds. Prints how far
apart the two are in nDCG@10 of test, with p over queries and seeds, and in their losses (each draws its own dropout),
and how far its evaluator is from ours on the same vectors. HF_HUB_OFFLINE=1 spares sentence-transformers' questions to
the hub about the start. --keep NAME writes the scores of all queries and seeds as a part of
docs/measured/beside.parquet; without a configuration, the command prints difference and p of the parts there.
"""

import sys
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch

from results import DATA, read_scores, write_scores
from rounds import parser, write_json
from teleport.arrays import Ragged, offsets_of
from teleport.encoder.checkpoint import sides
from teleport.encoder.load import load_encoder
from teleport.encoder.model import prepare
from teleport.encoder.side import Side
from teleport.encoder.tokens import load_tokenizer, read_texts, separator_of
from teleport.evaluation.measures import Judgments, score_run
from teleport.evaluation.significance import Scores, compare
from teleport.plan.plan import Plan
from teleport.reader import read_positives
from teleport.refusal import Refusal
from teleport.running.artefact import STAGES, Artefact, is_finished
from teleport.seed import derive_seed
from teleport.settings.training import Training
from teleport.training.data import TrainingSet
from teleport.training.dual_encoder import Trainer
from teleport.training.losses import softmax
from teleport.training.objective import Objective, Term
from teleport.training.optimizers import make_optimizer
from teleport.training.step import learning_rate

KEPT, SYSTEMS = DATA / "beside.parquet", ("here", "there")
MEASURE, DEPTH, BUDGET, RATE = "nDCG@10", 1000, 16384, 2e-5
CUTOFF, TIE = 10, 1e-6  # of the measure; scores at most this far apart count as equal


class World(NamedTuple):
    """The checkpoint that training starts from, and its data. checkpoint: a folder of sentence-transformers' form;
    passages, train, test: texts with prefixes (lists); lengths: most tokens of queries and of passages; positives:
    `Ragged` of train; judgments: `Judgments` of test with a positive grade, as grade 1; scale: of the loss"""

    checkpoint: Path
    lower_case: bool | None
    passages: list
    train: list
    test: list
    lengths: tuple
    positives: Ragged
    judgments: Judgments
    scale: float


def world_of(plan, test):
    """The `World` of a plan's first experiment. Raises Refusal if its stages are not finished."""
    trajectory = next(iter(plan.trajectories.values()))[0]
    encoder, splits = trajectory.experiment.encoder, {name: plan.split(name) for name in ("train", test)}
    for stage in (plan.corpus, *splits.values(), trajectory.pretrained):
        if not is_finished(stage.name):
            raise Refusal(f"{stage.name} is not finished: run the workflow with `--until split pretrained`.")
    corpus, pretrained = Artefact(STAGES / plan.corpus.name), Artefact(STAGES / trajectory.pretrained.name)
    splits = {name: Artefact(STAGES / stage.name) for name, stage in splits.items()}
    checkpoint = sides(pretrained.path("checkpoint"))[1]
    separator = separator_of(encoder.title, *load_tokenizer(checkpoint, encoder.lower_case))
    blocks = read_texts(corpus.path("corpus.parquet"), separator, encoder.passage_prefix, encoder.max_characters)
    queries = [
        [
            text
            for block in read_texts(at.path(f"queries.{name}.parquet"), prefix=encoder.query_prefix)
            for text in block
        ]
        for name, at in splits.items()
    ]
    qrels = pq.read_table(splits[test].path(f"qrels.{test}.parquet"))
    query, passage, grade = (qrels[name].to_numpy() for name in ("query", "passage", "grade"))
    relevant = grade >= splits[test].facts["positive_grade"]
    lengths = encoder.max_query_tokens, encoder.max_passage_tokens
    passages = [text for block in blocks for text in block]
    positives = read_positives(splits["train"], "train")
    found = Judgments(query[relevant], passage[relevant], np.ones(relevant.sum(), np.int64))
    return World(checkpoint, encoder.lower_case, passages, *queries, lengths, positives, found, encoder.scale)


def side_of(world, encoder, texts, length):
    """The `Side` of some texts."""
    tokenizer, special = load_tokenizer(world.checkpoint, world.lower_case)
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    flat = np.array([token for own in ids for token in own], np.uint32)
    return Side(encoder, Ragged(offsets_of([len(each) for each in ids]), flat), length, special)


class Ours:
    """The training here, step by step."""

    def __init__(self, world, training, seed):
        encoder, (queries, passages) = load_encoder(world.checkpoint), world.lengths
        self.world, self.test = world, side_of(world, encoder, world.test, queries)
        sides = side_of(world, encoder, world.train, queries), side_of(world, encoder, world.passages, passages)
        self.data = TrainingSet([f"q{i}" for i in range(len(world.train))], world.positives, None, training, seed)
        settings = SimpleNamespace(training=training, scale=world.scale, also=[])
        objective = Objective([Term(softmax.loss)])
        self.trainer = Trainer(*sides, self.data, objective, settings, training.steps, seed, torch.device("cpu"))

    def step(self, step):
        return self.trainer.finish(self.trainer.step(step))[0]

    def vectors(self):
        """(of the test queries, of all passages), float32."""
        encoder = prepare(self.trainer.encoders[0].eval())
        with torch.inference_mode():
            for side in (self.test, self.trainer.passages):
                made = Side(encoder, side.tokens, side.max_tokens, side.special)
                yield made.vectors(np.arange(len(made.lengths)), BUDGET).numpy()


class Theirs:
    """The same training by the model and the loss of sentence-transformers."""

    def __init__(self, world, training, seed, data):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
        from sentence_transformers.util import dot_score

        self.world, self.training, self.seed, self.data = world, training, seed, data
        self.model = SentenceTransformer(str(world.checkpoint), device="cpu", local_files_only=True).train()
        self.loss = MultipleNegativesRankingLoss(self.model, scale=world.scale, similarity_fct=dot_score)
        self.optimizer = make_optimizer(training.optimizer, self.model, training.weight_decay)
        self.prepare = getattr(self.model, "preprocess", None) or self.model.tokenize

    def step(self, step):
        torch.manual_seed(derive_seed(self.seed, "dropout", step))
        batch, features = self.data.batch(step), []
        texts = (self.world.train, batch.queries_Q), (self.world.passages, batch.passages_P)
        for (own, rows), length in zip(texts, self.world.lengths, strict=True):
            self.model.max_seq_length = length
            features.append(self.prepare([own[row] for row in rows]))
        loss = self.loss(features, None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.training.max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.training.steps, self.training)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def vectors(self):
        self.model.eval()
        for texts, length in zip((self.world.test, self.world.passages), self.world.lengths, strict=True):
            self.model.max_seq_length = length
            yield self.model.encode(texts, show_progress_bar=False, prompt="")


def scores_of(world, vectors):
    """nDCG@10 of each test query, float64, by exact search."""
    queries_QD, passages_PD = vectors
    scores_QP = np.asarray(queries_QD, np.float64) @ np.asarray(passages_PD, np.float64).T
    ranked_QK = np.argsort(-scores_QP, axis=1, kind="stable")[:, :DEPTH].astype(np.int32)
    return score_run(ranked_QK, np.arange(len(ranked_QK)), world.judgments, [MEASURE])[1][MEASURE]


def without_ties(vectors):
    """The rows of the test queries whose first passages all have different scores, because each evaluator orders ties
    in its own way. Passages with the same beginning tie if they are truncated."""
    queries_QD, passages_PD = (np.asarray(each, np.float64) for each in vectors)
    first_QK = -np.sort(-(queries_QD @ passages_PD.T), axis=1)[:, : CUTOFF + 1]
    return np.flatnonzero((first_QK[:, :-1] - first_QK[:, 1:]).min(axis=1) > TIE)


def its_score(world, vectors, queries):
    """The mean nDCG@10 of some test queries (rows) by the evaluator of sentence-transformers, from the same vectors."""
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.util import dot_score

    made = dict(zip(("query", "document"), map(torch.from_numpy, map(np.asarray, vectors)), strict=True))

    class OfVectors(InformationRetrievalEvaluator):
        def embed_inputs(self, model, inputs, encode_fn_name=None, **others):
            rows = list(map(int, self.queries_ids if encode_fn_name == "query" else self.corpus_ids))
            return made[encode_fn_name][rows]

    relevant = {}
    for query, passage, _ in zip(*map(np.ndarray.tolist, world.judgments), strict=True):
        relevant.setdefault(str(query), set()).add(str(passage))
    asked = {str(i): world.test[i] for i in queries}
    corpus = {str(i): text for i, text in enumerate(world.passages)}
    evaluator = OfVectors(
        asked,
        corpus,
        relevant,
        corpus_chunk_size=len(world.passages),
        score_functions={"dot": dot_score},
        write_csv=False,
    )
    card = SimpleNamespace(set_evaluation_metrics=lambda *given: None)
    return evaluator(SimpleNamespace(model_card_data=card))[evaluator.primary_metric]


def side_by_side(world, training, seeds):
    """(scores [seeds, 2, Q], losses [seeds, steps, 2], CPU seconds of every step [seeds, steps, 2], the largest
    difference between the evaluator there and ours for queries without ties, the share of queries with ties), here
    before there. Steps take turns."""
    scores, losses, seconds, apart, tied = [], [], [], 0.0, []
    for seed in seeds:
        ours = Ours(world, training, seed)
        systems = ours, Theirs(world, training, seed, ours.data)
        for step in range(training.steps):
            taken, lost = [0.0, 0.0], [0.0, 0.0]
            for place in (0, 1) if step % 2 else (1, 0):
                started = time.process_time()
                lost[place] = systems[place].step(step)
                taken[place] = time.process_time() - started
            seconds.append(taken)
            losses.append(lost)
        found = [list(system.vectors()) for system in systems]
        scores.append([scores_of(world, vectors) for vectors in found])
        for vectors, own in zip(found, scores[-1], strict=True):
            clear = without_ties(vectors)
            apart = max(apart, abs(own[clear].mean() - its_score(world, vectors, clear)))
            tied.append(1 - len(clear) / len(own))
    shape = len(seeds), training.steps, 2
    return np.array(scores), np.reshape(losses, shape), np.reshape(seconds, shape), apart, np.mean(tied)


def keep(part, scores_SNQ, seeds):
    """Write the scores of a part, in place of those that KEPT has of it."""
    lines = [
        pd.DataFrame({"query": np.arange(scores_SNQ.shape[2]).astype(str), "value": scores_SNQ[s, place]}).assign(
            part=part, row=SYSTEMS[place], seed=seed, measure=MEASURE
        )
        for s, seed in enumerate(seeds)
        for place in (0, 1)
    ]
    old = pq.read_table(KEPT).to_pandas() if KEPT.is_file() else lines[0][:0]
    write_scores(KEPT, pd.concat([old[old["part"] != part], *lines]))


def compared():
    """{part: `Comparison` of here with there} of KEPT."""
    return {part: compare(*(own[name, MEASURE] for name in SYSTEMS)) for part, own in read_scores(KEPT).items()}


def main(arguments=None):
    made = parser("The same training here and there.", steps=100, seeds=5, queries=32)
    made.add_argument("config", type=Path, nargs="*", help="the files of a configuration whose start is made")
    made.add_argument("--test", default="test", help="the split that is evaluated")
    made.add_argument("--keep", metavar="NAME", help="keep the scores as this part of docs/measured/beside.parquet")
    arguments = made.parse_args(arguments)
    if not arguments.config:
        for part, found in compared().items():
            print(f"{part}: here - there {found.difference:+.4f}, p {found.p:.2g}, {found.method}")
        return
    torch.set_num_threads(arguments.threads)
    world = world_of(Plan.of_files(arguments.config), arguments.test)
    training = Training(
        batch_queries=arguments.queries, negatives_per_query=0, learning_rate=RATE, steps=arguments.steps,
        loss={"kind": "softmax"}, precision="fp32",
    )  # fmt: skip
    seeds = tuple(range(1, arguments.seeds + 1))
    scores_SNQ, losses, seconds, apart, tied = side_by_side(world, training, seeds)
    if arguments.keep:
        keep(arguments.keep, scores_SNQ, seeds)
    found = compare(*(Scores(scores_SNQ[:, place].T, seeds) for place in (0, 1)))
    per_step = [float(median(seconds[:, :, place].ravel())) for place in (0, 1)]
    figures = {
        MEASURE: scores_SNQ.mean((0, 2)).tolist(),
        "difference": found.difference,
        "p": found.p,
        "method": found.method,
        "first_loss_apart": float(np.abs(np.diff(losses[:, 0])).max()),
        "loss_apart": float(np.abs(np.diff(losses, axis=2)).mean()),
        "cpu_seconds_per_step": per_step,
        "times_as_fast": float(np.median(seconds[:, :, 1] / seconds[:, :, 0])),
        "evaluators_apart": float(apart),
        "queries_with_ties": float(tied),
    }
    for name, value in figures.items():
        print(f"{name.replace('_', ' ')}: {value}")
    write_json(arguments.json or Path("results/bench/beside.json"), {"name": "beside", "figures": figures})


if __name__ == "__main__":
    try:
        main()
    except Refusal as error:
        sys.exit(f"error: {error}")
