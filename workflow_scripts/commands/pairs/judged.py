"""A collection in tables, as the hub has those of BEIR, MTEB and CoIR: corpus and queries, each in files or a folder of
that name, and the judgments of each split in the folder qrels, default or data. It is written in BEIR's own form."""

import json
from functools import partial
from typing import NamedTuple

from commands.pairs.columns import ID_KEYS, TEXT_KEYS, Problem, id_of, picked, title_of
from commands.pairs.convert import note
from commands.pairs.find import SPLIT, Table, form_of
from teleport.collection.forms.beir import HEADER
from teleport.records import Faults, float_of, shown
from teleport.running.files import write_text

QRELS = ("qrels", "default", "data")
QUERY_KEYS = ("query_id", "qid")
PASSAGE_KEYS = ("corpus_id", *ID_KEYS)
GRADE_KEYS = ("score", "grade", "relevance", "label")


class JudgedTables(NamedTuple):
    """`Table`s (lists) of passages and of queries, and of judgments by split."""

    corpus: list
    queries: list
    qrels: dict

    @property
    def of_train(self):
        """The name of a file with judgments of a split `train`."""
        path = next(iter(self.qrels.values()))[0].path
        return f"{path.parent.name}/train{path.suffix}"


def judged_tables(folder):
    """The `JudgedTables` of a folder; None if it has another form: BEIR's own, tables of ours, or pairs."""
    corpus, queries = (tables_called(folder, name) for name in ("corpus", "queries"))
    home = next((folder / name for name in QRELS if (folder / name).is_dir()), None)
    if not corpus or not queries or home is None:
        return None
    qrels = {}
    for table in tables_in(home):
        split = SPLIT.match(table.path.name)
        if split or home.name == "qrels":  # the other folders may have other tables, too
            name = split[1].lower() if split else table.path.name.partition(".")[0]
            qrels.setdefault(name, []).append(table)
    ours = all(table.path.name.removesuffix(".gz") in ("corpus.jsonl", "corpus.tsv") for table in corpus)
    if ours and any(".tsv" in table.path.name for tables in qrels.values() for table in tables):
        return None
    return JudgedTables(corpus, queries, qrels) if qrels else None


def tables_called(folder, name):
    """The `Table`s called `name` in a folder, and those in its subfolder of that name."""
    tables = [table for table in tables_in(folder) if table.path.name.partition(".")[0] == name]
    return tables + tables_in(folder / name)


def tables_in(folder):
    """The `Table`s in a folder, sorted; [] without it."""
    files = sorted(path for path in folder.glob("[!.]*") if path.is_file())
    return [Table(path, form) for path in files if (form := form_of(path))]


def convert_judged(collection, drop, folder, draw):
    """Write the collection of `JudgedTables` to a new folder; returns a sentence (list of one) on it. drop, draw: as
    for `convert.convert`; records that `drop` names are written, too, as the collection is read with it. Raises
    Refusal for the wrong records of the first file that has some."""
    folder.mkdir()
    passages = write_lines(folder / "corpus.jsonl", collection.corpus, passage_of, drop)
    queries = write_lines(folder / "queries.jsonl", collection.queries, query_of, drop)
    judged = {split: judgments(tables, queries, passages, drop) for split, tables in collection.qrels.items()}
    whole = judged.pop("train", [])
    for split, ids in draw({row[0] for row in whole}).items() if whole else ():
        judged[split] = [row for row in whole if row[0] in ids]
    for split, rows in judged.items():
        lines = "".join("\t".join(row) + "\n" for row in (HEADER, *rows))
        write_text(folder / "qrels" / f"{split}.tsv", lines)
    first = next(iter(collection.qrels.values()))[0].path
    corpus, queries = collection.corpus[0].path, collection.queries[0].path
    return [f"{corpus} has passages, {queries} queries, {first} judgments by ids."]


def write_lines(path, tables, line_of, drop):
    """Write the records of tables as JSON lines by `line_of`; returns the ids of the sound ones (set)."""
    ids = set()
    with open(path, "w", encoding="utf-8") as file:  # the folder goes if a record is wrong
        for table in tables:
            for line, wrong in records_of(table, line_of, drop):
                if line["_id"] in ids:
                    wrong(f"the id {line['_id']!r} was there earlier. Remove one of them", "repeated")
                elif not (line["text"].strip() or line.get("title", "").strip()):
                    wrong(f"the text of {line['_id']!r} is empty. Give it a text, or remove the line", "empty")
                else:
                    ids.add(line["_id"])
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return ids


def judgments(tables, queries, passages, drop):
    """The (query id, passage id, grade) of a split's tables. queries, passages: the ids that there are"""
    rows, grades = [], {}
    for table in tables:
        graded = None  # whether the first record has a grade
        for (query, passage, grade), wrong in records_of(table, judgment_of, drop):
            graded = grade is not None if graded is None else graded
            if query not in queries:
                wrong(f"there is no query {query!r}. Remove the judgment, or add the query", "dangling")
            elif (grade is not None) != graded:
                fault = "has no grade, as the first one has" if graded else "has a grade, and the first one has none"
                wrong(f"the judgment {fault}. Give every judgment one, or none", None)
            elif grades.setdefault((query, passage), grade) != grade:
                problem = f"query {query!r} and passage {passage!r} had another grade earlier. Remove one of them"
                wrong(problem, "repeated")
            elif isinstance(grade, str):
                wrong(f"{grade} and no whole number of 32 bits. Write one, such as 1", None)
            elif passage not in passages:
                wrong(f"there is no passage {passage!r}. Remove the judgment, or add the passage", "dangling")
            rows.append((query, passage, str(1 if grade is None or isinstance(grade, str) else grade)))
    return rows


def records_of(table, made_of, drop):
    """Yield (the result of `made_of`, a function that takes the message and the kind of a fault) for each record of a
    `Table`. Raises Refusal at the end if some have faults whose kinds are not in `drop`."""
    faults = Faults(table.path, drop, "record")
    for place, record in table.form.rows(table.path, partial(note, faults)):
        try:
            made = made_of(record)
        except Problem as problem:
            note(faults, place, problem)
        else:
            yield made, lambda message, kind, place=place: note(faults, place, Problem(message, kind))
    faults.refuse()


def passage_of(record):
    """A line of corpus.jsonl."""
    title = picked(record, ("title",))
    return query_of(record) | {"title": title_of(record[title], title) if title else ""}


def query_of(record):
    """A line of queries.jsonl; with a title added, one of corpus.jsonl."""
    key = named(record, (*TEXT_KEYS, "query", "question"), "text")
    return {"_id": id_below(record, ID_KEYS), "text": title_of(record[key], key)}


def judgment_of(record):
    """(query id, passage id, grade) of a record; the grade is a number, what it is instead (text), or None
    without one."""
    query, passage = id_below(record, QUERY_KEYS), id_below(record, PASSAGE_KEYS)
    key = picked(record, GRADE_KEYS)
    if key is None:
        return query, passage, None
    number = float_of(record[key])
    sound = -(2**31) <= number < 2**31 and number == int(number)  # published judgments may be below 0
    return query, passage, int(number) if sound else f"{key!r} is {shown(record[key])}"


def id_below(record, keys):
    """The id in a record under the first of `keys` (text)."""
    key = named(record, keys, keys[0])
    return id_of(record[key], key)


def named(record, keys, what):
    """The key of a record that is one of `keys`, in any spelling. Raises Problem without one."""
    if (key := picked(record, keys)) is None:
        raise Problem(f"{what!r} is missing; there are {', '.join(map(repr, record)) or 'none'}. Name the key so")
    return key
