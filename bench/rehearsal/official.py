"""The papers' official files at their true counts, or a part of them, with drawn texts of the papers' lengths.

One function a paper writes the files that its configuration names, in their published forms, block by block: memory
holds the questions and one block of passages. A question is some words of its passage, which is its positive.
"""

import csv
import gzip
import io
import json
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rehearsal.words import blocks, lengths
from teleport.refusal import Refusal

LEVEL = 1  # of gzip: the texts are drawn again where the files are not kept


@dataclass(frozen=True)
class Counts:
    """The sizes of a paper's collection. passages: rows; queries: {split: number}; words: mean of a passage and a
    title; judged: graded judgments of a TREC topic; unjudged: more training questions, which no judgment names."""

    passages: int
    queries: dict
    words: float
    title_words: float = 4.0
    question_words: float = 6.0
    positives: int = 0
    judged: int = 200
    unjudged: int = 0
    contexts: int = 0

    def scaled(self, scale, questions):
        """The same for a part of the passages and of the questions; questions: a further share of the training ones.

        The few topics of TREC DL are never scaled. Every other split keeps enough questions for a batch.
        """
        sizes = {
            split: min(size, max(256, round(size * scale * (questions if split == "train" else 1))))
            for split, size in self.queries.items()
        }
        share = sizes["train"] / self.queries["train"]
        passages = max(4000, round(self.passages * scale))
        more = {name: round(getattr(self, name) * share) for name in ("positives", "unjudged")}
        return replace(self, passages=passages, queries=sizes, **more)


PAPERS = {
    "marco": Counts(
        8_841_823, {"train": 502_939, "dev": 6_980, "dl19": 43, "dl20": 54}, 56, positives=532_761, unjudged=305_792
    ),
    "nq": Counts(21_015_324, {"train": 79_168, "test": 3_610}, 100, question_words=9, positives=58_880, contexts=30),
    "triviaqa": Counts(
        21_015_324, {"train": 78_785, "test": 11_313}, 100, question_words=14, positives=60_413, contexts=30
    ),
    "marco-doc": Counts(
        3_213_835, {"train": 367_013, "dev": 5_193, "dl19": 43, "dl20": 45}, 1_100, positives=367_013, judged=350
    ),
}


class Corpus:
    """The passages of a paper and the questions that belong to some of them; `questions` is filled by `passages`."""

    def __init__(self, words, counts):
        self.words, self.counts = words, counts
        total = sum(counts.queries.values())
        if total > counts.passages:
            raise Refusal(f"{total} questions need as many passages, not {counts.passages}. Take a larger SCALE.")
        rows = words.rng("positives").choice(counts.passages, total, replace=False)
        ends = np.cumsum(list(counts.queries.values()))[:-1]
        self.rows = dict(zip(counts.queries, np.split(rows, ends), strict=True))  # {split: passage of each question}
        self.splits_of = {int(row): (s, i) for s, of in self.rows.items() for i, row in enumerate(of)}
        self.questions = {split: [None] * size for split, size in counts.queries.items()}
        self.answers = {split: [None] * size for split, size in counts.queries.items()}
        self.contexts = {}

    def passages(self):
        """Yield (row, title, words) of every passage, and note the questions on the way."""
        counts = self.counts
        for number, first, last in blocks(counts.passages):
            rng = self.words.rng("sizes", number)
            bodies = self.words.block("passages", number, lengths(rng, last - first, counts.words))
            titles = self.words.block("titles", number, rng.integers(2, 2 * counts.title_words, last - first))
            for row, title, body in zip(range(first, last), titles, bodies, strict=True):
                if row in self.splits_of:
                    self.note(row, title, body, rng)
                yield row, " ".join(title), body

    def note(self, row, title, body, rng):
        """Note the question whose positive is the passage, some of its words, and its answer, three consecutive
        words."""
        split, number = self.splits_of[row]
        size = min(len(body) - 2, 2 + rng.poisson(self.counts.question_words - 2))
        start = int(rng.integers(0, len(body) - size))
        at = int(rng.integers(0, len(body) - 2))
        self.questions[split][number] = " ".join(body[start : start + size])
        self.answers[split][number] = [" ".join(body[at : at + 3])]
        if self.counts.contexts and split == "train":
            self.contexts[number] = (" ".join(title), " ".join(body))


