"""Stage `corpus`: bring the passages of any form into the one form, and the checks on the way.

corpus.parquet (doc_id, title, text): the row number of a passage is its internal id. Texts are kept as they are, to the
character. same_text.npy and digests.npy say which texts are equal (`collection.equal`).
"""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import save_array
from teleport.collection.equal import SameText
from teleport.collection.records import Faults, checked
from teleport.refusal import Refusal
from teleport.running.files import require_planned
from teleport.running.log import log
from teleport.settings.collection import CorpusSettings as Settings  # noqa: F401

ROW_GROUP = 65536  # passages held in memory while writing: about 25 MB of MS MARCO,
ROW_GROUP_CHARACTERS = 2**26  # of whose documents fewer make as much
CORPUS = pa.schema({"doc_id": pa.string(), "title": pa.string(), "text": pa.string()})


def run(job):
    """Write the passages of `job.settings.source` as Parquet, once checked. The module that the plan loads as "form"
    reads the source (`collection.forms`).

    Facts: num_passages, corpus_digest (SHA-256 over ids, titles and texts in order), copies (passages with the text of
    an earlier one), left_out {kind: lines} where lines were left out; of apidocs the packages' versions, of judgments
    alone judged_only.
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
    """Write the passages, telling `progress`; returns (their number, SHA-256 over ids, titles and texts in order).
    corpus: `Rows`; faults: `Faults` of it, refused at its end"""
    passages, digest = {}, hashlib.sha256()
    rows = checked(corpus, passages, faults)
    with pq.ParquetWriter(path, CORPUS, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        for block in blocks(rows):
            _, *columns = zip(*block, strict=True)
            digest.update("".join(f"{doc_id}\0{title}\0{text}\0" for _, doc_id, title, text in block).encode())
            writer.write_table(pa.table(dict(zip(CORPUS.names, map(list, columns), strict=True)), schema=CORPUS))
            same_text.add(*columns[1:])
            progress(len(passages), 0, "passages")
    faults.refuse()
    if not passages:
        raise Refusal(f"{corpus.place}: no passages. Give a corpus with at least one.")
    return len(passages), digest.hexdigest()


def blocks(rows):
    """Lists of `rows`, of at most ROW_GROUP each and of no more characters than end one with ROW_GROUP_CHARACTERS."""
    block, characters = [], 0
    for row in rows:
        block.append(row)
        characters += len(row[-1])
        if len(block) == ROW_GROUP or characters >= ROW_GROUP_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block
