"""Finds the columns of a table that are the question, its passages, the negatives, grades, scores and ids, by the names
that sentence-transformers, FlagEmbedding, Tevatron, DPR, NeMo, ms-swift and the usual data sets use, in any case.

If the names do not decide it and a record has two texts, their order does, as in sentence-transformers: question,
passage. Three texts need names, because the last may be a negative as well as the best passage.
"""

import math
import re
from functools import partial
from typing import NamedTuple

from teleport.records import float_of, id_text, shown
from teleport.refusal import Refusal

QUESTIONS = ("query", "question", "anchor", "queries", "questions", "q", "sentence1", "sentence_a", "query_text")
QUESTIONS += ("messages",)
# The first of these that a table has is the passage: with question, context and answer, the context.
PASSAGES = ("positive", "positives", "pos", "positive_passages", "positive_passage", "positive_ctxs", "pos_doc")
PASSAGES += ("pos_docs", "passage", "passages", "document", "documents", "doc", "docs", "context", "contexts", "ctx")
PASSAGES += ("passage_text", "text", "texts", "body", "content", "contents", "abstract", "description")
PASSAGES += ("answer", "answers", "response", "output", "sentence2", "sentence_b", "chosen", "positive_messages")
NEGATIVES = r"(hard_)?(negatives?|neg|negs)(_(passages?|ctxs|docs?|messages|\d+))?|rejected(_response)?"
GRADES = ("label", "labels", "grade", "grades", "relevance", "is_relevant", "score", "scores")
SCORES = ("scores", "score", "pos_scores", "neg_scores", "positive_score", "negative_score")
TITLES = ("title", "passage_title", "doc_title", "positive_title")
TEXT_KEYS = ("text", "contents", "content", "passage", "body")
ID_KEYS = ("docid", "doc_id", "_id", "id", "passage_id", "pid")
QUESTION_IDS = ("query_id", "qid", "question_id", "queryid")
# Beside a passage that is a text. A doc_id may be that of the document of several passages.
PASSAGE_IDS = ("pid", "passage_id", "corpus_id")
ID = r"(.*_)?(id|docid|pid|qid)"  # never a text by its order: a file of a collection has an id and a text, too
BY_USER = "as you say"
MOST_NAMED = 8  # columns in a message
MOST_NEGATIVES = 10_000  # of a question: a longer list is a corpus, and is in every line of the file


class Columns(NamedTuple):
    """The columns of a table by role (names, or None); negatives, scores, unused: tuples of names; margin:
    whether the scores are those of a positive over its negatives"""

    question: str
    passage: str
    title: str | None
    negatives: tuple
    grade: str | None
    scores: tuple
    unused: tuple
    why: str
    margin: bool = False
    question_id: str | None = None
    passage_id: str | None = None

    @property
    def used(self):
        """The names of the columns that are read."""
        ids = {self.question_id, self.passage_id}
        return {self.question, self.passage, self.title, *self.negatives, self.grade, *self.scores, *ids} - {None}

    def __str__(self):
        text = f"{self.question!r} is the question, {self.passage!r} its passage ({self.why})"
        scores = "margins of the positive over a negative, as MarginMSELoss takes them" if self.margin else "scores"
        rest = {"title": [self.title], "negatives": self.negatives, "grade": [self.grade], scores: self.scores}
        rest |= {"id of the question": [self.question_id], "id of the passage": [self.passage_id]}
        rest["not used"] = self.unused
        for what, names in rest.items():
            names = [name for name in names if name]
            shown = ", ".join(map(repr, names if len(names) < 5 else [names[0], "…", names[-1]]))
            text += f"; {what}: {shown}" if names else ""
        return text


class Passage(NamedTuple):
    """docid: as given, or None; grade: 0 if judged not relevant, None for a negative; score: by a teacher"""

    docid: str | None
    title: str
    text: str
    grade: int | None = None
    score: float | None = None


class Example(NamedTuple):
    """A question with its passages; place: in the file; margins: whether the scores of its negatives are margins, see
    `with_scores`; query_id: as given, or None"""

    place: str
    question: str
    passages: list
    negatives: list
    margins: bool = False
    query_id: str | None = None


