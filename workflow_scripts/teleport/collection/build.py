"""Stage `collection`: bring a source of passages, queries and judgments into the canonical form."""

from teleport.collection import apidocs, ir, official, sources
from teleport.collection.canonical import write_collection
from teleport.settings.collection import CollectionSettings as Settings  # noqa: F401

READERS = {
    "folder": sources.folder,
    "beir": sources.beir,
    "tsv": sources.tsv,
    "judgments": sources.judgments,
    "ir_datasets": ir.source,
}


def run(job):
    """Write corpus, queries, judgments and answers as Parquet.

    Returns num_passages, corpus_digest (SHA-256 over ids, titles and texts in order), positive_grade,
    splits {split: {queries, judgments, positives, dropped}}; for apidocs the packages' versions, for judgments alone
    judged_only.
    Raises ValueError for a file that is missing and for every row that is wrong.
    """
    source = job.settings.source
    if source.source == "apidocs":
        return write_collection(job, apidocs.source(job.settings.versions, source.min_words))
    if source.source == "downloads":
        return write_collection(job, official.downloads(source, job.facts("download")["files"]))
    return write_collection(job, READERS[source.source](source))
