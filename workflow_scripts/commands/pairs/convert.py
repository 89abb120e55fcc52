"""Pairs as a collection in BEIR's form, which `collection.forms.beir` reads.

The id of a passage or question is the one that it first came with, or the digest of its normal form. Passages with the
same text become one, and so do questions. The id of a question decides its split, so that questions added later move no
other one.
"""

import json
from collections import Counter, defaultdict
from functools import partial
from itertools import chain

from commands.pairs import texts
from commands.pairs.columns import columns_of, examples
from teleport.collection.equal import digest_of
from teleport.collection.forms.beir import HEADER
from teleport.records import Faults
from teleport.refusal import Refusal
from teleport.report.words import number
from teleport.running.files import write_text

NEGATIVES = "negatives.jsonl"
ROUNDING = 1e-3  # of margins that were written with few digits


class Collection:
    """The collection read so far: passages and questions are on the disk, ids and judgments in memory."""

    def __init__(self, folder):
        self.files = {name: open(folder / f"{name}.jsonl", "w", encoding="utf-8") for name in ("corpus", "queries")}  # noqa: SIM115
        self.ids, self.given = ({name: {} for name in self.files} for _ in range(2))  # {digest: id}, {id: digest}
        self.texts = {}
        self.judged = defaultdict(lambda: defaultdict(dict))  # {split: {question: {passage: grade}}}
        self.negatives = defaultdict(dict)  # {question: {passage: score}}
        self.scores = defaultdict(dict)  # {question: {positive: a teacher's score}}
        self.margins = defaultdict(list)  # {question: [(positive, negative, how much higher the positive's score is)]}
        self.counts, self.words, self.longest = Counter(), Counter(), Counter()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for file in self.files.values():
            file.close()

    def write(self, name, record):
        self.files[name].write(json.dumps(record, ensure_ascii=False) + "\n")
        length = len(record["text"].split())
        self.words[name] += length
        self.longest[name] = max(self.longest[name], length)

    def add_texts(self, folder):
        """Add all passages of a folder of texts, also those that no question is about."""
        self.texts = texts.passages_below(folder)
        for passage in chain.from_iterable(self.texts.values()):
            self.add_passage(passage)

    def add_passage(self, passage, wrong=None):
        """The id of a `Passage`, as `add_text` returns it."""
        text = f"{passage.title} {passage.text}" if passage.title else passage.text
        values = {"title": passage.title, "text": passage.text}
        return self.add_text("corpus", digest_of(text), passage.docid, values, wrong)

    def add_text(self, name, digest, given, values, wrong):
        """The id of a passage or question, which is written with its `values` to the file `name` if its text is new.
        given: its id in the data, or None; one that had another text before is reported to `wrong`"""
        if given is not None and self.given[name].setdefault(given, digest) != digest:
            wrong(f"the id {given!r} had another text earlier. Give every text its own id, or remove the ids")
        if digest not in self.ids[name]:
            self.ids[name][digest] = given or f"{digest:016x}"
            self.write(name, {"_id": self.ids[name][digest]} | values)
        return self.ids[name][digest]

    def add(self, split, example, wrong):
        """Add an `Example`."""
        digest = digest_of(example.question)
        question = self.add_text("queries", digest, example.query_id, {"text": example.question}, wrong)
        judged, positive = self.judged[split or "train"][question], None
        for passage in example.passages:
            if passage.grade and digest_of(passage.text) == digest:
                self.counts["own text"] += 1  # every search would rank it first
                continue
            positive = docid = self.add_passage(passage, wrong)
            # A triplet repeats its pair with another negative.
            self.counts["repeated"] += judged.get(docid) == passage.grade and not example.negatives
            judged[docid] = max(passage.grade, judged.get(docid, 0))
            if passage.score is not None:
                self.scores[question][docid] = passage.score
        for passage in example.negatives:
            docid = self.add_passage(passage, wrong)
            if not example.margins:
                self.negatives[question][docid] = passage.score
                continue
            self.negatives[question].setdefault(docid)
            if positive not in (None, docid):
                self.margins[question].append((positive, docid, passage.score))

    def drop_unanswered(self):
        """Leave out questions that have judgments but none above 0: no passage is a positive of theirs."""
        for judged in self.judged.values():
            for question in [question for question, grades in judged.items() if not any(grades.values())]:
                del judged[question]
                self.counts["unanswered"] += 1


