"""Stage `negatives_file`: bring negatives made elsewhere into the form of our retrievals. Training on another system's
negatives separates a fault of mining from a fault of training.

A function of the job reads files in the forms of `negatives.forms`, another one token ids. Each returns `records`,
which yields (place, query, positives with a score, negatives) of the file; `queries`, {query: rows of the matching
training queries, several if texts are the same}; and `find(place, passages)`, int32 rows, -1 if no passage has the
text. `place` is "FILE, line 3".
"""

import json
from array import array
from collections import Counter, defaultdict
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq

from teleport.arrays import Run, in_slots, save_array
from teleport.encoder.tokens import open_tokens
from teleport.evaluation.names import read_query_ids
from teleport.negatives.budget import FIELDS
from teleport.negatives.draw import hash_bytes, hash_ids
from teleport.negatives.forms import FORMS, whole
from teleport.negatives.pool import NAMES
from teleport.negatives.scores import LARGEST, OF_PAIRS, highest_scores, write_table
from teleport.records import json_rows
from teleport.refusal import Refusal, Remedy
from teleport.running.files import require_planned, write_json
from teleport.running.log import log
from teleport.settings.pool import NegativesFileSettings as Settings  # noqa: F401

ORIGIN = ("sources", "first_episodes", "ranks")
UNKNOWN = np.array([[0], [0], [-1]])  # of each of ORIGIN
MOST_EPISODES, MOST_RANK = (int(np.iinfo(FIELDS[field]).max) for field in ORIGIN[1:])
MOST_SOURCES = 15  # a pool has room for one more, the file itself
CHUNK_TEXTS = 65536  # in memory at a time: about 25 MB of MS MARCO
WITH_IDS = ("tevatron", "nemo", "triples", "origin")  # forms whose queries have ids
GIVE_IDS = Remedy("Give a file with the `query_id`s of the training split.")
GIVE_TEXTS = Remedy("Give a file with the queries of the training split, to the character.")
GIVE_NAMES = Remedy("Give ids, or titles and texts to the character as the collection has them.")
SAME_TOKENIZER = Remedy(
    "Its texts must have been tokenised as the collection is: by the same tokenizer (bert-base-uncased in "
    "ANCE-Tele's release), with encoder.title: sep."
)


def run(job):
    """Write a `Run` of the training queries in the file: negatives in its order, with its scores. A missing score is
    NaN; without any score in the file all are 0. A query on several lines of the file has as many lines here. If the
    file has scores or origins, also sources.json and the arrays of ORIGIN, as in `pool.Items` and of the Run's shape;
    UNKNOWN if missing. The scores of positives and negatives become a `PairTable`, too (`write_pairs`).

    Facts: lines (or records) of the file, queries (training queries with a line), other_queries (lines of others, left
    out), negatives, unmatched (negatives whose text or token ids no passage has, left out), scored (negatives).
    """
    path, form = job.settings.path, job.settings.form
    require_planned({path: job.settings.sha256})
    (records, queries, find), counts, rows, lists, scores = READERS.get(form, named)(job), Counter(), [], [], []
    origins, names, judged, firsts = [], [], [], {}
    for place, query, positives, negatives in records:
        meant = queries.get(query, [])
        passages = find(place, negatives) if meant else np.zeros(0, np.int32)
        left_out = {"other_queries": int(not meant), "unmatched": int(np.count_nonzero(passages < 0))}
        firsts = {name: place for name, number in left_out.items() if number} | firsts
        counts.update(lines=1, **left_out)
        if meant:
            rows += meant
            lists += [passages[passages >= 0]] * len(meant)
            scores += [scores_of(place, negatives)[passages >= 0]] * len(meant)
            if positives:
                relevant = find(place, positives), scores_of(place, positives)
                judged += [(row, *relevant) for row in meant]
            origins += [origins_of(place, negatives, names)[:, passages >= 0]] * len(meant)
    require_negatives(path, form, counts, lists)
    warn_of_left_out(form, counts, firsts)
    write_pairs(job, [*zip(rows, lists, scores, strict=True), *judged])
    lengths, scores = np.array([len(passages) for passages in lists]), np.concatenate(scores)
    ids = in_slots(lengths, np.concatenate(lists), empty=-1)
    scored = int(np.count_nonzero(~np.isnan(scores)))
    scores_LK = in_slots(lengths, scores, empty=np.nan) if scored else np.zeros(ids.shape, np.float32)
    Run(ids, scores_LK, np.array(rows)).write(job)
    origins = np.concatenate(origins, axis=1)
    if len(names) > MOST_SOURCES:
        few = f"more than {MOST_SOURCES} sources, so they are none of a pool"
        log.warning("%s names %s: all its negatives are of the source `file`", path, few)
        names, origins[0] = [], UNKNOWN[0]
    if scored or (origins != UNKNOWN).any():
        write_json(job.output(NAMES), names)
        for field, values in zip(ORIGIN, origins, strict=True):
            save_array(job.output(f"{field}.npy"), in_slots(lengths, values.astype(FIELDS[field])))
    return dict(counts) | {"queries": len(set(rows)), "negatives": sum(map(len, lists)), "scored": scored}


