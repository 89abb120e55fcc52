"""Reads the rows of collection files, each with its line number, so that every error can name the line."""

import gzip
import json
import math
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from teleport.refusal import Refusal, Remedy
from teleport.running.log import log, warn_once

# Names of columns; a hyphen in them is read as _.
QUERY_IDS = {"qid", "query_id", "topic_id"}
PASSAGE_IDS = {"pid", "docid", "doc_id", "docno", "passage_id", "corpus_id", "document_id"}
HEADER = QUERY_IDS | PASSAGE_IDS | {"id", "_id", "title", "text", "query", "question", "topic", "passage", "contents"}
HEADER |= {"document", "doc", "iteration", "iter", "q0", "score", "grade", "relevance", "rel", "label"}
SIMPLE = re.compile(r'"(?:[^"]|"")*"')
DOUBLED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
MOST_LINE_BYTES = 2**28  # a line is in memory as a whole
# A file without a published digest was recorded as it came, good or bad, so its entry must be deleted with it.
REFETCH = Remedy(
    "Fetch the file again; if data/downloads/digests.json has an entry for it, delete file and entry and run "
    "`snakemake --forcerun download`."
)

FROM_WINDOWS = Remedy("Convert the file, for example with `iconv -f cp1252 -t utf-8`.")  # Windows' Latin-1
FROM_UTF16 = "It is UTF-16: convert it with `iconv -f utf-16 -t utf-8`."
# Remedies, by the first bytes of a file.
OTHER_FORMS = {b"\xff\xfe": FROM_UTF16, b"\xfe\xff": FROM_UTF16}
OTHER_FORMS[b"\x1f\x8b"] = "It is compressed by gzip: let its name end with .gz."
PACKED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "Zstandard", b"PK\x03\x04": "zip"}
OTHER_FORMS |= {start: f"It is compressed by {name}: decompress it, or use gzip." for start, name in PACKED.items()}


def refuse(path, line, problem):
    """Raise the `Refusal` of a row. Readers of rows call it for a wrong row, unless they get another function."""
    raise wrong_row(path, line, problem)


@dataclass(frozen=True)
class Rows:
    """The rows that `read(place, wrong=…)` yields, (line number, field, field, ...); iterating reads them again from
    the start. For a wrong row `wrong(place, line, problem)` is called instead. It raises, or the reader goes on."""

    place: str | Path
    read: Callable[..., Iterator[tuple]]

    def __iter__(self):
        return iter(self.read(self.place, wrong=refuse))

    def checked(self, faults):
        """The rows; the wrong ones go to `faults` (`Faults`)."""
        return iter(self.read(self.place, wrong=faults.wrong))


# Faults that a collection may leave out (collection.drop), and their names in messages.
LEFT_OUT = {"empty": "without text", "repeated": "repeated", "dangling": "of a query or passage that is not there"}
FIRST_FAULTS = 5


class Faults:
    """The faults in the rows of one file. Rows with faults in `drop` (names of LEFT_OUT) are left out and counted; all
    other faults are kept until the end of the file and refused together. unit: what is numbered, such as line; names:
    {kind of fault: its name in messages}. A `line` is its number, or a text such as "row 3" """

    def __init__(self, place, drop=(), unit="line", names=LEFT_OUT):
        self.place, self.drop, self.unit, self.names = place, drop, unit, names
        self.left_out, self.counts, self.first = Counter(), Counter(), []

    def wrong(self, place, line, problem):
        """Note that a row does not have the form of its file. problem: with the remedy"""
        self.note(None, line, problem)

    def note(self, kind, line, problem):
        """Note that a row is wrong. kind: a key of LEFT_OUT, None for a fault that is never left out; problem: with the
        remedy, or a function that returns it, called only for the first faults"""
        if kind in self.drop:
            self.left_out[kind] += 1
            return
        self.counts[kind] += 1
        if len(self.first) < FIRST_FAULTS:
            place = line if isinstance(line, str) else f"{self.unit} {line}"
            self.first.append((place, problem() if callable(problem) else problem))

    def refuse(self):
        """Raise Refusal with all faults; log what was left out. Returns its counts ({name: rows})."""
        if self.first:
            kinds = [kind for kind in self.names if self.counts[kind]]
            drop = [kind for kind in self.names if kind in kinds or kind in self.drop]
            settings = Remedy(f"collection.drop: [{', '.join(drop)}], or `teleport new --drop {','.join(drop)}`")
            remedy = Remedy(f" Or leave such {self.unit}s out: {settings}.") if kinds else ""
            total = self.counts.total()
            if total == 1:
                place, problem = self.first[0]
                raise Refusal(f"{self.place}, {place}: {problem}{remedy}")
            named = [f"{self.counts[kind]:,} {self.names[kind]}" for kind in kinds]
            named += [f"{self.counts[None]:,} not of this form"] if self.counts[None] else []
            shown = "".join(f"\n  {place}: {problem}" for place, problem in self.first)
            first = "" if total == len(self.first) else f" The first {len(self.first)}:"
            raise Refusal(f"{self.place}: {total:,} {self.unit}s are wrong ({', '.join(named)}).{remedy}{first}{shown}")
        for kind, count in self.left_out.items():
            log.warning("%s: %d %ss are left out: %s", self.place, count, self.unit, self.names[kind])
        return dict(self.left_out)


