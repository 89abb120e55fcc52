"""The file forms of mined negatives: writes and reads a query with its passages in each.

A form has rows of JSON, or of TSV (`triples`). Forms with one row for each pair have the rows of a query one after
another, and these are read as one `Mined`. If a form does not name its columns, they are read by their order (query
first, positive second), as sentence-transformers does.
"""

from collections.abc import Callable
from itertools import chain, groupby
from typing import NamedTuple

from teleport.dpr import dpr_records
from teleport.records import id_text, json_objects, mistyped, tab_rows
from teleport.refusal import Refusal

ORIGIN = ("score", "rank", "source", "episode")  # of a negative, beside its texts
LABELS = ("score", "scores")  # names of the column with the scores of a row's passages


class Mined(NamedTuple):
    """A query with its passages. query_id, query: id and text, None if the form does not have it; positives,
    negatives: a dict of the known keys of each: docid; title and text, or both in one (`whole`); and ORIGIN, whose
    score may be None. place: "FILE, line 3", for a query that was read"""

    query_id: str | None
    query: str | None
    positives: list
    negatives: list
    place: str = ""


class Form(NamedTuple):
    """write: function (Mined, scores) -> rows, dicts or (for TSV) tuples; scores: whether they are wanted
    read: function of a path -> `Mined` in its order
    all_positives: whether a row has room for several positives; else only the first one is written
    one_row: whether every row has equally many negatives, so that a query with fewer has no row
    row_each: whether each negative has its own row; with `all_positives`, each positive, too
    scores: whether the readers of the form take scores in it
    """

    write: Callable | None
    read: Callable
    all_positives: bool = True
    one_row: bool = False
    row_each: bool = False
    scores: bool = True

    def rows_of(self, mined):
        """[`Mined`] of the passages of each row that `write` makes of `mined`."""
        if not self.row_each:
            return [mined]
        positives = [mined._replace(positives=[p], negatives=[]) for p in mined.positives if self.all_positives]
        of_all = [] if self.all_positives else mined.positives
        return positives + [mined._replace(positives=of_all, negatives=[n]) for n in mined.negatives]


def whole(passage):
    """Title and text of a passage in one line of text, as Tevatron and sentence-transformers join them."""
    if "whole" in passage:
        return passage["whole"]
    title, text = passage.get("title"), passage.get("text", "")
    return f"{title} {text}" if title else text


def with_origin(passage, keys, scores):
    """The `keys` of a passage (dict), and ORIGIN if `scores` are wanted."""
    return {key: passage[key] for key in (*keys, *(ORIGIN if scores else ())) if key in passage}


# ---- Writing: one function a form


def write_tevatron(mined, scores):
    yield {
        "query_id": mined.query_id,
        "query": mined.query,
        "positive_passages": [with_origin(p, ("docid", "title", "text"), scores) for p in mined.positives],
        "negative_passages": [with_origin(p, ("docid", "title", "text"), scores) for p in mined.negatives],
    }


def write_pos_neg(mined, scores):
    row = {"query": mined.query, "pos": list(map(whole, mined.positives)), "neg": list(map(whole, mined.negatives))}
    if scores:
        row |= {"pos_scores": scores_of(mined.positives), "neg_scores": scores_of(mined.negatives)}
    yield row


def write_nemo(mined, scores):
    docs = ({"id": p["docid"], "text": whole(p)} | with_origin(p, (), scores) for p in mined.positives)
    row = {"question_id": mined.query_id, "question": mined.query, "pos_doc": list(docs)}
    docs = ({"id": p["docid"], "text": whole(p)} | with_origin(p, (), scores) for p in mined.negatives)
    yield row | {"neg_doc": list(docs)}


def write_n_tuple(mined, scores):
    row = {"query": mined.query, "positive": whole(mined.positives[0])}
    row |= {f"negative_{number}": whole(p) for number, p in enumerate(mined.negatives, 1)}
    yield row | (labels_of([mined.positives[0], *mined.negatives]) if scores else {})


def write_triplet(mined, scores):
    positive = mined.positives[0]
    for negative in mined.negatives:
        row = {"query": mined.query, "positive": whole(positive), "negative": whole(negative)}
        yield row | (labels_of([positive, negative]) if scores else {})


def write_labeled_pair(mined, scores):
    for label, passages in ((1, mined.positives), (0, mined.negatives)):
        for p in passages:
            yield {"query": mined.query, "passage": whole(p), "label": label} | with_origin(p, (), scores)