def require_negatives(path, form, counts, lists):
    """Raise Refusal if no query of the file is trained on, or if none of its negatives is in the collection. lists: of
    passages, one for each line of a training query"""
    if not lists:
        of_queries = remedies(form)["other_queries"]
        raise Refusal(f"{path}: none of its {counts['lines']} queries is a training query. {of_queries}")
    if not any(map(len, lists)) and not counts["unmatched"]:
        which = "hard_negative_ctxs of its questions" if form == "dpr" else "lists of negatives of its queries"
        empty = counts["lines"] - counts["other_queries"]
        raise Refusal(f"{path}: all {empty} {which} are empty. Give a file with negatives, or mine some.")
    if not any(map(len, lists)):
        raise Refusal(f"{path}: none of its negatives is in the collection. {remedies(form)['unmatched']}")


def warn_of_left_out(form, counts, firsts):
    """Warn of queries and negatives that are left out. firsts: {"other_queries" or "unmatched": place of the first}"""
    what = {"other_queries": "queries that are not trained on", "unmatched": "negatives that are not in the collection"}
    for name, place in firsts.items():
        log.warning("%s, left out: %d, the first at %s. %s", what[name], counts[name], place, remedies(form)[name])


def remedies(form):
    """{"other_queries", "unmatched": what to do about queries, about negatives that are not known}."""
    of_queries = GIVE_QUERIES.get(form, GIVE_IDS if form in WITH_IDS else GIVE_TEXTS)
    return {"other_queries": of_queries, "unmatched": SAME_TOKENIZER if form == "token-ids" else GIVE_NAMES}


def write_pairs(job, lists):
    """Write a `PairTable` called OF_PAIRS. lists: [(query row, passages, -1 for an unknown one, and their scores, NaN
    if missing)]"""
    rows, passages, scores = zip(*lists, strict=True)
    rows, passages, scores = np.repeat(rows, [*map(len, passages)]), np.concatenate(passages), np.concatenate(scores)
    pairs = (each[(passages >= 0) & ~np.isnan(scores)] for each in (rows, passages, scores))
    write_table(job, *highest_scores(*pairs), len(read_query_ids(job, "train")), OF_PAIRS)


def scores_of(place, passages):
    """float32 [n]: the scores of passages of a file, NaN if missing."""
    given = [each.get("score") if isinstance(each, dict) else None for each in passages]
    numbers = [score for score in given if score is not None]
    if wrong := [score for score in numbers if type(score) not in (int, float) or not abs(score) <= LARGEST]:
        raise Refusal(f"{place}: the score {repr(wrong[0])[:40]} is not a finite number. Correct it, or leave it out.")
    return np.array([np.nan if score is None else score for score in given], np.float32)


def origins_of(place, negatives, names):
    """int32 [3, n]: ORIGIN of negatives of a file, UNKNOWN if missing. names: of the sources that the file has named so
    far; new ones are added"""
    known = [each if isinstance(each, dict) else {} for each in negatives]
    sources, episodes, ranks = ([each.get(key) for each in known] for key in ("source", "episode", "rank"))
    for key, values, highest in (("episode", episodes, MOST_EPISODES), ("rank", ranks, MOST_RANK)):
        numbers = [value for value in values if value is not None]
        if wrong := [value for value in numbers if type(value) is not int or not 0 <= value <= highest]:
            given = repr(wrong[0])[:40]
            raise Refusal(
                f"{place}: the {key} {given} is not a whole number from 0 to {highest}. Correct or remove it."
            )
    bits = [0 if source is None else bits_of(place, source, names) for source in sources]
    return np.array([bits, [n or 0 for n in episodes], [-1 if n is None else n for n in ranks]], np.int32)


def bits_of(place, source, names):
    """The bits (int) of sources as `negatives.export` writes them, such as "query+momentum"; 0 once there are more than
    MOST_SOURCES. names: see `origins_of`"""
    if not isinstance(source, str) or not source:
        raise Refusal(f"{place}: the source {repr(source)[:40]} is not text. Correct or remove it.")
    listed = dict.fromkeys(source.split("+"))
    if len(names) <= MOST_SOURCES:
        names += [name for name in listed if name not in names]
    return 0 if len(names) > MOST_SOURCES else sum(1 << names.index(name) for name in listed)