class Split(NamedTuple):
    """A query set. Fields: queries (id, text); qrels (query id, passage id, grade); answers (query id, list).

    faults: `Faults` of files that are read before the rows are
    """

    queries: Rows
    qrels: Rows
    answers: Rows | None = None
    faults: tuple = ()


def checked(rows, ids, faults):
    """Yield the sound `rows` of (line, id, text) or (line, id, title, text), and number their ids in `ids`; the other
    rows go to `faults`."""

    def duplicate(name):
        first = next(other[0] for other in rows.read(rows.place, wrong=lambda *fault: None) if other[1] == name)
        return Remedy(f"duplicate id {name!r}, first on line {first}. Remove one of them.")

    for row in rows.checked(faults):
        line, name, title, text = row[0], row[1], row[2], row[-1]  # for a query, title is its text too
        if name in ids:
            faults.note("repeated", line, lambda name=name: duplicate(name))
        elif name.split() != [name]:
            separates = "which separates columns in runs and judgments"
            faults.note(None, line, Remedy(f"the id {name!r} is empty or has white space, {separates}. Rename it."))
        # A title is text enough: BEIR's collections have passages of a title alone.
        elif (not text or text.isspace()) and (not title or title.isspace()):
            faults.note("empty", line, Remedy(f"the text of {name!r} is empty. Give it a text or remove the line."))
        else:
            ids[name] = len(ids)
            yield row


def wrong_row(place, line, problem):
    """The `Refusal` of a row; problem: with the remedy."""
    return Refusal(f"{place}, line {line}: {problem}")


@contextmanager
def open_bytes(path):
    """Open a file for reading bytes: a plain one, a .gz uncompressed, or a member of a tar archive (`ARCHIVE!MEMBER`).
    A damaged .gz or archive is also refused while it is read."""
    archive, member = archive_and_member(path)
    try:
        if not member:
            with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
                yield file
            return
        with tarfile.open(archive, "r|*") as tar:  # read in one pass: a compressed archive has no index
            for entry in tar:
                if entry.isfile() and entry.name.removeprefix("./") == member:
                    yield tar.extractfile(entry)
                    return
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        kind = "tar archive" if member else "gzip file"
        raise Refusal(f"{archive}: not a {kind}, or a damaged one ({error}). {REFETCH}") from None
    raise Refusal(f"{archive} has no member {member!r}. Name one that it has (`tar tf` lists them).")


def archive_and_member(path):
    """(ARCHIVE, MEMBER) of `ARCHIVE!MEMBER`; (path, "") of the path of a file. Folder names may contain a `!`, too."""
    text = str(path)
    ends = [len(text), *(mark.start() for mark in re.finditer("!", text))]
    end = next((end for end in ends if Path(text[:end]).is_file()), len(text))
    return text[:end], text[end + 1 :]