def write_marco(folder, corpus):
    """The files of config/marco.yaml."""
    counts = corpus.counts
    titles = folder / "para.title.txt"
    with open(folder / "collection.tsv", "w") as file, open(titles, "w") as title_file:
        for row, title, body in corpus.passages():
            file.write(f"{row}\t{' '.join(body)}\n")
            title_file.write(f"{row}\t{title}\n")
    write_lines(folder / "queries.dev.small.tsv", query_lines(corpus, "dev"))
    write_lines(folder / "qrels.dev.small.tsv", judgment_lines(corpus, "dev"))
    members = ("collection.tsv", "queries.dev.small.tsv", "qrels.dev.small.tsv")
    pack(folder / "collectionandqueries.tar.gz", {name: folder / name for name in members})
    pack(folder / "marco.tar.gz", {"marco/para.title.txt": titles})
    train, rng = folder / "queries.train.tsv", corpus.words.rng("unjudged")
    more = corpus.words.block("unjudged", 0, rng.integers(4, 10, counts.unjudged))
    unjudged = (f"{90_000_000 + i}\t{' '.join(words)}\n" for i, words in enumerate(more))
    write_lines(train, [*query_lines(corpus, "train"), *unjudged])
    pack(folder / "queries.tar.gz", {"queries.train.tsv": train})
    write_lines(folder / "qrels.train.tsv", judgment_lines(corpus, "train", counts.positives))
    for year, middle in (("2019", "Q0"), ("2020", "0")):
        write_lines(folder / f"msmarco-test{year}-queries.tsv.gz", query_lines(corpus, f"dl{year[2:]}"))
        write_lines(folder / f"{year}qrels-pass.txt", graded_lines(corpus, f"dl{year[2:]}", middle))


def write_documents(folder, corpus):
    """The files of config/marco-doc.yaml."""
    with text_file(folder / "msmarco-docs.tsv.gz") as file:
        for row, title, body in corpus.passages():
            file.write(f"D{row}\thttps://{body[0]}.org/{row}\t{title}\t{' '.join(body)}\n")
    for split in ("train", "dev"):
        write_lines(folder / f"msmarco-doc{split}-queries.tsv.gz", query_lines(corpus, split))
        write_lines(folder / f"msmarco-doc{split}-qrels.tsv.gz", judgment_lines(corpus, split, prefix="D", tab=" "))
    for year in ("2019", "2020"):
        write_lines(folder / f"msmarco-test{year}-queries.tsv.gz", query_lines(corpus, f"dl{year[2:]}"))
        write_lines(folder / f"{year}qrels-docs.txt", graded_lines(corpus, f"dl{year[2:]}", "Q0", "D"))


def write_wikipedia(folder, corpus, train, all_questions, test):
    """The files of config/nq.yaml or triviaqa.yaml: DPR's passages, its training records, questions with answers."""
    with text_file(folder / "psgs_w100.tsv.gz") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["id", "text", "title"])
        for row, title, body in corpus.passages():
            writer.writerow([row + 1, f'{" ".join(body)}"' if row % 7 == 0 else " ".join(body), title])
    write_records(folder / train, corpus, every=not all_questions)
    if all_questions:
        write_lines(folder / all_questions, answer_lines(corpus, "train"))
    write_lines(folder / test, answer_lines(corpus, "test"))


