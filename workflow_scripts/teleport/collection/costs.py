"""What fetching and reading a collection costs: a function (stage, counts, place) → Cost per kind."""

import math
from pathlib import Path

from teleport.collection.download import FOLDER
from teleport.costs import BASE, ID_BYTES, Cost

BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
GROUP_BYTES = 450e6  # the texts of a row group as strings and as columns, at most
TOKEN_MEMORY, GROUP_PASSAGES = 40, 65_536  # bytes of a token of them; collection.build.ROW_GROUP
APIDOCS_TEXTS = 20  # packages are parsed (apidocs, cloud): a passage takes as long as so many lines of a file
OF_LENGTH, USUAL_TOKENS = 0.4, 76  # the part of the work on a text as long as MS MARCO's that grows with its length
ANSWER_COST = 0.25  # of a further question of a passage, in passages that are looked through for the answers of one
PROCESSES, PASSAGES, PROCESS_MEMORY = 8, 50_000, 0.45e9  # look for answers, in so many passages each
READ_AGAIN = 0.09  # of what reading a file, checking and writing a passage takes: reading it from corpus.parquet
QUESTION_BYTES, QUESTION_MEMORY = 40, 700  # with its judgments, and those that are dropped


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


def collection(stage, counts, place):
    """Passages are read, checked and written; their ids are in memory, then the questions of one split."""
    form, tokens = stage.settings.source.source, counts.corpus_tokens / max(1, counts.passages)
    texts = counts.passages * (APIDOCS_TEXTS if form in ("apidocs", "cloud") else 1)
    texts *= 1 - OF_LENGTH + OF_LENGTH * tokens / USUAL_TOKENS
    questions = counts.queries.values()
    memory = BASE + group_bytes(counts) + counts.passages * ID_BYTES + max(questions, default=0) * QUESTION_MEMORY
    size = counts.corpus_tokens * BYTES_PER_TOKEN + sum(questions) * QUESTION_BYTES
    return Cost(size, memory=memory, work={"texts": texts}, lacks="ir_datasets' downloads" * (form == "ir_datasets"))


def group_bytes(counts):
    """Memory of a row group's texts."""
    tokens = counts.corpus_tokens / max(1, counts.passages)
    return min(GROUP_BYTES, TOKEN_MEMORY * tokens * GROUP_PASSAGES)


def looking_for_answers(pairs, counts, threads=1):
    """(work, memory) of looking for answers in so many retrieved passages, each of which is looked through once; at
    most: random draws would be as many different ones, and neighbours repeat more often."""
    passages = -math.expm1(-pairs / counts.passages) * counts.passages
    groups = max(1.0, counts.passages / GROUP_PASSAGES)  # which are read whole
    read = -math.expm1(-passages / groups) * counts.passages
    work = {"answers": passages + ANSWER_COST * (pairs - passages), "texts": READ_AGAIN * read}
    return work, group_bytes(counts) + min(PROCESSES, threads, passages // PASSAGES) * PROCESS_MEMORY
