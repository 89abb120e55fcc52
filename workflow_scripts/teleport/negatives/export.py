"""Exports a pool of negatives: every query with its passages, in the forms of `negatives.forms`."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.negatives.forms import FORMS, Mined, with_origin
from teleport.negatives.pool import MINERS, read_pool
from teleport.negatives.scores import PairTable
from teleport.reader import positives_of
from teleport.refusal import Refusal
from teleport.running.job import Job
from teleport.search.pairs import PairScorer
from teleport.seed import derive_seed

BLOCK_QUERIES = 1000
CHUNK_PASSAGES = 4096


class Wanted(NamedTuple):
    """The options of an export. hardest: the highest scores first, else in the order of the pool; most: the most
    negatives of a query, the hardest or a random choice; scores: also scores, and ranks, sources and episodes if the
    form has room for them; origin: also the file `origin`, a line of JSON for each row: query_id; docid and score of
    its positives; docid, score, rank, source and episode of its negatives"""

    form: str = "tevatron"
    hardest: bool = False
    most: int | None = None
    scores: bool = False
    origin: bool = False


def export_pool(negatives, corpus, train, folder, wanted):
    """Write the pool of a merge or relabel stage in a form; returns a sentence on the written negatives.

    Negatives keep the order and the duplicates of the pool, unless `wanted` changes it. A query without negatives or
    positives is left out, because nobody can train on it. negatives, corpus, train: `running.artefact.Artefact`s;
    folder: a temporary one, for the files `lines` and `origin` and the unpacked corpus; wanted: a `Wanted`
    """
    form, pool = FORMS[wanted.form], Pools(negatives, corpus, train, folder)
    width = pool.most(wanted.most) if form.one_row else 0
    short = number = further = unscored = 0
    if wanted.hardest and not pool.scored:
        raise Refusal(
            f"{negatives.folder}: these negatives have no scores, so none is the hardest. Leave --order out, or "
            "export a pool that a checkpoint has mined, whose vectors are still there (keep_vectors)."
        )
    paths = [Path(folder, "lines"), Path(folder, "origin")]
    lines, origins = (path.open("w", encoding="utf-8", newline="") for path in paths)
    with lines, origins:
        for mined in pool.mined(wanted.hardest, wanted.most):
            if form.one_row and len(mined.negatives) < width:
                short += 1
                continue
            if not form.all_positives:
                further += len(mined.positives) - 1
                mined = mined._replace(positives=mined.positives[:1])
            for part in form.rows_of(mined):
                (row,) = form.write(part, wanted.scores)
                line = "\t".join(row) if isinstance(row, tuple) else json.dumps(row, ensure_ascii=False)
                lines.write(f"{line}\n")
                if wanted.origin:
                    origins.write(f"{json.dumps(origin_of(part), ensure_ascii=False)}\n")
            number += 1
            to_score = mined.negatives + (mined.positives if wanted.scores else [])
            unscored += any("score" not in passage for passage in to_score)
    if not number:
        raise Refusal(
            f"{negatives.folder}: no query has both a positive and a negative, so there is nothing to export."
        )
    left_out = [f"{short} that have fewer than {width} negatives"] * bool(short)
    left_out += [f"{further} positives that are not the first of their query"] * bool(further)
    without = f", without {' and '.join(left_out)}" if left_out else ""
    if unscored and (wanted.scores or wanted.hardest):
        without += f", {unscored} of them with passages that no checkpoint scored"
    return f"{number} queries{without}"


def origin_of(mined):
    """A line (dict) of the file `origin`."""
    sides = {"positives": mined.positives, "negatives": mined.negatives}
    return {"query_id": mined.query_id} | {
        side: [with_origin(passage, ["docid"], True) for passage in passages] for side, passages in sides.items()
    }


class Pools:
    """The pool of a merge stage with its texts and scores. Arguments: see `export_pool`"""

    def __init__(self, negatives, corpus, train, folder):
        self.queries = pq.read_table(train.path("queries.train.parquet"), columns=["query_id", "text"]).to_pylist()
        relabelled = negatives.manifest["kind"] == "relabel"
        self.positives = positives_of(train, negatives if relabelled else negatives.input("positives"), "train")
        self.pool, self.scorer = read_pool(negatives.path), scorer_of(negatives)
        self.corpus = Corpus(corpus.path("corpus.parquet"), f"{folder}/corpus")
        self.seed = negatives.manifest["settings"].get("seed", 0)
        self.scored = self.scorer is not None or bool(np.isfinite(self.pool.items.scores).any())

    def most(self, bound):
        """The most negatives of a query that has a positive, at most `bound` (int or None)."""
        lengths = np.diff(self.pool.offsets)[self.positives.lengths > 0]
        return min(int(lengths.max(initial=0)), bound or np.iinfo(np.int64).max)

    def mined(self, hardest=False, most=None):
        """Yield `Mined` of every query that has positives and negatives; arguments: as in `Wanted`."""
        offsets = self.pool.offsets
        for first in range(0, len(self.queries), BLOCK_QUERIES):
            block = range(first, min(first + BLOCK_QUERIES, len(self.queries)))
            block = [q for q in block if len(self.positives[q]) and offsets[q] < offsets[q + 1]]
            drawn = {q: self.drawn(q, hardest, most) for q in block}
            relevant = {q: self.positives[q].tolist() for q in block}
            texts = self.corpus.read({p for q in block for p in relevant[q] + [n["row"] for n in drawn[q]]})
            for q in block:
                scores = self.score(q, relevant[q])
                positives = [texts[p] | known("score", score) for p, score in zip(relevant[q], scores, strict=True)]
                negatives = [texts[n.pop("row")] | n for n in drawn[q]]
                yield Mined(self.queries[q]["query_id"], self.queries[q]["text"], positives, negatives)

    def drawn(self, query, hardest, most):
        """The negatives of a query row (list of dict): row of the passage, score, rank, source, episode."""
        start, stop = self.pool.offsets[query : query + 2]
        passages, sources, episodes, ranks, scores = (field[start:stop] for field in self.pool.items)
        unknown = np.isnan(scores)
        if unknown.any() and self.scorer:
            scores = np.where(unknown, self.scorer.score(np.full(len(passages), query), passages), scores)
        if hardest:
            order = np.argsort(-scores, kind="stable")  # NaN comes last
        elif most and most < len(passages):  # the first would be the nearest, and all of one source
            seed = derive_seed(self.seed, "export", self.queries[query]["query_id"])
            order = np.sort(np.random.default_rng(seed).choice(len(passages), most, replace=False))
        else:
            order = np.arange(len(passages))
        return [
            {"row": int(passages[n])}
            | known("score", scores[n])
            | {"rank": int(ranks[n]), "source": self.names_of(sources[n]), "episode": int(episodes[n])}
            for n in order[:most]
        ]

    def names_of(self, bits):
        """The sources of a negative, such as "query" or "query+momentum"."""
        return "+".join(name for name, bit in self.pool.bits.items() if bits & bit)

    def score(self, query, passages):
        """float32 [n]: scores of some passages for a query row, NaN without a scorer."""
        passages = np.array(passages)
        return (
            self.scorer.score(np.full(len(passages), query), passages) if self.scorer else passages * np.float32("nan")
        )


def known(key, score):
    """{key: score} as the shortest number that is the float32 score; {} if it is NaN."""
    return {} if np.isnan(score) else {key: float(str(np.float32(score)))}


def scorer_of(negatives):
    """Return the scorer of pairs by the checkpoint that mined a pool (`negatives.scores`): its vectors, which score all
    pairs; if they were removed, the table of the pairs that a draw or a filter compared; None without either.

    negatives: the Artefact of a merge stage, or of a relabel stage
    """
    root = negatives.root
    job = Job(negatives.manifest | {"code": ""}, root=root)
    if job.kind == "relabel":
        return scorer_of(job.inputs["negatives"])
    for role in ("scores.miner", *MINERS):
        if role in job.inputs:
            reader = Job(job.inputs[role].manifest | {"code": ""}, root=root)
            vectors = [reader.inputs[side] for side in ("queries", "passages") if side in reader.inputs]
            deleted = [each for each in vectors if any(map(each.is_deleted, each.manifest["files"]))]
            if len(vectors) == 2 and not deleted:
                return PairScorer.of_job(reader, "train")
    if "scores.miner" in job.inputs:
        table = PairTable.open(job, "scores.miner")
        return SimpleNamespace(score=partial(table.score, partial=True))
    return None


class Corpus:
    """Reads passages of corpus.parquet in any order, from a memory-mapped copy in Arrow's own form at `path`. Parquet
    would need whole columns in memory, and one array of Arrow's holds at most 2 GiB of strings."""

    def __init__(self, parquet, path):
        source, self.starts = pq.ParquetFile(parquet, pre_buffer=False), [0]  # else all pages stay in memory
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, source.schema_arrow) as writer:
            for chunk in source.iter_batches(CHUNK_PASSAGES):
                writer.write_batch(chunk)
                self.starts.append(self.starts[-1] + len(chunk))
        self.chunks = pa.ipc.open_file(pa.memory_map(path))

    def read(self, rows):
        """{row: {docid, title, text}} of the given rows (int)."""
        rows, passages = np.array(sorted(rows), np.int64), []
        for number, part in enumerate(np.split(rows, np.searchsorted(rows, self.starts[1:-1]))):
            if len(part):
                chunk = self.chunks.get_batch(number).take(pa.array(part - self.starts[number]))
                passages += chunk.rename_columns(["docid", "title", "text"]).to_pylist()
        return dict(zip(rows.tolist(), passages, strict=True))
