"""A collection in tables, as the hub has those of BEIR, MTEB and CoIR: corpus and queries, each in files or a folder of
that name, and the judgments of each split in the folder qrels, default or data. It is written in BEIR's own form."""

import json
from typing import NamedTuple

from commands.pairs.columns import ID_KEYS, TEXT_KEYS, Problem, grade_of, picked, text_of
from commands.pairs.convert import Faults
from commands.pairs.find import SPLIT, Table, form_of
from teleport.collection.forms.beir import HEADER
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
        if split := SPLIT.match(table.path.name):
            qrels.setdefault(split[1].lower(), []).append(table)
    ours = all(table.path.name.removesuffix(".gz") in ("corpus.jsonl", "corpus.tsv") for table in corpus)
    if ours and any(".tsv" in table.path.name for tables in qrels.values() for table in tables):
        return None
    return JudgedTables(corpus, queries, qrels) if qrels else None


def tables_called(folder, name):
    """The `Table`s called `name` in a folder, and those in its subfolder of that name."""
    own = [table for table in tables_in(folder) if table.path.name.partition(".")[0] == name]
    return own + tables_in(folder / name)


def tables_in(folder):
    """The `Table`s in a folder, sorted; [] without it."""
    files = sorted(path for path in folder.glob("[!.]*") if path.is_file())
    return [Table(path, form) for path in files if (form := form_of(path))]


def convert_judged(found, folder, draw):
    """Write the collection of `JudgedTables` to a new folder; returns a sentence (list of one) on it. draw: as for
    `convert.convert`. Raises Refusal for the wrong records of the first file that has some."""
    folder.mkdir()
    write_lines(folder / "corpus.jsonl", found.corpus, passage_of)
    write_lines(folder / "queries.jsonl", found.queries, query_of)
    judged = {
        split: [row for table in tables for row in records_of(table, judgment_of)]
        for split, tables in found.qrels.items()
    }
    whole = judged.pop("train", [])
    for split, ids in draw({row[0] for row in whole}).items() if whole else ():
        judged[split] = [row for row in whole if row[0] in ids]
    for split, rows in judged.items():
        lines = "".join("\t".join(row) + "\n" for row in (HEADER, *rows))
        write_text(folder / "qrels" / f"{split}.tsv", lines)
    first = next(iter(found.qrels.values()))[0].path
    return [f"{found.corpus[0].path} has passages, {found.queries[0].path} queries, {first} judgments by ids."]


def write_lines(path, tables, record_of):
    """Write what `record_of` makes of the records of tables as JSON lines."""
    with open(path, "w", encoding="utf-8") as file:  # the folder goes if a record is wrong
        for table in tables:
            for record in records_of(table, record_of):
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


def records_of(table, record_of):
    """Yield what `record_of` makes of each record of a `Table`. Raises Refusal at the end if some are wrong."""
    faults = Faults(table.path)
    for place, record in table.form.rows(table.path, faults.note):
        try:
            yield record_of(record)
        except Problem as problem:
            faults.note(place, str(problem))
    faults.refuse()


def passage_of(record):
    """A line of corpus.jsonl."""
    title = picked(record, ("title",))
    title = text_of(record[title] or "", title, empty=True) if title else ""
    return query_of(record, empty=bool(title)) | {"title": title}


def query_of(record, empty=False):
    """A line of queries.jsonl; with a title added, one of corpus.jsonl."""
    key = named(record, (*TEXT_KEYS, "query", "question"), "text")
    return {"_id": id_of(record, ID_KEYS), "text": text_of(record[key] or "", key, empty)}


def judgment_of(record):
    """(query id, passage id, grade) of a record (texts)."""
    query, passage = id_of(record, QUERY_KEYS), id_of(record, PASSAGE_KEYS)
    grade = picked(record, GRADE_KEYS)
    return query, passage, str(grade_of(record[grade], grade) if grade else 1)


def id_of(record, keys):
    """The id in a record under the first of `keys` (text)."""
    value = record[key := named(record, keys, keys[0])]
    if not isinstance(value, str | int) or str(value).split() != [str(value)]:
        raise Problem(f"{key!r} is {value!r}, which is no id without white space. Correct it")
    return str(value)


def named(record, keys, what):
    """The key of a record that is one of `keys`, in any spelling. Raises Problem without one."""
    if (key := picked(record, keys)) is None:
        raise Problem(f"{what!r} is missing; there are {', '.join(map(repr, record)) or 'none'}. Name the key so")
    return key
