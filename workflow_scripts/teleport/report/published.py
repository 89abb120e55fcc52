"""Tables of published figures: config/published/*.yaml, read and checked, and the stages that a plan has for them."""

import math
import re
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from teleport.plan.analyses import reranked
from teleport.refusal import Refusal
from teleport.report.figures import ANALYSES, COSTS, DECADES, OF_QUERY, cost_roles
from teleport.report.rows import mining_stages, named, needs_training
from teleport.report.words import listed
from teleport.settings.section import Integer, IntegerOrNull, Number, NumberOrNull, Section, in_one_spelling, not_bool
from teleport.settings.yaml_mapping import Locations, read_mapping, validated

FOLDER = Path(in_one_spelling(Path(__file__).parents[3] / "config/published"))
KINDS = Literal["measures", "hours", "analyses", "costs", "queries"]
# The figures of each kind that has several; a row, a column or a cell names one of them.
FIGURES = {
    "hours": "episode [1-9]|refresh|refreshes|training|overall",
    "analyses": "|".join(f"{name} from 1(0+)?" if name in DECADES else name for name in ANALYSES),
    "costs": "|".join(COSTS),
    "queries": "|".join(OF_QUERY),
}
EpisodeNumber = Annotated[int, Field(ge=0), BeforeValidator(not_bool)]


class Column(Section):
    """The measure of a column of the paper."""

    name: str = Field(description="The paper's word for it, for example `MS MARCO dev MRR@10`.")
    configuration: str | None = Field(
        description="`name` of the configuration whose figures belong here; null: nothing here measures it, they are "
        "only cited."
    )
    kind: KINDS | None = Field(None, description="Replaces the table's.")
    figure: str | None = Field(None, description="Which figure, for kinds with several, if the row names none.")
    split: str | None = Field(None, description="The split that is scored.")
    measure: str | None = Field(None, description="The measure, as in evaluation.measures.")
    reranked: bool = Field(False, description="Whether it measures the re-ranked candidates of evaluation.rerank.")
    scale: NumberOrNull = Field(None, gt=0, description="Replaces the table's.")
    decimals: IntegerOrNull = Field(None, ge=0, description="Replaces the table's.")


class Ours(Section):
    """The stages whose figures stand beside a row."""

    experiment: str = Field(description="An experiment by its name, or `BM25`.")
    episode: EpisodeNumber | Literal["last"] = Field(
        "last", description="The checkpoint after this episode; 0: before the first."
    )
    figure: str | None = Field(None, description="Replaces the row's or the column's.")


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
    figure: str | None = Field(None, description="Which figure, for kinds with several, such as `episode 1` of hours.")
    query: str | None = Field(None, description="For the kind `queries`: the query's id.")


class Tolerance(Section):
    """How far from the published figure a figure still counts as the same."""

    value: Number = Field(ge=0, description="In the table's units; with `queries`, of the measure before its scale.")
    queries: IntegerOrNull = Field(
        None, ge=1, description="The mean of so many; of others it goes with one over the root of their number."
    )
    reason: str

    def of(self, queries, scale):
        """The tolerance of a figure in its units; queries: how many it is a mean over (None: not a mean over
        queries)."""
        if self.queries is None:
            return self.value
        return self.value * scale * math.sqrt(self.queries / queries) if queries else 0.0

    def __str__(self):
        of = f" over {self.queries:,} queries, over others as one over the root of their number" if self.queries else ""
        return f"Tolerance ±{self.value:g}{of}, above and below: {self.reason}."


class Cell(NamedTuple):
    """A figure of a table, with the settings of its row, column and table.

    value: as printed (None: it is not printed); ours: our stages for it (None: it is only cited); figure: which one of
    its kind (str or None)
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
                raise Refusal(f"row {row.system!r} has cells for {min(unknown)!r}, which is not a column")
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
    """A `PublishedTable`; mistakes are reported with file, line and key."""
    if not Path(path).is_file():
        names = ", ".join(sorted(file.stem for file in Path(path).parent.glob("*.yaml"))) or "none"
        raise Refusal(f"published: there is no file {path}. Tables in its folder: {names}.")
    return validated(PublishedTable, read_mapping(path), (), Locations([path]))


# ---- The stages behind each line, decided from the plan alone


def published_tables(plan):
    """{name: table} of the published tables of a plan, as published_table.py describes them. Raises Refusal for a wrong
    file, and for two tables of one name."""
    tables = {}
    for name in plan.config.published:
        path = published_path(name)
        if path.stem in tables:
            raise Refusal(f"published: two tables are called {path.stem!r}. Rename one of the files.")
        tables[path.stem] = planned_table(path, plan)
    return tables


def planned_table(path, *plans):
    """One table: its file, and the stages of the lines that each plan's configuration can fill."""
    table, lines = read_published(path), []
    for plan, ((i, j), cell) in product(plans, table.cells.items()):
        if can_fill(plan, cell):
            runs = {"ours": our_runs(plan, cell), "released": untrained_runs(plan, cell, cell.row.released)}
            lines += [{"row": i, "column": j} | runs] if any(runs.values()) else []
    collections = {plan.config.name or "": plan.collection for plan in plans}
    return named({"name": path.stem, "file": str(path), "collections": collections, "lines": lines})


def joint_table(name, plans):
    """(folder, table) of a published table that several configurations fill, each its own columns."""
    path, names = published_path(name), [plan.config.name for plan in plans]
    filling = {column.configuration for column in read_published(path).columns if column.configuration}
    if len(set(names)) < len(names):
        raise Refusal(f"two configurations are called {max(names, key=names.count)!r}: give each once.")
    if idle := [each for each in names if each not in filling]:
        can = listed(sorted(filling)) or "no configuration"
        who = f"the configuration {idle[0]!r}" if idle[0] else "a configuration without a name"
        raise Refusal(f"{who} fills no cell of the table {name}; {can} can.")
    return Path("results/published") / "+".join(names), planned_table(path, *plans)


