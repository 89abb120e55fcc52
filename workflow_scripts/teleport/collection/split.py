"""Stage `split`: check the queries, judgments and answers of one split of any form and write them in one form.

queries.SPLIT.parquet (query_id, text), qrels.SPLIT.parquet (query_id, doc_id, grade, query, passage) and
answers.SPLIT.parquet (query_id, answers). Row numbers are the internal ids: `query` of a judgment is a row of the
queries, `passage` one of the corpus. Texts are kept as they are, to the character.

digests.npy has the digests of the queries' texts, same_text.SPLIT.parquet (query, passage) the pairs of equal text
(`collection.equal`). missing.SPLIT.parquet (query, doc_id, grade) exists if judgments of passages that are not in the
corpus were left out (collection.drop).
"""

import re
import unicodedata
from array import array
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.arrays import save_array
from teleport.collection.equal import digests_of, equal_pairs
from teleport.reader import MISSING, rows_of_ids
from teleport.records import Faults, checked
from teleport.refusal import Refusal, Remedy
from teleport.running.files import require_none_new, require_planned
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.collection import SplitSettings as Settings  # noqa: F401

QUERIES = pa.schema({"query_id": pa.string(), "text": pa.string()})
ANSWERS = pa.schema({"query_id": pa.string(), "answers": pa.list_(pa.string())})


def run(job):
    """Check the queries, judgments and answers of the split `job.settings.split` and write them as Parquet.

    Queries that can never count are dropped and counted. In `train` these are queries without a judgment of at least
    the source's `positive_grade` (if answers decide the positives, also without answers) and queries that
    `train_queries` does not draw. In other splits they are queries with neither judgments nor answers.

    Facts: queries, judgments, positives, dropped, answers if the split has some, positive_grade, left_out {kind: lines}
    if lines were left out, and same_text, the queries whose text is a passage's.
    """
    require_planned(job.settings.files)
    form, name = job.load("form"), job.settings.split
    settings = form.Settings.model_validate(dict(job.settings.source))
    split = form.split(settings, name, job)
    require_none_new(job.settings.files, [rows.place for rows in split[:3] if rows])
    facts, texts = write_split(job, settings, name, split)
    log.info("%s: %s", name, ", ".join(f"{count} {what}" for what, count in facts.items() if what != "left_out"))
    facts["positive_grade"] = settings.positive_grade
    digests_Q = digests_of(texts)
    pairs = equal_pairs(digests_Q, np.load(job.input("corpus", "digests.npy"), mmap_mode="r"))
    save_array(job.output("digests.npy"), digests_Q)
    pq.write_table(
        pa.table(dict(zip(("query", "passage"), pairs, strict=True))), job.output(f"same_text.{name}.parquet")
    )
    if settings.has_texts:
        facts["same_text"] = len(np.unique(pairs[0]))
    return facts


def judged_passages(job, qrels):
    """{id: row} of the passages that the judgments name. They are few in a corpus of millions."""
    ids = {row[2] for row in qrels.read(qrels.place, wrong=lambda *fault: None)}  # the check reports faults
    return rows_of_ids(job.input("corpus", "corpus.parquet"), ids)