def lines(path):
    """(line number from 1, text without the line end) of a UTF-8 file that `open_bytes` opens. Only a line feed ends a
    line. Warns of NUL bytes and of a last line without its end, which are read but hardly meant."""
    with open_bytes(path) as file:
        number, line, nul_bytes = 0, b"\n", False
        for number, line in enumerate(iter(partial(file.readline, MOST_LINE_BYTES), b""), 1):
            if len(line) == MOST_LINE_BYTES:
                raise wrong_row(
                    path, number, f"{MOST_LINE_BYTES:,} bytes without a line end. Write one record per line."
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                where = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
                remedy = next((hint for start, hint in OTHER_FORMS.items() if line.startswith(start)), FROM_WINDOWS)
                raise wrong_row(path, number, f"{where} is not UTF-8. {remedy}") from None
            if not nul_bytes and "\0" in text:
                nul_bytes = True
                warn_once(
                    f"{path}, line {number}: this and maybe later lines have NUL bytes, which are read as they are"
                )
            yield number, text.rstrip("\r\n")
        if not line.endswith(b"\n"):
            warn_once(
                f"{path}, line {number}: the last line has no line end. It is read, but the file may be cut off there."
            )


def filled_lines(path):
    """The `lines` of a file that are not blank: those of JSON lines, as other readers take them."""
    return ((number, line) for number, line in lines(path) if line.strip())


def tab_rows(path, counts, meaning, wrong=refuse):
    """(line number, fields...) of tab-separated lines. All must have as many columns as the first, one of `counts`.
    Quotes are text; a warning is logged if they look like CSV's. A first line of column names alone is left out, with
    a warning. meaning: of the columns, for a refusal"""
    expected, quoted = " or ".join(map(str, counts)), False
    for number, line in lines(path):
        fields = line.split("\t")
        if len(fields) not in counts:
            remedy = "One record per line, and no tabs or line breaks inside texts."
            wrong(path, number, f"column count {len(fields)}, expected {expected} ({meaning}). {remedy}")
            continue
        if number == 1:
            counts, expected = [len(fields)], f"{len(fields)} as in line 1"
            if is_header(path, fields):
                continue
        if not quoted and any(in_csv_quotes(field, number <= 2) for field in fields[1:]):
            quoted = True
            warn_of_quotes(path, f"line {number}")
        yield number, *fields


def warn_of_quotes(path, place):
    """Warn that a line of tab-separated text has CSV's quotes."""
    written = "a field in CSV's quotes, which are read as text"
    warn_once(f"{path}, {place}: {written}. If CSV wrote the file, write it again without quotes.")


def in_csv_quotes(field, first):
    """Whether a field looks as if CSV had written it: in double quotes, with doubled ones inside; or, on the first
    two lines, in double quotes at all."""
    return field[:1] == '"' and len(field) > 1 and bool((SIMPLE if first else DOUBLED).fullmatch(field))


def is_header(path, fields):
    """Whether a first line has only names of columns. Raises Refusal if these are in another order than they are read
    in."""
    names = [name.strip().lower().replace("-", "_") for name in fields]
    if not HEADER.issuperset(names):
        return False
    if names[1:] == ["text", "title"]:
        remedy = "Exchange them in every line and remove this one; DPR's own file is read by `source: downloads`."
        raise wrong_row(path, 1, f"the header has the text before the title, but the title must come first. {remedy}")
    if QUERY_IDS.intersection(names[1:]) or names[-1] in PASSAGE_IDS:
        rule = Remedy("ids must come first, and a query's before a passage's. Order the columns so, in every line.")
        raise wrong_row(path, 1, f"the header has the columns {', '.join(map(repr, fields))}, but {rule}")
    warn_once(f"{path}, line 1: {fields!r} are column names, so the line is left out.")
    return True


def passage_rows(path, wrong=refuse):
    """(line number, id, title, text) of a tab-separated corpus; the title is empty in a corpus of two columns."""
    for number, doc_id, *title, text in tab_rows(path, (2, 3), "passage id, title if any, text", wrong):
        yield number, doc_id, title[0] if title else "", text


def document_rows(path, wrong=refuse):
    """(line number, id, title, text) of MS MARCO's documents: id, URL, title, body; the title is URL, tab, title."""
    for number, doc_id, url, title, text in tab_rows(path, (4,), "document id, URL, title, body", wrong):
        yield number, doc_id, f"{url}\t{title}", text


def query_rows(path, wrong=refuse):
    """(line number, id, text) of a tab-separated file of queries."""
    return tab_rows(path, (2,), "query id, text", wrong)


def judgment_rows(path, header=None, wrong=refuse):
    """(line number, query id, passage id, grade as text) of judgments: TREC's four columns, or three, separated by
    white space. A first line of names is left out, without a warning if it is `header`."""
    for number, line in lines(path):
        fields = line.split()
        if number == 1 and fields and (fields == header or is_header(path, fields)):
            continue
        if len(fields) not in (3, 4):
            expected = "4 (query id, iteration, passage id, grade) or 3 (without iteration). One judgment per line."
            wrong(path, number, f"column count {len(fields)}, expected {expected}")
        else:
            yield number, fields[0], fields[-2], fields[-1]


def json_rows(path, types, defaults=None, wrong=refuse):
    """(line number, values of the keys in `types`) of JSON lines; `types` is {key: Python type of its value},
    `defaults` are values of keys that a line may leave out or have as null."""
    ids, defaults = [key for key in types if key.endswith("id")], defaults or {}
    for number, record in json_objects(path, wrong):
        record |= {key: value for key, value in defaults.items() if record.get(key) is None}
        record |= {key: id_text(record.get(key)) for key in ids}
        if problem := mistyped(record, types):
            wrong(path, number, problem)
            continue
        yield number, *(record[key] for key in types)


def id_text(value):
    """An id that is a whole number, as text; any other value as it is."""
    return str(value) if type(value) is int else value


def mistyped(record, types):
    """The problem of the first key of `types` ({key: Python type}) whose value in a record has another type, with the
    remedy; None without one."""
    for key, kind in types.items():
        if not isinstance(value := record.get(key), kind):
            have = "is missing" if value is None else f"is {shown(value)}"
            wanted = "a text or a whole number" if key.endswith("id") else "a list" if kind is list else "a text"
            return Remedy(f"{key!r} {have} and must be {wanted}. Correct the line.")
    return None


def shown(value):
    """A value for a sentence, cut to 40 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) < 40 else f"{text[:40]}…"


def float_of(value):
    """The float of a number, also of one as text; NaN for anything else, and for 1_0 and ٣, which Python reads too."""
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def json_objects(path, wrong=refuse):
    """(line number, dict) of JSON lines; blank lines are left out, as other readers do."""
    for number, line in filled_lines(path):
        try:
            record = {**json.loads(line)}
            if "\\u" in line:  # an escape may stand for half a surrogate pair, which no UTF-8 file can hold
                json.dumps(record, ensure_ascii=False).encode("utf-8")
        except (ValueError, TypeError, RecursionError) as error:
            wrong(path, number, f"not a JSON object ({error}). Write one object per line.")
            continue
        yield number, record
