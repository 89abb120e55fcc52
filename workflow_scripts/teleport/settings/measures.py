"""Measures: their names, read in a configuration and computed in a stage, and the settings of the stages that score
and compare runs. NAMESettings belong to the stage NAME.

The names are those of ir-measures, and ours: `Hole@k` and `Errors@k` of a run by judgments, `Cov@k` by answers.
"""

import re
from typing import Literal, NamedTuple

import ir_measures
from pydantic import Field

from teleport.refusal import Refusal
from teleport.settings.section import Integer, Section, equals

# Computed in evaluation/measures.py, Cov in evaluation/evaluate.py.
OWN = re.compile(r"(Hole|Errors|Cov)@([1-9][0-9]*)")
# Known to exist. Asking ir-measures for a measure loads numpy, which would delay every dry run.
USUAL = ("RR", "nDCG", "R", "P", "AP", "Rprec", "Success", "Judged")
BROKEN = ("Accuracy",)  # ir-measures divides by zero where the first results of a query are all relevant
UNREADABLE = (NameError, ValueError, AssertionError, KeyError)  # from ir-measures, for a name that is not a measure


class Own(NamedTuple):
    """A measure that ir-measures does not have, with the attributes of its measures."""

    NAME: str
    params: dict


def meaning(measure):
    """One text for all spellings of a measure, such as MRR@10 and RR@10; names unknown to ir-measures stay as they
    are."""
    try:
        return str(ir_measures.parse_measure(measure))
    except UNREADABLE:
        return measure


def parse_measures(names):
    """The ir-measures objects called `names` (list of str), in order, and an `Own` for each of our measures. Raises
    ValueError for unknown names, and for a cut-off or lowest relevant grade (`rel`) below 1: unjudged passages have
    grade 0.
    """
    measures = []
    for name in names:
        if match := OWN.fullmatch(name):
            measures.append(Own(match[1], {"cutoff": int(match[2])}))
            continue
        try:
            measure = ir_measures.parse_measure(name)
            measure.validate_params()
            usual = measure.NAME in USUAL and set(measure.params) <= {"cutoff", "rel"}
            supported = usual or (measure.NAME not in BROKEN and ir_measures.DefaultPipeline.supports(measure))
        except UNREADABLE:
            supported = False
        if not supported:
            raise Refusal(
                f"there is no measure {name!r} that ir-measures can compute here. Give its names, for example RR@10, "
                "nDCG@10, R@1000, R(rel=2)@100 or AP; answer coverage is Cov@20, top-K errors are Errors@200"
            )
        if min(measure.params.get("cutoff", 1), measure.params.get("rel", 1)) < 1:
            raise Refusal(f"the measure {name!r} has a cut-off or rel below 1. Give whole numbers from 1 on")
        measures.append(measure)
    return measures


def known_measures(names):
    """Return a list of measures; raises Refusal if a name is not a measure."""
    parse_measures(names)
    return names


def coverage_cutoffs(names):
    """{name: k} of the measures in `names` that are answer coverage."""
    return {name: int(match[2]) for name in names if (match := OWN.fullmatch(name)) and match[1] == "Cov"}


def measure_cutoffs(names):
    """{name: k} of the measures in `names` that use the first k passages."""
    parsed = zip(names, parse_measures(names), strict=True)
    cutoffs = {name: measure.params.get("cutoff") for name, measure in parsed}
    return {name: cutoff for name, cutoff in cutoffs.items() if cutoff is not None}


def better(column):
    """1 if the larger mean of a column is better, -1 for errors, 0 for shares of judged results, which are no
    quality."""
    return 0 if "Hole@" in column or "Judged@" in column else -1 if "Errors@" in column else 1


class Collapse(Section):
    """Whether passages are scored, or their documents."""

    collapse: Literal["maxp", "firstp"] | None = Field(
        None, description="Score documents by their best passage (maxp) or first one (firstp); null: score passages."
    )
    separator: str = Field(
        "#", min_length=1, description="Separator in passage ids: what stands before the last one is the document's id."
    )


class EvaluateSettings(Collapse):
    """Settings of the stage `evaluate`."""

    split: str
    measures: list[str]
    ignore_own_text: bool = Field(False, exclude_if=equals(False))


class ExternalSettings(Section):
    """sha256: of the file, so that other content is another run; null if the stage `download` has verified it.
    unknown_passages: for lines whose passage is not in the collection; keep: treat it as unjudged
    """

    file: str
    sha256: str | None
    split: str
    form: Literal["trec", "tsv"]
    unknown_queries: Literal["error", "drop"]
    unknown_passages: Literal["error", "drop", "keep"]

    def identity(self):
        """The file is identified by its content, whatever its path; a member of an archive also by its name."""
        settings = self.model_dump(mode="json")
        return settings | ({"file": self.file.partition("!")[2]} if self.sha256 else {})


class ErrorsSettings(Section):
    """top: the most errors of a positive that count in the top-K errors; ignore_own_text: a query's own text is none"""

    split: str
    top: Integer = 200
    ignore_own_text: bool = Field(False, exclude_if=equals(False))


class ContrastSettings(Collapse):
    """depth: of the lists whose overlap is measured."""

    split: str
    measure: str
    depth: Integer = 100
    ignore_own_text: bool = Field(False, exclude_if=equals(False))


class NegativesOverlapSettings(Section):
    """depth: how many of the first negatives are compared."""

    depth: Integer = 100