def stages_behind(table):
    """The names of the stages that fill a published table (set)."""
    runs = chain.from_iterable(line["ours"] + line["released"] for line in table["lines"])
    return {name for run in runs for names in run.values() for name in names}


def untrained(plan, tables):
    """{name: table} of the published `tables` that have figures and need no training: of checkpoints and runs from
    elsewhere."""
    behind = {name: [plan.stages[stage] for stage in stages_behind(table)] for name, table in tables.items()}
    return {name: tables[name] for name, stages in behind.items() if stages and not any(map(needs_training, stages))}


def can_fill(plan, cell):
    """Whether the configuration can fill a cell: the column names it, and it evaluates the measure."""
    column, evaluation = cell.column, plan.config.evaluation
    if column.configuration is None or column.configuration != plan.config.name:
        return False
    if cell.kind != "measures":
        return cell.kind != "analyses" or evaluation.analyses is not None
    if column.split not in (evaluation.rerank if column.reranked else evaluation.splits):
        return False
    measures = evaluation.rerank[column.split].measures if column.reranked else None
    return column.measure in (measures or evaluation.measures_of(column.split))


def our_runs(plan, cell):
    """Per seed, {role: stages} of our figure; empty when the configuration has no such experiment or episode. A run
    that seeds share, of a checkpoint that was not trained, counts once."""
    ours = cell.ours
    if ours and ours.experiment == "BM25":
        return untrained_runs(plan, cell, "BM25")
    trajectories = plan.trajectories.get(ours.experiment, []) if ours else []
    runs = [stages_for(trajectory, episode_of(ours, trajectory), cell) for trajectory in trajectories]
    if not all(runs):
        return []
    return [*{tuple(stage.name for stages in run.values() for stage in stages): run for run in runs}.values()]


def episode_of(ours, trajectory):
    """The number of the episode of a trajectory that an `Ours` names (int)."""
    return trajectory.episodes[-1].number if ours.episode == "last" else ours.episode


def untrained_runs(plan, cell, name):
    """[{role: stages}] of the figure of BM25 or an entry of `external` (None: of none); neither hours nor costs."""
    if cell.kind not in ("measures", "analyses") or (cell.kind == "analyses" and cell.figure is None):
        return []
    runs = plan.bm25_runs if name == "BM25" else plan.external_runs.get(name, {})
    analyses = {"contrast": plan.contrasts[name]} if name in plan.contrasts else {}
    checkpoints = [stages_for(trajectory, 0, cell) for trajectory in plan.trajectories.get(name, [])[:1]]
    return [*filter(None, [scored_or_analysed(cell, runs, analyses), *checkpoints])]


def stages_for(trajectory, number, cell):
    """{role: stages} of a figure of a trajectory, after an episode; None when they are not planned."""
    if number >= len(trajectory.episodes):
        return None
    episode = trajectory.episodes[number]
    if cell.kind == "hours":
        return timed(trajectory, cell.figure)
    if cell.kind == "costs":
        return costs_of(episode, cell.figure, cell.column.split)
    return scored_or_analysed(cell, episode.runs, episode.analyses)


def scored_or_analysed(cell, runs, analyses):
    """The evaluation of a column's split, or of its re-ranked candidates, among the runs of a checkpoint; or the stage
    of an analysis, where it is of the column's split (None for training queries)."""
    column = cell.column
    if cell.kind == "measures":
        key = reranked(column.split) if column.reranked else column.split
        return {"evaluate": [runs[key]]} if key in runs else None
    analysis = "contrast" if cell.kind == "queries" else ANALYSES[cell.figure.partition(" from ")[0]][0]
    stage = analyses.get(analysis)
    return {analysis: [stage]} if stage and getattr(stage.settings, "split", None) == column.split else None


def timed(trajectory, figure):
    """The stages whose times a figure of the kind `hours` adds up: {"train": …} or {"refresh": …}, or both; None when
    none is planned. figure: "episode 1", …: that episode's training; "refresh": what comes before a training, per
    episode (the merge and all that it is made from); "refreshes": how often; "training"; "overall": all of them."""
    if figure == "training" or figure.startswith("episode "):
        trains = [e.train for e in trajectory.episodes[1:] if figure in ("training", f"episode {e.number}")]
        return {"train": trains} if trains else None
    refresh = mining_stages(trajectory.pools) + trajectory.pools
    if figure != "overall":
        return {"refresh": refresh} if refresh else None
    others = [stage for stage in mining_stages(trajectory.trains) if stage not in refresh]  # for live search
    return {"refresh": refresh + others, "train": trajectory.trains} if trajectory.trains else None


def costs_of(episode, figure, split):
    """The stages of a figure of the kind `costs`, None when one is not planned; split: None for the first."""
    vectors, pool, train = episode.vectors, episode.pool, episode.train
    mining = [stage for stage in mining_stages([pool]) if stage.kind == "retrieve"] + [pool] if pool else [None]
    run = episode.runs.get(split or next(iter(episode.runs)))
    search = run and run.inputs["run"]
    stages = {
        "passages": [vectors.passages],
        "queries": [search and search.inputs["queries"]],
        "index": [train and train.inputs.get("index") or vectors.index],
        "search": [search],
        "train": [train],
        "mining": mining,
    }
    needed = {role: stages[role] for role in cost_roles(figure)}
    return None if any(None in stages for stages in needed.values()) else needed
