"""Official files as collections, or judgments alone: those of MS MARCO, TREC, DPR and Tevatron, as published."""

import ast
import codecs
import csv
import re
from pathlib import Path
from typing import NamedTuple

import ijson

from teleport.collection import records
from teleport.collection.records import REFETCH, Rows, Source, Split, json_rows, lines, open_bytes, wrong_row
from teleport.collection.sources import existing
from teleport.refusal import Refusal
from teleport.running.log import log

DPR_HEADER = ["id", "text", "title"]
PIECE_BYTES = 2**16  # of JSON read at once; a record of DPR's training files has about 100,000
DEEPEST = 1000  # brackets that a piece opens and does not close; DPR's records nest to 3
# An escape for the first half of a surrogate pair, after which comes none for the second half.
HALF_PAIR = re.compile(rb"\\u[dD][89abAB]..(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])")


def downloads(settings, files):
    """The Source of `settings` (settings.Downloads); files: facts of the download stage, {name: {path, …}}"""
    passages = corpus = Rows(located(settings.corpus.file, files), PASSAGES[settings.corpus.form])
    if settings.corpus.titles:
        titles = located(settings.corpus.titles, files)
        corpus = Rows(passages.place, lambda _: with_titles(passages, titles))
    return Source(corpus, {name: split(form, files) for name, form in settings.splits.items()})


def located(name, files):
    """The path of a file, or PATH!MEMBER; refused when it is not as the download stage left it."""
    archive, mark, member = name.partition("!")
    path, expected = Path(files[archive]["path"]), files[archive]["bytes"]
    if not path.is_file() or path.stat().st_size != expected:
        remedy = "Put it back, or verify anew with `snakemake --forcerun download`."
        raise Refusal(f"{path} is missing or has not the {expected} bytes that were verified. {remedy}")
    return f"{path}{mark}{member}" if member else path


def split(form, files):
    """The `Split` of one settings.OfficialSplit."""
    path = located(form.queries, files)
    if form.form == "tsv":
        qrels = Rows(located(form.qrels, files), lambda path: records.unique(path, records.judgment_rows(path)))
        return Split(Rows(path, records.query_rows), qrels)
    questions = list(QUESTIONS[form.form](path))
    if form.all_questions:  # those whose text is not among the others, with ids after theirs
        texts = {question.text for question in questions}
        added = [q for q in qa_questions(located(form.all_questions, files)) if q.text not in texts]
        log.info("%d questions with contexts, %d without", len(questions), len(added))
        questions += [q._replace(line=row + 1, query_id=str(row)) for row, q in enumerate(added, len(questions))]
    answered = any(question.answers for question in questions)
    return Split(
        Rows(path, lambda _: ((q.line, q.query_id, q.text) for q in questions)),
        Rows(path, lambda _: ((q.line, q.query_id, d, "1") for q in questions for d in dict.fromkeys(q.positives))),
        Rows(path, lambda _: ((q.line, q.query_id, q.answers) for q in questions if q.answers)) if answered else None,
    )


def judgments(settings, files):
    """Judgments alone (settings.JudgmentsAlone): queries and passages are those that are judged, their texts are ids.
    files: as `downloads` takes them, of the files that are fetched"""
    splits, qrels = {}, []
    for name, split in settings.splits.items():
        fetched, key = split.qrels.partition("!")[0] in files, f"collection.splits.{name}.qrels"
        qrels.append(place := located(split.qrels, files) if fetched else existing(split.qrels, key))
        queries = Rows(
            place, lambda path: first_of_each((n, query, query) for n, query, *_ in records.judgment_rows(path))
        )
        splits[name] = Split(queries, Rows(place, lambda path: records.unique(path, records.judgment_rows(path))))
    judged = Rows(
        ", ".join(map(str, qrels)),
        lambda _: first_of_each((n, doc, "", doc) for place in qrels for n, _, doc, _ in records.judgment_rows(place)),
    )
    return Source(judged, splits, {"judged_only": True})


def first_of_each(rows):
    """The first of the rows (line number, id, ...) of every id."""
    seen = set()
    return (row for row in rows if not (row[1] in seen or seen.add(row[1])))


def with_titles(passages, path):
    """`passages` with the titles of a file of id TAB title, or empty ones; Refusal when not one is of a passage. Where
    the lines of both are in the same order, as those of MS MARCO are, none is kept."""
    titles, early = (line.partition("\t")[::2] for _, line in lines(path)), {}
    untitled = count = 0
    for number, doc_id, _, text in passages:
        while doc_id not in early and (line := next(titles, None)):
            early[line[0]] = line[1]
        title = early.pop(doc_id, "")
        count, untitled = count + 1, untitled + (not title)
        yield number, doc_id, title, text
    early.update(titles)  # so that a damaged end is refused
    if count and untitled == count:
        raise Refusal(f"{path}: no line gives a passage a title. Give a file of passage id, tab, title.")
    log.info("%s: %d of %d passages have no title", path, untitled, count)


