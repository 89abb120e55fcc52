"""Negatives from a retrieval: of the queries, of their positives (lookahead), by BM25, or from a file."""

from teleport.negatives.retrieved import Retrieval, read_run


def open_source(job, name, known):
    """The `Retrieval` in the role `name`."""
    return Retrieval(read_run(job, name), known, job.settings.sources[name].scored)
