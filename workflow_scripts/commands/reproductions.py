"""Other people's runs: a file in reproductions/ names a configuration, the place of its results, and digests of its
runs."""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Annotated

from pydantic import Field

from teleport.refusal import Refusal
from teleport.running.places import Folder, place_at
from teleport.settings.section import Line, Section
from teleport.settings.yaml_mapping import Locations, read_mapping, validated

FOLDER = Path("reproductions")


class Reproduction(Section):
    """The runs that somebody has reproduced, so that anybody may check them."""

    by: Line = Field(description="Who, when and on what machine.")
    configuration: list[str] = Field(min_length=1, description="The files after --configfile.")
    place: str | None = Field(
        None, description="A folder or archive of `teleport share`, or hub:OWNER/NAME@COMMIT; null: there is none."
    )
    runs: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(
        min_length=1, description="EXPERIMENT/episode-1/evaluate-SPLIT → `zcat SPLIT.run.gz | sha256sum`."
    )


def check(path, plan_of):
    """(lines on the runs of a file of FOLDER, number of runs that differ). plan_of: function of YAML files → `Plan`"""
    made = validated(Reproduction, read_mapping(path), (), Locations([path]))
    stages, lines, wrong = evaluations(plan_of(made.configuration)), [f"{path}, by {made.by}:"], 0
    place = made.place and place_at(made.place)
    for link, expected in made.runs.items():
        if link not in stages:
            raise Refusal(
                f"{path}: runs: the configuration has no {link}. It has, for example, {next(iter(stages), 'none')}."
            )
        file = f"{stages[link].name}/{stages[link].settings.split}.run.gz"
        our_digest = digest_of(Folder(Path("results")).open(file), f"results: {file}")
        known = {None: "not there", expected: "equal"}
        verdict = f"here {known.get(our_digest, 'differs')}"
        if place:
            place_digest = digest_of(place.open(file), f"{made.place}: {file}")
            verdict = f"{made.place} {known.get(place_digest, 'differs')}, {verdict}"
            wrong += place_digest != expected
        lines.append(f"  {link}: {verdict}")
        wrong += our_digest not in (None, expected)
    return lines, wrong


def evaluations(plan):
    """{link of an evaluation below the experiments of a configuration: stage}; BM25/evaluate-SPLIT for those of BM25,
    which belong to no experiment."""
    rows = ((name, row) for name, of in plan.trajectories.items() for trajectory in of for row in trajectory.rows)
    stages = {f"{name}/{row.link}": row.stage for name, row in rows if row.stage.kind == "evaluate"}
    return stages | {f"BM25/evaluate-{split}": stage for split, stage in plan.bm25_runs.items()}


def digest_of(file, where):
    """The SHA-256 (hex) of the text of a run, however it is compressed; None if there is no file."""
    if file is None:
        return None
    try:
        with file, gzip.open(file) as text:
            return hashlib.file_digest(text, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise Refusal(f"{where} is not a run that gzip reads ({error}). Ask for it to be shared again.") from None