def note(faults, place, problem):
    """Note a fault of a record in `Faults`. problem: a `Problem`, or a text for a fault that `drop` cannot leave out"""
    faults.note(getattr(problem, "kind", None), place, f"{problem}.")


def convert(tables, output, given, drop, folder, draw):
    """Write the collection of `tables` ({split: `Table`s}) to a new folder; returns a paragraph (list of one str) on
    the records and how they were read.

    output: the later name of the folder; draw: divides the ids of the questions of `train` and returns {split: set of
    ids}; given: as `columns_of` takes it; drop: the kinds of records to leave out, as in `collection.drop`. Raises
    Refusal for the other wrong records of the first file that has some.
    """
    notes = []
    folder.mkdir()
    with Collection(folder) as collection:
        for split, files in tables.items():
            for table in files:
                notes.append(read(table, split, collection, given, drop))
        collection.drop_unanswered()
    judged = {split: dict(questions) for split, questions in collection.judged.items()}
    for split, (table, *_) in tables.items():
        if not judged.get(split or "train"):
            raise Refusal(f"{table.path}: no question has a passage of a grade above 0. Give relevant passages, too.")
    whole = judged.pop("train", {})
    for split, ids in draw(set(whole)).items() if whole else ():
        judged[split] = {question: whole[question] for question in whole if question in ids}
    for split, questions in judged.items():
        lines = [HEADER, *((q, docid, str(g)) for q, grades in questions.items() for docid, g in grades.items())]
        write_text(folder / "qrels" / f"{split}.tsv", "".join("\t".join(line) + "\n" for line in lines))
    return [" ".join(notes + sentences(collection, write_negatives(folder, collection, judged), output))]


def read(table, split, collection, given, drop):
    """Add the examples of one `Table` to a `Collection`; returns a sentence on it. given, drop: as `convert` takes
    them"""
    faults = Faults(table.path, drop, "record")
    wrong = partial(note, faults)
    rows = table.form.rows(table.path, wrong)
    first = next(rows, None)
    if first is None:
        faults.refuse()
        raise Refusal(f"{table.path}: no record. Give a file with at least one question and its passage.")
    place, record = first
    if not any(given) and texts.names_text(record, table.path.parent):
        if not collection.texts:
            collection.add_texts(table.path.parent)
        parsed = texts.examples(table.path, chain([first], rows), collection.texts, wrong)
        description = "questions about the files beside it"
    else:
        columns = columns_of(table.path, record, place, table.form.BY_ORDER, given)
        parsed, description = examples(table.path, columns, chain([first], rows), wrong), str(columns)
    count = 0
    for example in parsed:
        collection.add(split, example, partial(wrong, example.place))
        count += 1
    faults.refuse()
    return f"{table.path} is {table.form.NAME} of {number(count, 'record')}: {description}."