class Lookup:
    """Rows by 64-bit hashes: of several rows with one hash the first, or the one with the smallest of `lengths`."""

    def __init__(self, hashes, lengths=None):
        self.rows = np.argsort(hashes, kind="stable") if lengths is None else np.lexsort((lengths, hashes))
        self.hashes = hashes[self.rows]

    def find(self, hashes):
        """The rows, int32; -1 without a match."""
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


def passages_by(job, *columns, join="\0".join):
    """The `Lookup` of the corpus by columns of it. join: function of a row of them -> text"""
    # With pre_buffer, all that was read would stay in memory until the end of the file.
    corpus = pq.ParquetFile(job.input("corpus", "corpus.parquet"), pre_buffer=False)
    chunks = (chunk.columns for chunk in corpus.iter_batches(CHUNK_TEXTS, columns=list(columns)))
    texts = (map(join, zip(*(column.to_pylist() for column in chunk), strict=True)) for chunk in chunks)
    return Lookup(np.concatenate([hash_ids(chunk) for chunk in texts]))


def in_one(row):
    """Title and text of a passage as one text."""
    return whole({"title": row[0], "text": row[1]})


def find_ids(lookup, place, ids):
    """Rows of passage ids. Raises Refusal for an id that is not in the corpus; lookup: `passages_by` of a job."""
    rows = lookup("doc_id").find(hash_ids(ids))
    if len(missing := np.flatnonzero(rows < 0)):
        raise Refusal(
            f"{place}: passage {ids[missing[0]]!r} is not in the corpus. Give negatives from this collection, or the "
            "collection that they were mined from."
        )
    return rows


def named(job):
    """Files of `negatives.forms`: passages have a docid or, without one, title and text, or both in one."""
    path, lookup = job.settings.path, cache(partial(passages_by, job))

    def find(place, negatives):
        ids, texts, ones = [], [], []
        try:
            for number, passage in enumerate(negatives):
                if "docid" in passage:
                    ids.append((number, str(passage["docid"])))
                elif "whole" in passage:
                    ones.append((number, "".join((passage["whole"],))))  # a TypeError if it is not text
                else:
                    texts.append((number, "\0".join((passage.get("title") or "", passage["text"]))))
        except (KeyError, TypeError, AttributeError):
            raise Refusal(f"{place}: a negative passage has neither docid nor a text. Add one of them.") from None
        rows = np.empty(len(negatives), np.int32)
        for keyed, in_corpus in (
            (ids, partial(find_ids, lookup, place)),
            (texts, lambda keys: lookup("title", "text").find(hash_ids(keys))),
            (ones, lambda keys: lookup("title", "text", join=in_one).find(hash_ids(keys))),
        ):
            if keyed:
                numbers, keys = zip(*keyed, strict=True)
                rows[list(numbers)] = in_corpus(keys)
        return rows

    by_id = job.settings.form in WITH_IDS
    records = FORMS[job.settings.form].read(path)
    records = (
        (mined.place, mined.query_id if by_id else mined.query, with_score(mined.positives), mined.negatives)
        for mined in records
    )
    return records, queries_by(job, "query_id" if by_id else "text"), find


def with_score(passages):
    """Those passages (list) of a file that have a score; a file may have anything in their place."""
    listed = passages if isinstance(passages, list) else []
    return [each for each in listed if isinstance(each, dict) and each.get("score") is not None]


def token_ids(job):
    """ANCE-Tele's released lines of query and negatives, each text a list of token ids without special tokens. Texts
    were cut at one length, the longest in the file, so passages are compared up to that length, as bytes. A passage
    without a title begins with [SEP] in the file, but not in the stage `tokens`."""
    queries, passages = (open_tokens(job, name) for name in ("queries.train", "passages"))
    sep = array(
        "I", [json.loads(job.input("tokens.passages", "special.json").read_text(encoding="utf-8"))["sep"]]
    ).tobytes()
    longest_query = longest = 0
    for _, query, negatives in token_records(job.settings.path):
        longest_query, longest = max(longest_query, len(query)), max([longest, *map(len, negatives)])

    @cache
    def lookup(cut):  # finds the shortest of passages with the same beginning
        return Lookup(hash_bytes(token_keys(passages, cut)), passages.lengths)

    def find(_, negatives):
        rows = []
        for ids in negatives:
            text = ids.removeprefix(sep)
            rows.append(lookup(longest - len(ids) + len(text)).find(hash_bytes([text]))[0])
        return np.array(rows, np.int32)

    cut_queries, whole_queries = (rows_by(token_keys(queries, cut)) for cut in (longest_query, None))
    records = ((place, query, [], negatives) for place, query, negatives in token_records(job.settings.path))
    return records, cut_queries | whole_queries, find


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


READERS = {"token-ids": token_ids}
GIVE_QUERIES = {
    "token-ids": SAME_TOKENIZER,
    "dpr": Remedy("Give the training file of the data set whose questions the collection has."),
}
