"""CSV and TSV with a header. In a TSV, quotes are text, as everywhere here; a CSV may quote fields with line breaks."""

import csv

from teleport.collection.records import MOST_LINE_BYTES, in_csv_quotes, lines, warn_of_quotes
from teleport.refusal import Refusal

NAME = "a table with a header"
BY_ORDER = False  # of the columns: may it decide what they are?
SUFFIXES = (".csv", ".tsv", ".tab")
DELIMITERS = ",;|\t"


def rows(path, wrong):
    """(place, record) of a file; a line with another number of fields is reported to `wrong`."""
    csv.field_size_limit(MOST_LINE_BYTES)
    tabs = not path.name.removesuffix(".gz").endswith(".csv")
    header = next((line for _, line in lines(path)), "")
    delimiter = "\t" if tabs else max(DELIMITERS, key=header.count)
    options = {"quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
    reader = csv.reader((f"{line}\n" for _, line in lines(path)), delimiter=delimiter, **options)
    names, first, quoted = None, 1, False
    try:
        for fields in reader:
            place, first = f"line {first}", reader.line_num + 1
            if names is None:
                names = [name.strip() for name in fields]
                if len(set(names)) < len(names) or "" in names:
                    twice = next(name for name in names if not name or names.count(name) > 1)
                    raise Refusal(f"{path}, line 1: the header has {twice!r} twice or empty. Name every column once.")
            elif len(fields) == len(names):
                if tabs and not quoted and any(in_csv_quotes(field, reader.line_num <= 2) for field in fields):
                    quoted = True
                    warn_of_quotes(path, place)
                yield place, dict(zip(names, fields, strict=True))
            elif fields:  # a blank line is no record
                wrong(place, f"{len(fields)} fields, but the header has {len(names)}. Write one field per column")
    except csv.Error as error:
        raise Refusal(f"{path}, line {first}: not CSV ({error}). Double each quote inside a quoted field.") from None
