"""JSON: an object per line, or one list of objects. It may be compressed by gzip."""

import codecs
import json

from teleport.records import filled_lines, open_bytes
from teleport.refusal import Refusal

NAME = "JSON lines"
BY_ORDER = True  # of the columns: may it decide what they are?
SUFFIXES = (".jsonl", ".ndjson", ".json")


def rows(path, wrong):
    """(place, record) of a file; a line that is not an object is reported to `wrong`."""
    if path.name.lower().removesuffix(".gz").endswith(".json") and begins_with_list(path):
        yield from of_list(path, wrong)
        return
    for number, line in filled_lines(path):
        place = f"line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            wrong(place, f"not a JSON object ({error}). Write one object per line")
            continue
        yield from checked(place, record, wrong)


def begins_with_list(path):
    """Whether the first character of a file is the bracket of a list."""
    with open_bytes(path) as file:
        return file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def of_list(path, wrong):
    """Return the same as `rows`, for a file that is one list, which is in memory as a whole."""
    try:
        with open_bytes(path) as file:
            records = json.loads(file.read().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{path}: not JSON ({error}). Write a list of objects, or one object per line.") from None
    for number, record in enumerate(records, 1):
        yield from checked(f"record {number}", record, wrong)


def checked(place, record, wrong):
    """The pair (place, record), or nothing for a value that is not an object."""
    if isinstance(record, dict):
        yield place, record
    else:
        wrong(place, f'a {type(record).__name__}, not an object. Write one, for pairs {{"query": …, "passage": …}}')
