"""Stage `relabel`: relabel the negatives of a pool by judges, and write the new pool and the positives for training.

A rule of `negatives.relabelling` decides whether each negative of a pool is kept, left out, or a positive, and which
queries lose all negatives, so that they are not trained on. A judge that is a file need not have every pair: a pair
without a verdict keeps its label. New positives come after the query's other positives, in the order of the pool. If
the pool has `same_text`, kept negatives with the text of a new positive are left out. The pool of the stage `merge`
stays as it is, and momentum draws from it.
"""

from collections import Counter
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import Ragged, pair_keys, rows_and_values, save_array
from teleport.evaluation.names import read_column, read_query_ids
from teleport.negatives.candidates import blocks
from teleport.negatives.known_positives import pool_has_answers
from teleport.negatives.pool import Items, PoolWriter, read_pool
from teleport.negatives.relabelling import DROPPED, KEPT, NAMES, POSITIVE, WITHOUT_QUERY
from teleport.negatives.scores import FILES, PairTable, positive_scores, require_informative, require_scored
from teleport.reader import OWN_POSITIVES, positives_of_job
from teleport.refusal import Refusal, Remedy
from teleport.running.log import log
from teleport.settings.pool import RelabelSettings as Settings  # noqa: F401

BLOCK_NEGATIVES = 2**18  # judged at once


def run(job):
    """Write the pool (`pool.PoolWriter`), its positives (positives.offsets.npy int64 [Q + 1], positives.passages.npy
    int32, a `Ragged`), and relabelled.parquet (`Listed`).

    Facts: queries (that had negatives), negatives (that are left), relabelled {label: different pairs of a query and a
    passage}, dropped_queries, empty_queries (others without a negative left), pairs (different ones that the pool had),
    without_verdict {judge that is a file: how many of these it does not have}.
    """
    pool, positives = read_pool(partial(job.input, "negatives")), positives_of_job(job, "train")
    lengths, end = np.diff(pool.offsets), len(pool.offsets) - 1
    roles = {role.removeprefix("scores."): role for role in job.inputs if role.startswith("scores.")}
    tables = {name: PairTable.open(job, role) for name, role in roles.items()}
    files = {name: [] for name, role in roles.items() if job.inputs[role].manifest["kind"] in FILES}
    pairs, unknown = 0, Counter(dict.fromkeys(sorted(files), 0))
    labels_of = partial(job.load("relabel").labels, **job.settings.relabel.own)
    by_text = job.inputs["negatives"].manifest["settings"].get("same_text")
    first_P = np.load(job.input("corpus", "same_text.npy"), mmap_mode="r") if by_text else None
    answering, writer = cache(partial(pool_has_answers, job, pool)), PoolWriter(job.output, pool.names)
    listed, positive_keys, after, dropped = Listed(job, tables), [pair_keys(positives.rows, positives.values)], [], 0
    for first, last in blocks([lengths], 0, end, BLOCK_NEGATIVES):
        judged = Judged(pool, first, last, positives, tables, answering, files)
        pairs += len(ones := first_of_each(judged.keys_N, np.ones(len(judged.keys_N), bool)))
        unknown.update({name: int(np.isnan(judged.scores(name)[ones]).sum()) for name in files})
        labels_N = labels_of(judged)
        without_Q = judged.count(labels_N == WITHOUT_QUERY) > 0
        labels_N[without_Q[judged.queries_N]] = WITHOUT_QUERY
        if by_text:
            labels_N[copies_of_positives(judged, labels_N, first_P)] = DROPPED
        after.append(judged.count(labels_N == KEPT))
        writer.append(after[-1], Items(*(field[labels_N == KEPT] for field in judged.items)))
        positive_keys.append(judged.keys_N[first_of_each(judged.keys_N, labels_N == POSITIVE)])
        listed.append(judged, labels_N)
        dropped += int(np.count_nonzero(without_Q))
        job.progress(last, end, "queries")
    writer.close()
    listed.close()
    keys = np.concatenate(positive_keys)
    keys = keys[first_of_each(keys, np.ones(len(keys), bool))]  # with remove: answers one may be judged already
    after_Q = np.concatenate([np.zeros(0, int), *after])
    relabelled = Ragged.grouped(*rows_and_values(keys), end)
    save_array(job.output(f"{OWN_POSITIVES}offsets.npy"), relabelled.offsets)
    save_array(job.output(f"{OWN_POSITIVES}passages.npy"), relabelled.values)
    require_verdicts(tables, files, pairs, unknown, kind := job.settings.relabel.kind)
    had, left = int(np.count_nonzero(lengths)), int(np.count_nonzero(after_Q))
    if had and not left:
        raise Refusal(
            f"negatives.relabel {kind} leaves no query a negative. Check the scores that it reads, and its settings."
        )
    if left < had:
        log.warning("%d of %d queries have no negative after relabelling and are not trained on", had - left, had)
    facts = {"queries": had, "negatives": int(after_Q.sum()), "relabelled": dict(listed.number)}
    facts |= {"dropped_queries": dropped, "empty_queries": had - left - dropped}
    return facts | {"pairs": pairs, "without_verdict": dict(unknown)}


