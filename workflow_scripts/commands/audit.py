"""A description of mined negatives by source: hardness, repeats, suspected false ones, and how few passages they are.

It reads a merge or relabel stage, or a file in one of the forms of `negatives.forms`, whoever wrote it.
"""

import json
import math
from collections import Counter, defaultdict
from itertools import islice
from tempfile import TemporaryDirectory

import numpy as np

from commands.arguments import LIKE, MARGIN
from commands.stages import stage_at
from teleport.encoder.source import is_ranker, named
from teleport.negatives.forms import FORMS, whole
from teleport.records import lines
from teleport.refusal import Refusal
from teleport.report.words import number

ALL = "all"
BLOCK_QUERIES = 256  # scored at a time by another checkpoint
MOST_VECTORS = 200_000  # of texts that may recur: .6 GB at 768 dimensions
FORM_OF = {  # {key that only this form has: form}; the first key that occurs decides
    "negative_passages": "tevatron",
    "neg_doc": "nemo",
    "neg": "pos-neg",
    "labels": "labeled-list",
    "label": "labeled-pair",
    "negative_1": "n-tuple",
    "negative": "triplet",
    "positives": "origin",
}
NONE = type(None)
# The values that a passage in a file may have.
TYPES = {"docid": (str, int, NONE), "title": (str, NONE), "text": str, "whole": str, "source": (str, NONE)}
TYPES |= {"score": (int, float, NONE), "likeness": (int, float, NONE)}
MOST_SCORE = 3.4e38  # of float32
COLUMNS = {
    "negatives": "{:,}",
    "scored": "{:.1%}",
    "hardness": "{:.3f}",
    "above_positive": "{:.1%}",
    "suspected_by_score": "{:.1%}",
    "eci": "{:.3f}",
    "like_positive": "{:.1%}",
    "equal_text": "{:.2%}",
    "repeats": "{:.1%}",
    "passages": "{:,}",
    "entropy_bits": "{:.2f}",
    "queries_per_passage": "{:.2f}",
}


def audit(path, by=None, margin=MARGIN, like=None):
    """The audit of a merge or relabel stage (its folder, or the link to it) or of a file (dict).

    by: folder of an encoder or a cross-encoder whose scores replace the given ones; margin, like: see below; like: only
    with an encoder, by default LIKE
    queries: number of those with negatives. For each source and for `all`, the figures of COLUMNS, None if unknown:
    scored: share with a score, if the query's positives have one; hardness: mean of score minus s+, the lowest of the
    positives; above_positive, suspected_by_score: shares of the scored above s+, and above s+ - margin |s+|; eci: mean
    of `eci` over the queries whose negatives all have a score; like_positive: share whose cosine with a positive of the
    query, by the encoder `by`, is above `like`; equal_text: share with the text of a positive of the query; repeats:
    share that the query has already; passages: number of different ones; entropy_bits: of how often each is drawn,
    log2(passages) if all are drawn equally often; queries_per_passage: mean
    """

    if like is not None and (by is None or is_ranker(by)):
        raise Refusal(f"--like {like:g}: cosines need an encoder's vectors. Give an encoder in --by, or leave it out.")

    def of(mined):
        return audited(scored_by(by, mined) if by else mined, margin, LIKE if like is None else like)

    if path.is_dir():
        from teleport.negatives.export import Pools

        stage = stage_at(path, "merge")
        if (kind := stage.manifest["kind"]) not in ("merge", "relabel"):
            raise Refusal(f"{path} is a stage of kind {kind}. Give a merge or relabel stage, or a file of negatives.")
        with TemporaryDirectory() as folder:
            return of(Pools(stage, stage.input("corpus"), stage.input("split.train"), folder).mined())
    return of(map(require_passages, FORMS[form_of(path)].read(path)))


def form_of(path):
    """The form (text) of a file, by its first line. Raises Refusal if no form is known for it."""
    _, first = next(lines(path), (0, ""))
    if first.startswith("["):
        return "dpr"
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict):
        if form := next((form for key, form in FORM_OF.items() if key in record), None):
            return form
        known = f"its columns are {', '.join(record) or 'none'}"
    elif first.count("\t") == 2:
        return "triples"
    else:
        known = "it is neither JSON nor three columns of ids"
    raise Refusal(f"{path}, line 1: no known form of negatives ({known}). `teleport export` writes them.")


