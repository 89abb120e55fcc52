"""The costs of fetching and reading a collection: a function (stage, counts, place) → Cost per kind."""

import math
from pathlib import Path

from teleport.budget import ANSWER_PASSAGES
from teleport.collection.budget import ROW_GROUP
from teleport.collection.download import FOLDER
from teleport.costs import BASE, ID_BYTES, Cost

BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
GROUP_BYTES = 450e6  # the texts of a row group as strings and as columns, at most
TOKEN_MEMORY = 40  # bytes per token of these texts
PARSED_TEXTS = 20  # lines of a file that take as long as a passage of a form that is parsed
OF_LENGTH, USUAL_TOKENS = 0.4, 76  # the share of the work that grows with length, for a text as long as MS MARCO's
ANSWER_COST = 0.25  # of searching a passage for one more question's answers, relative to the first question's
PROCESS_MEMORY = 0.45e9  # of each process that searches for answers
READ_ARCHIVED = 0.13  # of unpacking a passage, relative to reading it from a file: 52 s of MS MARCO's archive
READ_AGAIN = 0.09  # of reading a passage from corpus.parquet, relative to reading a file, checking and writing it
DIGEST_BYTES, READ_IDS = 20, 0.01  # per passage: digests and row of the first copy; reading its id alone
QUESTION_BYTES, QUESTION_MEMORY = 40, 700  # with its judgments, dropped ones included


def download(stage, counts, place):
    """Return the cost of a download. Files that are there already are only hashed; files of unknown size share what
    `counts.download_bytes` leaves."""
    local, source, (name,) = stage.origins.get("local"), counts.plan.config.collection, stage.settings.files
    sizes = {name: file.bytes or on_disk(name, local) for name, file in source.files.items()}
    unsized = [name for name, size in sizes.items() if not size]
    rest = (counts.download_bytes or 0) - sum(filter(None, sizes.values()))
    there = on_disk(name, local)
    fetched = 0 if there or local else sizes[name] or max(0, rest) / len(unsized)
    unknown = not (there or local or sizes[name] or counts.download_bytes)
    lacks = f"{name}, because its size is unknown (counts.download_bytes)" if unknown else ""
    return Cost(fetched, work={"network": fetched, "disk": there}, lacks=lacks)


def on_disk(name, local):
    """The size in bytes of a fetched or local file; 0 if it does not exist."""
    path = Path(local or FOLDER) / name  # FOLDER: of all downloads
    return path.stat().st_size if path.is_file() else 0


def corpus(stage, counts, place):
    """Passages are read, checked and written; their ids and digests are in memory."""
    texts = counts.passages * work_of_text(stage, counts)
    memory = BASE + group_bytes(counts) + counts.passages * (ID_BYTES + DIGEST_BYTES)
    size = counts.corpus_tokens * BYTES_PER_TOKEN + counts.passages * DIGEST_BYTES
    return Cost(size, memory=memory, work={"texts": texts}, lacks=stage.settings.source.unknown_cost)


def work_of_text(stage, counts):
    """The work of reading one passage of a form, in lines of a file."""
    tokens = counts.corpus_tokens / max(1, counts.passages)
    length = 1 - OF_LENGTH + OF_LENGTH * tokens / USUAL_TOKENS
    return length * (PARSED_TEXTS if stage.settings.source.parsed else 1)


def split(stage, counts, place):
    """Questions and judgments are read, checked and written, and the ids of all passages are searched. Questions in the
    archive of the passages are found by unpacking it."""
    questions = counts.queries[stage.settings.split]
    memory = BASE + counts.passages * DIGEST_BYTES + questions * QUESTION_MEMORY
    archived = READ_ARCHIVED * stage.settings.source.is_behind_passages(stage.settings.split)
    read = (READ_IDS + archived) * counts.passages + questions
    return Cost(questions * QUESTION_BYTES, memory=memory, work={"texts": read})


def group_bytes(counts):
    """Memory of a row group's texts."""
    tokens = counts.corpus_tokens / max(1, counts.passages)
    return min(GROUP_BYTES, TOKEN_MEMORY * tokens * ROW_GROUP)


def looking_for_answers(pairs, counts, threads=1):
    """(work, memory) of searching `pairs` retrieved passages for answers, each different passage once. An upper bound:
    it counts different passages as in random draws, and neighbours repeat more often."""
    passages = -math.expm1(-pairs / counts.passages) * counts.passages
    groups = max(1.0, counts.passages / ROW_GROUP)  # each is read as a whole
    read = -math.expm1(-passages / groups) * counts.passages
    work = {"answers": passages + ANSWER_COST * (pairs - passages), "texts": READ_AGAIN * read}
    return work, group_bytes(counts) + min(threads, passages // ANSWER_PASSAGES) * PROCESS_MEMORY