def write_negatives(folder, collection, judged):
    """Write the negatives that were given with training questions, with scores, as `negatives.file` reads them; returns
    how many there are. A positive of a question is never its negative, even if it was given as one. Counts in
    `collection.counts` the passages of these lines that are `unscored`, and the margins that are `contradicted`."""
    total, lines = 0, []
    for question, grades in judged.get("train", {}).items():
        given = collection.negatives[question]
        if negatives := [docid for docid in given if not grades.get(docid)]:
            scores = {docid: score for docid, score in given.items() if score is not None} | collection.scores[question]
            if margins := collection.margins.get(question):
                scores, contradicted = scores_of_margins(margins, scores)
                collection.counts["contradicted"] += contradicted
            sides = {"positive_passages": [docid for docid, grade in grades.items() if grade]}
            sides |= {"negative_passages": negatives}
            line = {"query_id": question}
            line |= {name: [with_score(docid, scores.get(docid)) for docid in side] for name, side in sides.items()}
            lines.append(json.dumps(line) + "\n")
            collection.counts["unscored"] += sum(docid not in scores for side in sides.values() for docid in side)
            total += len(negatives)
    if lines:
        write_text(folder / NEGATIVES, "".join(lines))
    return total


def scores_of_margins(margins, known):
    """({passage: score} of one question, how many margins contradict these). margins: [(positive, negative, score of
    the positive minus that of the negative)]; known: {passage: score}, without which the first positive has 0.

    Positives differ in their scores. Margins of two over the same negative tell by how much; a passage that no chain of
    margins links with the first positive, or a known score, gets none. Losses of a teacher's margins or distributions
    read differences within a question alone, so its zero does not matter to them.
    """
    near = defaultdict(list)
    for positive, negative, margin in margins:
        near[positive].append((negative, -margin))
        near[negative].append((positive, margin))
    scores = known or {margins[0][0]: 0.0}
    reached = list(scores)
    for passage in reached:
        for other, difference in near[passage]:
            if other not in scores:
                scores[other] = scores[passage] + difference
                reached.append(other)
    linked = [(scores[one] - scores[other], margin) for one, other, margin in margins if one in scores]
    return scores, sum(abs(difference - margin) > ROUNDING * max(1, abs(margin)) for difference, margin in linked)


def with_score(docid, score):
    """A passage of negatives.jsonl."""
    return {"docid": docid} if score is None else {"docid": docid, "score": score}


def sentences(collection, negatives, output):
    """Return the sentences on the whole collection (list of str)."""
    mean = {name: collection.words[name] / max(1, len(ids)) for name, ids in collection.ids.items()}
    notes = ["Equal texts, whatever their case and spacing, are one passage or question; ids are digests of texts "
             "where the data have none.",
             f"Words of a question: {mean['queries']:.0f} in the mean (longest {collection.longest['queries']:,}), "
             f"of a passage: {mean['corpus']:.0f} (longest {collection.longest['corpus']:,})."]  # fmt: skip
    if collection.texts:
        notes.append(f"Texts cut into passages of at most {texts.WORDS} words: {len(collection.texts):,}.")
    if repeated := collection.counts["repeated"]:
        notes.append(f"Pairs that are repeated, and count once: {repeated:,}.")
    if own_text := collection.counts["own text"]:
        notes.append(f"Passages with the text of their question, which are left out: {own_text:,}.")
    if unanswered := collection.counts["unanswered"]:
        notes.append(f"Questions without a passage of a grade above 0, which are left out: {unanswered:,}.")
    if negatives:
        notes.append(f"{number(negatives, 'negative')} of training questions in {output / NEGATIVES}: to train on "
                     f"them, add `negatives: {{counts: {{file: 1}}, file: {{path: {output / NEGATIVES}}}}}` to the "
                     "last entry of `episodes`.")  # fmt: skip
    unscored, contradicted = collection.counts["unscored"], collection.counts["contradicted"]
    if negatives and collection.margins:
        notes.append(
            "Margins became scores, whose differences alone count: a question's first positive has 0, unless scored."
        )
        if unscored:
            notes.append(f"Passages that no margin links with that positive, so without a score: {unscored:,}.")
        if contradicted:
            notes.append(f"Margins that contradict others of their question, and do not count: {contradicted:,}.")
    if negatives and not unscored and not contradicted:
        notes.append("To learn from their scores, give its `training` also `loss: {kind: kl, scores: file}`.")
    return notes
