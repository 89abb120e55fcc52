"""The ids of the passages that a run numbers: those of the collection, and after them those of the run alone."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

OWN_PASSAGES = "passages.parquet"  # of a stage `external`, where passages that the collection lacks are kept


def read_doc_ids(job, role):
    """The ids (Arrow strings) by number of the passages of the run in `role`."""
    return pa.concat_arrays([corpus_ids(job), own_ids(job, role)])


def corpus_ids(job):
    """The ids of the collection's passages (Arrow strings)."""
    return pq.read_table(job.input("collection", "corpus.parquet"), columns=["doc_id"])["doc_id"].combine_chunks()


def own_ids(job, role):
    """The ids of passages that only the run in `role` has (Arrow strings)."""
    if OWN_PASSAGES not in job.inputs[role].manifest["files"]:
        return pa.array([], pa.string())
    return pq.read_table(job.input(role, OWN_PASSAGES))["doc_id"].combine_chunks()


def joint_numbers(job, role, other):
    """(the ids of the passages of two runs, Arrow strings; the number among them of each passage of `other`, int32).

    The passages of `role` keep their numbers.
    """
    ours, theirs = read_doc_ids(job, role), own_ids(job, other)
    new = theirs.filter(pc.invert(pc.is_in(theirs, value_set=ours)))
    ids = pa.concat_arrays([ours, new])
    known = np.arange(len(corpus_ids(job)), dtype=np.int32)
    return ids, np.concatenate([known, pc.index_in(theirs, value_set=ids).to_numpy().astype(np.int32)])