def write_labeled_list(mined, scores):
    passages, labels = [*mined.positives, *mined.negatives], [1] * len(mined.positives) + [0] * len(mined.negatives)
    row = {"query": mined.query, "passages": list(map(whole, passages)), "labels": labels}
    yield row | ({f"{key}s": [p.get(key) for p in passages] for key in ORIGIN} if scores else {})


def write_triples(mined, scores):
    if scores:
        raise Refusal("the form triples has only ids and cannot hold scores. Take another form.")
    for negative in mined.negatives:
        yield mined.query_id, mined.positives[0]["docid"], negative["docid"]


def scores_of(passages):
    return [passage.get("score") for passage in passages]


def labels_of(passages):
    """{"score": the scores of a row's passages}, which sentence-transformers gives to a loss; it takes all or none."""
    known = scores_of(passages)
    return {} if None in known else {"score": known}


# ---- Reading


def read_tevatron(path):
    for place, record in placed(path):
        record["query_id"] = id_text(record.get("query_id"))
        require(place, record, {"query_id": str, "negative_passages": list})
        query, positives = record.get("query"), record.get("positive_passages") or []
        yield Mined(record["query_id"], query, positives, record["negative_passages"], place)


def read_pos_neg(path):
    for place, record in placed(path):
        require(place, record, {"query": str, "pos": list, "neg": list})
        sides = (scored(place, record[side], record.get(f"{side}_scores")) for side in ("pos", "neg"))
        yield Mined(None, record["query"], *sides, place)


def read_nemo(path):
    for place, record in placed(path):
        record = {"question": record.get("query")} | record
        require(place, record, {"question": str, "pos_doc": list, "neg_doc": list})
        sides = ([nemo_passage(place, doc) for doc in record[side]] for side in ("pos_doc", "neg_doc"))
        yield Mined(nemo_id(place, record.get("question_id")), record["question"], *sides, place)


def nemo_id(place, given):
    """A question's id as text; None if there is none."""
    if not isinstance(name := id_text(given), str | None):
        raise Refusal(f"{place}: 'question_id' is {str(given)[:40]!r}, neither a text nor a whole number. Correct it.")
    return name


def nemo_passage(place, doc):
    """A passage in NeMo's form: a text, or an id with or without a text."""
    if isinstance(doc, str):
        return {"whole": doc}
    if not isinstance(doc, dict) or not ({"id", "text"} & doc.keys()):
        raise Refusal(f"{place}: a passage has neither id nor text. Add one of them.")
    if not isinstance(doc.get("text"), str | None):
        raise Refusal(f"{place}: the text {str(doc['text'])[:40]!r} of a passage is not text. Correct it.")
    names = {"docid": doc.get("id"), "whole": doc.get("text")}
    return {key: value for key, value in names.items() if value not in (None, "")} | with_origin(doc, (), True)


def read_n_tuple(path):
    for place, record in placed(path):
        columns = [key for key in record if key not in LABELS and not key.startswith("negative")]
        negatives = [record[key] for key in record if key.startswith("negative")]
        swapped = columns[:1] == ["positive"]  # JSON with sorted keys has the positive before the query
        if swapped or len(columns) != 2 or not negatives or not all(isinstance(record[key], str) for key in columns):
            raise Refusal(f"{place}: columns are {', '.join(record)}, not query, positive, negative_1, … Correct it.")
        passages = scored(place, [record[columns[1]], *negatives], label_of(record))
        yield Mined(None, record[columns[0]], passages[:1], passages[1:], place)


def read_triplet(path):
    def pairs():
        for place, record in placed(path):
            names = [key for key in record if key not in LABELS]
            texts = [record[name] for name in names]
            # JSON with sorted keys has the negative before the positive.
            swapped = "positive" in names[::2] or "negative" in names[:2]
            if swapped or len(texts) != 3 or not all(isinstance(text, str) for text in texts):
                raise Refusal(f"{place}: columns are {', '.join(record)}, not query, positive, negative. Correct it.")
            yield (texts[0], texts[1]), place, *scored(place, texts[1:], label_of(record))

    for (query, _), rows in groupby(pairs(), key=lambda row: row[0]):
        rows = list(rows)
        yield Mined(None, query, [rows[0][2]], [row[3] for row in rows], rows[0][1])