def write_split(job, settings, name, split):
    """Write the queries, judgments and answers of one split; returns (its counts, the texts of its queries)."""
    queries, drop = {}, settings.drop or ()
    faults = [Faults(rows.place, drop) for rows in (split.queries, split.qrels, split.answers) if rows]
    texts = [text for _, _, text in checked(split.queries, queries, faults[0])]
    faults[0].refuse()
    passages = judged_passages(job, split.qrels)
    in_corpus = partial(rows_of_ids, job.input("corpus", "corpus.parquet"))
    (query, passage, grade), missing = judgments(split.qrels, queries, passages, faults[1], in_corpus)
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
    # Judgments of dropped queries are dropped, too. The others get the new rows of their queries.
    new_rows, of_kept = np.cumsum(kept, dtype=np.int32) - 1, kept[query]
    query, passage, grade = new_rows[query[of_kept]], passage[of_kept], grade[of_kept]
    ids_of = {row: doc_id for doc_id, row in passages.items()}
    doc_ids = pa.array([ids_of[row] for row in passage.tolist()], pa.string())
    ids = {"query_id": table["query_id"].take(query), "doc_id": doc_ids}
    rows = {"grade": grade, "query": query, "passage": passage}
    pq.write_table(pa.table(ids | rows), job.output(f"qrels.{name}.parquet"))
    if missing := [(new_rows[row], doc_id, value) for row, doc_id, value in missing if kept[row]]:
        lacking = dict(zip(MISSING.names, map(list, zip(*missing, strict=True)), strict=True))
        pq.write_table(pa.table(lacking, schema=MISSING), job.output(f"missing.{name}.parquet"))
    positives = int((grade >= settings.positive_grade).sum())
    counts |= {"judgments": len(grade), "positives": positives, "dropped": len(queries) - len(table)}
    if left_out := dict(sum((each.left_out for each in [*split.faults, *faults]), start=Faults("").left_out)):
        counts["left_out"] = left_out
    return counts, table["text"].to_pylist()


def drawn(query_ids, kept, settings):
    """The queries that a draw takes of those `kept`, both bool by query. settings: a settings.TrainQueries"""
    numbers = np.array([derive_seed(settings.seed, "training query", query_id) for query_id in query_ids])
    chosen = np.zeros(len(kept), dtype=bool)
    chosen[np.flatnonzero(kept)[np.argsort(numbers[kept])[: settings.count]]] = True
    return chosen


def judgments(qrels, queries, passages, faults, in_corpus):
    """(query rows, passage rows and grades of all judgments, three int32 arrays; [(query row, passage id, grade)] of
    passages that are not in the corpus, if these are left out). queries and passages are {id: row}; in_corpus returns
    the ids of the corpus among a set.

    A judgment that is repeated word for word, as published ones may be, is read once and counted.
    """
    query_rows, passage_rows, grades, missing, first_lines = array("i"), array("i"), array("i"), [], {}
    for line, query_id, doc_id, grade in qrels.checked(faults):
        grade = grade.removesuffix(".0")
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
            faults.note("dangling", line, partial(unknown_passage, doc_id, in_corpus))
        else:
            query_rows.append(row)
            passage_rows.append(passage)
            grades.append(int(grade))
    faults.refuse()
    return tuple(np.array(column, dtype=np.int32) for column in (query_rows, passage_rows, grades)), missing


def unknown_passage(doc_id, in_corpus):
    """The fault of a judgment whose passage is not in the corpus, maybe because of the form of its id."""
    problem = f"the judged passage {doc_id!r} is not in the corpus"
    if in_corpus({unicodedata.normalize(form, doc_id) for form in ("NFC", "NFD")}):
        return Remedy(f"{problem}, which has it in another Unicode form (NFC, NFD). Write it as the corpus does.")
    return Remedy(f"{problem}. Remove the line, or give the corpus that belongs to these judgments.")


def answers(rows, queries, faults):
    """{query_id: list of answers} of the rows. Each row must have another query and one or more strings."""
    lists, first_lines = {}, {}
    for line, query_id, values in rows.checked(faults):
        if unknown_query(faults, line, query_id, queries, rows.place):
            continue
        if (first := first_lines.setdefault(query_id, line)) != line:
            faults.note("repeated", line, Remedy(f"query {query_id!r} also has answers on line {first}. Join them."))
        elif not values or not all(isinstance(value, str) for value in values):
            faults.note(None, line, Remedy("'answers' must be a list of one or more strings. Correct the line."))
        else:
            lists[query_id] = values
    faults.refuse()
    return lists


def unknown_query(faults, line, query_id, queries, place):
    """Whether a line names a query that is not in `queries` ({id: row}). If so, notes it in `faults`."""
    if query_id in queries:
        return False
    remedy = f"Remove the line, or give the query file that belongs to {place}."
    faults.note("dangling", line, Remedy(f"query {query_id!r} is not among the split's queries. {remedy}"))
    return True
