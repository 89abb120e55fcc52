"""Rows of collection files, each with the line that it comes from, so that every error can name its place."""

import gzip
import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from teleport.refusal import Refusal, Remedy
from teleport.running.log import log

HEADER = {"id", "_id", "pid", "qid", "docid", "doc_id", "query_id", "passage_id", "query-id", "corpus-id", "title"}
HEADER |= {"text", "query", "question", "passage", "contents", "document", "score", "grade", "relevance", "iteration"}
MOST_LINE_BYTES = 2**28  # a line is in memory as a whole
# A file without a published digest was recorded as it came, good or bad: the entry must go with it.
REFETCH = Remedy(
    "Fetch the file again; if data/downloads/digests.json has an entry for it, delete file and entry and run "
    "`snakemake --forcerun download`."
)

FROM_LATIN = "Convert the file, for example with `iconv -f latin1 -t utf-8`."
FROM_UTF16 = "It is UTF-16: convert it with `iconv -f utf-16 -t utf-8`."
# By the first bytes of a file.
OTHER_FORMS = {b"\xff\xfe": FROM_UTF16, b"\xfe\xff": FROM_UTF16}
OTHER_FORMS[b"\x1f\x8b"] = "It is compressed by gzip: let its name end with .gz."


@dataclass(frozen=True)
class Rows:
    """What `read(place)` yields, (line number, field, field, ...); iterating reads it again from the start."""

    place: str | Path
    read: Callable[[str | Path], Iterator[tuple]]

    def __iter__(self):
        return iter(self.read(self.place))

    def wrong(self, line, problem):
        """As `wrong_row`, of a row of these."""
        return wrong_row(self.place, line, problem)


class Split(NamedTuple):
    """A query set. Fields: queries (id, text); qrels (query id, passage id, grade); answers (query id, list)."""

    queries: Rows
    qrels: Rows
    answers: Rows | None = None


class Source(NamedTuple):
    """A collection before it is checked. Fields of corpus: (id, title, text); `facts` go into the stage's facts."""

    corpus: Rows
    splits: dict[str, Split]
    facts: dict = {}


def wrong_row(place, line, problem):
    """The `Refusal` of a row; problem: with the remedy."""
    return Refusal(f"{place}, line {line}: {problem}")


@contextmanager
def open_bytes(path):
    """The bytes of a file, of a .gz uncompressed, or of the member of a tar archive (`ARCHIVE!MEMBER`), for reading. A
    damaged .gz or archive is refused also while it is read."""
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
    """(ARCHIVE, MEMBER) of `ARCHIVE!MEMBER`; (path, "") of the path of a file, whose folders may have a `!` too."""
    text = str(path)
    ends = [len(text), *(mark.start() for mark in re.finditer("!", text))]
    end = next((end for end in ends if Path(text[:end]).is_file()), len(text))
    return text[:end], text[end + 1 :]


def lines(path):
    """(line number from 1, text without the line end) of a UTF-8 file as `open_bytes` takes it. Only a line feed ends a
    line. Warns of what is read but hardly meant: NUL bytes, and a last line without its end."""
    with open_bytes(path) as file:
        number, line, nul_bytes = 0, b"\n", False
        for number, line in enumerate(iter(partial(file.readline, MOST_LINE_BYTES), b""), 1):
            if len(line) == MOST_LINE_BYTES:
                raise wrong_row(path, number, f"{MOST_LINE_BYTES:,} bytes without a line end. Write a record per line.")
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                where = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
                remedy = next((said for start, said in OTHER_FORMS.items() if line.startswith(start)), FROM_LATIN)
                raise wrong_row(path, number, f"{where} is not UTF-8. {remedy}") from None
            if not nul_bytes and "\0" in text:
                nul_bytes = True
                warn_once(f"{path}, line {number}: the first of the lines with NUL bytes, which are read as they are")
            yield number, text.rstrip("\r\n")
        if not line.endswith(b"\n"):
            warn_once(f"{path}, line {number}: the last line has no end. It is read; was the file cut there?")


