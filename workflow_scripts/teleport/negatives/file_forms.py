"""Files of negatives, each form with how it names queries and passages.

A form has `records()`, which yields (place, query, negatives) as the file has them, `query_rows(query)`, the training
queries that are meant (several where texts are the same), and `passages(place, negatives)`, int32 passage rows, -1
where no passage has the text. `place` is "line 3" or "record 3".
"""

import json
from array import array
from collections import defaultdict
from functools import cache, cached_property

import numpy as np
import pyarrow.parquet as pq

from teleport.collection.questions import json_array
from teleport.collection.records import json_rows
from teleport.negatives.draw import hash_bytes, hash_ids
from teleport.runtime.arrays import Ragged

CHUNK_TEXTS = 65536  # in memory at a time: about 25 MB of MS MARCO


class Lookup:
    """Rows by 64-bit hashes: of several rows with one hash the first, or the one with the smallest of `lengths`."""

    def __init__(self, hashes, lengths=None):
        self.rows = np.argsort(hashes, kind="stable") if lengths is None else np.lexsort((lengths, hashes))
        self.hashes = hashes[self.rows]

    def find(self, hashes):
        """int32, -1 where there is no such row."""
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[places] == hashes, self.rows[places], -1).astype(np.int32)


def rows_by(keys):
    """{key: rows} of a sequence of keys."""
    rows = defaultdict(list)
    for row, key in enumerate(keys):
        rows[key].append(row)
    return rows


class NamedPassages:
    """What forms share that name queries by a column of the collection and passages by their ids."""

    other_texts = "Give ids, or titles and texts to the character as the collection has them."

    def __init__(self, job, query_column):
        self.path, self.corpus = job.settings.path, job.input("collection", "corpus.parquet")
        queries = pq.read_table(job.input("collection", "queries.train.parquet"), columns=[query_column])
        self.queries = rows_by(queries[query_column].to_pylist())

    def query_rows(self, query):
        return self.queries.get(query, [])

    def lookup(self, *columns):
        """The `Lookup` of the corpus by some of its columns."""
        chunks = pq.ParquetFile(self.corpus).iter_batches(CHUNK_TEXTS, columns=list(columns))
        texts = (zip(*(column.to_pylist() for column in chunk.columns), strict=True) for chunk in chunks)
        return Lookup(np.concatenate([hash_ids(map("\0".join, chunk)) for chunk in texts]))

    @cached_property
    def by_id(self):
        return self.lookup("doc_id")

    def find_ids(self, place, ids):
        """Rows of passage ids. Raises ValueError for one that the collection does not have."""
        rows = self.by_id.find(hash_ids(ids))
        if len(missing := np.flatnonzero(rows < 0)):
            raise ValueError(
                f"{self.path}, {place}: passage {ids[missing[0]]!r} is not in the corpus. Give negatives from this "
                "collection, or the collection that they were mined from."
            )
        return rows


class Tevatron(NamedPassages):
    """Lines of query_id and negative_passages, each with docid or, where that is missing, title and text."""

    other_queries = "Give a file with the `query_id`s of the training split."

    def __init__(self, job):
        super().__init__(job, "query_id")

    def records(self):
        for line, query, negatives in json_rows(self.path, {"query_id": str, "negative_passages": list}):
            yield f"line {line}", query, negatives

    @cached_property
    def by_text(self):
        return self.lookup("title", "text")

    def passages(self, place, negatives):
        try:
            with_id = np.array(["docid" in passage for passage in negatives], bool)
            ids = [str(passage["docid"]) for passage in negatives if "docid" in passage]
            texts = [f"{p.get('title') or ''}\0{p['text']}" for p in negatives if "docid" not in p]
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"{self.path}, {place}: a negative passage has neither docid nor text. Add one of them."
            ) from None
        rows = np.empty(len(negatives), np.int32)
        rows[with_id] = self.find_ids(place, ids)
        if texts:
            rows[~with_id] = self.by_text.find(hash_ids(texts))
        return rows


