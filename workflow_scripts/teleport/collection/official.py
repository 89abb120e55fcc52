"""Official files as collections: MS MARCO's and TREC's, DPR's, Tevatron's, in exactly their published forms."""

import ast
import codecs
import csv
import json
from pathlib import Path
from typing import NamedTuple

from teleport.collection.records import Rows, Source, Split, judgment_rows, json_rows, lines, open_bytes, passage_rows
from teleport.collection.sources import query_rows
from teleport.stage import log

DPR_HEADER = ["id", "text", "title"]
CHUNK_CHARACTERS = 2**22  # of JSON held at once; a record of DPR's training files has about 100,000


class Question(NamedTuple):
    """One query with what comes in the same record: ids of its positives, first the best, and answers."""

    line: int
    query_id: str
    text: str
    positives: list
    answers: list


def downloads(settings, files):
    """The Source of `settings` (settings.Downloads); `files` are the facts of the download stage ({name: {path, …}}).

    Raises ValueError when a file has changed since it was verified, or is not in its form.
    """
    corpus = located(settings.corpus.file, files)
    if settings.corpus.form == "dpr":
        passages = Rows(corpus, lambda: dpr_passages(corpus))
    else:
        passages = Rows(corpus, lambda: passage_rows(corpus))
    if settings.corpus.titles:
        passages = with_titles(passages, located(settings.corpus.titles, files))
    return Source(passages, {name: split(form, files) for name, form in vars(settings.splits).items()})


def located(name, files):
    """The path of a file, or PATH!MEMBER. Raises ValueError when it is not as the download stage left it."""
    archive, mark, member = name.partition("!")
    path, expected = Path(files[archive]["path"]), files[archive]["bytes"]
    if not path.is_file() or path.stat().st_size != expected:
        raise ValueError(
            f"{path} is missing or has not the {expected} bytes that were verified. Put it back, or verify anew "
            "with `snakemake --forcerun download`."
        )
    return f"{path}{mark}{member}" if member else path


def split(form, files):
    """The Split of one settings.OfficialSplit."""
    path = located(form.queries, files)
    if form.form == "tsv":
        qrels = located(form.qrels, files)
        return Split(query_rows(path), Rows(qrels, lambda: distinct(qrels, judgment_rows(qrels))))
    questions = list({"dpr": dpr_questions, "qa": qa_questions, "tevatron": tevatron_questions}[form.form](path))
    if form.all_questions:
        questions += lacking(questions, qa_questions(located(form.all_questions, files)))
    answered = any(question.answers for question in questions)
    return Split(
        Rows(path, lambda: ((q.line, q.query_id, q.text) for q in questions)),
        Rows(path, lambda: positive_rows(questions)),
        Rows(path, lambda: ((q.line, q.query_id, q.answers) for q in questions if q.answers)) if answered else None,
    )


def lacking(questions, more):
    """Those of the Questions `more` whose text is not among `questions`, with ids that continue theirs; logs counts."""
    texts = {question.text for question in questions}
    added = [question for question in more if question.text not in texts]
    log.info("%d questions with contexts, %d without", len(questions), len(added))
    first = len(questions)
    return [q._replace(line=first + n + 1, query_id=str(first + n)) for n, q in enumerate(added)]


def positive_rows(questions):
    """(line, query id, passage id, "1") of the positives, each once per question."""
    return ((q.line, q.query_id, doc_id, "1") for q in questions for doc_id in dict.fromkeys(q.positives))


def distinct(path, rows):
    """`rows` of judgments without the exact repetitions that official files may have; the log counts them."""
    seen, repeated = set(), 0
    for row in rows:
        if row[1:] in seen:
            repeated += 1
        else:
            seen.add(row[1:])
            yield row
    if repeated:
        log.info("%s: %d judgments are repeated word for word and read once", path, repeated)


def with_titles(passages, path):
    """`passages` with the titles of a file of id TAB title; one without a title there gets an empty one.

    Raises ValueError, while it is read, when not one title belongs to a passage.
    """

    def read():
        titles = dict(line.partition("\t")[::2] for _, line in lines(path))
        untitled = count = 0
        for count, (number, doc_id, _, text) in enumerate(passages, 1):
            title = titles.get(doc_id, "")
            untitled += not title
            yield number, doc_id, title, text
        if count and untitled == count:
            raise ValueError(f"{path}: no line gives a passage a title. Give a file of passage id, tab, title.")
        log.info("%s: %d of %d passages have no title", path, untitled, count)

    return Rows(passages.place, read)


