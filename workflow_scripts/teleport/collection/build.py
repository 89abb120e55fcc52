"""Stage `collection`: bring a source of passages, queries and judgments into the one form, and the checks on the way.

corpus.parquet (doc_id, title, text), queries.SPLIT.parquet (query_id, text), qrels.SPLIT.parquet (query_id, doc_id,
grade, query, passage) and answers.SPLIT.parquet (query_id, answers). Row numbers are the internal ids: `query` and
`passage` of a judgment are rows of the other two files. Texts are kept as they are, to the character.
"""

import hashlib
import re
from array import array

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.collection import apidocs, ir, official, sources
from teleport.refusal import Refusal
from teleport.running.files import require_planned
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.collection import CollectionSettings as Settings  # noqa: F401

READERS = {"folder": sources.folder, "beir": sources.beir, "tsv": sources.tsv, "ir_datasets": ir.source}
ROW_GROUP = 65536  # passages held in memory while writing: about 25 MB of MS MARCO,
ROW_GROUP_CHARACTERS = 2**26  # of whose documents fewer make as much
CORPUS = pa.schema({"doc_id": pa.string(), "title": pa.string(), "text": pa.string()})
QUERIES = pa.schema({"query_id": pa.string(), "text": pa.string()})
ANSWERS = pa.schema({"query_id": pa.string(), "answers": pa.list_(pa.string())})


def run(job):
    """Write corpus, queries, judgments and answers of `job.settings.source` as Parquet, once checked.

    Queries that can never count are dropped and counted: in `train` those without a judgment of the source's
    `positive_grade` (and, where answers decide the positives, without answers too) and those that `train_queries` does
    not draw, in other splits those without any judgment and without answers. Returns num_passages, corpus_digest
    (SHA-256 over ids, titles and texts in order), positive_grade, splits {split: {queries, judgments, positives,
    dropped}}; for apidocs the packages' versions, for judgments alone judged_only.
    """
    settings = job.settings.source
    require_planned(job.settings.files)
    if settings.source == "apidocs":
        source = apidocs.source(job.settings.versions, settings.min_words)
    elif settings.source in ("downloads", "judgments"):
        files = job.facts("download")["files"] if "download" in job.inputs else {}
        source = getattr(official, settings.source)(settings, files)
    else:
        source = READERS[settings.source](settings)
    passages, digest = write_corpus(job.output("corpus.parquet"), source.corpus, job.progress)
    log.info("%d passages, corpus digest %s", len(passages), digest)
    doc_ids, splits = pa.array(list(passages), pa.string()), {}
    for name, split in source.splits.items():
        splits[name] = write_split(job, name, split, passages, doc_ids)
        log.info("%s: %s", name, ", ".join(f"{count} {what}" for what, count in splits[name].items()))
    facts = {"num_passages": len(passages), "corpus_digest": digest, "splits": splits}
    return facts | {"positive_grade": settings.positive_grade} | source.facts


