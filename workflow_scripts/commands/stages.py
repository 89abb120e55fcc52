"""How commands find a finished stage, and what they read of an evaluation and of a corpus."""

import gzip
import os
import re
from pathlib import Path

from teleport.reader import lines_of_ids
from teleport.refusal import Refusal
from teleport.running.artefact import MANIFEST, STAGES, Artefact

KEY = re.compile("[0-9a-f]{12}")


def stage_at(path, example="train"):
    """The finished stage (`Artefact`) at `path`, its folder or a link to it."""
    # Otherwise the remedy for torn stages would name a stage that never existed.
    finished = (path / MANIFEST).is_file()  # an error for a name that is too long
    folder = Path(os.path.realpath(path))  # Path.resolve raises an error for a loop of links
    if not KEY.fullmatch(folder.name):
        problem = f"{path} is neither a finished stage nor a link to one"
        raise Refusal(f"{problem}. Give one such as results/experiments/NAME/EXPERIMENT/episode-1/{example}.")
    if not finished:
        raise Refusal(f"{path}: the stage is not finished, or was removed. Run the workflow.")
    here = STAGES / folder.parent.name / folder.name  # results/ may be a link: the root is its place, not its target
    return Artefact(here if here.is_dir() and here.samefile(folder) else folder)


def split_of(stage):
    """The split whose queries a stage (`Artefact`) evaluates."""
    return stage.manifest["settings"]["split"]


def queries_of(stage):
    """The `Artefact` of the split whose queries a stage (`Artefact`) evaluates."""
    return stage.input(f"split.{split_of(stage)}")


def run_lines(stage):
    """The lines of an evaluation's TREC run, split at spaces, one by one."""
    with gzip.open(stage.path(f"{split_of(stage)}.run.gz"), "rt", encoding="utf-8") as file:
        yield from map(str.split, file)


def passage_texts(corpus, ids):
    """{id: title and text in one line} of some passages (list of ids); ids from elsewhere are left out."""
    lines = lines_of_ids(corpus.path("corpus.parquet"), "doc_id", ids)
    return {doc_id: " ".join(f"{line['title']} {line['text']}".split()) for doc_id, line in lines.items()}