class Question(NamedTuple):
    """One query with what comes in the same record: ids of its positives, first the best, and answers."""

    line: int
    query_id: str
    text: str
    positives: list
    answers: list


def csv_rows(path):
    """(line number, fields) of tab-separated CSV: a field in double quotes loses them, doubled ones become single."""
    reader = csv.reader((line + "\n" for _, line in lines(path)), delimiter="\t", strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise wrong_row(path, reader.line_num, f"wrong quoting ({error}). {REFETCH}") from None


def dpr_passages(path):
    """(line number, id, title, text) of DPR's psgs_w100.tsv: a header, then id, text in CSV's quotes, title."""
    for number, fields in csv_rows(path):
        if number == 1:
            if fields != DPR_HEADER:
                raise wrong_row(path, 1, f"{fields} is not the header {DPR_HEADER}. Give DPR's passage file.")
        elif len(fields) != 3:
            raise wrong_row(path, number, f"{len(fields)} columns, expected id, text, title. Correct it.")
        else:
            yield number, fields[0], fields[2], fields[1]


def qa_questions(path):
    """The Questions of DPR's *.qa.csv: question, and a list of answers as Python writes it; ids count from 0."""
    for row, (number, fields) in enumerate(csv_rows(path)):
        try:
            question, answers = fields
            answers = ast.literal_eval(answers)
            "".join(answers).encode()  # not with half a surrogate pair, which no file can hold
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            answers = None
        if not isinstance(answers, list):
            raise wrong_row(path, number, "not a question, a tab and a list of answers. Correct the line.")
        yield Question(number, str(row), question, [], answers)


def dpr_questions(path):
    """The Questions of DPR's training JSON; ids count from 0."""
    for number, question, positives, answers in dpr_records(path, "positive_ctxs", "answers"):
        yield Question(number, str(number - 1), question, positives, answers)


def dpr_records(path, contexts, *lists):
    """(number from 1, question, passage ids of its contexts under this key, further lists by their keys) of DPR's
    training JSON; contexts have passage_id (NQ) or psg_id (TriviaQA)."""
    for number, record in enumerate(json_array(path), 1):
        try:
            ids = [str(c["passage_id"] if "passage_id" in c else c["psg_id"]) for c in record[contexts]]
            values = [record["question"], *(record[name] for name in lists)]
            if not all(map(isinstance, values, [str, *[list] * len(lists)])):
                raise TypeError
        except (KeyError, TypeError):
            keys = "".join(f", {name} (a list)" for name in lists)
            raise Refusal(
                f"{path}, record {number}: DPR's records have question (text){keys} and {contexts}, whose contexts "
                "have passage_id or psg_id. Correct the record."
            ) from None
        yield number, values[0], ids, *values[1:]


def tevatron_questions(path):
    """The Questions of Tevatron's JSON lines: query_id, query, positive_passages with docid; maybe answers."""
    types = {"query_id": str, "query": str, "positive_passages": list, "answers": list}
    for number, query_id, text, passages, answers in json_rows(path, types, defaults={"answers": []}):
        try:
            positives = [str(passage["docid"]) for passage in passages]
        except (KeyError, TypeError):
            raise wrong_row(path, number, "a positive passage has no docid. Add it.") from None
        yield Question(number, query_id, text, positives, answers)


def json_array(path):
    """The elements of a file that is one JSON array, read in pieces."""
    try:
        yield from ijson.items(ijson.from_iter(json_bytes(path)), "item", use_float=True)
    except Refusal:
        raise
    except (ijson.JSONError, ValueError) as error:
        reason = str(error).partition("\n")[0].strip()
        raise Refusal(f"{path}: torn or wrong JSON ({reason}). {REFETCH}") from None


def json_bytes(path):
    """The bytes of a file in pieces. Raises ValueError for what ijson does not refuse by itself: it takes an object for
    an empty array and half a surrogate pair for a question mark, and its memory grows with the square of the nesting.
    """
    decode, end = codecs.getincrementaldecoder("utf-8")().decode, b""
    with open_bytes(path) as file:
        while piece := file.read(PIECE_BYTES):
            if not end and not piece.lstrip().startswith(b"["):
                raise Refusal(f"{path}: not a JSON array. Give DPR's training file as it was published.")
            decode(piece)
            text = end + piece
            for half in HALF_PAIR.finditer(text, max(0, len(end) - 9)):  # what is before was seen with what follows it
                before = text[: half.start()]
                if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:  # else a backslash, and ud83d as text
                    raise ValueError("an escape is half a surrogate pair")
            opened, closed = (sum(map(piece.count, brackets)) for brackets in (b"[{", b"]}"))
            if opened > closed + DEEPEST:
                raise ValueError(f"more than {DEEPEST} brackets are open")
            end = text[-64:]
            yield piece


PASSAGES = {"tsv": records.passage_rows, "dpr": dpr_passages, "msmarco-docs": records.document_rows}
QUESTIONS = {"dpr": dpr_questions, "qa": qa_questions, "tevatron": tevatron_questions}
