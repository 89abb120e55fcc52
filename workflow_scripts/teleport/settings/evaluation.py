"""What is scored and shown: measures, tests, analyses, external systems, tables, a paper's figures, the report page."""

from itertools import groupby
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from teleport.refusal import Refusal
from teleport.settings.measures import Collapse, known_measures, meaning
from teleport.settings.section import (
    ConfigurationFile,
    Depth,
    Integer,
    Line,
    LocalPath,
    Natural,
    Section,
    Unique,
    entries,
    exactly_one,
    not_bool,
)

Baselines = str | dict[Literal["*", "†", "‡", "§", "¶"], str | Annotated[list[str], Field(min_length=1)]]
Test = Literal["permutation", "t-test"]
Level = Annotated[FiniteFloat, Field(gt=0, lt=1), BeforeValidator(not_bool)]


class Significance(Section):
    """Paired tests of every row against one baseline row, or several.

    Trained systems of three seeds or more are tested over queries and seeds, whatever `test` is.
    """

    baseline: Baselines = Field(
        "Zero-shot",
        description="Row to compare with: Zero-shot, BM25 or an experiment's label; or mark → label or labels (a "
        "marked row differs from each).",
    )
    test: Test | dict[str, Test] = Field(
        "permutation",
        description="Test over queries: permutation (ANCE-Tele), or two-sided paired t-test (STAR and ADORE); or "
        "split → test.",
    )
    resamples: Integer = Field(
        9999, ge=99, le=10_000_000, description="Number of random sign flips (ANCE-Tele: permutation)."
    )
    level: Level | dict[str, Level] = Field(
        0.05, description="A row is marked if its Holm-corrected p is below this; or split → level (others: 0.05)."
    )


class Candidates(Section):
    """The passages of each query that the encoder re-ranks: those of a file, or the first of our own BM25 run."""

    file: LocalPath | None = Field(None, description="A path or a name of collection.files; FILE!MEMBER of an archive.")
    form: Literal["trec", "tsv"] = Field(
        "trec", description="trec: a run of six columns. tsv: query id, passage id, anything (MARCO's top1000.dev)."
    )
    bm25: Natural | None = Field(None, description="Re-rank this many passages of our BM25 run, instead of a file.")
    measures: Annotated[list[str], AfterValidator(known_measures)] | None = Field(
        None, min_length=1, description="Measures of the re-ranked run; default: those of the split."
    )

    one_origin = exactly_one("file", "bm25")


class Against(Section):
    """A run that every other run of a split is compared with."""

    run: str = Field(description="BM25, or an entry of external that has a run of the split.")
    split: str | None = Field(None, description="Default: the first of evaluation.splits.")
    measure: str | None = Field(None, description="Measure by which queries are won; default: the split's first.")


class Analyses(Section):
    """The figures of the table `analyses` for every system and episode, besides its measures."""

    errors: str | None = Field(
        None, description="Split whose pairwise errors are counted, by exact ranks (STAR, ADORE: Table 1, dev)."
    )
    against: Against | None = Field(
        None,
        description="Overlap of the first 100 passages (or evaluation.depth, when that is less; ANCE, Table 6), and "
        "queries won, lost and tied (A.4).",
    )
    negatives: bool = Field(
        False,
        description="Share of an episode's negatives among the first 100 negatives (or mining.depth, when that is "
        "less) of the checkpoint trained on them (ANCE, Section 6.3); the training queries are searched once more "
        "after the last episode.",
    )
    forgetting: bool = Field(
        False,
        description="Share of the training queries whose positive ranks lower after an episode than before it "
        "(ANCE-Tele, Table 9), and share whose positive ranks higher; every checkpoint searches them.",
    )

    lookahead: bool = Field(
        False,
        description="Every checkpoint that mines also searches with the positives of the training queries, so that "
        "the report page tells which new negatives were near the positive before (ANCE-Tele, Figure 7).",
    )

    @model_validator(mode="after")
    def something_is_analysed(self):
        if not (self.errors or self.against or self.negatives or self.forgetting or self.lookahead):
            raise Refusal("analyses is empty: give errors, against, negatives, forgetting or lookahead")
        return self


