"""Stage `negatives_file`: negatives made elsewhere, in the form of our own retrievals. Training on another system's
negatives tells a fault of mining from a fault of training.

Each form of file (FORMS) is a function of the job. It returns `records`, which yields (place, query, negatives) as the
file has them, `queries` {query: rows of the training queries that are meant, several where texts are the same}, and
`find(place, negatives)`, int32 passage rows, -1 where no passage has the text. `place` is "FILE, line 3".
"""

import json
from array import array
from collections import Counter, defaultdict
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import Run, in_slots
from teleport.collection.dpr import dpr_records
from teleport.collection.records import json_rows
from teleport.encoder.tokens import open_tokens
from teleport.negatives.draw import hash_bytes, hash_ids
from teleport.refusal import Refusal, Remedy
from teleport.running.files import require_planned
from teleport.settings.pool import NegativesFileSettings as Settings  # noqa: F401

CHUNK_TEXTS = 65536  # in memory at a time: about 25 MB of MS MARCO
GIVE_NAMES = Remedy("Give ids, or titles and texts to the character as the collection has them.")
SAME_TOKENIZER = Remedy(
    "Its texts must have been tokenised as the collection is: by the same tokenizer (bert-base-uncased in "
    "ANCE-Tele's release), with encoder.title: sep."
)


def run(job):
    """Write a `Run` of the training queries that the file has: negatives in its order, scores 0. A query on several
    lines of the file has as many here.

    Facts: lines (or records) of the file, queries (training queries with a line), other_queries (lines of others, left
    out), negatives, unmatched (negatives whose text or token ids no passage has, left out).
    """
    path = job.settings.path
    require_planned({path: job.settings.sha256})
    form, other_queries, other_texts = FORMS[job.settings.form]
    (records, queries, find), counts, rows, lists = form(job), Counter(), [], []
    for place, query, negatives in records:
        meant = queries.get(query, [])
        passages = find(place, negatives) if meant else np.zeros(0, np.int32)
        counts.update(lines=1, other_queries=int(not meant), unmatched=int(np.count_nonzero(passages < 0)))
        rows += meant
        lists += [passages[passages >= 0]] * len(meant)
    if not rows:
        raise Refusal(f"{path}: none of its {counts['lines']} queries is a training query. {other_queries}")
    if not any(map(len, lists)):
        raise Refusal(f"{path}: none of its negatives is in the collection. {other_texts}")
    ids = in_slots(np.array([len(passages) for passages in lists]), np.concatenate(lists), empty=-1)
    Run(ids, np.zeros(ids.shape, np.float32), np.array(rows)).write(job)
    return dict(counts) | {"queries": len(set(rows)), "negatives": sum(map(len, lists))}


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


def queries_by(job, column):
    """{value: rows} of a column of the training queries."""
    return rows_by(pq.read_table(job.input("split.train", "queries.train.parquet"))[column].to_pylist())


def passages_by(job, *columns):
    """The `Lookup` of the corpus by columns of it."""
    # Buffered ahead, what was read of a file would stay in memory until its end.
    corpus = pq.ParquetFile(job.input("corpus", "corpus.parquet"), pre_buffer=False)
    chunks = (chunk.columns for chunk in corpus.iter_batches(CHUNK_TEXTS, columns=list(columns)))
    texts = (map("\0".join, zip(*(column.to_pylist() for column in chunk), strict=True)) for chunk in chunks)
    return Lookup(np.concatenate([hash_ids(chunk) for chunk in texts]))


def find_ids(lookup, place, ids):
    """Rows of passage ids. Raises Refusal for one that the corpus does not have; lookup: `passages_by` of a job."""
    rows = lookup("doc_id").find(hash_ids(ids))
    if len(missing := np.flatnonzero(rows < 0)):
        raise Refusal(
            f"{place}: passage {ids[missing[0]]!r} is not in the corpus. Give negatives from this collection, or the "
            "collection that they were mined from."
        )
    return rows


