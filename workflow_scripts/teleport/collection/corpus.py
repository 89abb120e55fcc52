"""Stage `corpus`: check the passages of any form and write them in one form.

corpus.parquet (doc_id, title, text): the row number of a passage is its internal id. Texts are kept as they are, to the
character. same_text.npy and digests.npy tell which texts are equal (`collection.equal`).
"""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import save_array
from teleport.collection.budget import ROW_GROUP
from teleport.collection.equal import SameText
from teleport.records import Faults, checked
from teleport.refusal import Refusal
from teleport.running.files import require_planned
from teleport.running.log import log
from teleport.settings.collection import CorpusSettings as Settings  # noqa: F401

ROW_GROUP_CHARACTERS = 2**26  # fewer of MS MARCO's documents fill a row group
CORPUS = pa.schema({"doc_id": pa.string(), "title": pa.string(), "text": pa.string()})


def run(job):
    """Check the passages of `job.settings.source` and write them as Parquet. The module that the plan loads as "form"
    reads the source (`collection.forms`).

    Facts: num_passages, corpus_digest (SHA-256 over ids, titles and texts in order), copies (passages with the text of
    an earlier one), left_out {kind: lines} if lines were left out, versions if the source is installed packages,
    judged_only if it is judgments alone (then no copies).
    """
    require_planned(job.settings.files)
    form = job.load("form")
    settings = form.Settings.model_validate(dict(job.settings.source))
    rows, same_text = form.corpus(settings, job), SameText()
    faults = Faults(rows.place, settings.drop or ())
    num_passages, digest = write_corpus(job.output("corpus.parquet"), rows, faults, same_text, job.progress)
    log.info("%d passages, corpus digest %s", num_passages, digest)
    firsts = same_text.firsts()
    save_array(job.output("same_text.npy"), firsts)
    save_array(job.output("digests.npy"), same_text.digests())
    facts = {"num_passages": num_passages, "corpus_digest": digest}
    if settings.has_texts:
        facts["copies"] = num_passages - len(np.unique(firsts))
        if facts["copies"]:
            log.warning("%d of %d passages have the text of an earlier passage", facts["copies"], num_passages)
    else:
        facts["judged_only"] = True
    if faults.left_out:
        facts["left_out"] = dict(faults.left_out)
    return facts | ({"versions": job.settings.versions} if job.settings.versions else {})


def write_corpus(path, corpus, faults, same_text, progress):
    """Write the passages; returns (their number, SHA-256 over ids, titles and texts in order). corpus: `Rows`; faults:
    its `Faults`, refused at the end; progress: called after each block"""
    passages, digest, titles_alone = {}, hashlib.sha256(), True
    rows = checked(corpus, passages, faults)
    with pq.ParquetWriter(path, CORPUS, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        for block in blocks(rows):
            _, *columns = zip(*block, strict=True)
            digest.update("".join(f"{doc_id}\0{title}\0{text}\0" for _, doc_id, title, text in block).encode())
            writer.write_table(pa.table(dict(zip(CORPUS.names, map(list, columns), strict=True)), schema=CORPUS))
            same_text.add(*columns[1:])
            titles_alone = titles_alone and not any(columns[-1])
            progress(len(passages), 0, "passages")
    faults.refuse()
    if not passages:
        raise Refusal(f"{corpus.place}: no passages. Give a corpus with at least one.")
    if titles_alone:
        remedy = "If these are the texts, write them as texts; in a TSV, remove the tab at the end of each line"
        log.warning("%s: every passage has a title and no text. %s", corpus.place, remedy)
    return len(passages), digest.hexdigest()


def blocks(rows):
    """Lists of `rows`. A list ends at ROW_GROUP rows or with the row that reaches ROW_GROUP_CHARACTERS characters."""
    block, characters = [], 0
    for row in rows:
        block.append(row)
        characters += len(row[-1])
        if len(block) == ROW_GROUP or characters >= ROW_GROUP_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block