class Evaluation(Collapse):
    """How checkpoints and runs are scored."""

    splits: Unique[str] = Field(["test"], min_length=1, description="Query sets searched after every episode.")
    report_dev: bool = Field(
        False, description="Allow splits that choose checkpoints (select: dev) in tables, to choose settings by them."
    )
    depth: Depth = Field(
        1000,
        description="Passages per query in a run; with `collapse` they give fewer documents. If set, a smaller corpus "
        "is an error; if not, it is cut to the corpus.",
    )
    measures: list[str] | dict[str, list[str]] = Field(
        ["RR@10", "nDCG@10", "R@100", "R@1000"],
        min_length=1,
        description="Names of ir-measures, or Cov@k; or split → names.",
    )
    ignore_own_text: bool = Field(
        False,
        description="Remove a query's own text from its results: the passage with its id (BEIR's "
        "ignore_identical_ids, as for ArguAna) and passages with its text. Off in the papers.",
    )
    significance: Significance = Field(Significance(), description="The test that marks cells.")
    rerank: dict[str, Candidates] = Field(
        {}, description="Split → candidates that every checkpoint re-ranks; their measures get their own columns."
    )
    analyses: Analyses | None = Field(
        None, description="What the table `analyses` shows; null: there is no such table."
    )
    every_episode: bool | None = Field(
        None,
        description="The main table has a row for every episode of an experiment; false: for the last only. null: "
        "false if an experiment is a method of config/methods (`about`), else true.",
    )
    out_of_domain: Unique[ConfigurationFile] = Field(
        [],
        description="Configuration files of other collections: the start and the last checkpoint of every experiment, "
        "and BM25, are evaluated there, too, by that file's splits, depth and measures; the first measure of each "
        "split is a column. Nothing is trained there.",
    )

    @field_validator("measures")
    @classmethod
    def measures_are_known_and_differ(cls, measures):
        for names in measures.values() if isinstance(measures, dict) else [measures]:
            known_measures(names)
            for _, group in groupby(sorted(names, key=meaning), meaning):
                if len(same := list(group)) > 1:
                    raise Refusal(f"the measures {' and '.join(same)} are the same: leave one of them out")
        return measures

    @model_validator(mode="after")
    def splits_are_evaluated(self):
        by_split = isinstance(self.measures, dict)
        if missing := [split for split in self.splits if by_split and not self.measures.get(split)]:
            raise Refusal(f"measures by split must name every split; missing: {', '.join(missing)}")
        named = {f"rerank.{split}": split for split in self.rerank}
        for key in ("test", "level"):
            value = getattr(self.significance, key)
            named |= {f"significance.{key}.{split}": split for split in (value if isinstance(value, dict) else ())}
        named |= {"analyses.errors": self.analyses and self.analyses.errors, "analyses.against": self.contrast_split}
        for key, split in named.items():
            if split and split not in self.splits:
                raise Refusal(f"{key} needs the split {split!r} in splits, which has {', '.join(self.splits)}")
        if self.contrast_split:
            known_measures([self.contrast_measure])
            if self.contrast_measure.startswith("Cov@"):
                raise Refusal(
                    "analyses.against.measure must be computed from judgments, such as nDCG@10, not answer coverage"
                )
        return self

    @property
    def searched(self):
        """How many passages a search returns: one more than `depth` where a query's own text is removed, as in BEIR."""
        return self.depth + self.ignore_own_text

    @property
    def contrast_split(self):
        """The split of `analyses.against`; None without one."""
        against = self.analyses and self.analyses.against
        return (against.split or self.splits[0]) if against else None

    @property
    def contrast_measure(self):
        return self.analyses.against.measure or self.measures_of(self.contrast_split)[0]

    def measures_of(self, split):
        """The names of the measures of one split (list)."""
        return list(self.measures[split] if isinstance(self.measures, dict) else self.measures)


class External(Section):
    """A system from elsewhere, scored but not trained here: runs in TREC's format, or a checkpoint."""

    label: Line | None = Field(None, description="Name of the row in tables; default: the entry's name.")
    runs: dict[str, LocalPath] | None = Field(
        None,
        min_length=1,
        description="Split → run file, plain or .gz: TREC's six columns, or MS MARCO's query, passage, rank. Ties go "
        "as in trec_eval.",
    )
    unknown_queries: Literal["error", "drop"] = Field(
        "error", description="What to do with lines whose query is not in the split."
    )
    encoder: dict | None = Field(None, description="Settings of `encoder` that differ: its checkpoint, pooling, …")

    one_form = exactly_one("runs", "encoder")