def require_verdicts(tables, files, pairs, unknown, kind):
    """Raise Refusal if a judge that is a file has a verdict of no pair, or scores that cannot decide. tables: {judge:
    `PairTable`}; files: as for `Judged`, of all blocks; pairs: how many; unknown: {judge: how many it does not have};
    kind: of the relabelling"""
    for name in (name for name in files if pairs and unknown[name] == pairs):
        raise Refusal(
            f"{tables[name].name} has no verdict for any of the {pairs:,} pairs that negatives.relabel judges. Give "
            "verdicts for negatives of this pool; `teleport export` writes the pool."
        )
    remedy = Remedy(
        f"negatives.relabel {kind} compares with them. Score these too, name another judge, or take rlhn with "
        "from_score, such as 0.5 for verdicts."
    )
    then = Remedy("none of their negatives counts as above s+")
    for name, compared in files.items():
        if compared:
            require_scored(tables[name].name, np.concatenate(compared), "queries with negatives", remedy, then)
            require_informative(tables[name].scores, tables[name].name)


def copies_of_positives(judged, labels_N, first_P):
    """bool [N]: which kept negatives of a block (`Judged`) have the text of a new positive of their query. first_P: for
    each passage the first one with its text"""
    texts_N = pair_keys(judged.queries_N, first_P[judged.items.passages])
    return (labels_N == KEPT) & np.isin(texts_N, texts_N[labels_N == POSITIVE])


def first_of_each(keys, marked):
    """int64, ascending: where each different marked key occurs for the first time."""
    places = np.flatnonzero(marked)
    return places[np.sort(np.unique(keys[places], return_index=True)[1])]


class Judged:
    """The N negatives of a block of queries, and their scores by judges.

    queries_N: int64, the query of each, from 0 on in this block, ascending; items: flat `pool.Items`; keys_N: as
    `pair_keys`, by the rows of all queries; files: {judge that may have no score of a pair: list of s+ of queries, to
    which those that are compared are added}
    """

    def __init__(self, pool, first, last, positives, tables, answering, files):
        self.bounds = slice(*pool.offsets[[first, last]])
        self.items = Items(*(np.asarray(field[self.bounds]) for field in pool.items))
        self.queries_N = np.repeat(np.arange(last - first), np.diff(pool.offsets[first : last + 1]))
        self.first, self.number = first, last - first
        self.keys_N = pair_keys(first + self.queries_N, self.items.passages)
        self.positives, self.tables, self.answering, self.files = positives, tables, answering, files

    def count(self, marked_N):
        """int64 [queries]: the number of marked negatives of each query."""
        return np.bincount(self.queries_N[marked_N], minlength=self.number)

    def different(self, marked_N):
        """int64 [N]: the number of different marked passages of each negative's query."""
        firsts = first_of_each(self.keys_N, marked_N)
        return np.bincount(self.queries_N[firsts], minlength=self.number)[self.queries_N]

    def scores(self, whose):
        """float32 [N]: the scores of the negatives by a judge, NaN if it has none."""
        return self.tables[whose].score(self.first + self.queries_N, self.items.passages, whose in self.files)

    def positive_scores(self, whose, rule):
        """float32 [N]: s+ of each negative's query by a judge, over the positives that the judge scores; NaN if it
        scores none. rule: see `scores.positive_scores`"""
        offsets = self.positives.offsets[self.first : self.first + self.number + 1]
        rows = np.repeat(np.arange(self.number), np.diff(offsets))
        with_negatives = np.isin(rows, self.queries_N)  # with a part of the queries, the others have no scores
        rows, passages = rows[with_negatives], self.positives.values[offsets[0] : offsets[-1]][with_negatives]
        scores = self.tables[whose].score(self.first + rows, passages, whose in self.files)
        scores_Q = positive_scores(rows, scores, self.number, rule)
        if whose in self.files:
            self.files[whose].append(scores_Q[np.unique(rows)])
        return scores_Q[self.queries_N]

    def have_answers(self):
        """bool [N]: the text of the passage has an answer to the query."""
        return self.answering()[self.bounds]


class Listed:
    """The table relabelled.parquet, a line for each different pair that is no longer a negative: query_id, doc_id,
    label (`relabelling.NAMES`), rank in its list, and `score.NAME` by each judge. number: {label: lines}"""

    def __init__(self, job, tables):
        self.query_ids = read_query_ids(job, "train")
        self.doc_ids = read_column(job, "corpus.parquet", "doc_id")
        self.tables, self.number = tables, Counter(dict.fromkeys(NAMES.values(), 0))
        columns = [(name, pa.string()) for name in ("query_id", "doc_id", "label")] + [("rank", pa.int32())]
        self.schema = pa.schema(columns + [(f"score.{name}", pa.float32()) for name in tables])
        self.writer = pq.ParquetWriter(job.output("relabelled.parquet"), self.schema)

    def append(self, judged, labels_N):
        """Add the negatives of a block that have another label than KEPT."""
        lines = first_of_each(judged.keys_N, labels_N != KEPT)
        rows, passages = judged.first + judged.queries_N[lines], judged.items.passages[lines]
        names = [NAMES[label] for label in labels_N[lines].tolist()]
        self.number.update(names)
        scores = [table.score(rows, passages, partial=True) for table in self.tables.values()]
        columns = [self.query_ids.take(pa.array(rows)), self.doc_ids.take(pa.array(passages)), names]
        self.writer.write_table(pa.table([*columns, judged.items.ranks[lines], *scores], schema=self.schema))

    def close(self):
        self.writer.close()