def read_labeled_pair(path):
    def pairs():
        for place, record in placed(path):
            names = [key for key in record if key not in ("label", *ORIGIN)]
            texts, swapped = [record[name] for name in names], names[:1] == ["passage"]  # by sorted keys
            wrong = swapped or len(texts) != 2 or not all(isinstance(text, str) for text in texts)
            if wrong or record.get("label") not in (0, 1):
                raise Refusal(
                    f"{place}: columns are {', '.join(record)}, not query, passage, label 0 or 1. Correct it."
                )
            yield texts[0], place, record["label"], {"whole": texts[1]} | with_origin(record, (), True)

    for query, rows in groupby(pairs(), key=lambda row: row[0]):
        rows = list(rows)
        sides = ([passage for _, _, label, passage in rows if label == side] for side in (1, 0))
        yield Mined(None, query, *sides, rows[0][1])


def read_labeled_list(path):
    for place, record in placed(path):
        values = list(record.values())[:2]
        require(place, record, {"labels": list})
        if not isinstance(values[0], str) or not isinstance(values[1], list) or len(values[1]) != len(record["labels"]):
            raise Refusal(f"{place}: the first columns are not a query and one passage per label. Correct it.")
        if wrong := [label for label in record["labels"] if label not in (0, 1)]:
            raise Refusal(f"{place}: the label {wrong[0]!r} is not 0 or 1. Write 1 for a positive, 0 for a negative.")
        passages = scored(place, values[1], record.get("scores"))
        for key in ORIGIN[1:]:
            if (known := record.get(f"{key}s")) is not None:
                require_one_each(place, f"{key}s", known, passages)
                passages = [passage | {key: value} for passage, value in zip(passages, known, strict=True)]
        labelled = list(zip(record["labels"], passages, strict=True))
        yield Mined(
            None, values[0], *([p for label, p in labelled if bool(label) == side] for side in (True, False)), place
        )


def read_triples(path):
    rows = tab_rows(path, (3,), "query id, positive id, negative id")
    for (query, positive), triples in groupby(rows, key=lambda row: row[1:3]):
        triples = list(triples)
        negatives = [{"docid": negative} for _, _, _, negative in triples]
        yield Mined(query, None, [{"docid": positive}], negatives, f"{path}, line {triples[0][0]}")


def read_origin(path):
    def rows():
        for place, record in placed(path):
            record["query_id"] = id_text(record.get("query_id"))
            require(place, record, {"query_id": str, "positives": list, "negatives": list})
            yield record, place

    for query, rows_of_query in groupby(rows(), key=lambda row: row[0]["query_id"]):
        records, places = zip(*rows_of_query, strict=True)
        sides = (list(chain.from_iterable(record[side] for record in records)) for side in ("positives", "negatives"))
        yield Mined(query, None, *sides, places[0])


def read_dpr(path):
    for number, query, ids in dpr_records(path, "hard_negative_ctxs"):
        yield Mined(None, query, [], [{"docid": each} for each in ids], f"{path}, record {number}")


def placed(path):
    """("FILE, line 3", dict) of each line of JSON."""
    return ((f"{path}, line {number}", record) for number, record in json_objects(path))


def require(place, record, types):
    """Raise Refusal for a key of `types` that the record does not have, or that has a value of another type."""
    if problem := mistyped(record, types):
        raise Refusal(f"{place}: {problem}")


def scored(place, texts, scores):
    """Passages (list of dict) of texts and their scores, if any."""
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(f"{place}: a passage is not a text. Correct the line.")
    if scores is None:
        return [{"whole": text} for text in texts]
    require_one_each(place, "scores", scores, texts)
    return [{"whole": text} | known_score(score) for text, score in zip(texts, scores, strict=True)]


def label_of(record):
    """The value of the column with a row's scores; None without one."""
    return next((record[name] for name in LABELS if name in record), None)


def require_one_each(place, name, values, passages):
    """Raise Refusal if `values` are no list of one value per passage."""
    if not isinstance(values, list) or len(values) != len(passages):
        raise Refusal(f"{place}: {len(passages)} passages, but another number of {name}. Give one of each per passage.")


def known_score(score):
    return {} if score is None else {"score": score}


FORMS = {
    "tevatron": Form(write_tevatron, read_tevatron),
    "pos-neg": Form(write_pos_neg, read_pos_neg),
    "nemo": Form(write_nemo, read_nemo),
    "n-tuple": Form(write_n_tuple, read_n_tuple, all_positives=False, one_row=True),
    "triplet": Form(write_triplet, read_triplet, all_positives=False, row_each=True),
    "labeled-pair": Form(write_labeled_pair, read_labeled_pair, row_each=True, scores=False),
    "labeled-list": Form(write_labeled_list, read_labeled_list, scores=False),
    "triples": Form(write_triples, read_triples, all_positives=False, row_each=True, scores=False),
    "origin": Form(None, read_origin),
    "dpr": Form(None, read_dpr),
}
