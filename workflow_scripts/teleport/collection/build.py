"""Stage `collection`: bring passages, queries and judgments of any form into the one form, and the checks on the way.

corpus.parquet (doc_id, title, text), queries.SPLIT.parquet (query_id, text), qrels.SPLIT.parquet (query_id, doc_id,
grade, query, passage) and answers.SPLIT.parquet (query_id, answers). Row numbers are the internal ids: `query` and
`passage` of a judgment are rows of the other two files. Texts are kept as they are, to the character.

same_text.npy and same_text.SPLIT.parquet say which texts are equal (`collection.equal`). missing.SPLIT.parquet (query,
doc_id, grade) is there where judgments of passages that the corpus lacks were left out (collection.drop).
"""

import hashlib
import re
from array import array

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import save_array
from teleport.collection.equal import SameText
from teleport.collection.records import Faults
from teleport.refusal import Refusal, Remedy
from teleport.running.files import require_planned
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.collection import CollectionSettings as Settings  # noqa: F401

ROW_GROUP = 65536  # passages held in memory while writing: about 25 MB of MS MARCO,
ROW_GROUP_CHARACTERS = 2**26  # of whose documents fewer make as much
CORPUS = pa.schema({"doc_id": pa.string(), "title": pa.string(), "text": pa.string()})
QUERIES = pa.schema({"query_id": pa.string(), "text": pa.string()})
ANSWERS = pa.schema({"query_id": pa.string(), "answers": pa.list_(pa.string())})
MISSING = pa.schema({"query": pa.int32(), "doc_id": pa.string(), "grade": pa.int32()})


def run(job):
    """Write corpus, queries, judgments and answers of `job.settings.source` as Parquet, once checked.

    The module that the plan loads as "form" reads the source (`collection.forms`). Queries that can never count are
    dropped and counted: in `train` those without a judgment of the source's `positive_grade` (and, where answers decide
    the positives, without answers too) and those that `train_queries` does not draw, in other splits those without any
    judgment and without answers.

    Facts: num_passages, corpus_digest (SHA-256 over ids, titles and texts in order), positive_grade, splits {split:
    {queries, judgments, positives, dropped}}, same_text (counts of `collection.equal`), left_out {"corpus" or split:
    {kind: lines}} where lines were left out; of apidocs the packages' versions, of judgments alone judged_only.
    """
    require_planned(job.settings.files)
    form = job.load("form")
    settings = form.Settings.model_validate(dict(job.settings.source))
    source, same_text, left_out = form.read(settings, job), SameText(), {}
    faults = Faults(source.corpus.place, settings.drop or ())
    passages, digest = write_corpus(job.output("corpus.parquet"), source.corpus, faults, same_text, job.progress)
    left_out["corpus"] = dict(faults.left_out)
    log.info("%d passages, corpus digest %s", len(passages), digest)
    save_array(job.output("same_text.npy"), same_text.groups())
    doc_ids, splits = pa.array(list(passages), pa.string()), {}
    for name, split in source.splits.items():
        splits[name], left_out[name], texts = write_split(job, settings, name, split, passages, doc_ids)
        same_text.add_queries(name, texts, job.output(f"same_text.{name}.parquet"))
        log.info("%s: %s", name, ", ".join(f"{count} {what}" for what, count in splits[name].items()))
    facts = {"num_passages": len(passages), "corpus_digest": digest, "splits": splits}
    if not source.facts.get("judged_only"):  # whose texts are ids
        facts["same_text"] = same_text.facts()
    if left_out := {place: counts for place, counts in left_out.items() if counts}:
        facts["left_out"] = left_out
    return facts | {"positive_grade": settings.positive_grade} | source.facts


