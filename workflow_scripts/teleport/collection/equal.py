"""Which texts of a collection are equal, whatever their ids: a query that is a passage, copies of a passage, and test
questions that are trained on.

Two texts are equal when their normal forms are: NFKC, without case, with single spaces. Of a passage its title and text
count as one text. A query is equal to a passage when it is that, or its text without the title. Normal forms are
compared by 64-bit digests: in 8.8 million passages, two others have the same one with a chance of two in a million.
"""

import unicodedata
from array import array
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from teleport.running.log import log


def normal_form(text):
    """A text in NFKC, without case, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def digest_of(text):
    """The digest (int, 64 bits) of the normal form of a text."""
    return int.from_bytes(blake2b(normal_form(text).encode(), digest_size=8).digest())


class SameText:
    """The digests of a collection's texts, as they come: first the passages, then the queries of each split."""

    def __init__(self):
        self.passages, self.bodies = array("Q"), array("Q")  # with and without the title
        self.queries, self.found = {}, {}

    def add_passages(self, titles, texts):
        for title, text in zip(titles, texts, strict=True):
            body = digest_of(text)
            self.bodies.append(body)
            self.passages.append(digest_of(f"{title} {text}") if title else body)

    def groups(self):
        """int32 [passages]: the row of the first passage with the same text."""
        _, firsts, inverse = np.unique(np.array(self.passages), return_index=True, return_inverse=True)
        return firsts[inverse].astype(np.int32)

    def add_queries(self, split, texts, path):
        """Write the pairs (query, passage; rows, int32, ascending) of equal text of a split to `path`."""
        digests = np.array([digest_of(text) for text in texts], np.uint64)
        pairs = set()
        for column in (np.array(self.passages), np.array(self.bodies)):
            rows = np.flatnonzero(np.isin(column, digests))
            order = np.argsort(digests, kind="stable")
            bounds = (np.searchsorted(digests[order], column[rows], side) for side in ("left", "right"))
            for row, first, last in zip(rows.tolist(), *bounds, strict=True):
                pairs.update((query, row) for query in order[first:last].tolist())
        columns = np.array(sorted(pairs), np.int32).reshape(-1, 2).T
        pq.write_table(pa.table(dict(zip(("query", "passage"), columns, strict=True))), path)
        self.queries[split], self.found[split] = digests, len(np.unique(columns[0]))

    def facts(self):
        """Counts, logged where they are not 0: copies (passages with the text of an earlier one), queries {split:
        queries whose text is a passage's}, trained {split: queries with the text of a training query}."""
        copies = len(self.passages) - len(np.unique(np.array(self.passages)))
        trained = self.queries.get("train", np.zeros(0, np.uint64))
        also = {name: np.isin(own, trained).sum().item() for name, own in self.queries.items() if name != "train"}
        if copies:
            log.warning("%d of %d passages have the text of an earlier passage", copies, len(self.passages))
        for name, count in self.found.items():
            if count:
                remedy = "evaluation.ignore_own_text leaves it out of their results"
                log.warning("%d queries of %s have the text of a passage, and find it first; %s", count, name, remedy)
        for name, count in also.items():
            if count:
                log.warning("%d of %d queries of %s are training queries", count, len(self.queries[name]), name)
        return {"copies": copies, "queries": self.found, "trained": also}
