"""Finished stages as the page reads them: each opened and checked once, however many experiments share it."""

import functools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from teleport.collection.reader import read_positives
from teleport.evaluation.names import OWN_PASSAGES
from teleport.negatives.pool import read_pool
from teleport.runtime.arrays import Ragged, Run
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact
from teleport.runtime.vectors import open_vectors


class Reader:
    """Reads stages by name ("kind/key") below `root`, the folder that holds results/. Raises ValueError for a torn one.

    collection: the name of the collection's stage
    """

    def __init__(self, root, collection):
        self.stages, self.collection = Path(root) / STAGES, collection
        for name in ("finished", "artefact", "pool", "search", "names", "positives", "vectors", "column", "scores"):
            setattr(self, name, functools.cache(getattr(self, name)))

    def finished(self, name):
        """Whether a stage (None: there is none) is finished."""
        return name is not None and (self.stages / name / MANIFEST).is_file()

    def artefact(self, name):
        return Artefact(self.stages / name)

    def facts(self, name):
        return self.artefact(name).facts

    def input(self, name, role):
        """The name of the stage that `name` has read in `role`; None when it has no such input."""
        return self.artefact(name).manifest.get("inputs", {}).get(role)

    def pool(self, name):
        """The `Pool` of a merge stage, memory-mapped."""
        return read_pool(self.artefact(name).path)

    def search(self, name):
        """The `Run` of a stage that retrieves, memory-mapped."""
        artefact = self.artefact(name)
        return Run(*(np.load(artefact.path(f"{field}.npy"), mmap_mode="r") for field in Run._fields))

    def names(self, name):
        """{number: id} of the passages that only the run of a stage has, and the collection lacks."""
        artefact = self.artefact(name)
        if OWN_PASSAGES not in artefact.manifest["files"]:
            return {}
        own = pq.read_table(artefact.path(OWN_PASSAGES))["doc_id"].to_pylist()
        return dict(enumerate(own, len(self.column("corpus.parquet", "doc_id"))))

    def vectors(self, name, file):
        """float [texts, dim] of an encode stage, memory-mapped; None when it has no such file, or it was released."""
        artefact = self.artefact(name)
        there = file in artefact.manifest["files"] and not artefact.is_released(file)
        return open_vectors(artefact.path(file)) if there else None

    def positives(self, stage=None, split="train"):
        """`Ragged`: the positives of the queries of a split, or those of training queries that `stage` has found."""
        if stage is None:
            return read_positives(self.artefact(self.collection), split)
        return Ragged.open(*(self.artefact(stage).path(f"{name}.npy") for name in ("offsets", "passages")))

    def column(self, file, column):
        """A text column of a Parquet file of the collection (Arrow array)."""
        path = self.artefact(self.collection).path(file)
        return pq.read_table(path, columns=[column])[column].combine_chunks()

    def scores(self, evaluate, split):
        """{measure: float64 [queries of the split]} of an evaluate stage, NaN where a query has no score."""
        rows = {query: row for row, query in enumerate(self.column(f"queries.{split}.parquet", "query_id").to_pylist())}
        table = pq.read_table(self.artefact(evaluate).path("per_query.parquet")).to_pandas()
        found = {}
        for measure, lines in table.groupby("measure", sort=False):
            found[measure] = np.full(len(rows), np.nan)
            found[measure][lines["query_id"].map(rows).to_numpy()] = lines["value"]
        return found
