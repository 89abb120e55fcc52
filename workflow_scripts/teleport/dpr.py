"""DPR's training files: one JSON array of questions with their passages, too large to be read at once."""

import codecs
import re

import ijson

from teleport.records import REFETCH, open_bytes
from teleport.refusal import Refusal

PIECE_BYTES = 2**16  # of JSON read at once; a record of DPR's training files has about 100,000
DEEPEST = 1000  # brackets that may be open; DPR's records nest to 3
TEXT, BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL), re.compile(rb"[][{}]")
# An escape for the first half of a surrogate pair without one for the second half after it.
HALF_PAIR = re.compile(rb"\\u[dD][89abAB]..(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])")


def refuse(path, number, problem):
    """Raise the `Refusal` of a record."""
    raise Refusal(f"{path}, record {number}: {problem}")


def dpr_records(path, contexts, *lists, wrong=refuse):
    """(number from 1, question, passage ids of the contexts under the key `contexts`, the lists under the keys
    `lists`) of DPR's training JSON. Contexts have passage_id (NQ) or psg_id (TriviaQA), and their list may be empty.
    For a wrong record `wrong(path, number, problem)` is called."""
    for number, record in enumerate(json_array(path), 1):
        try:
            ids = [str(c["passage_id"] if "passage_id" in c else c["psg_id"]) for c in record[contexts]]
            values = [record["question"], *(record[name] for name in lists)]
            if not all(map(isinstance, values, [str, *[list] * len(lists)])):
                raise TypeError
        except (KeyError, TypeError):
            keys = "".join(f", {name} (a list)" for name in lists)
            wrong(
                path,
                number,
                f"DPR's records have question (text){keys} and {contexts}, whose contexts have passage_id or psg_id. "
                "Correct the record.",
            )
            continue
        yield number, values[0], ids, *values[1:]


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
    """The bytes of a file in pieces. Raises Refusal or ValueError for what ijson accepts: it reads an object as an
    empty array and half a surrogate pair as a question mark, and its memory grows with the square of the nesting.
    """
    decode, end, nesting = codecs.getincrementaldecoder("utf-8")().decode, b"", Nesting()
    with open_bytes(path) as file:
        while piece := file.read(PIECE_BYTES):
            if not end and not piece.lstrip().startswith(b"["):
                raise Refusal(f"{path}: not a JSON array. Give DPR's training file as it was published.")
            decode(piece)
            text = end + piece
            for half in HALF_PAIR.finditer(text, max(0, len(end) - 9)):  # earlier ones were checked with the last piece
                before = text[: half.start()]
                if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:  # else an escaped backslash, then ud83d as text
                    raise ValueError("an escape is half of a surrogate pair")
            nesting.add(piece)
            end = text[-64:]
            yield piece


class Nesting:
    """Counts how many brackets are open in JSON that comes in pieces; those in strings do not count."""

    def __init__(self):
        self.depth = 0
        self.open_text = b""  # of a string that the last piece leaves open: its quote and a last backslash

    def add(self, piece):
        """Read the next piece. Raises ValueError when more than DEEPEST are open."""
        outside, quote, text = TEXT.sub(b"", self.open_text + piece).partition(b'"')
        escaping = (len(text) - len(text.rstrip(b"\\"))) % 2
        self.open_text = quote + b"\\" * escaping
        for bracket in BRACKET.findall(outside):
            self.depth += 1 if bracket in b"[{" else -1
            if self.depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} brackets are open")
