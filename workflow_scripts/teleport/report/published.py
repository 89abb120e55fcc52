"""Tables of published figures: config/published/*.yaml, read and checked."""

import math
import re
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from teleport.refusal import Refusal
from teleport.report.figures import ANALYSES, COSTS, DECADES, OF_QUERY
from teleport.settings.section import Integer, IntegerOrNull, Number, NumberOrNull, Section, in_one_spelling, not_bool
from teleport.settings.validated import validated
from teleport.settings.yaml_mapping import Locations, read_mapping

FOLDER = Path(in_one_spelling(Path(__file__).parents[3] / "config/published"))
KINDS = Literal["measures", "hours", "analyses", "costs", "queries"]
# The figures of a kind that has several, by which a row, a column or a cell names its own.
FIGURES = {
    "hours": "episode [1-9]|refresh|refreshes|training|overall",
    "analyses": "|".join(f"{name} from 1(0+)?" if name in DECADES else name for name in ANALYSES),
    "costs": "|".join(COSTS),
    "queries": "|".join(OF_QUERY),
}
EpisodeNumber = Annotated[int, Field(ge=0), BeforeValidator(not_bool)]


class Column(Section):
    """What a column of the paper measures."""

    name: str = Field(description="The paper's word for it, for example `MS MARCO dev MRR@10`.")
    configuration: str | None = Field(
        description="`name` of the configuration whose figures belong here; null: nothing here measures it, they are "
        "only cited."
    )
    kind: KINDS | None = Field(None, description="Instead of the table's.")
    figure: str | None = Field(None, description="Of the kinds with several: which, where the row does not say it.")
    split: str | None = Field(None, description="The split that is scored.")
    measure: str | None = Field(None, description="The measure, as in evaluation.measures.")
    reranked: bool = Field(False, description="Of the re-ranked candidates of evaluation.rerank.")
    scale: NumberOrNull = Field(None, gt=0, description="Instead of the table's.")
    decimals: IntegerOrNull = Field(None, ge=0, description="Instead of the table's.")


class Ours(Section):
    """The stages whose figures stand beside a row."""

    experiment: str = Field(description="An experiment by its name, or `BM25`.")
    episode: EpisodeNumber | Literal["last"] = Field("last", description="After which episode; 0: before the first.")
    figure: str | None = Field(None, description="Instead of the row's or the column's.")


class Row(Section):
    """A line of the paper's table; a value is null where the paper prints none."""

    system: str
    group: str | None = None
    values: list[Number | None]
    ours: Ours | None = Field(
        None, description="null: nothing here corresponds to the row, its figures are only cited."
    )
    cells: dict[str, Ours | None] = Field(
        {}, description="Column → what stands there instead of `ours`; null: nothing, it is only cited."
    )
    released: str | None = Field(None, description="The entry of `external` that is this system as its makers gave it.")
    figure: str | None = Field(None, description="Of the kinds with several: which, such as `episode 1` of hours.")
    query: str | None = Field(None, description="Of the kind `queries`: the id of the query.")


class Tolerance(Section):
    """How far from the published figure a figure still counts as the same."""

    value: Number = Field(ge=0, description="In the table's units; with `queries`, of the measure before its scale.")
    queries: IntegerOrNull = Field(
        None, ge=1, description="The mean of so many; of others it goes with one over the root of their number."
    )
    reason: str

    def of(self, queries, scale):
        """The tolerance of a figure in its units; queries: that it is a mean of, None where it is no such mean."""
        if self.queries is None:
            return self.value
        return self.value * scale * math.sqrt(self.queries / queries) if queries else 0.0

    def __str__(self):
        of = f" over {self.queries:,} queries, over others as one over the root of their number" if self.queries else ""
        return f"Tolerance ±{self.value:g}{of}, above and below: {self.reason}."


class Cell(NamedTuple):
    """A figure of a table, and what row, column and table say of it together.

    value: as printed (None: it is not); ours: what of ours stands beside it (None: it is only cited); figure: which one
    of its kind (str or None)
    """

    row: Row
    column: Column
    value: float | None
    ours: Ours | None
    kind: str
    figure: str | None
    scale: float


class PublishedTable(Section):
    """A table of a paper. Published figure = measure × scale."""

    title: str
    source: str = Field(description="Paper and table.")
    kind: KINDS = Field(
        "measures",
        description="Where our figures come from: evaluations, hours of training and mining in manifests, "
        "evaluation.analyses, what single stages cost, or a query of evaluation.analyses.against.",
    )
    scale: Number = Field(1.0, gt=0)
    decimals: Integer = Field(ge=0, description="Printed decimals; a value with more keeps them.")
    tolerance: Tolerance
    notes: list[str] = []
    columns: list[Column] = Field(min_length=1)
    rows: list[Row] = Field(min_length=1)

    @model_validator(mode="after")
    def complete(self):
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise Refusal(f"two columns are called {max(names, key=names.count)!r}")
        for row in self.rows:
            if len(row.values) != len(names):
                raise Refusal(f"row {row.system!r} has {len(row.values)} values for {len(names)} columns")
            if unknown := set(row.cells) - set(names):
                raise Refusal(f"row {row.system!r} has cells of {min(unknown)!r}, which is no column")
        for cell in self.cells.values():
            row, column, rule = cell.row, cell.column, FIGURES.get(cell.kind)
            if rule and cell.ours and not re.fullmatch(rule, cell.figure or ""):
                raise Refusal(f"row {row.system!r}, column {column.name!r} needs a figure: {rule}")
            if cell.kind == "queries" and cell.ours and not row.query:
                raise Refusal(f"row {row.system!r} needs a query")
            if cell.kind == "measures" and column.configuration and not (column.split and column.measure):
                raise Refusal(f"column {column.name!r} needs a split and a measure")
        return self

    @property
    def cells(self):
        """{(number of the row, of the column): `Cell`}, row by row."""
        cells = {}
        for (i, row), (j, column) in product(enumerate(self.rows), enumerate(self.columns)):
            ours = row.cells.get(column.name, row.ours) if column.configuration else None
            figure = (ours and ours.figure) or row.figure or column.figure
            kind, scale = column.kind or self.kind, column.scale or self.scale
            cells[i, j] = Cell(row, column, row.values[j], ours, kind, figure, scale)
        return cells


def published_path(name):
    """The file of a table that the configuration names: a path ending in .yaml, or a name in config/published."""
    return Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"


def read_published(path):
    """A `PublishedTable`; mistakes are told with file, line and key."""
    if not Path(path).is_file():
        names = ", ".join(sorted(file.stem for file in Path(path).parent.glob("*.yaml"))) or "none"
        raise Refusal(f"published: there is no file {path}. Tables in its folder: {names}.")
    return validated(PublishedTable, read_mapping(path), (), Locations([path]))
