"""The file forms a collection can have. Each function finds its files and returns them as one Source, unread."""

import re
from pathlib import Path

from teleport.collection.records import Rows, Source, Split, json_rows, judgment_rows, passage_rows, tab_rows

BEIR_HEADER = ["query-id", "corpus-id", "score"]


def tsv(settings):
    """MS MARCO-style files, each named in the configuration (settings.Tsv). Raises ValueError when one is missing."""
    corpus = existing(settings.corpus, "collection.corpus")
    splits = {
        name: Split(
            query_rows(existing(split.queries, f"collection.splits.{name}.queries")),
            qrels_rows(existing(split.qrels, f"collection.splits.{name}.qrels")),
        )
        for name, split in settings.splits.items()
    }
    return Source(Rows(corpus, lambda: passage_rows(corpus)), splits)


def folder(settings):
    """corpus.tsv, queries.SPLIT.tsv, qrels.SPLIT.tsv and maybe answers.SPLIT.jsonl, plain or .gz (settings.Folder).

    Every split that has queries or judgments must have both; only a split other than train that has answers needs no
    judgments. Raises ValueError when a file is missing.
    """
    corpus = existing(Path(settings.path, "corpus.tsv"), "collection.path")
    home, key = Path(settings.queries or settings.path), "collection.queries" if settings.queries else "collection.path"
    splits = {
        name: Split(
            query_rows(existing(home / f"queries.{name}.tsv", key)),
            qrels_rows_of(home, name, key),
            answer_rows(home / f"answers.{name}.jsonl"),
        )
        for name in split_names(home, r"(?:queries|qrels)\.(.+)\.tsv", key)
    }
    return Source(Rows(corpus, lambda: passage_rows(corpus, counts=(3,))), splits)


def beir(settings):
    """A BEIR folder: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv, plain or .gz (settings.Beir).

    queries.jsonl holds the queries of all splits; those of one split are the ones that its judgments name.
    Raises ValueError when a file is missing.
    """
    home, key = Path(settings.path), "collection.path"
    corpus, queries = existing(home / "corpus.jsonl", key), existing(home / "queries.jsonl", key)

    def split(name):
        path = existing(home / "qrels" / f"{name}.tsv", key)
        qrels = Rows(path, lambda: judgment_rows(path, BEIR_HEADER))
        return Split(Rows(queries, lambda: judged_queries(queries, qrels)), qrels)

    splits = {name: split(name) for name in split_names(home / "qrels", r"(.+)\.tsv", key)}
    types = {"_id": str, "title": str, "text": str}
    return Source(Rows(corpus, lambda: json_rows(corpus, types, defaults={"title": ""})), splits)


def judged_queries(path, qrels):
    """(line number, id, text) of the queries in the JSON lines `path` that `qrels` name."""
    judged = {query_id for _, query_id, _, _ in qrels}
    return (row for row in json_rows(path, {"_id": str, "text": str}) if row[1] in judged)


def query_rows(path):
    """Rows of a query file: id, text."""
    return Rows(path, lambda: tab_rows(path, (2,), "query id, text"))


def qrels_rows(path):
    """Rows of a judgment file: query id, passage id, grade."""
    return Rows(path, lambda: judgment_rows(path))


def qrels_rows_of(home, name, key):
    """Rows of the judgments of a split in the folder `home`; none where an evaluated split has answers instead."""
    path = home / f"qrels.{name}.tsv"
    if not found(path) and name != "train" and found(home / f"answers.{name}.jsonl"):
        return Rows(path, lambda: iter(()))
    return qrels_rows(existing(path, key))


def answer_rows(path):
    """Rows of an answer file: query id, list of answers; None without such a file, since few collections have one."""
    path = found(path)
    return path and Rows(path, lambda: json_rows(path, {"id": str, "answers": list}))


def existing(path, key):
    """`path` or `path`.gz, whichever is there. Raises ValueError naming the file and the setting `key`."""
    if place := found(path):
        return place
    raise ValueError(f"{path}: no such file, and no {Path(path).name}.gz beside it. Put it there, or correct {key}.")


def found(path):
    """`path` or `path`.gz, whichever is there; None without either."""
    return next((place for place in (Path(path), Path(f"{path}.gz")) if place.is_file()), None)


def split_names(home, pattern, key):
    """The splits in the folder `home`, sorted: group 1 of the regular expression in its file names (a .gz aside).

    Raises ValueError when there is none.
    """
    names = {match[1] for path in home.glob("*") if (match := re.fullmatch(pattern, path.name.removesuffix(".gz")))}
    if not names:
        raise ValueError(f"{home}: no files named like {pattern!r}, so no queries. Put them there, or correct {key}.")
    return sorted(names)
