"""Finds the files of pairs in FROM of `teleport new`, with the form and split of each."""

import re
from functools import partial
from typing import NamedTuple

from commands.pairs import arrow, delimited, json_lines, parquet, texts
from teleport.refusal import Refusal
from teleport.running.files import COMPRESSED

TABLES = (json_lines, delimited, parquet)
SPLIT = re.compile(r"(train|dev|valid|validation|val|test)(?![a-z]).*", re.IGNORECASE)
SUFFIXES = ", ".join(suffix for form in TABLES for suffix in form.SUFFIXES)
# Subfolders of FROM in which tables are looked for.
BESIDE = (".", "data", "qrels", "default", "corpus", "queries")
PACKED = {*COMPRESSED} - {".gz"}
TREC = (".txt", ".trec", ".qrel", ".qrels")  # endings of judgments, which need another name only
UNREAD = (*TREC, ".xlsx", ".arrow", ".feather")
NO_TABLES = ("dataset_infos.json", "dataset_info.json")  # what `datasets` writes about a repository


class Table(NamedTuple):
    """A file or folder with questions and passages, and the module of its form."""

    path: object
    form: object


def form_of(path):
    """The module of the form of a file, by the end of its name; None if it is not a form of pairs."""
    name = path.name.lower().removesuffix(".gz")
    return next((form for form in TABLES if name.endswith(form.SUFFIXES) and name not in NO_TABLES), None)


def refuse_packed(paths):
    """Raise Refusal for a table among `paths` (list) that is compressed, but not by gzip, unless it is there in a
    readable form, too. A test set that nobody reads would be drawn from the training queries instead."""
    for path in [path for path in paths if path.suffix.lower() in PACKED]:
        readable = path.with_suffix(""), path.with_suffix(".gz")
        if form_of(readable[0]) and not any(each in paths for each in readable):
            raise Refusal(f"{path}: a table may be compressed by gzip alone. Decompress it, or compress it by gzip.")


def refuse_unread(paths):
    """Raise Refusal for a file of a split among `paths` (list) in a form that is not read, unless the split is there in
    a readable form, too: for the reason of `refuse_packed`."""
    tables = [path for path in paths if form_of(path)]
    corpora = {form_of(path) for path in tables if path.name.partition(".")[0] in ("corpus", "collection")}
    part_of = partial(judgments_of, beir=json_lines in corpora) if corpora else split_of
    parts = {part_of(path) for path in tables}
    for path in paths:
        name, _, ending = path.name.removesuffix(".gz").rpartition(".")
        if f".{ending.lower()}" not in UNREAD or part_of(path) in {"", *parts}:
            continue
        if corpora:
            how = "Rename" if f".{ending.lower()}" in TREC else "Convert"
            to = f"{name}.tsv{'.gz' * path.name.endswith('.gz')}"
            remedy = f"{how} it to {to} (judgments may have TREC's four columns)"
        elif ending.lower() == "txt" and not any(parts):
            continue  # one of the texts that a table without splits may be about
        else:
            remedy = f"Convert it to a form that is read ({SUFFIXES})"
        raise Refusal(
            f"{path}: its name is that of a split, but the ending .{ending} is not read. {remedy}, "
            "or move it elsewhere."
        )


def judgments_of(path, beir):
    """The name, without its ending, of a file of judgments or queries of a split; "" for any other file."""
    name = path.name.removesuffix(".gz").rpartition(".")[0]
    below = path.parent.name == "qrels" and name.lower() != "readme"
    return name if below or not beir and name.startswith(("queries.", "qrels.")) else ""


def split_of(path):
    """The split with which the name of a file begins; "" without one."""
    split = SPLIT.match(path.name)
    return split[1].lower() if split else ""


def tables_of(given):
    """{split: `Table`s} of FROM, a file or a folder; {} if it has no pairs. The split is "" if no name has one. Raises
    Refusal if some names have one and others do not."""
    if given.is_file():
        if not (form := form_of(given)):
            raise Refusal(f"{given}: its name ends with none of {SUFFIXES}. Rename it, or convert it to one of them.")
        return {split_of(given): [Table(given, form)]}
    if not given.is_dir():
        return {}
    if arrow.is_dataset(given):
        return {split: [Table(folder, arrow)] for split, folder in arrow.folders(given).items()}
    files = [path for folder in (given, given / "data") for path in sorted(folder.glob("[!.]*")) if path.is_file()]
    splits = {}
    for path in files:
        if form := form_of(path):
            splits.setdefault(split_of(path), []).append(Table(path, form))
    if "" in splits and len(splits) > 1:
        named, other = (splits[split][0].path.name for split in (max(splits), ""))
        raise Refusal(
            f"{given} has {named}, a split's file, and {other}, whose name begins with no split. Rename or remove it."
        )
    if not splits and texts.texts_below(given):
        raise Refusal(f"{given} has texts but no table of questions. {texts.REMEDY} {texts.FORM}.")
    return splits