def csv_rows(path):
    """(line number, fields) of tab-separated CSV: a field in double quotes loses them, doubled ones become single."""
    reader = csv.reader((line + "\n" for _, line in lines(path)), delimiter="\t", strict=True)
    try:
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: wrong quoting ({error}). Fetch the file again.") from None


def dpr_passages(path):
    """(line number, id, title, text) of DPR's psgs_w100.tsv: a header, then id, text in CSV's quotes, title.

    Raises ValueError for another header and another number of columns.
    """
    for number, fields in csv_rows(path):
        if number == 1:
            if fields != DPR_HEADER:
                raise ValueError(f"{path}, line 1: {fields} is not the header {DPR_HEADER}. Give DPR's passage file.")
        elif len(fields) != 3:
            raise ValueError(f"{path}, line {number}: {len(fields)} columns, expected id, text, title. Correct it.")
        else:
            yield number, fields[0], fields[2], fields[1]


def qa_questions(path):
    """The Questions of DPR's *.qa.csv: question, and a list of answers as Python writes it; ids count from 0.

    Raises ValueError for a line that is not so.
    """
    for row, (number, fields) in enumerate(csv_rows(path)):
        try:
            question, answers = fields
            answers = ast.literal_eval(answers)
        except (ValueError, SyntaxError):
            answers = None
        if not isinstance(answers, list):
            raise ValueError(f"{path}, line {number}: not a question, a tab and a list of answers. Correct the line.")
        yield Question(number, str(row), question, [], answers)


def dpr_questions(path):
    """The Questions of DPR's training JSON: `question`, `answers`, `positive_ctxs`; ids count from 0.

    The contexts' ids are `passage_id` (NQ) or `psg_id` (TriviaQA). Raises ValueError for a record that is not so.
    """
    for row, record in enumerate(json_array(path)):
        try:
            contexts = record["positive_ctxs"]
            positives = [str(c["passage_id"] if "passage_id" in c else c["psg_id"]) for c in contexts]
            yield Question(row + 1, str(row), record["question"], positives, record["answers"])
        except (KeyError, TypeError):
            raise ValueError(
                f"{path}, record {row + 1}: DPR's records have question, answers and positive_ctxs, whose contexts "
                "have passage_id or psg_id. Correct the record."
            ) from None


def tevatron_questions(path):
    """The Questions of Tevatron's JSON lines: query_id, query, positive_passages with docid; maybe answers."""
    types = {"query_id": str, "query": str, "positive_passages": list, "answers": list}
    for number, query_id, text, passages, answers in json_rows(path, types, defaults={"answers": []}):
        try:
            positives = [str(passage["docid"]) for passage in passages]
        except (KeyError, TypeError):
            raise ValueError(f"{path}, line {number}: a positive passage has no docid. Add it.") from None
        yield Question(number, query_id, text, positives, answers)


def json_array(path):
    """The elements of a file that is one JSON array, read piece by piece. Raises ValueError when it is not or is torn."""
    decoder, position = json.JSONDecoder(), 0
    with open_bytes(path) as file:
        text = codecs.getreader("utf-8")(file)
        buffer = text.read(CHUNK_CHARACTERS).lstrip()
        if not buffer.startswith("["):
            raise ValueError(f"{path}: not a JSON array. Give DPR's training file as it was published.")
        position = 1
        while True:
            position = next((i for i in range(position, len(buffer)) if buffer[i] not in " \t\r\n,"), len(buffer))
            if buffer[position : position + 1] == "]":
                return
            try:
                record, position = decoder.raw_decode(buffer, position)
                yield record
            except json.JSONDecodeError as error:
                more = text.read(CHUNK_CHARACTERS)
                if not more:
                    raise ValueError(f"{path}: torn or wrong JSON ({error}). Fetch the file again.") from None
                buffer, position = buffer[position:] + more, 0