def require_passages(mined):
    """`Mined` of a file, unchanged. Raises Refusal if a passage has a value of a wrong type or size."""
    for passages in (mined.positives, mined.negatives):
        if not isinstance(passages, list) or not all(isinstance(passage, dict) for passage in passages):
            raise Refusal(f"{mined.place}: passages must be a list of JSON objects. Correct the line.")
        for key, value in ((key, value) for passage in passages for key, value in passage.items() if key in TYPES):
            wanted = TYPES[key]
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise Refusal(f"{mined.place}: {key!r} of a passage is {str(value)[:40]!r}. Correct or remove it.")
            if key in ("score", "likeness") and value is not None and not abs(value) <= MOST_SCORE:
                raise Refusal(f"{mined.place}: the {key} {str(value)[:40]} is not a float32. Correct or remove it.")
    return mined


def scored_by(folder, records):
    """Yield `Mined` with the scores of a checkpoint in a folder in place of their own: a cross-encoder's score of each
    pair, or the inner product of an encoder's vectors. Raises Refusal for ids without texts."""
    with named("--by"):
        judge = (by_cross_encoder if is_ranker(folder) else by_vectors)(folder)
    records = iter(records)
    while block := list(islice(records, BLOCK_QUERIES)):
        for mined in block:
            if not mined.query or not all(map(text_of, (*mined.positives, *mined.negatives))):
                raise Refusal(f"{mined.place}: ids without texts cannot be scored. Give a form with texts.")
        yield from judge(block)


def by_vectors(folder):
    """Function ([Mined]) -> iterator of these with the scores of an encoder. The settings are in its files."""
    from teleport.encoder.new_queries import published_encoder

    encode, known = published_encoder(folder), {}  # known: {text of a passage: its vector}

    def judge(block):
        if len(known) > MOST_VECTORS:
            known.clear()
        texts = {whole(passage) for mined in block for passage in (*mined.positives, *mined.negatives)}
        new = sorted(texts - known.keys())
        known.update(zip(new, encode(new, "passage"), strict=True))
        for mined, query_D in zip(block, encode([mined.query for mined in block], "query"), strict=True):
            yield with_scores(mined, query_D, known)

    return judge


def by_cross_encoder(folder):
    """Function ([Mined]) -> iterator of these with the scores of a cross-encoder, in float32. There are no vectors, so
    no negative gets a `likeness`."""
    from teleport.negatives.cross_score import published_cross_encoder

    score = published_cross_encoder(folder)

    def judge(block):
        passages = [(mined, passage) for mined in block for passage in (*mined.positives, *mined.negatives)]
        scores = iter(score([(mined.query, whole(passage)) for mined, passage in passages]).tolist())
        for mined in block:
            scored = [[p | {"score": next(scores)} for p in each] for each in (mined.positives, mined.negatives)]
            yield mined._replace(positives=scored[0], negatives=scored[1])

    return judge


def with_scores(mined, query_D, known):
    """`Mined` with scores, and with each negative's `likeness`: its largest cosine with a positive. known: {text of a
    passage: its vector, float32 [D]}"""
    vectors = [known[whole(passage)] for passage in mined.positives]
    positives = [p | {"score": float(query_D @ v_D)} for p, v_D in zip(mined.positives, vectors, strict=True)]
    negatives = []
    for negative in mined.negatives:
        own_D = known[whole(negative)]
        likeness = max((cosine(own_D, v_D) for v_D in vectors), default=None)
        negatives.append(negative | {"score": float(query_D @ own_D), "likeness": likeness})
    return mined._replace(positives=positives, negatives=negatives)


def cosine(a_D, b_D):
    return float(a_D @ b_D) / max(float(np.linalg.norm(a_D) * np.linalg.norm(b_D)), 1e-12)