def columns_of(path, record, place, may_be_by_order=True, given=(None, None)):
    """The `Columns` of a table, from one record of it. given: the names of the columns of questions and passages, if
    the user gives them. Raises Refusal if the roles of the columns are unclear."""
    why = BY_USER if any(given) else "by name"
    at, remedy = f"{path}, {place}: ", ""
    if not may_be_by_order:
        at = f"{path}, line 1: the first line is taken as the header; "
        remedy = " If it is no header, write one above it."
    have = ", ".join(repr(name if len(name) < 40 else f"{name[:40]}…") for name in [*record][:MOST_NAMED]) or "none"
    have += f", … ({len(record)} in all)" if len(record) > MOST_NAMED else ""
    for option, name in zip(("--question", "--passage"), given, strict=True):
        if name is not None and name not in record:
            raise Refusal(f"{at}{option} {name}: the columns are {have}. Name one of them.{remedy}")
    rest = [name for name in record if name not in given]
    question, passage = given[0] or picked(rest, QUESTIONS), given[1] or picked(rest, PASSAGES)
    negatives = [name for name in rest if re.fullmatch(NEGATIVES, spelled(name))]
    if not (question and passage):
        texts = [name for name in record if isinstance(record[name], str) and not re.fullmatch(ID, spelled(name))]
        if not may_be_by_order or question or negatives or len(texts) != 2 or len(texts) < len(record):
            missing = [] if question else ["question (query, question, anchor)"]
            missing += [] if passage else ["passage (positive, passage, text)"]
            raise Refusal(
                f"{at}there is no {' or '.join(missing)} among the columns {have}. Name them with "
                f"--question COLUMN --passage COLUMN, or rename them.{remedy}"
            )
        why = why if passage else "by order"
        question, passage = reversed(texts) if passage == texts[0] else texts
    pick = partial(picked, [name for name in record if name not in (question, passage)])
    is_text = isinstance(record[passage], str)
    title = pick(TITLES) if is_text else None
    scores = [pick([name]) for name in SCORES if pick([name])] if negatives else []
    grade = pick(GRADES) if not negatives else None
    ids = {"question_id": pick(QUESTION_IDS), "passage_id": pick(PASSAGE_IDS) if is_text else None}
    ids = {role: name for role, name in ids.items() if name and is_id(record[name])}
    columns = Columns(question, passage, title, tuple(negatives), grade, tuple(scores), (), why, **ids)
    columns = columns._replace(unused=tuple(name for name in record if name not in columns.used))
    of_negatives = [key for key in scores if in_list(record.get(key)) and spelled(key)[:3] != "pos"]
    return columns._replace(margin=any(is_margin(columns, record, key) for key in of_negatives[-1:]))


def examples(path, columns, rows, wrong):
    """Yield the `Example`s of a table's rows (place, record); mistakes in a record are reported to `wrong`."""
    known = columns.used | set(columns.unused)
    for place, record in rows:
        try:
            if missing := [name for name in (columns.question, columns.passage) if name not in record]:
                keys = ", ".join(map(repr, record))
                raise Problem(f"{missing[0]!r} is missing, which the first line has; this one has {keys}. Use the same "
                              "keys in all lines")  # fmt: skip
            if not known.issuperset(record):
                given = (columns.question, columns.passage) if columns.why == BY_USER else (None, None)
                if other := columns_of(path, record, place, given=given).used - known:
                    raise Problem(f"the key {min(other)!r}, which the first line does not have. Use the same keys in "
                                  "all lines")  # fmt: skip
                known.update(record)
            yield example(columns, place, record)
        except Problem as problem:
            wrong(place, problem)


def spelled(name):
    """The name of a column in lower case, with _ between words, as the names here are written."""
    return re.sub(r"[\s-]+", "_", str(name).strip().lower())


def picked(columns, names):
    """The name in `columns`, of a record, that is the first of `names`, however it is spelled; None without one."""
    by_spelling = {spelled(name): name for name in columns}
    return next((by_spelling[name] for name in names if name in by_spelling), None)


class Problem(Exception):
    """The fault of a record, with the remedy. kind: as `records.Faults.note` takes it"""

    def __init__(self, message, kind=None):
        super().__init__(message)
        self.kind = kind


def example(columns, place, record):
    """The `Example` of a record. Raises Problem."""
    question = text_of(unwrapped(record[columns.question]), columns.question)
    title = title_of(record.get(columns.title), columns.title) if columns.title else ""
    passages = passages_of(record[columns.passage], columns.passage, title)
    if not passages:
        raise Problem(f"{columns.passage!r} is empty. Give the question a passage, or remove the line", "empty")
    if isinstance(record[columns.passage], str):
        passages = [passages[0]._replace(docid=own_id(record, columns.passage_id))]
    negatives = [each for key in columns.negatives for each in passages_of(record.get(key), key)]
    if len(negatives) > MOST_NEGATIVES:
        raise Problem(f"{columns.negatives[0]!r} has {len(negatives)} negatives, more than {MOST_NEGATIVES}: that is a "
                      "corpus. Write it once, as corpus.jsonl of BEIR's form")  # fmt: skip
    if columns.grade:
        grades = in_list(record.get(columns.grade))
        if len(grades) != len(passages):
            raise Problem(f"{columns.grade!r} has {len(grades)} values and {columns.passage!r} {len(passages)}. Give "
                          "every passage one")  # fmt: skip
        grades = [grade_of(value, columns.grade) for value in grades]
        passages = [each._replace(grade=grade) for each, grade in zip(passages, grades, strict=True)]
    else:
        passages = [each._replace(grade=1) for each in passages]
    query_id = own_id(record, columns.question_id)
    return Example(place, question, *with_scores(columns, record, passages, negatives), query_id)