def write_records(path, corpus, every):
    """DPR's training records, in indented JSON as released. every: also write questions without a positive."""
    counts, rng = corpus.counts, corpus.words.rng("contexts")
    texts, rows = list(corpus.contexts.values()), corpus.rows["train"].tolist()
    last = len(rows) if every else min(counts.positives, len(rows))
    with text_file(path) as file:
        file.write("[\n")
        for number in range(last):
            others = rng.integers(0, len(texts), counts.contexts).tolist()
            positive = [context(rows[number], *corpus.contexts[number])] if number < counts.positives else []
            record = {
                "dataset": "drawn",
                "question": corpus.questions["train"][number],
                "answers": corpus.answers["train"][number],
                "positive_ctxs": positive,
                "negative_ctxs": [],
                "hard_negative_ctxs": [context(rows[other], *texts[other % len(texts)]) for other in others],
            }
            file.write(json.dumps(record, indent=4) + (",\n" if number + 1 < last else "\n"))
        file.write("]\n")


def context(row, title, text):
    return {"title": title, "text": text, "score": 1000, "title_score": 1, "passage_id": str(row + 1)}


WRITERS = {
    "marco": write_marco,
    "marco-doc": write_documents,
    "nq": lambda folder, corpus: write_wikipedia(
        folder, corpus, "biencoder-nq-train.json.gz", "nq-train.qa.csv", "nq-test.qa.csv"
    ),
    "triviaqa": lambda folder, corpus: write_wikipedia(
        folder, corpus, "biencoder-trivia-train.json.gz", None, "trivia-test.qa.csv.gz"
    ),
}


def query_id(split, number):
    return 1_000_000 * (1 + ("train", "dev", "dl19", "dl20", "test").index(split)) + number


def query_lines(corpus, split):
    return (f"{query_id(split, i)}\t{text}\n" for i, text in enumerate(corpus.questions[split]))


def judgment_lines(corpus, split, positives=0, prefix="", tab="\t"):
    """A judgment of every question's passage. The first questions also get the next passage, up to `positives` in
    all."""
    rows = corpus.rows[split].tolist()
    second = max(0, positives - len(rows))
    for number, row in enumerate(rows):
        for passage in [row, (row + 1) % corpus.counts.passages][: 1 + (number < second)]:
            yield tab.join((str(query_id(split, number)), "0", f"{prefix}{passage}", "1")) + "\n"


def graded_lines(corpus, split, middle, prefix=""):
    """Grades 3 for a topic's own passage and 0 to 2 for others, as TREC's assessors give them."""
    rng, counts = corpus.words.rng(f"graded-{split}"), corpus.counts
    for number, row in enumerate(corpus.rows[split].tolist()):
        others = dict.fromkeys(rng.choice(counts.passages, counts.judged).tolist())
        others.pop(row, None)
        for passage, grade in [(row, 3), *((other, min(2, other % 5)) for other in others)]:
            yield f"{query_id(split, number)} {middle} {prefix}{passage} {grade}\n"


def answer_lines(corpus, split):
    pairs = zip(corpus.questions[split], corpus.answers[split], strict=True)
    return (f"{question}\t{answers}\n" for question, answers in pairs)


@contextmanager
def text_file(path):
    """A UTF-8 file to write to, compressed if its name ends in .gz."""
    if path.suffix != ".gz":
        with open(path, "w", encoding="utf-8") as file:
            yield file
        return
    with compressed(path) as packed, io.TextIOWrapper(packed, "utf-8", write_through=False) as file:
        yield file


def compressed(path):
    """A gzip file to write to, without a time, so that its bytes depend on its content alone."""
    return gzip.GzipFile(path, "wb", LEVEL, mtime=0)


def write_lines(path, lines):
    with text_file(path) as file:
        file.writelines(lines)


def pack(path, members):
    """Pack files {name in the archive: path} into a tar archive, and remove them."""

    def undated(info):
        info.mtime = 0
        return info

    with compressed(path) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, member in members.items():
            archive.add(member, name, filter=undated)
            Path(member).unlink()
