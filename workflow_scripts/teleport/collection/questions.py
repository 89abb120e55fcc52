"""Published forms of questions with their positives and answers, DPR's and Tevatron's, and of DPR's passages."""

import ast
import codecs
import csv
import json
from typing import NamedTuple

from teleport.collection.records import REFETCH, json_rows, lines, open_bytes, refuse_half_pairs, wrong_row

DPR_HEADER = ["id", "text", "title"]
CHUNK_CHARACTERS = 2**22  # of JSON held at once; a record of DPR's training files has about 100,000


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
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            answers = None
        if not isinstance(answers, list):
            raise wrong_row(path, number, "not a question, a tab and a list of answers. Correct the line.")
        yield Question(number, str(row), question, [], answers)


def dpr_questions(path):
    """The Questions of DPR's training JSON; contexts have passage_id (NQ) or psg_id (TriviaQA), ids count from 0."""
    for row, record in enumerate(json_array(path)):
        try:
            contexts = record["positive_ctxs"]
            positives = [str(c["passage_id"] if "passage_id" in c else c["psg_id"]) for c in contexts]
            question, answers = record["question"], record["answers"]
            if not (isinstance(question, str) and isinstance(answers, list)):
                raise TypeError
        except (KeyError, TypeError):
            raise ValueError(
                f"{path}, record {row + 1}: DPR's records have question (text), answers (a list) and positive_ctxs, "
                "whose contexts have passage_id or psg_id. Correct the record."
            ) from None
        yield Question(row + 1, str(row), question, positives, answers)


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
    """The elements of a file that is one JSON array, read in pieces. Raises ValueError for any other file."""
    decoder, pieces = json.JSONDecoder(), characters(path)
    buffer = next(pieces, "").lstrip()
    if not buffer.startswith("["):
        raise ValueError(f"{path}: not a JSON array. Give DPR's training file as it was published.")
    position = 1
    while True:
        position = next((i for i in range(position, len(buffer)) if buffer[i] not in " \t\r\n,"), len(buffer))
        if buffer[position : position + 1] == "]":
            return
        try:
            begin = position
            record, position = decoder.raw_decode(buffer, begin)
            if buffer.find("\\u", begin, position) >= 0:
                refuse_half_pairs(record)
            yield record
        except json.JSONDecodeError as error:
            more = next(pieces, "")
            if not more:
                raise ValueError(f"{path}: torn or wrong JSON ({error}). {REFETCH}") from None
            buffer, position = buffer[position:] + more, 0
        except (ValueError, RecursionError) as error:  # endless brackets or digits, half a surrogate pair
            raise ValueError(f"{path}: no questions of DPR ({error}). {REFETCH}") from None


def characters(path):
    """The text of a UTF-8 file in pieces. Raises ValueError for other bytes, and as `open_bytes` does."""
    with open_bytes(path) as file:
        text = codecs.getreader("utf-8")(file)
        try:
            yield from iter(lambda: text.read(CHUNK_CHARACTERS), "")
        except UnicodeDecodeError as error:
            wrong = error.object[error.start]
            raise ValueError(f"{path}: not UTF-8 (byte 0x{wrong:02x}: {error.reason}). {REFETCH}") from None