def audited(records, margin=MARGIN, like=LIKE):
    """The audit (dict) of an iterable of `negatives.forms.Mined`; margin, like: as in `audit`"""
    of_source, queries = defaultdict(lambda: Figures(margin, like)), 0
    for mined in records:
        queries += bool(mined.negatives)
        scores = [p["score"] for p in mined.positives if p.get("score") is not None]
        lowest, texts = min(scores, default=None), {text for p in mined.positives if (text := text_of(p))}
        names = [(negative.get("source") or "unknown", negative) for negative in mined.negatives]
        seen = defaultdict(dict)
        for name, negative in names:
            for each in (name, ALL):
                of_source[each].add(negative, lowest, texts, seen[each])
        for name, scores_of in seen.items():
            of_source[name].add_eci(lowest, list(scores_of.values()))
    if not of_source:
        raise Refusal("there are no negatives to describe. Give a pool or a file that has some.")
    order = sorted(of_source, key=lambda name: (name == ALL, name))
    if len(order) == 2:
        order.remove("unknown" if "unknown" in order else ALL)
    return {"queries": queries, "sources": {name: of_source[name].shares() for name in order}}


def text_of(passage):
    """The text of a passage, with single spaces; "" if only its id is known."""
    return " ".join(whole(passage).split())


def eci(positive, negatives):
    """Effective Contrastive Information of a query's negatives: log(1 + their number) * the harmonic mean of their mean
    score (hardness) and of the positive's margin above the highest one (safety); each is 0 if it is negative.

    positive: s+; negatives: scores of different passages, of vectors of length 1. Sinha et al., arXiv:2603.20990,
    version 1, after its abstract, which has no formula: the two means are our reading. Later versions replace it.
    """
    hardness = max(0.0, sum(negatives) / len(negatives))
    safety = max(0.0, positive - max(negatives))
    return math.log1p(len(negatives)) * 2 * hardness * safety / ((hardness + safety) or 1.0)


class Figures:
    """Sums over negatives. scored, compared: how many have a score, a likeness; above, suspected, alike: how many of
    these are; gaps: sum of score minus s+; repeated, equal: how many; drawn: {passage: how often}; margin, like: as in
    `audit`. information: sum of `eci` over `queries`, those whose negatives all have a score"""

    def __init__(self, margin, like):
        self.margin, self.like = margin, like
        self.number = self.scored = self.above = self.suspected = self.repeated = self.equal = self.with_text = 0
        self.compared = self.alike = self.queries = 0
        self.gaps, self.information, self.drawn = 0.0, 0.0, Counter()

    def add(self, negative, lowest, texts, seen):
        """Count a negative. lowest: s+, or None; texts: of the positives; seen: {earlier passage of the query: its
        score or None}, to which it is added"""
        text = text_of(negative)
        passage = negative.get("docid") or text
        self.number += 1
        self.repeated += passage in seen
        seen.setdefault(passage, negative.get("score"))
        self.drawn[passage] += 1
        self.with_text += bool(text and texts)
        self.equal += text in texts
        if (score := negative.get("score")) is not None and lowest is not None:
            self.scored += 1
            self.gaps += score - lowest
            self.above += score > lowest
            self.suspected += score > lowest - self.margin * abs(lowest)
        if (likeness := negative.get("likeness")) is not None:
            self.compared += 1
            self.alike += likeness > self.like

    def add_eci(self, lowest, scores):
        """Count a query. lowest: s+, or None; scores: of its different negatives, each a number or None"""
        if lowest is not None and None not in scores:
            self.queries += 1
            self.information += eci(lowest, scores)

    def shares(self):
        """{column: figure or None}."""
        frequencies = [count / self.number for count in self.drawn.values()]
        return {
            "negatives": self.number,
            "scored": self.scored / self.number,
            "hardness": self.gaps / self.scored if self.scored else None,
            "above_positive": self.above / self.scored if self.scored else None,
            "suspected_by_score": self.suspected / self.scored if self.scored else None,
            "eci": self.information / self.queries if self.queries else None,
            "like_positive": self.alike / self.compared if self.compared else None,
            "equal_text": self.equal / self.with_text if self.with_text else None,
            "repeats": self.repeated / self.number,
            "passages": len(self.drawn),
            "entropy_bits": max(0.0, -sum(share * math.log2(share) for share in frequencies)),
            "queries_per_passage": (self.number - self.repeated) / len(self.drawn),
        }


def printed(result):
    """The audit as a table in Markdown: a line a figure, a column a source."""
    names = list(result["sources"])
    rows = [["", *names], ["---", *["--:"] * len(names)]]
    for column, form in COLUMNS.items():
        values = [result["sources"][name][column] for name in names]
        rows.append([column, *("–" if value is None else form.format(value) for value in values)])
    return f"{number(result['queries'], 'query')}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)
