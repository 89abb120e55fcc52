"""Finished stages as tables and page read them: each opened and checked once, however many rows share it."""

import functools
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import Run
from teleport.evaluation.names import OWN_PASSAGES
from teleport.negatives.pool import read_pool
from teleport.reader import positives_of, read_passages
from teleport.refusal import Refusal
from teleport.report.words import listed, number
from teleport.running.artefact import STAGES, Artefact, is_finished
from teleport.search.pairs import PairScorer

FOUND_FIRST = "Their search returns it first; `evaluation: {ignore_own_text: true}` leaves it out of their results."
SOURCES = ["system", "episode", "split", "seed", "stage", "folder", "run", "checkpoint", "code", "git_commit"]


def require_finished(names, root):
    """Raise Refusal for the first of some stages that is not finished."""
    if missing := next((name for name in names if not is_finished(name, root)), None):
        command = ".venv/bin/snakemake --cores all --configfile FILE"
        raise Refusal(f"{STAGES / missing} is not finished yet. Run the workflow first: {command}")


class Stages:
    """Stages by name ("kind/key") below `root`, each checked once. Raises Refusal for a missing, torn or edited one."""

    cached = ("finished", "artefact", "query_scores")

    def __init__(self, root):
        self.root = Path(root)
        for name in self.cached:
            setattr(self, name, functools.cache(getattr(self, name)))

    def finished(self, name):
        """Whether a stage (None: there is none) is finished."""
        return name is not None and is_finished(name, self.root)

    def query_counts(self, splits):
        """{split: its queries} of the splits {name: stage} that are finished."""
        return {split: self.facts(name)["queries"] for split, name in splits.items() if self.finished(name)}

    def behind(self, names):
        """The finished stages among `names`, and all that they were made from (list, each once)."""
        behind, unread = {}, list(names)
        while unread:
            name = unread.pop()
            if name not in behind and self.finished(name):
                behind[name] = None
                unread += self.artefact(name).manifest.get("inputs", {}).values()
        return list(behind)

    def artefact(self, name):
        return Artefact(self.root / STAGES / name)

    def facts(self, name):
        return self.artefact(name).facts

    def input(self, name, role):
        """The name of the stage that `name` read in `role`; None when it has no such input, or is None itself."""
        return name and self.artefact(name).manifest.get("inputs", {}).get(role)

    def trained_seed(self, evaluation):
        """The seed of the training behind an evaluation; None if neither of its encoders was trained here."""
        run = self.input(evaluation, "run")
        encoders = [self.input(self.input(run, side), "checkpoint") for side in ("queries", "passages")]
        trained = next((name for name in encoders if name and name.startswith("train/")), None)
        return trained and self.artefact(trained).manifest["settings"]["seed"]

    def query_scores(self, name):
        """{measure: scores of an evaluate stage, float64 by query id (Series)}."""
        frame = pq.read_table(self.artefact(name).path("per_query.parquet")).to_pandas()
        by_measure = frame.set_index("query_id").groupby("measure", sort=False)["value"]
        return dict(iter(by_measure))


class Reader(Stages):
    """The stages of a configuration. collection: {"corpus": stage, "splits": {name: stage}}; raises Refusal without the
    corpus."""

    cached = (*Stages.cached, "pool", "search", "names", "positives", "scorer", "queries", "scores", "doc_ids")

    def __init__(self, root, collection):
        super().__init__(root)
        self.corpus, self.splits = collection["corpus"], collection["splits"]
        require_finished([self.corpus], self.root)

    def pool(self, name):
        """The `Pool` of a merge stage, memory-mapped."""
        return read_pool(self.artefact(name).path)

    def search(self, name):
        """The `Run` of a stage that retrieves, memory-mapped."""
        path = self.artefact(name).path
        return Run(*(np.load(path(f"{field}.npy"), mmap_mode="r") for field in Run._fields))

    def retrieved(self, name, row):
        """The passages (list of rows) of a retrieval for a query, best first; empty if the stage is not finished."""
        run = self.search(name) if self.finished(name) else None
        ids = np.asarray(run.ids[np.flatnonzero(run.rows == row)]).ravel() if run else np.zeros(0, int)
        return ids[ids >= 0].tolist()

    def names(self, name):
        """{number: id} of the passages of a stage's run that the collection does not have."""
        artefact = self.artefact(name)
        if OWN_PASSAGES not in artefact.manifest["files"]:
            return {}
        doc_ids = pq.read_table(artefact.path(OWN_PASSAGES))["doc_id"].to_pylist()
        return dict(enumerate(doc_ids, self.facts(self.corpus)["num_passages"]))

    def vectors(self, name, file):
        """float [texts, dim] of an encode stage, memory-mapped; None when it has no such file, or it was deleted."""
        artefact = self.artefact(name) if self.finished(name) else None
        exists = artefact and file in artefact.manifest["files"] and not artefact.is_deleted(file)
        return np.load(artefact.path(file), mmap_mode="r") if exists else None

    def scorer(self, queries, passages, split="train"):
        """The `PairScorer` of the queries of a split and all passages, by two encode stages; None if vectors are
        missing, or if passages have several."""
        of_queries, of_passages = self.vectors(queries, f"queries.{split}.npy"), self.vectors(passages, "passages.npy")
        both = of_queries is not None and of_passages is not None
        whole = both and len(of_passages) == self.facts(self.corpus)["num_passages"]
        return PairScorer(of_queries, of_passages, None) if whole else None

    def positives(self, stage=None, split="train"):
        """`Ragged`: the positives of the queries of a split; with `stage`, those that it gives the training queries."""
        return positives_of(self.artefact(self.splits[split]), stage and self.artefact(stage), split)

    def queries(self, split, column="text"):
        """A column of the queries of a split (Arrow array)."""
        path = self.artefact(self.splits[split]).path(f"queries.{split}.parquet")
        return pq.read_table(path, columns=[column])[column].combine_chunks()

    def passages(self, rows, columns=("doc_id", "title", "text")):
        """{row: [doc id, title, text]} of some passages of the collection, or other columns."""
        corpus, rows = self.artefact(self.corpus).path("corpus.parquet"), np.sort(np.fromiter(rows, np.int64))
        texts = read_passages(corpus, rows, list(columns))
        return {row: [text or "" for text in each] for row, each in zip(rows.tolist(), texts, strict=True)}

    def all_doc_ids(self, name):
        """The ids (Arrow strings) by number of all passages of a stage's run."""
        others = pa.array(list(self.names(name).values()), pa.string())
        return pa.concat_arrays([self.doc_ids(), others])

    def doc_ids(self):
        """The ids (Arrow strings) of all passages of the collection."""
        path = self.artefact(self.corpus).path("corpus.parquet")
        return pq.read_table(path, columns=["doc_id"])["doc_id"].combine_chunks()

    def same_texts(self, split):
        """The passages with the text of a query of a split: a table of query and passage rows."""
        return pq.read_table(self.artefact(self.splits[split]).path(f"same_text.{split}.parquet"))

    def scores(self, evaluate, split):
        """{measure: float64 [queries of the split]} of an evaluate stage, NaN where a query has no score."""
        ids = self.queries(split, "query_id").to_pylist()
        return {name: scores.reindex(ids).to_numpy() for name, scores in self.query_scores(evaluate).items()}


