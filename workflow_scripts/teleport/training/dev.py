"""The dev set: how well some queries retrieve their positives from a fixed pool of passages, during training."""

from dataclasses import dataclass, replace
from itertools import islice, zip_longest

import numpy as np
import torch

from teleport.arrays import Ragged, Run, offsets_of, places_of
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.model import prepare
from teleport.encoder.side import Frozen, Side, batches_at_once
from teleport.encoder.tokens import open_tokens
from teleport.evaluation.evaluate import own_pairs
from teleport.evaluation.measures import Judgments, score_run
from teleport.maxp import chunk_rows, max_over_chunks, offsets_among
from teleport.refusal import Refusal
from teleport.settings.training import Dev
from teleport.training.dev_queries import open_queries
from teleport.training.parallel import ALONE, Processes


@dataclass(frozen=True, eq=False)
class DevSet:
    """Q queries and the pool of P passages that each is compared with. queries, passages: sides with these texts alone,
    in the order of their rows in the collection, int64: rows_Q, passages_P; judgments: of these queries; own_QP: bool,
    the pairs of a query and its own text, which come last in its ranking"""

    queries: Side | Frozen
    passages: Side | Frozen
    rows_Q: np.ndarray
    passages_P: np.ndarray
    judgments: Judgments
    settings: Dev
    processes: Processes = ALONE
    own_QP: np.ndarray | None = None

    def score(self):
        """The mean of the measure over the queries under the encoders' current weights (float); ties as in every
        search. Several processes encode a share each; all return the score of the first."""
        with torch.inference_mode():
            vectors_QD, vectors_CD = self.vectors(self.queries), self.vectors(self.passages)
        scores_QP = max_over_chunks(vectors_QD @ vectors_CD.T, self.passages.offsets)
        if self.own_QP is not None:
            scores_QP[self.own_QP] = -np.inf
        ranked_QP = self.passages_P[np.argsort(-scores_QP, axis=1, kind="stable")]
        _, values = score_run(ranked_QP, self.rows_Q, self.judgments, [self.settings.measure])
        mean = np.array([values[self.settings.measure].mean()])
        return float(self.processes.gather_integers(mean.view(np.int64))[0].view(np.float64)[0])

    def vectors(self, side):
        """The vectors of one side's texts, or of their chunks: float32 numpy [n, dim]."""
        if isinstance(side, Frozen):
            return side.array
        prepared = prepare(side.encoder, side.dtype)  # the weights have changed since last time
        texts, size = len(side.lengths), self.processes.size
        own = np.resize(np.arange(texts), (size, -(-texts // size)))[self.processes.rank]
        side, budget = replace(side, prepared=prepared), TOKEN_BUDGET["encode"][side.device.type]
        with batches_at_once(torch.get_num_threads()) as parallel_map:
            vectors = side.vectors(own, budget, parallel_map)
        return self.processes.gather(vectors)[:texts].cpu().numpy()


def draw_pool(positives, neighbours, num_passages, most, random, rng):
    """The passages that queries are ranked against: `most`, or all if there are fewer; int64, ascending. Those in
    `positives` and `neighbours`, lists per query with the best first, take turns by rank until `random` passages are
    left to draw; these are drawn uniformly from the rest of the collection."""
    turns = (passage for turn in zip_longest(*positives, *neighbours) for passage in turn if passage is not None)
    known = list(islice(dict.fromkeys(turns), max(0, min(most, num_passages) - random)))
    drawn = rng.choice(num_passages, min(most + len(known), num_passages), replace=False)
    others = drawn[~np.isin(drawn, known)][: most - len(known)]
    return np.sort(np.concatenate([np.array(known, np.int64), others]))


def refuse_unanswerable(positives, passages_P, dev):
    """Raise Refusal for queries (a list of positives each) without a positive among the passages that they are ranked
    against: after any training they would count as failures."""
    missing = sum(not np.isin(own, passages_P).any() for own in positives)
    if missing:
        raise Refusal(
            f"training.dev: of {len(positives)} queries of {dev.split} {missing} have no positive among the "
            f"{len(passages_P)} passages that they are ranked against. Set dev.passages to {len(positives)} more than "
            "dev.random at least, or lower dev.queries."
        )


def open_dev(job, trainer):
    """The `DevSet` of a train job. The root seed alone decides queries and random passages, so all episodes share
    them."""
    dev, (rng, positives, rows_Q, judgments) = job.settings.dev, open_queries(job)
    neighbours = [ids[ids >= 0].tolist() for ids in Run.read(job, "dev").ids[rows_Q]]  # BM25 may find fewer
    lists = [positives[row].tolist() for row in rows_Q], neighbours
    passages_P = draw_pool(*lists, job.facts("corpus")["num_passages"], dev.passages, dev.random, rng)
    refuse_unanswerable(lists[0], passages_P, dev)
    own_QP = own_pairs(job, dev.split, rows_Q[:, None], passages_P) if job.settings.ignore_own_text else None
    queries, passages, name = trainer.queries, trainer.passages, f"queries.{dev.split}"
    if isinstance(queries, Frozen):
        queries = replace(queries, array=np.load(job.input("dev_queries", f"{name}.npy"), mmap_mode="r")[rows_Q])
    else:
        queries = replace(queries, tokens=some_texts(open_tokens(job, name), rows_Q))
    if isinstance(passages, Frozen):
        vectors = np.asarray(passages.array[chunk_rows(passages_P, passages.offsets)], np.float32)
        passages = replace(passages, array=vectors, offsets=offsets_among(passages_P, passages.offsets))
    else:
        passages = replace(passages, tokens=some_texts(passages.tokens, passages_P))
    return DevSet(queries, passages, rows_Q, passages_P, judgments, dev, trainer.processes, own_QP)


def some_texts(tokens, rows):
    """The token ids of some texts (`Ragged` of all), in the order of `rows`."""
    return Ragged(offsets_of(tokens.lengths[rows]), tokens.values[places_of(tokens.offsets, rows)])
