"""The data files of the page: JavaScript that a script tag loads, since browsers refuse to fetch files from file://."""

import json

import numpy as np

from teleport.runtime.files import write_text

BLOCK_CHARACTERS = 2**17  # of passages in one file
MOST_CHARACTERS = 5_000_000  # of all passages together: where there are more, the longest ones are cut
LEAST_CUT = 1000  # but none to less than this


class Data:
    """Writes data files below a folder; `bytes` is their size so far."""

    def __init__(self, folder):
        self.folder, self.bytes = folder, 0

    def put(self, name, value):
        """Write NAME.js, which hands `value` (plain JSON, finite numbers) to the page."""
        text = f"page.put({script_json(name)},{script_json(value)});\n"
        write_text(self.folder / f"{name}.js", text)
        self.bytes += len(text.encode())


def script_json(value):
    """JSON that is safe in a script: no text of it can end one, whatever a passage holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def plain(value):
    """A numpy number as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value)} is no JSON")


class Texts:
    """Passages that the page shows, numbered in the order in which they are first needed, and written once.

    A passage is its row in the collection, or the id of one that the collection lacks (str), which has no text.
    """

    def __init__(self):
        self.numbers = {}

    def number(self, passage):
        """The page's number of a passage (int)."""
        return self.numbers.setdefault(passage if isinstance(passage, str) else int(passage), len(self.numbers))

    def write(self, data, reader):
        """Write blocks p/0.js, p/1.js, … of [doc id, title, text, characters that were cut].

        Returns {"starts": the number of the first passage of each block, "cut": the characters after which passages are
        cut, or None}.
        """
        names, chosen = ("doc_id", "title", "text"), [each for each in self.numbers if isinstance(each, int)]
        columns = [reader.column("corpus.parquet", name).take(chosen).to_pylist() for name in names]
        found = {row: [value or "" for value in values] for row, *values in zip(chosen, *columns, strict=True)}
        rows = [found.get(passage) or [passage, "", ""] for passage in self.numbers]
        limit = longest_that_fit([len(text) for _, _, text in rows], MOST_CHARACTERS, LEAST_CUT)
        rows = [[doc, title, text[:limit], len(text[limit:]) if limit else 0] for doc, title, text in rows]
        ends = np.cumsum([len(text) for _, _, text, _ in rows]) // BLOCK_CHARACTERS
        starts = np.flatnonzero(np.diff(ends, prepend=-1) > 0).tolist()
        for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(rows)], strict=True)):
            data.put(f"p/{number}", rows[start:end])
        return {"starts": starts, "cut": limit}


def longest_that_fit(lengths, total, least):
    """The length (int) at which texts are cut to have `total` characters together, at least `least`; None: they fit."""
    if sum(lengths) <= total:
        return None
    left, ordered = total, sorted(lengths)
    for place, length in enumerate(ordered):
        level = left // (len(ordered) - place)  # what each of the rest may have
        if length >= level:
            return max(least, level)
        left -= length
