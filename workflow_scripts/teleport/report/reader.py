"""Finished stages as the page reads them: each opened and checked once, however many experiments share it."""

import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import Run
from teleport.collection.reader import positives_of, read_passages
from teleport.evaluation.names import OWN_PASSAGES
from teleport.negatives.pool import read_pool
from teleport.refusal import Refusal
from teleport.report.figures import Stages
from teleport.running.artefact import STAGES, remake
from teleport.search.pairs import PairScorer


class Reader(Stages):
    """The stages of a configuration; collection: the name of its collection's stage. Raises Refusal without that."""

    cached = (*Stages.cached, "pool", "search", "names", "positives", "scorer", "queries", "scores")

    def __init__(self, root, collection):
        super().__init__(root)
        self.collection = collection
        if not self.finished(collection):
            again = remake(*collection.split("/"))
            raise Refusal(f"{STAGES / collection} is not there yet: run the workflow first. If it was there: {again}")

    def pool(self, name):
        """The `Pool` of a merge stage, memory-mapped."""
        return read_pool(self.artefact(name).path)

    def search(self, name):
        """The `Run` of a stage that retrieves, memory-mapped."""
        path = self.artefact(name).path
        return Run(*(np.load(path(f"{field}.npy"), mmap_mode="r") for field in Run._fields))

    def found(self, name, row):
        """The passages (list of rows), best first, that a retrieval found for a query; empty without one."""
        run = self.search(name) if self.finished(name) else None
        ids = np.asarray(run.ids[np.flatnonzero(run.rows == row)]).ravel() if run else np.zeros(0, int)
        return ids[ids >= 0].tolist()

    def names(self, name):
        """{number: id} of the passages of a stage's run that the collection lacks."""
        artefact = self.artefact(name)
        if OWN_PASSAGES not in artefact.manifest["files"]:
            return {}
        own = pq.read_table(artefact.path(OWN_PASSAGES))["doc_id"].to_pylist()
        return dict(enumerate(own, self.facts(self.collection)["num_passages"]))

    def vectors(self, name, file):
        """float [texts, dim] of an encode stage, memory-mapped; None when it has no such file, or it was deleted."""
        artefact = self.artefact(name) if self.finished(name) else None
        there = artefact and file in artefact.manifest["files"] and not artefact.is_deleted(file)
        return np.load(artefact.path(file), mmap_mode="r") if there else None

    def scorer(self, queries, passages, split="train"):
        """The `PairScorer` of the queries of a split and all passages, by two encode stages; None without all vectors,
        and where passages have several."""
        of_queries, of_passages = self.vectors(queries, f"queries.{split}.npy"), self.vectors(passages, "passages.npy")
        there = of_queries is not None and of_passages is not None
        whole = there and len(of_passages) == self.facts(self.collection)["num_passages"]
        return PairScorer(of_queries, of_passages, None) if whole else None

    def positives(self, stage=None, split="train"):
        """`Ragged`: the positives of the queries of a split, or those of training queries that `stage` has found."""
        return positives_of(self.artefact(self.collection), stage and self.artefact(stage), split)

    def queries(self, split, column="text"):
        """A column of the queries of a split (Arrow array)."""
        path = self.artefact(self.collection).path(f"queries.{split}.parquet")
        return pq.read_table(path, columns=[column])[column].combine_chunks()

    def passages(self, rows, columns=("doc_id", "title", "text")):
        """{row: [doc id, title, text]} of some passages of the collection, or other columns."""
        corpus, rows = self.artefact(self.collection).path("corpus.parquet"), np.sort(np.fromiter(rows, np.int64))
        texts = read_passages(corpus, rows, list(columns))
        return {row: [text or "" for text in each] for row, each in zip(rows.tolist(), texts, strict=True)}

    def doc_ids(self, rows):
        """{row: doc id} of some passages of the collection."""
        return {row: doc for row, (doc,) in self.passages(rows, ["doc_id"]).items()}

    def scores(self, evaluate, split):
        """{measure: float64 [queries of the split]} of an evaluate stage, NaN where a query has no score."""
        ids = self.queries(split, "query_id").to_pylist()
        return {name: scores.reindex(ids).to_numpy() for name, scores in self.query_scores(evaluate).items()}
