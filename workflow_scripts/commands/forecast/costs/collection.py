"""What fetching and reading a collection costs."""

import math
from pathlib import Path

from commands.forecast.counts import ID_BYTES
from commands.forecast.hardware import BASE, Cost
from teleport.collection.download import FOLDER

# collection.build.ROW_GROUP passages, or those of ROW_GROUP_CHARACTERS, as strings and as columns
ROW_GROUP, ROW_GROUP_CHARACTERS, CHARACTERS, CHARACTER_BYTES = 65_536, 2**26, 5.5, 7
BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
APIDOCS_TEXTS = 20  # packages are parsed: a passage takes as long as so many lines of a file
# Of the work on a text as long as MS MARCO's the part that grows with it: 8.9 µs a text, .075 a token, measured on 8.8
# million texts of 62 tokens, 10.5 million of 106 and 643,000 of 1,106.
OF_LENGTH, USUAL_TOKENS = 0.4, 76
ANSWER_COST = 0.25  # of a further question of a passage, in passages that are looked through for the answers of one
PROCESSES, PASSAGES = 8, 50_000  # at most so many look for answers, in so many passages each (collection.answers)
PROCESS_MEMORY = 0.45e9
READ_AGAIN = 0.09  # of what reading a file, checking and writing a passage takes: reading it from corpus.parquet
# Of a question, with its judgments and, as in MS MARCO, with .6 of one that has none and is dropped.
QUESTION_BYTES, QUESTION_MEMORY = 40, 700


def download(stage, counts, place):
    """What is there already is only hashed. Files of unknown size are what `counts.download_bytes` leaves for them."""
    files, local = stage.settings.files, stage.origins.get("local")  # in the place of all downloads
    paths = {name: Path(local or FOLDER) / name for name in files}
    there = sum(path.stat().st_size for path in paths.values() if path.is_file())
    missing = [] if local else [name for name, path in paths.items() if not path.is_file()]
    known, unsized = sum(files[name].bytes or 0 for name in missing), [n for n in missing if not files[n].bytes]
    fetched = max(known, (counts.download_bytes or 0) - there) if missing else 0
    lacks = f"{', '.join(unsized)}, because their sizes are unknown (counts.download_bytes)" if unsized else ""
    work = {"network": fetched, "disk": there}
    return Cost(fetched, work=work, lacks="" if counts.download_bytes else lacks)


def mean_tokens(counts):
    """Of a passage."""
    return counts.corpus_tokens / max(1, counts.passages)


def row_group(counts):
    """Passages in a row group of a collection."""
    return min(ROW_GROUP, ROW_GROUP_CHARACTERS / max(1.0, CHARACTERS * mean_tokens(counts)))


def row_groups(counts):
    """How many row groups a collection has, at least one."""
    return max(1.0, counts.passages / row_group(counts))


def collection(stage, counts, place):
    """Passages are read, checked and written; their ids are in memory, then the questions of one split."""
    form = stage.settings.source.source
    texts = counts.passages * (APIDOCS_TEXTS if form == "apidocs" else 1)
    texts *= 1 - OF_LENGTH + OF_LENGTH * mean_tokens(counts) / USUAL_TOKENS
    size, questions = counts.corpus_tokens * BYTES_PER_TOKEN, counts.queries.values()
    memory = BASE + group_bytes(counts) + counts.passages * ID_BYTES + max(questions, default=0) * QUESTION_MEMORY
    lacks = "what ir_datasets downloads" if form == "ir_datasets" else ""
    return Cost(size + sum(questions) * QUESTION_BYTES, memory=memory, work={"texts": texts}, lacks=lacks)


def group_bytes(counts):
    """Memory of a row group's texts."""
    return CHARACTER_BYTES * CHARACTERS * mean_tokens(counts) * row_group(counts)


def looking_for_answers(pairs, counts, threads=1):
    """(work, memory) of looking for answers in so many retrieved passages, each of which is looked through once; at
    most: random draws would be as many different ones, and neighbours repeat more often. Row groups are read whole."""
    passages = -math.expm1(-pairs / counts.passages) * counts.passages
    read = -math.expm1(-passages / row_groups(counts)) * counts.passages
    work = {"answers": passages + ANSWER_COST * (pairs - passages), "texts": READ_AGAIN * read}
    return work, group_bytes(counts) + min(PROCESSES, threads, passages // PASSAGES) * PROCESS_MEMORY
