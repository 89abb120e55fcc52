"""Costs of the downloads and of the collection made from them."""

from collections import Counter
from pathlib import Path

from commands.forecast.costs.amounts import corpus_tokens
from commands.forecast.costs.cost import BASE, ID_BYTES, Cost
from teleport.collection.download import FOLDER

BYTES_PER_TOKEN = 2.0  # of text in the compressed corpus.parquet: 4.5 characters of English, compressed 2.2 times
TEXT_COST = {"apidocs": 20}  # packages are parsed: a passage takes as long as twenty lines of a file


def missing_files(stage):
    """The files that a `download` stage has to fetch (list of names); `collection.local` replaces all."""
    if stage.origins.get("local"):
        return []
    return [name for name in stage.settings.files if not (FOLDER / name).is_file()]


def download_cost(stage, counts, plan):
    """What is there already is only hashed. Files of unknown size are what `counts.download_bytes` leaves for them."""
    files, folder = stage.settings.files, Path(stage.origins.get("local") or FOLDER)
    there = sum(path.stat().st_size for path in (folder / name for name in files) if path.is_file())
    missing = missing_files(stage)
    known = sum(files[name].bytes or 0 for name in missing)
    fetched = max(known, (counts.download_bytes or 0) - there) if missing else 0
    return Cost(fetched, work=Counter(network=fetched, disk=there))


def collection_cost(stage, counts, plan):
    texts = counts.passages * TEXT_COST.get(stage.settings.source.source, 1)
    size = corpus_tokens(counts, plan) * BYTES_PER_TOKEN
    return Cost(size, memory=BASE + counts.passages * ID_BYTES, work=Counter(texts=texts))
