"""Collections of documented names: a name's documentation is the passage, its first sentence the question."""

import hashlib

from teleport.records import Rows, Split

# The splits: percent of the names by their hash, cumulated. An added name moves no other name to another split.
SPLIT_BELOW = {"train": 80, "dev": 85, "test": 100}


def documented_passages(what, docs, job):
    """The passages (`Rows`) of documented names of installed packages; a name is id and title. Their questions are
    written to a file of the corpus for the splits: reading the packages again would take as long as the first time.

    what: the kind of documentation, for messages; docs: [(name, query or "", text)], sorted by name
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    questions = {"doc_id": [name for name, query, _ in docs if query], "text": [query for _, query, _ in docs if query]}
    pq.write_table(pa.table(questions), job.output("questions.parquet"))
    place = f"{what} of " + ", ".join(f"{package} {version}" for package, version in job.settings.versions.items())
    return Rows(place, lambda place, wrong: ((row, name, name, text) for row, (name, _, text) in enumerate(docs, 1)))


def documented_split(wanted, job):
    """The `Split` called `wanted` of the questions that `documented_passages` wrote. Query `query:NAME` has one
    positive, `NAME`, of grade 1. The name decides its split."""
    import pyarrow.parquet as pq

    file = job.input("corpus", "questions.parquet")
    columns = pq.read_table(file).to_pydict().values()
    questions = [(row, *each) for row, each in enumerate(zip(*columns, strict=True), 1) if split_of(each[0]) == wanted]
    queries = Rows(file, lambda place, wrong: ((row, f"query:{name}", query) for row, name, query in questions))
    judged = Rows(file, lambda place, wrong: ((row, f"query:{name}", name, "1") for row, name, _ in questions))
    return Split(queries, judged)


def split_of(name):
    """The split of the object `name`, by its SHA-256 modulo 100 and SPLIT_BELOW."""
    percent = int.from_bytes(hashlib.sha256(name.encode()).digest()) % 100
    return next(split for split, below in SPLIT_BELOW.items() if percent < below)
