"""The data files of the page: JavaScript that a script tag loads, since browsers refuse to fetch files from file://."""

import json

import numpy as np

from teleport.runtime.files import write_text

BLOCK_BYTES = 2**17  # of passage texts in one file


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
    """Passages that the page shows, numbered in the order in which they are first needed, and written once."""

    def __init__(self):
        self.numbers = {}

    def number(self, passage):
        """The page's number of a passage row (int)."""
        return self.numbers.setdefault(int(passage), len(self.numbers))

    def write(self, data, reader):
        """Write blocks p/0.js, p/1.js, … of [doc id, title, text]; returns the number of the first passage of each."""
        columns = [reader.column("corpus.parquet", name) for name in ("doc_id", "title", "text")]
        starts, block, size = [], [], 0
        for number, passage in enumerate(self.numbers):
            if not block:
                starts.append(number)
            block.append([column[passage].as_py() or "" for column in columns])
            size += len(block[-1][2])
            if size >= BLOCK_BYTES:
                data.put(f"p/{len(starts) - 1}", block)
                block, size = [], 0
        if block:
            data.put(f"p/{len(starts) - 1}", block)
        return starts