@cache
def warn_once(text):
    """Log a warning; the rows of a file may be read more than once."""
    log.warning("%s", text)


def tab_rows(path, counts, meaning):
    """(line number, fields...) of tab-separated lines, which all have as many columns as the first, one of `counts`;
    quotes are text. A first line that has the names of columns alone is left out, with a warning. meaning: of the
    columns, for a refusal"""
    expected = " or ".join(map(str, counts))
    for number, line in lines(path):
        fields = line.split("\t")
        if len(fields) not in counts:
            remedy = "One record per line, and no tabs or line breaks inside texts."
            raise wrong_row(path, number, f"column count {len(fields)}, expected {expected} ({meaning}). {remedy}")
        if number == 1:
            counts, expected = [len(fields)], f"{len(fields)} as in line 1"
            if is_header(path, fields):
                continue
        yield number, *fields


def is_header(path, fields):
    """Whether the fields of a first line are all names of columns. Raises Refusal where the text comes before the
    title."""
    names = [name.strip().lower() for name in fields]
    if not HEADER.issuperset(names):
        return False
    if names[1:] == ["text", "title"]:
        remedy = "Exchange them in every line and remove this one; DPR's own file is read by `source: downloads`."
        raise wrong_row(path, 1, f"the header names the text before the title, and a title comes first. {remedy}")
    warn_once(f"{path}, line 1: {fields!r} are the names of columns, so the line is no record and is left out.")
    return True


def passage_rows(path):
    """(line number, id, title, text) of a tab-separated corpus; the title is empty in a corpus of two columns."""
    for number, doc_id, *title, text in tab_rows(path, (2, 3), "passage id, title if any, text"):
        yield number, doc_id, title[0] if title else "", text


def document_rows(path):
    """(line number, id, title, text) of MS MARCO's documents: id, URL, title, body; the title is URL, tab, title."""
    for number, doc_id, url, title, text in tab_rows(path, (4,), "document id, URL, title, body"):
        yield number, doc_id, f"{url}\t{title}", text


def query_rows(path):
    """(line number, id, text) of a tab-separated file of queries."""
    return tab_rows(path, (2,), "query id, text")


def judgment_rows(path, header=None):
    """(line number, query id, passage id, grade as text) of judgments: TREC's four columns, or three, between white
    space. With `header` the first line must consist of these names; without, one of such names is left out."""
    for number, line in lines(path):
        fields = line.split()
        if header and number == 1:
            if fields != header:
                remedy = f"Write the columns' names: {', '.join(header)}."
                raise wrong_row(path, 1, f"{line!r} is not the header. {remedy}")
        elif len(fields) not in (3, 4):
            expected = "4 (query id, iteration, passage id, grade) or 3 (without iteration). One judgment per line."
            raise wrong_row(path, number, f"column count {len(fields)}, expected {expected}")
        elif number > 1 or not is_header(path, fields):
            yield number, fields[0], fields[-2], fields[-1]


def unique(place, rows):
    """`rows` of judgments without the exact repetitions that published sets may have; the log counts them."""
    seen, count = set(), 0
    for row in rows:
        count += 1
        if row[1:] not in seen:
            seen.add(row[1:])
            yield row
    if count > len(seen):
        log.info("%s: %d judgments are repeated word for word and read once", place, count - len(seen))


def json_rows(path, types, defaults=None):
    """(line number, values of the keys in `types`) of JSON lines; `types` is {key: Python type of its value},
    `defaults` are values of keys that a line may leave out."""
    for number, line in lines(path):
        try:
            record = {**(defaults or {}), **json.loads(line)}
            if "\\u" in line:  # an escape may stand for half a surrogate pair, which no UTF-8 file can hold
                json.dumps(record, ensure_ascii=False).encode("utf-8")
        except (ValueError, TypeError, RecursionError) as error:
            raise wrong_row(path, number, f"not a JSON object ({error}). Write one object per line.") from None
        for key, kind in types.items():
            if not isinstance(record.get(key), kind):
                raise wrong_row(path, number, f"{key!r} is missing or not a {kind.__name__}. Correct the line.")
        yield number, *(record[key] for key in types)