def write_corpus(path, corpus, progress):
    """Write the passages, telling `progress`; returns ({doc_id: row}, SHA-256 over ids, titles and texts in order)."""
    passages, digest = {}, hashlib.sha256()
    rows = checked(corpus, passages)
    with pq.ParquetWriter(path, CORPUS, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        for block in blocks(rows):
            _, *columns = zip(*block, strict=True)
            digest.update("".join(f"{doc_id}\0{title}\0{text}\0" for _, doc_id, title, text in block).encode())
            writer.write_table(pa.table(dict(zip(CORPUS.names, map(list, columns), strict=True)), schema=CORPUS))
            progress(len(passages), 0, "passages")
    if not passages:
        raise Refusal(f"{corpus.place}: no passages. Give a corpus with at least one.")
    return passages, digest.hexdigest()


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


def checked(rows, ids):
    """Pass on `rows` of (line, id, text) or (line, id, title, text), once checked, and number their ids in `ids`."""
    for row in rows:
        line, name, title, text = row[0], row[1], row[2], row[-1]  # of a query, both are its text
        if name in ids:
            first = next(other[0] for other in rows if other[1] == name)
            raise rows.wrong(line, f"duplicate id {name!r}, first on line {first}. Remove one of them.")
        if name.split() != [name]:
            separates = "which separates columns in runs and judgments"
            raise rows.wrong(line, f"the id {name!r} is empty or has white space, {separates}. Rename it.")
        # A title is text enough: BEIR's collections have passages of a title alone.
        if (not text or text.isspace()) and (not title or title.isspace()):
            raise rows.wrong(line, f"the text of {name!r} is empty. Give it a text or remove the line.")
        ids[name] = len(ids)
        yield row


def write_split(job, name, split, passages, doc_ids):
    """Write the queries, judgments and answers of one split; returns its counts (facts of the split)."""
    queries, settings = {}, job.settings.source
    texts = [text for _, _, text in checked(split.queries, queries)]
    query, passage, grade = judgments(split.qrels, queries, passages)
    answered = {} if split.answers is None else answers(split.answers, queries)
    kept = np.zeros(len(queries), dtype=bool)
    kept[query[grade >= settings.positive_grade] if name == "train" else query] = True
    if name != "train" or settings.positives == "answers":
        kept[[queries[query_id] for query_id in answered]] = True
    if name == "train" and settings.positives == "answers" and not answered:
        raise Refusal(
            f"{split.queries.place}: collection.positives is 'answers', but no training query has answers. "
            "Add answers.train.jsonl, or set collection.positives to given."
        )
    if name == "train" and not kept.any():
        raise Refusal(
            f"{split.qrels.place}: no training query has a judgment of grade {settings.positive_grade} or more. "
            "Give judgments with positives, or lower collection.positive_grade."
        )
    if name == "train" and settings.train_queries:
        kept = drawn(list(queries), kept, settings.train_queries)
    table = pa.table({"query_id": list(queries), "text": texts}, schema=QUERIES).filter(kept)
    pq.write_table(table, job.output(f"queries.{name}.parquet"))
    counts = {"queries": len(table)}
    if split.answers is not None:
        ids = [query_id for query_id in table["query_id"].to_pylist() if query_id in answered]
        columns = {"query_id": ids, "answers": [answered[query_id] for query_id in ids]}
        pq.write_table(pa.table(columns, schema=ANSWERS), job.output(f"answers.{name}.parquet"))
        counts["answers"] = len(ids)
    # Judgments of dropped queries go with them, the others get the new rows of their queries.
    of_kept = kept[query]
    query, passage, grade = (np.cumsum(kept, dtype=np.int32) - 1)[query[of_kept]], passage[of_kept], grade[of_kept]
    ids = {"query_id": table["query_id"].take(query), "doc_id": doc_ids.take(passage)}
    rows = {"grade": grade, "query": query, "passage": passage}
    pq.write_table(pa.table(ids | rows), job.output(f"qrels.{name}.parquet"))
    positives = int((grade >= settings.positive_grade).sum())
    return counts | {"judgments": len(grade), "positives": positives, "dropped": len(queries) - len(table)}


def drawn(query_ids, kept, settings):
    """bool: the settings.TrainQueries that a draw takes of those `kept` (bool, by query)."""
    numbers = np.array([derive_seed(settings.seed, "training query", query_id) for query_id in query_ids])
    chosen = np.zeros(len(kept), dtype=bool)
    chosen[np.flatnonzero(kept)[np.argsort(numbers[kept])[: settings.count]]] = True
    return chosen


def judgments(qrels, queries, passages):
    """Query rows, passage rows and grades of all judgments, three int32 arrays; queries and passages are {id: row}."""
    query_rows, passage_rows, grades, first_lines = array("i"), array("i"), array("i"), {}
    for line, query_id, doc_id, grade in qrels:
        pair = row_of_query(qrels, line, query_id, queries), passages.get(doc_id)
        if pair[1] is None:
            remedy = "Remove the line, or give the corpus that belongs to these judgments."
            raise qrels.wrong(line, f"the judged passage {doc_id!r} is not in the corpus. {remedy}")
        if (first := first_lines.setdefault(pair, line)) != line:
            twice = f"query {query_id!r} and passage {doc_id!r} are judged twice, first on line {first}"
            raise qrels.wrong(line, f"{twice}. Remove one of them.")
        try:
            grades.append(int(grade if re.fullmatch("[+-]?[0-9]{1,20}", grade) else "none"))
        except (ValueError, OverflowError):
            raise qrels.wrong(line, f"grade {grade!r} is not a 32-bit integer. Write a whole number.") from None
        query_rows.append(pair[0])
        passage_rows.append(pair[1])
    return tuple(np.array(column, dtype=np.int32) for column in (query_rows, passage_rows, grades))


def answers(rows, queries):
    """{query_id: list of answers} of the rows, of which each is of another query and has one or more strings."""
    lists, first_lines = {}, {}
    for line, query_id, values in rows:
        row_of_query(rows, line, query_id, queries)
        if (first := first_lines.setdefault(query_id, line)) != line:
            raise rows.wrong(line, f"query {query_id!r} has answers on line {first} too. Join them.")
        if not values or not all(isinstance(value, str) for value in values):
            raise rows.wrong(line, "'answers' must be a list of one or more strings. Correct the line.")
        lists[query_id] = values
    return lists


def row_of_query(rows, line, query_id, queries):
    """The row of a query ({id: row}) that a line of `rows` names."""
    if query_id not in queries:
        remedy = f"Remove the line, or give the query file that belongs to {rows.place}."
        raise rows.wrong(line, f"query {query_id!r} is not among the split's queries. {remedy}")
    return queries[query_id]