def write_corpus(path, corpus, faults, same_text, progress):
    """Write the passages, telling `progress`; returns ({doc_id: row}, SHA-256 over ids, titles and texts in order).
    corpus: `Rows`; faults: `Faults` of it, refused at its end"""
    passages, digest = {}, hashlib.sha256()
    rows = checked(corpus, passages, faults)
    with pq.ParquetWriter(path, CORPUS, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        for block in blocks(rows):
            _, *columns = zip(*block, strict=True)
            digest.update("".join(f"{doc_id}\0{title}\0{text}\0" for _, doc_id, title, text in block).encode())
            writer.write_table(pa.table(dict(zip(CORPUS.names, map(list, columns), strict=True)), schema=CORPUS))
            same_text.add_passages(*columns[1:])
            progress(len(passages), 0, "passages")
    faults.refuse()
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


def checked(rows, ids, faults):
    """Pass on the sound ones of `rows` of (line, id, text) or (line, id, title, text), and number their ids in `ids`;
    the others are in `faults`."""

    def duplicate(name):
        first = next(other[0] for other in rows.read(rows.place, wrong=lambda *fault: None) if other[1] == name)
        return Remedy(f"duplicate id {name!r}, first on line {first}. Remove one of them.")

    for row in rows.checked(faults):
        line, name, title, text = row[0], row[1], row[2], row[-1]  # of a query, both are its text
        if name in ids:
            faults.note("repeated", line, lambda name=name: duplicate(name))
        elif name.split() != [name]:
            separates = "which separates columns in runs and judgments"
            faults.note(None, line, Remedy(f"the id {name!r} is empty or has white space, {separates}. Rename it."))
        # A title is text enough: BEIR's collections have passages of a title alone.
        elif (not text or text.isspace()) and (not title or title.isspace()):
            faults.note("empty", line, Remedy(f"the text of {name!r} is empty. Give it a text or remove the line."))
        else:
            ids[name] = len(ids)
            yield row


def write_split(job, settings, name, split, passages, doc_ids):
    """Write the queries, judgments and answers of one split; returns (its counts, the facts of the split; {kind: lines
    left out}; the texts of its queries)."""
    queries, drop = {}, settings.drop or ()
    faults = [Faults(rows.place, drop) for rows in (split.queries, split.qrels, split.answers) if rows]
    texts = [text for _, _, text in checked(split.queries, queries, faults[0])]
    faults[0].refuse()
    (query, passage, grade), missing = judgments(split.qrels, queries, passages, faults[1])
    answered = {} if split.answers is None else answers(split.answers, queries, faults[2])
    kept = np.zeros(len(queries), dtype=bool)
    kept[query[grade >= settings.positive_grade] if name == "train" else query] = True
    if name != "train":
        kept[[row for row, _, _ in missing]] = True
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
    new_rows, of_kept = np.cumsum(kept, dtype=np.int32) - 1, kept[query]
    query, passage, grade = new_rows[query[of_kept]], passage[of_kept], grade[of_kept]
    ids = {"query_id": table["query_id"].take(query), "doc_id": doc_ids.take(passage)}
    rows = {"grade": grade, "query": query, "passage": passage}
    pq.write_table(pa.table(ids | rows), job.output(f"qrels.{name}.parquet"))
    if missing := [(new_rows[row], doc_id, value) for row, doc_id, value in missing if kept[row]]:
        lacking = dict(zip(MISSING.names, map(list, zip(*missing, strict=True)), strict=True))
        pq.write_table(pa.table(lacking, schema=MISSING), job.output(f"missing.{name}.parquet"))
    positives = int((grade >= settings.positive_grade).sum())
    counts |= {"judgments": len(grade), "positives": positives, "dropped": len(queries) - len(table)}
    return counts, dict(sum((each.left_out for each in faults), start=Faults("").left_out)), table["text"].to_pylist()


def drawn(query_ids, kept, settings):
    """bool: the settings.TrainQueries that a draw takes of those `kept` (bool, by query)."""
    numbers = np.array([derive_seed(settings.seed, "training query", query_id) for query_id in query_ids])
    chosen = np.zeros(len(kept), dtype=bool)
    chosen[np.flatnonzero(kept)[np.argsort(numbers[kept])[: settings.count]]] = True
    return chosen


def judgments(qrels, queries, passages, faults):
    """(query rows, passage rows and grades of all judgments, three int32 arrays; [(query row, passage id, grade)] of
    passages that the corpus lacks, where these are left out). queries and passages are {id: row}.

    A judgment that is repeated word for word, as published ones may be, is read once and counted.
    """
    query_rows, passage_rows, grades, missing, first_lines = array("i"), array("i"), array("i"), [], {}
    for line, query_id, doc_id, grade in qrels.checked(faults):
        if unknown_query(faults, line, query_id, queries, qrels.place):
            continue
        row, passage = queries[query_id], passages.get(doc_id)
        first, same = first_lines.setdefault((row, doc_id if passage is None else passage), (line, grade))
        if first != line and same == grade:
            faults.left_out["repeated"] += 1
        elif first != line:
            twice = f"query {query_id!r} and passage {doc_id!r} are judged twice, first on line {first}"
            faults.note("repeated", line, Remedy(f"{twice}. Remove one of them."))
        elif not re.fullmatch("[+-]?[0-9]{1,20}", grade) or not -(2**31) <= int(grade) < 2**31:
            faults.note(None, line, Remedy(f"grade {grade!r} is not a 32-bit integer. Write a whole number."))
        elif passage is None:
            missing.append((row, doc_id, int(grade)))
            remedy = "Remove the line, or give the corpus that belongs to these judgments."
            faults.note("dangling", line, Remedy(f"the judged passage {doc_id!r} is not in the corpus. {remedy}"))
        else:
            query_rows.append(row)
            passage_rows.append(passage)
            grades.append(int(grade))
    faults.refuse()
    return tuple(np.array(column, dtype=np.int32) for column in (query_rows, passage_rows, grades)), missing


def answers(rows, queries, faults):
    """{query_id: list of answers} of the rows, of which each is of another query and has one or more strings."""
    lists, first_lines = {}, {}
    for line, query_id, values in rows.checked(faults):
        if unknown_query(faults, line, query_id, queries, rows.place):
            continue
        if (first := first_lines.setdefault(query_id, line)) != line:
            faults.note("repeated", line, Remedy(f"query {query_id!r} has answers on line {first} too. Join them."))
        elif not values or not all(isinstance(value, str) for value in values):
            faults.note(None, line, Remedy("'answers' must be a list of one or more strings. Correct the line."))
        else:
            lists[query_id] = values
    faults.refuse()
    return lists


def unknown_query(faults, line, query_id, queries, place):
    """Whether a line names a query that is not among `queries` ({id: row}), which is then in `faults`."""
    if query_id in queries:
        return False
    remedy = f"Remove the line, or give the query file that belongs to {place}."
    faults.note("dangling", line, Remedy(f"query {query_id!r} is not among the split's queries. {remedy}"))
    return True
