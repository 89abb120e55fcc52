"""Finds equal texts of a collection, whatever their ids: queries that are passages, copies of passages, and test
questions that are training questions.

Two texts are equal when their normal forms are: NFKC, without case, with single spaces. A passage's title and text
count as one text. A query equals a passage when it equals this text, or the passage's text without the title. Normal
forms are compared by 64-bit digests: among 8.8 million passages, a collision has a chance of two in a million.
"""

import unicodedata
from array import array
from hashlib import blake2b
from itertools import product

import numpy as np

BLOCK = 2**20  # passages whose digests are looked up at a time


def normal_form(text):
    """A text in NFKC, without case, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def digest_of(text):
    """The digest (int, 64 bits) of the normal form of a text."""
    return int.from_bytes(blake2b(normal_form(text).encode(), digest_size=8).digest())


def digests_of(texts):
    """The digests of texts, uint64 [n]."""
    return np.array([digest_of(text) for text in texts], np.uint64)


class SameText:
    """Collects the digests of a corpus's texts."""

    def __init__(self):
        self.passages, self.bodies = array("Q"), array("Q")  # with and without the title

    def add(self, titles, texts):
        for title, text in zip(titles, texts, strict=True):
            body = digest_of(text)
            self.bodies.append(body)
            self.passages.append(digest_of(f"{title} {text}") if title else body)

    def firsts(self):
        """The row of the first passage with the same text: int32 [passages]."""
        _, firsts, inverse = np.unique(np.array(self.passages), return_index=True, return_inverse=True)
        return firsts[inverse].astype(np.int32)

    def digests(self):
        """The digests of title and text, and of the text alone: uint64 [2, passages]."""
        return np.stack([np.array(self.passages), np.array(self.bodies)])


def equal_pairs(digests_Q, digests_P):
    """All pairs of a query and a passage with equal text: (query rows, passage rows), int32, ascending. digests_Q: of
    the queries; digests_P: of a corpus, from `SameText.digests`"""
    pairs, order = set(), np.argsort(digests_Q, kind="stable")
    sorted_Q = digests_Q[order]
    for column, first in product(digests_P, range(0, digests_P.shape[1] if len(digests_Q) else 0, BLOCK)):
        block = column[first : first + BLOCK]
        begins = np.searchsorted(sorted_Q, block)
        for row in np.flatnonzero(sorted_Q[np.minimum(begins, len(order) - 1)] == block).tolist():
            end = np.searchsorted(sorted_Q, block[row], "right")
            pairs.update((query, first + row) for query in order[begins[row] : end].tolist())
    return np.array(sorted(pairs), np.int32).reshape(-1, 2).T
