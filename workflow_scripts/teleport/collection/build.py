"""Stage `collection`: bring a source of passages, queries and judgments into the canonical form."""

from teleport.collection import apidocs, ir, official, sources
from teleport.collection.canonical import write_collection

SOURCES = {"apidocs": apidocs.source, "folder": sources.folder, "beir": sources.beir, "tsv": sources.tsv}
SOURCES["ir_datasets"] = ir.source


def run(job):
    """Write corpus, queries, judgments and answers as Parquet.

    Returns num_passages, corpus_digest (SHA-256 over ids, titles and texts in order), positive_grade,
    splits {split: {queries, judgments, positives, dropped}}, and for apidocs the packages' versions.
    Raises ValueError for a file that is missing and for every row that is wrong.
    """
    if job.settings.source == "downloads":
        return write_collection(job, official.downloads(job.settings, job.facts("download")["files"]))
    return write_collection(job, SOURCES[job.settings.source](job.settings))