class Ablation(Section):
    """The rows of one table; each row is an experiment given as overrides of the configuration's settings."""

    title: Line = Field(description="Caption of the table.")
    baseline: Baselines | None = Field(
        None, description="Row label that the others are tested against, or mark → label or labels; null: no test."
    )
    test: Test | dict[str, Test] | None = Field(None, description="Replaces that of evaluation.significance.")
    level: Level | dict[str, Level] | None = Field(None, description="Replaces that of evaluation.significance.")
    columns: list[Literal["negatives", "loss", "episodes", "refreshes", "gap", "index", "seconds"]] = Field(
        [],
        description="Columns about the system. refreshes: how often a checkpoint mined; gap: steps from a "
        "checkpoint to the use of its negatives, in the last mined episode; index: the index that "
        "evaluation searches, and its size.",
    )
    bm25: bool = Field(False, description="Whether BM25 has the first row.")
    also: list[str] = Field([], description="Experiments of other tables that also get a row here.")
    every_episode: bool = Field(
        False,
        description="A row for every episode, compared with the baseline's same episode; false: for the last only.",
    )
    experiments: entries(dict) = Field(min_length=1, description="Name → overrides, one row each.")


# Figures of a paper about single queries, steps or several systems at once, drawn by `teleport figures`.
Names = Annotated[list[str], Field(min_length=1)]
Queries = Names | Natural


class Map(Section):
    """A query, its relevant passages and those that systems gave it, on a plane (ANCE, Figures 1, 6 and 7)."""

    kind: Literal["map"]
    split: str = Field(description="Split of the queries; train: the passages are the negatives of the last pool.")
    queries: Queries = Field(3, description="Query ids, or how many to draw at random.")
    vectors: Names = Field(description="Experiments whose last checkpoint places the texts: a map for each.")
    start: bool = Field(False, description="Also draw a map under the checkpoint that an experiment starts with.")
    systems: Names = Field(description="Experiments, or BM25, whose passages are shown.")
    passages: Natural = Field(50, description="At most this many of a system's first passages.")


class Scores(Section):
    """The scores of a query's first passages less the mean of all passages (ANCE, Figure 3)."""

    kind: Literal["scores"]
    split: str = Field(description="Split of the queries.")
    queries: Queries = Field(10, description="Query ids, or how many to draw at random.")
    systems: Names = Field(description="Experiments, after their last episode: a chart for each.")
    depth: Natural = Field(100, description="Passages per query.")


class Curves(Section):
    """A column of the trainings by step, or a measure after every episode, of several systems in one chart."""

    kind: Literal["curves"]
    systems: Names = Field(description="Experiments.")
    column: str | None = Field(
        None,
        description="Column of losses.tsv, found.tsv or dev.tsv, such as `loss`, `dev RR@10`; null: no chart by step.",
    )
    episode: Natural | None = Field(None, description="Draw `column` for this episode only; null: for all.")
    split: str | None = Field(None, description="With `measure`: split of the evaluations after every episode.")
    measure: str | None = Field(
        None, description="Measure whose mean is drawn by the number of steps until then; null: no such chart."
    )

    @model_validator(mode="after")
    def something_is_drawn(self):
        if not (self.column or self.measure):
            raise Refusal("give a column, a measure or both: without them nothing is drawn")
        return self


class Bars(Section):
    """A bar for each figure of ours in a published table, a diamond for each published one."""

    kind: Literal["bars"]
    table: str = Field(description="A name in config/published, or a path.")


class Histogram(Section):
    """Queries by the number of their pairwise errors (STAR and ADORE, Figure 3); needs evaluation.analyses.errors."""

    kind: Literal["histogram"]
    systems: Names = Field(description="Experiments, after their last episode: a chart for each.")


class Cases(Section):
    """A table of queries that a system wins and loses, and where its list parts from that of analyses.against."""

    kind: Literal["cases"]
    systems: Names = Field(description="Experiments, after their last episode: a table for each.")
    queries: Names | None = Field(None, description="Query ids; null: those with the largest differences.")
    won: Natural = Field(3, description="Without `queries`: how many that the system wins.")
    lost: Natural = Field(3, description="Without `queries`: how many that it loses.")


Figure = Annotated[Map | Scores | Curves | Bars | Histogram | Cases, Field(discriminator="kind")]


class Report(Section):
    """The report page."""

    queries: Natural | Literal["all"] = Field(
        200, description="How many queries of each split are shown in full, with negatives and top tens; or all."
    )
