"""The file forms a collection can have. Each function finds its files and returns them as one Source, unread."""

import re
from pathlib import Path

from teleport.collection.records import Rows, Source, Split, json_rows, judgment_rows, passage_rows, query_rows
from teleport.refusal import Refusal
from teleport.settings.section import NAME

BEIR_HEADER = ["query-id", "corpus-id", "score"]


def tsv(settings):
    """MS MARCO-style files, each named in the configuration (settings.Tsv)."""
    corpus = existing(settings.corpus, "collection.corpus")
    splits = {}
    for name, files in settings.splits.items():
        queries = existing(files.queries, f"collection.splits.{name}.queries")
        qrels = existing(files.qrels, f"collection.splits.{name}.qrels")
        splits[name] = Split(Rows(queries, query_rows), Rows(qrels, judgment_rows))
    return Source(Rows(corpus, passage_rows), splits)


def folder(settings):
    """corpus.tsv, queries.SPLIT.tsv, qrels.SPLIT.tsv and maybe answers.SPLIT.jsonl, plain or .gz (settings.Folder).

    Every split that has queries or judgments must have both; only a split other than train that has answers needs no
    judgments.
    """
    corpus = existing(Path(settings.path, "corpus.tsv"), "collection.path")
    home, key = Path(settings.queries or settings.path), "collection.queries" if settings.queries else "collection.path"

    def split(name):
        queries, qrels = existing(home / f"queries.{name}.tsv", key), home / f"qrels.{name}.tsv"
        answers = found(home / f"answers.{name}.jsonl")
        if found(qrels) or name == "train" or not answers:
            judged = Rows(existing(qrels, key), judgment_rows)
        else:
            judged = Rows(qrels, lambda _: iter(()))
        answers = answers and Rows(answers, lambda path: json_rows(path, {"id": str, "answers": list}))
        return Split(Rows(queries, query_rows), judged, answers)

    names = split_names(home, r"(?:queries|qrels)\.(.+)\.tsv", key)
    return Source(Rows(corpus, passage_rows), {name: split(name) for name in names})


def beir(settings):
    """A BEIR folder: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv, plain or .gz (settings.Beir). queries.jsonl holds
    the queries of all splits; those of one split are the ones that its judgments name."""
    home, key = Path(settings.path), "collection.path"
    corpus, queries = existing(home / "corpus.jsonl", key), existing(home / "queries.jsonl", key)

    def split(name):
        qrels = Rows(existing(home / "qrels" / f"{name}.tsv", key), lambda path: judgment_rows(path, BEIR_HEADER))
        return Split(Rows(queries, lambda path: judged_queries(path, qrels)), qrels)

    splits = {name: split(name) for name in split_names(home / "qrels", r"(.+)\.tsv", key)}
    types = {"_id": str, "title": str, "text": str}
    return Source(Rows(corpus, lambda path: json_rows(path, types, defaults={"title": ""})), splits)


def judged_queries(path, qrels):
    """(line number, id, text) of the queries in the JSON lines `path` that `qrels` name."""
    judged = {query_id for _, query_id, _, _ in qrels}
    return (row for row in json_rows(path, {"_id": str, "text": str}) if row[1] in judged)


def existing(path, key):
    """`path` or `path`.gz, whichever is there; key: the setting of it, for a refusal."""
    if place := found(path):
        return place
    raise Refusal(f"{path}: no such file, and no {Path(path).name}.gz beside it. Put it there, or correct {key}.")


def found(path):
    """`path` or `path`.gz, whichever is there; None without either."""
    return next((place for place in (Path(path), Path(f"{path}.gz")) if place.is_file()), None)


def split_names(home, pattern, key):
    """The splits in the folder `home`, sorted: group 1 of the regular expression in its file names without .gz."""
    names = {match[1] for path in home.glob("*") if (match := re.fullmatch(pattern, path.name.removesuffix(".gz")))}
    if not names:
        raise Refusal(f"{home}: no files named like {pattern!r}, so no queries. Put them there, or correct {key}.")
    if unfit := sorted(name for name in names if not re.fullmatch(NAME, name)):
        problem = f"{home} has a file of the split {unfit[0]!r}, and the name of a split must match {NAME}"
        raise Refusal(f"{problem}, as it becomes part of files' names. Rename the file.")
    return sorted(names)
