"""CSV and TSV with a header. In a TSV, quotes are text, as everywhere here; a CSV may quote fields with line breaks."""

import csv

from teleport.records import MOST_LINE_BYTES, SIMPLE, in_csv_quotes, lines, warn_of_quotes
from teleport.refusal import Refusal

NAME = "a table with a header"
BY_ORDER = False  # of the columns: may it decide what they are?
SUFFIXES = (".csv", ".tsv", ".tab")
DELIMITERS = ",;|\t"  # of a CSV


def rows(path, wrong):
    """(place, record) of a file; a line with another number of fields is reported to `wrong`."""
    tabs = not path.name.lower().removesuffix(".gz").endswith(".csv")
    names, quoted = None, False
    for number, fields in tab_fields(path) if tabs else csv_fields(path):
        place = f"line {number}"
        if not fields:  # a blank line
            continue
        if names is None:
            names = [name.strip() for name in fields]
            if len(set(names)) < len(names) or "" in names:
                twice = next(name for name in names if not name or names.count(name) > 1)
                raise Refusal(f"{path}, {place}: the header has {twice!r} twice or empty. Name every column once.")
        elif len(fields) == len(names):
            if tabs and not quoted and any(in_csv_quotes(field, number <= 2) for field in fields):
                quoted = True
                warn_of_quotes(path, place)
            yield place, dict(zip(names, fields, strict=True))
        else:
            wrong(place, f"{len(fields)} fields, but the header has {len(names)}. Write one field per column")


def tab_fields(path):
    """(line number, fields) of a TSV."""
    return ((number, line.split("\t") if line else []) for number, line in lines(path))


def csv_fields(path):
    """(number of its first line, fields) of each record of a CSV."""
    csv.field_size_limit(MOST_LINE_BYTES)
    header, first = next((line for _, line in lines(path) if line), ""), 1
    delimiter = max(DELIMITERS, key=SIMPLE.sub("", header).count)
    texts = (f"{line}\n" for _, line in lines(path))
    reader = csv.reader(texts, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for fields in reader:
            yield first, fields
            first = reader.line_num + 1
    except csv.Error as error:
        remedy = "Double each quote inside a quoted field, and end lines with a line feed"
        raise Refusal(f"{path}, line {first}: not CSV ({error}). {remedy}.") from None