def unwrapped(value):
    """A value in which each conversation of one message, as ms-swift has them, is its text."""
    if not isinstance(value, list):
        return value
    alone = value[0] if len(value) == 1 else None
    is_message = isinstance(alone, dict) and alone.keys() == {"role", "content"}
    return alone["content"] if is_message else [unwrapped(each) for each in value]


def in_list(value):
    """A value of a column as a list: itself, nothing for None, or the list that it is."""
    return value if isinstance(value, list) else [] if value is None or value == "" else [value]


def passages_of(value, key, title=""):
    """The `Passage`s of the value of a column: a text, an object with a text, or a list of these."""
    return [passage_of(each, key, title) for each in in_list(unwrapped(value))]


def passage_of(value, key, title):
    """The `Passage` of one text, or of one object with a text and maybe a title and an id."""
    if not isinstance(value, dict):
        return Passage(None, title, text_of(value, key))
    name = next((name for name in TEXT_KEYS if name in value), None)
    if name is None:
        raise Problem(f"{key!r} has an object without a text; its keys are {', '.join(map(repr, value))}. Name the "
                      "text 'text'")  # fmt: skip
    docid = next((value[name] for name in ID_KEYS if value.get(name) is not None), None)
    title = title_of(value.get("title"), f"{key}.title")
    return Passage(None if docid is None else id_of(docid, key), title, text_of(value[name], f"{key}.{name}"))


def is_id(value):
    """Whether a value is a text or a whole number, without white space."""
    name = id_text(value)
    return isinstance(name, str) and name.split() == [name]


def id_of(value, key):
    """An id as text. Raises Problem."""
    if not is_id(value):
        raise Problem(f"{key!r} has the id {value!r}, which is not text or a number without white space. Rename it")
    return text_of(id_text(value), key)


def own_id(record, key):
    """The id in a column of a record, None if it is empty or there is no such column. Raises Problem."""
    return None if record.get(key) in (None, "") else id_of(record[key], key)


def text_of(value, key, empty=False):
    """A value that must be a text with more than white space, or may be empty. Raises Problem."""
    if not isinstance(value, str):
        kind = "empty" if value is None else None
        raise Problem(f"{key!r} is {shown(value)} ({type(value).__name__}) and no text. Write a text", kind)
    if not empty and not value.strip():
        raise Problem(f"{key!r} is empty. Give it a text, or remove the line", "empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Problem(f"{key!r} has half a surrogate pair, which UTF-8 cannot hold. Correct the text") from None
    return value


def title_of(value, key):
    """A value that must be a text, which may be empty, or None for an empty one. Raises Problem."""
    return "" if value is None else text_of(value, key, empty=True)


def number_of(value, key):
    """A finite number of a column, also where a table has it as text. Raises Problem."""
    number = float_of(value)
    if not math.isfinite(number):
        raise Problem(f"{key!r} is {shown(value)} and no number. Write a number")
    return number


def grade_of(value, key):
    """A grade, a whole number from 0 on, of a column. Raises Problem."""
    number = number_of(value, key)
    if number != int(number) or not 0 <= number < 2**31:
        raise Problem(f"{key!r} is {shown(value)} and no whole number from 0 on. Write 1 for a passage that answers "
                      "and 0 for one that does not, or higher grades")  # fmt: skip
    return int(number)


def is_margin(columns, record, key):
    """Whether a score is the label that sentence-transformers' MarginMSELoss takes: a number per negative, how much
    more the teacher gives the positive, in a table whose positive is one text."""
    others = sum(len(in_list(record.get(name))) for name in columns.negatives)
    one_positive = isinstance(record[columns.passage], str) and spelled(key) in ("score", "scores")
    return one_positive and len(in_list(record.get(key))) == others > 0


def with_scores(columns, record, passages, negatives):
    """(passages, negatives, whether there are margins) with the scores of a teacher, if the table has them: both kinds
    in one list, or apart; with margins, a negative has that of the one positive over it. Raises Problem if there are
    not as many scores as passages."""
    margins = False
    for key in columns.scores:
        values = [number_of(value, key) for value in in_list(record.get(key))]
        if not values:
            continue
        both = (len(passages), len(negatives))
        of_both = both if len(values) == sum(both) else (0, both[1])
        ends = {"pos": (both[0], 0), "neg": (0, both[1])}
        first, second = ends.get(spelled(key)[:3], of_both)
        if len(values) != first + second:
            raise Problem(f"{key!r} has {len(values)} scores for {both[0]} passages and {both[1]} negatives. Give "
                          "every passage one")  # fmt: skip
        if first:
            passages = [p._replace(score=s) for p, s in zip(passages, values, strict=False)]
        if second:
            negatives = [n._replace(score=s) for n, s in zip(negatives, values[first:], strict=True)]
            margins = is_margin(columns, record, key)
    return passages, negatives, margins