def machines(artefacts):
    """The GPUs or processors on which stages ran, each once, such as "A and B" (text)."""
    used = [artefact.manifest["provenance"]["hardware"] for artefact in artefacts]
    return listed(sorted({hardware.get("gpu") or hardware["processor"] for hardware in used}))


def collection_text(facts, *counts):
    """A collection by its digest, its passages and other counts: "0123456789abcdef: 9,660 passages, 10 queries." """
    passages = f"{facts['num_passages']:,} {'judged ' if facts.get('judged_only') else ''}passages"
    return f"{facts['corpus_digest'][:16]}: {', '.join([passages, *counts])}."


def trace_figures(rows, stages):
    """One line per system, episode, split and seed of a table's rows (DataFrame with SOURCES, text): `stage` is the
    evaluation, `run` and `checkpoint` the folders of its search and of the encoder of its queries (BM25: empty); `code`
    and `git_commit` are the evaluation's; `seed` is that of the training (empty when neither side was trained)."""
    lines = []
    evaluated = [(row, split, name) for row in rows for split, names in row["runs"].items() for name in names]
    for row, split, stage in evaluated:
        run = stages.input(stage, "run")
        checkpoint = stages.input(stages.input(run, "queries"), "checkpoint")
        seed = stages.trained_seed(stage)
        provenance = stages.artefact(stage).manifest.get("provenance", {})
        folders = [str(STAGES / name) if name else "" for name in (stage, run, checkpoint)]
        code = [provenance.get("code", ""), provenance.get("git_commit") or ""]
        lines.append([row["system"], row["episode"], split, "" if seed is None else seed, stage, *folders, *code])
    return pd.DataFrame(lines, columns=SOURCES)


def warnings_of(stages, names):
    """Return the warnings of some finished stages and of all stages that they were made from: sentences, each once for
    all stages that say the same. Those on queries whose own text is a passage come first."""
    notes, warned = {}, {}
    for name in sorted(stages.behind(names)):
        manifest = stages.artefact(name).manifest
        for text in manifest.get("provenance", {}).get("warnings", ()):
            warned.setdefault(text, []).append(name)
        settings = manifest.get("settings", {})
        if name.startswith("evaluate/") and not settings.get("ignore_own_text"):
            split = stages.input(name, f"split.{settings.get('split')}")
            if count := stages.facts(split).get("same_text") if stages.finished(split) else 0:
                notes[f"Queries of {settings['split']} with the text of a passage: {count:,}. {FOUND_FIRST}"] = None
    for text, (first, *others) in warned.items():
        more = f" and {number(len(others), 'more stage')}" if others else ""
        notes[f"Warning of {first}{more}: {text}"] = None
    return list(notes)


def relabelled_text(facts):
    """Return the text on the new labels of negatives: the sums of the facts of one or several relabel stages."""
    total, unknown = Counter(), Counter()
    for each in facts:
        total.update(each["relabelled"] | {name: each.get(name, 0) for name in ("dropped_queries", "pairs")})
        unknown.update(each.get("without_verdict", {}))
    counts = {"became positives": total["positive"], "were left out": total["dropped"]}
    counts[f"left out with {total['dropped_queries']:,} whole queries"] = total["query dropped"]
    parts = [f"{number:,} {what}" for what, number in counts.items() if number] or ["none changed"]
    parts += [f"{number:,} have no verdict of {judge} and stay" for judge, number in unknown.items() if number]
    return f"of {total['pairs']:,} negatives " + ", ".join(parts)