class Dpr(NamedPassages):
    """DPR's training JSON: a list of records with a question and its hard_negative_ctxs."""

    other_queries = "Give the training file of the data set whose questions the collection has."

    def __init__(self, job):
        super().__init__(job, "text")

    def records(self):
        for number, record in enumerate(json_array(self.path), 1):
            try:
                contexts = record["hard_negative_ctxs"]
                ids = [str(c["passage_id"] if "passage_id" in c else c["psg_id"]) for c in contexts]
                yield f"record {number}", record["question"], ids
            except (KeyError, TypeError):
                raise ValueError(
                    f"{self.path}, record {number}: DPR's records have question and hard_negative_ctxs, whose contexts "
                    "have passage_id or psg_id. Correct the record."
                ) from None

    def passages(self, place, negatives):
        return self.find_ids(place, negatives)


class TokenIds:
    """ANCE-Tele's released lines of query and negatives, each text a list of token ids without special tokens.

    Texts were cut at one length, which is that of the longest one in the file, so passages are compared up to there.
    A passage without a title begins with [SEP] in the file, not in the stage `tokens`.
    """

    other_queries = other_texts = (
        "Its texts must have been tokenised as the collection is: by the same tokenizer (bert-base-uncased in "
        "ANCE-Tele's release), with encoder.title: sep."
    )

    def __init__(self, job):
        self.path, self.tokens = job.settings.path, job.inputs["tokens"]
        self.sep = json.loads(job.input("tokens", "special.json").read_text(encoding="utf-8"))["sep"]
        longest_query = self.longest = 0
        for _, query, negatives in self.records():
            longest_query = max(longest_query, len(query))
            self.longest = max([self.longest, *map(len, negatives)])
        queries = self.token_lists("queries.train")
        self.whole_queries = rows_by(token_keys(queries, None))
        self.cut_queries = rows_by(token_keys(queries, longest_query))
        self.lookup = cache(self.lookup)  # of this object: a cache of the class would keep it

    def token_lists(self, name):
        return Ragged.open(self.tokens.path(f"{name}.offsets.npy"), self.tokens.path(f"{name}.ids.npy"))

    def records(self):
        """Queries and negatives as bytes, four for each token id."""
        for line, query, negatives in json_rows(self.path, {"query": list, "negatives": list}):
            try:
                yield f"line {line}", array("I", query), [array("I", ids) for ids in negatives]
            except (TypeError, OverflowError):
                raise ValueError(
                    f"{self.path}, line {line}: query and negatives are not lists of token ids. Correct the line."
                ) from None

    def query_rows(self, query):
        key = query.tobytes()
        return self.whole_queries.get(key) or self.cut_queries.get(key, [])

    def lookup(self, cut):
        """The `Lookup` of the passages by their first `cut` token ids, the shortest passage first."""
        passages = self.token_lists("passages")
        return Lookup(hash_bytes(token_keys(passages, cut)), passages.lengths)

    def passages(self, place, negatives):
        rows = np.empty(len(negatives), np.int32)
        for number, ids in enumerate(negatives):
            untitled = len(ids) > 0 and ids[0] == self.sep
            rows[number] = self.lookup(self.longest - untitled).find(hash_bytes([ids[untitled:].tobytes()]))[0]
        return rows


def token_keys(lists, cut):
    """The first `cut` token ids (None: all) of each list of a `Ragged`, as bytes, four for each."""
    for start in range(0, len(lists), CHUNK_TEXTS):
        offsets = lists.offsets[start : start + CHUNK_TEXTS + 1]
        ids = lists.values[offsets[0] : offsets[-1]].astype(np.uint32).tobytes()
        starts, stops = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
        if cut is not None:
            stops = np.minimum(stops, starts + cut)
        for first, last in zip((4 * starts).tolist(), (4 * stops).tolist(), strict=True):
            yield ids[first:last]


FORMS = {"tevatron": Tevatron, "dpr": Dpr, "token-ids": TokenIds}
