"""Scores of pairs, by one contract: `score(query_rows, passage_rows) -> float32`, from int arrays of one length.

Two things implement it: vectors (`search.pairs.PairScorer`), and a table of pairs that a stage has written (`score`,
`cross_score`, `scores_file`, `negatives_file`). A draw, a filter, a loss or a mask names the scorer (`scores: miner`,
the checkpoint that mines, `file`, or a teacher), and its stage reads the scores of every kind from the role
`scores.miner`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import offsets_of, pair_keys, save_array
from teleport.refusal import Refusal
from teleport.running.log import log

FILES = ("scores_file", "negatives_file")  # kinds of stages whose tables may lack pairs
LARGEST = float(np.finfo(np.float32).max)  # of a score
OF_PAIRS = "pairs."  # before the names of a table's arrays, in a stage that also writes a `Run`


@dataclass(frozen=True)
class PairTable:
    """Scores of some pairs: query q has the passages[offsets[q] : offsets[q + 1]], ascending, each once, and `scores`
    (float32) beside them. name: of the maker, for messages; ids: {"query", "passage": the Artefact with their ids},
    for messages"""

    name: str
    offsets: np.ndarray
    passages: np.ndarray
    scores: np.ndarray
    ids: dict | None = None

    @classmethod
    def open(cls, job, role):
        """Open the table of the stage in a role (`write_table`)."""
        artefact = job.inputs[role]
        name = f"{role.partition('.')[2]} ({artefact.manifest['kind']}/{artefact.manifest['key']})"
        of_pairs = OF_PAIRS if f"{OF_PAIRS}offsets.npy" in artefact.manifest["files"] else ""
        offsets, *names = (f"{of_pairs}{field}.npy" for field in ("offsets", "passages", "scores"))
        fields = (np.load(job.input(role, field), mmap_mode="r") for field in names)
        parts = {"query": job.inputs.get("split.train"), "passage": job.inputs.get("corpus")}
        return cls(name, np.load(job.input(role, offsets)), *fields, parts if all(parts.values()) else None)

    def score(self, rows, passages, partial=False):
        """float32 [n]: the scores of passages (int [n]) for the queries of `rows` (int [n], or one int for all). Raises
        Refusal for a pair that is not in the table; with `partial` its score is NaN instead."""
        rows, passages = np.broadcast_to(rows, np.shape(passages)), np.asarray(passages)
        low, high = self.offsets[rows], self.offsets[rows + 1]
        for _ in range(int(np.max(high - low, initial=0)).bit_length()):  # a binary search of all pairs at once
            middle = (low + high) // 2
            before = (low < high) & (self.passages[np.minimum(middle, len(self.passages) - 1)] < passages)
            low, high = np.where(before, middle + 1, low), np.where(before, high, np.minimum(middle, high))
        scored = low < self.offsets[rows + 1]
        places = np.where(scored, low, 0)
        if len(self.passages):
            scored &= self.passages[places] == passages
        if not scored.all() and not partial:
            pair = np.flatnonzero(~scored)[0]
            raise Refusal(
                f"{self.name} has no score of the query {self.named('query', rows[pair])} with the passage "
                f"{self.named('passage', passages[pair])}. Score this pair too, or remove the setting that needs it."
            )
        scores = np.array(self.scores[places], np.float32) if len(self.scores) else np.empty(len(scored), np.float32)
        scores[~scored] = np.nan
        return scores

    def named(self, what, row):
        """The name of the query or the passage in a row, for messages."""
        return f"in row {row}" if self.ids is None else named_row(self.ids[what], what, row)


def named_row(artefact, what, row):
    """The name of the training query or the passage in a row of its stage, for messages. what: "query", or "passage"
    of a corpus"""
    file, column = {"query": ("queries.train.parquet", "query_id"), "passage": ("corpus.parquet", "doc_id")}[what]
    return f"{pq.read_table(artefact.path(file), columns=[column])[column][int(row)].as_py()!r} (row {row})"


def highest_scores(rows, passages, scores):
    """Pairs (query rows, passage rows and scores, arrays of one length) ordered by row and passage, each once; a
    repeated pair gets its highest score."""
    order = np.lexsort((-scores, passages, rows))
    order = order[np.diff(pair_keys(rows, passages)[order], prepend=-1) != 0]
    return rows[order], passages[order], scores[order]


def write_table(job, rows, passages, scores, num_queries, prefix=""):
    """Write pairs (query rows and passage rows, int arrays, and float32 scores), ordered by row and passage, as the
    outputs of a `PairTable`, after `prefix`: offsets.npy int64 [Q + 1], passages.npy int32, scores.npy float32."""
    save_array(job.output(f"{prefix}offsets.npy"), offsets_of(np.bincount(rows, minlength=num_queries)))
    save_array(job.output(f"{prefix}passages.npy"), passages.astype(np.int32))
    save_array(job.output(f"{prefix}scores.npy"), scores.astype(np.float32))


def require_scored(name, scores_Q, queries, remedy, then):
    """Raise Refusal if s+ (float32 [Q]) of a file with a name is known of none of the `queries` (in words); warn if it
    is not of some. remedy: what compares with s+, and what to do; then: what happens without s+"""
    unknown, number = np.count_nonzero(np.isnan(scores_Q)), len(scores_Q)
    if number and unknown == number:
        raise Refusal(f"{name} scores no positive of the {number:,} {queries}, and {remedy}")
    if unknown:
        log.warning("%s scores no positive of %d of %d %s: %s", name, unknown, number, queries, then)


def require_informative(scores, made_by):
    """Raise Refusal if all scores (float array) are the same, and teach nothing. made_by: their maker, for messages"""
    if len(scores) > 1 and np.min(scores) == np.max(scores):
        raise Refusal(
            f"{made_by}: all {len(scores):,} scores are {scores[0]:g}, so no passage differs from another. Give the "
            "scores of a trained model."
        )


def positive_scores(rows, scores, num_queries, rule):
    """s+ of each query, float32 [Q]: by `rule` the lowest, mean or first of the scores of its positives that have one;
    NaN without such a positive. rows: int [n], the query of each positive, ascending; scores: float32 [n], or NaN"""
    known = ~np.isnan(scores)
    scores, offsets = scores[known], offsets_of(np.bincount(rows[known], minlength=num_queries))
    scores_Q = np.full(num_queries, np.nan, np.float32)
    with_positives = np.flatnonzero(np.diff(offsets))
    starts = offsets[:-1][with_positives]
    if rule == "first":
        scores_Q[with_positives] = scores[starts]
    elif rule == "lowest":
        scores_Q[with_positives] = np.minimum.reduceat(scores, starts)
    else:
        scores_Q[with_positives] = np.add.reduceat(scores, starts) / np.diff(offsets)[with_positives]
    return scores_Q
