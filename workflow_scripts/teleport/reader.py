"""Reads a finished corpus and its splits for other stages: positives of each query as flat arrays of row numbers, and
answers.

Stages that read a split give its stage the role `split.NAME`, and the passages' stage the role `corpus`. This module is
not in the package `collection`, whose edits rerun only the stages that make a corpus or a split.
"""

from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from teleport.arrays import Ragged, pair_keys, places_of, rows_and_values
from teleport.refusal import Refusal

# The columns of missing.SPLIT.parquet, the judgments of a split whose passages are not in the corpus.
MISSING = pa.schema({"query": pa.int32(), "doc_id": pa.string(), "grade": pa.int32()})
OWN_POSITIVES = "positives."  # prefix of the positives' files in a stage that also has a pool


def read_positives(collection, split, grade=None):
    """The positives of all queries of a split, from the Artefact of its stage.

    A `Ragged` of passage rows (int32), a list per query row, in the order of the judgments: passages judged `grade` or
    higher (None: the split's positive_grade).
    """
    num_queries = pq.read_metadata(collection.path(f"queries.{split}.parquet")).num_rows
    columns = ["query", "passage", "grade"]
    qrels = pq.read_table(collection.path(f"qrels.{split}.parquet"), columns=columns)
    query, passage, judged = (qrels[name].to_numpy() for name in columns)
    positive = judged >= (collection.facts["positive_grade"] if grade is None else grade)
    return Ragged.grouped(query[positive], passage[positive], num_queries)


def united(*parts):
    """A `Ragged` with the values of all `parts` (each a `Ragged` of as many lists), ascending, each once."""
    keys = np.unique(np.concatenate([pair_keys(part.rows, part.values) for part in parts]))
    return Ragged.grouped(*rows_and_values(keys), len(parts[0]))


def with_same_text(corpus, queries, split, known):
    """The `known` passages of each query of a split (`Ragged`), and all passages with the same text as one of them or
    as the query, under any id: `Ragged`, ascending, each once. corpus, queries: the Artefacts of the corpus and of the
    split"""
    first_P = np.load(corpus.path("same_text.npy"))  # for each passage the first one with its text
    copies = Ragged.grouped(first_P, np.arange(len(first_P)), len(first_P))
    texts, same = first_P[known.values], pq.read_table(queries.path(f"same_text.{split}.parquet"))
    rows = np.concatenate([np.repeat(known.rows, copies.lengths[texts]), same["query"].to_numpy()])
    equal = np.concatenate([copies.values[places_of(copies.offsets, texts)], same["passage"].to_numpy()])
    return Ragged.grouped(*rows_and_values(np.unique(pair_keys(rows, equal))), len(known))


def positives_of(collection, stage, split):
    """Return the positives of `stage`, the Artefact of a stage `positives` (by answers) or `relabel`; if it is None,
    those of `read_positives`. collection: the Artefact of the split"""
    if stage:
        prefix = OWN_POSITIVES if f"{OWN_POSITIVES}offsets.npy" in stage.manifest["files"] else ""
        return Ragged.open(stage.path(f"{prefix}offsets.npy"), stage.path(f"{prefix}passages.npy"))
    return read_positives(collection, split)


def positives_of_job(job, split):
    """Return the same as `positives_of`, from the stages that a job reads."""
    return positives_of(job.inputs[f"split.{split}"], job.inputs.get("positives"), split)


def row_group_bounds(file):
    """Return the rows at which the row groups of a `ParquetFile` begin, and its end (list of int): group i has the rows
    bounds[i] to bounds[i + 1] - 1."""
    groups = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
    return list(accumulate(groups, initial=0))


def read_passages(corpus, rows, columns):
    """Yield some columns (tuple of text) of the passages `rows` (int64, ascending). corpus: the path of corpus.parquet

    One row group is in memory at a time: the texts of a large corpus fit neither into memory nor into one array of
    Arrow's, which holds at most 2 GiB of strings.
    """
    file = pq.ParquetFile(corpus)
    for group, (first, last) in enumerate(pairwise(row_group_bounds(file))):
        wanted = rows[np.searchsorted(rows, first) : np.searchsorted(rows, last)]
        if len(wanted):
            passages = file.read_row_group(group, columns=columns).take(wanted - first)
            yield from zip(*(passages[name].to_pylist() for name in columns), strict=True)


def rows_of_ids(corpus, ids):
    """{id: row} of the passages with these `ids` (set of text), read a row group at a time; unknown ids are left out.
    corpus: the path of corpus.parquet"""
    file, wanted, rows = pq.ParquetFile(corpus), pa.array(sorted(ids), pa.string()), {}
    for group, first in enumerate(row_group_bounds(file)[:-1]):
        names = file.read_row_group(group, ["doc_id"])["doc_id"]
        indices = np.flatnonzero(pc.is_in(names, wanted).to_numpy())
        rows |= zip(names.take(indices).to_pylist(), (first + indices).tolist(), strict=True)
    return rows


def lines_of_ids(path, key, ids):
    """{id: line (dict)} of queries or passages of a Parquet file that have these `ids` in the column `key`, read a row
    group at a time; unknown ids are left out."""
    file, wanted, lines = pq.ParquetFile(path), pa.array(ids, pa.string()), {}
    for group in range(file.num_row_groups):
        wanted_rows = pc.is_in(file.read_row_group(group, [key])[key], wanted)
        if pc.any(wanted_rows).as_py():
            lines |= {line[key]: line for line in file.read_row_group(group).filter(wanted_rows).to_pylist()}
    return lines


def read_answers(collection, split):
    """The answers of all queries of a split (a list each, maybe empty). Raises Refusal if the split has none at all."""
    if f"answers.{split}.parquet" not in collection.manifest["files"]:
        remedy = f"Add answers.{split}.jsonl to the collection, or leave answer coverage and answer rules out."
        raise Refusal(f"the split {split!r} has no answers, so no passage can be searched for one. {remedy}")
    query_ids = pq.read_table(collection.path(f"queries.{split}.parquet"), columns=["query_id"])["query_id"]
    table = pq.read_table(collection.path(f"answers.{split}.parquet"))
    answers = dict(zip(table["query_id"].to_pylist(), table["answers"].to_pylist(), strict=True))
    return [answers.get(query_id, []) for query_id in query_ids.to_pylist()]


def trained_too(splits):
    """A sentence (list of str) for each split with queries whose text is a training query's, whatever their ids.
    splits: {name: the Artefact of its stage}; without train the list is empty"""
    digests = {name: np.load(split.path("digests.npy")) for name, split in splits.items()}
    trained = digests.pop("train", np.zeros(0, np.uint64))
    numbers = {name: int(np.isin(of_split, trained).sum()) for name, of_split in digests.items()}
    return [f"Training reads {count:,} of the {name} queries, too." for name, count in numbers.items() if count]