def tevatron(job):
    """Lines of query_id and negative_passages, each with docid or, where that is missing, title and text."""
    path, lookup = job.settings.path, cache(partial(passages_by, job))

    def find(place, negatives):
        try:
            with_id = np.array(["docid" in passage for passage in negatives], bool)
            ids = [str(passage["docid"]) for passage in negatives if "docid" in passage]
            texts = ["\0".join((p.get("title") or "", p["text"])) for p in negatives if "docid" not in p]
        except (KeyError, TypeError, AttributeError):
            raise Refusal(f"{place}: a negative passage has neither docid nor a text. Add one of them.") from None
        rows = np.empty(len(negatives), np.int32)
        rows[with_id] = find_ids(lookup, place, ids)
        if texts:
            rows[~with_id] = lookup("title", "text").find(hash_ids(texts))
        return rows

    lines = json_rows(path, {"query_id": str, "negative_passages": list})
    return ((f"{path}, line {n}", *line) for n, *line in lines), queries_by(job, "query_id"), find


def dpr(job):
    """DPR's training JSON: a list of records with a question and its hard_negative_ctxs."""
    path = job.settings.path
    records = ((f"{path}, record {number}", *record) for number, *record in dpr_records(path, "hard_negative_ctxs"))
    return records, queries_by(job, "text"), partial(find_ids, cache(partial(passages_by, job)))


def token_ids(job):
    """ANCE-Tele's released lines of query and negatives, each text a list of token ids without special tokens. Texts
    were cut at one length, that of the longest one in the file, so passages are compared up to there, as bytes. A
    passage without a title begins with [SEP] in the file, not in the stage `tokens`."""
    queries, passages = (open_tokens(job, name) for name in ("queries.train", "passages"))
    sep = array(
        "I", [json.loads(job.input("tokens.passages", "special.json").read_text(encoding="utf-8"))["sep"]]
    ).tobytes()
    longest_query = longest = 0
    for _, query, negatives in token_records(job.settings.path):
        longest_query, longest = max(longest_query, len(query)), max([longest, *map(len, negatives)])

    @cache
    def lookup(cut):  # of passages that begin alike the shortest
        return Lookup(hash_bytes(token_keys(passages, cut)), passages.lengths)

    def find(_, negatives):
        rows = []
        for ids in negatives:
            text = ids.removeprefix(sep)
            rows.append(lookup(longest - len(ids) + len(text)).find(hash_bytes([text]))[0])
        return np.array(rows, np.int32)

    cut_queries, whole_queries = (rows_by(token_keys(queries, cut)) for cut in (longest_query, None))
    return token_records(job.settings.path), cut_queries | whole_queries, find


def token_records(path):
    """Queries and negatives as bytes, four for each token id."""
    for number, query, negatives in json_rows(path, {"query": list, "negatives": list}):
        place = f"{path}, line {number}"
        try:
            query, *negatives = (array("I", ids).tobytes() for ids in (query, *negatives))
        except (TypeError, OverflowError):
            raise Refusal(f"{place}: query and negatives are not lists of token ids. Correct the line.") from None
        yield place, query, negatives


def token_keys(lists, cut):
    """The token ids of each list of a `Ragged` as bytes, four for each id: the first `cut` bytes, or all (None)."""
    for start in range(0, len(lists), CHUNK_TEXTS):
        offsets = lists.offsets[start : start + CHUNK_TEXTS + 1]
        ids = lists.values[offsets[0] : offsets[-1]].astype(np.uint32).tobytes()
        places = (4 * (offsets - offsets[0])).tolist()
        yield from (ids[first:last][:cut] for first, last in pairwise(places))


# {form: (function, what to do when all queries are unknown, and when all passages are)}
FORMS = {
    "tevatron": (tevatron, Remedy("Give a file with the `query_id`s of the training split."), GIVE_NAMES),
    "dpr": (dpr, Remedy("Give the training file of the data set whose questions the collection has."), GIVE_NAMES),
    "token-ids": (token_ids, SAME_TOKENIZER, SAME_TOKENIZER),
}
