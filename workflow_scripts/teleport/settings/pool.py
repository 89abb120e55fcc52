"""The settings of the stages `merge` and `score`: how many negatives a pool has from which sources, how they are drawn,
and which passages are never negatives."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator

from teleport.settings.section import Chosen, Integer, Judge, Part, Section, equals

PositiveScore = Literal["lowest", "mean", "first"]


class Removal(Section):
    """The passages that are never negatives, and whether a pool keeps duplicates."""

    keep_duplicates: bool = Field(
        True, description="Keep a passage as often as it is drawn (Table 8: removing duplicates costs 0.9)."
    )
    remove: Literal["judged", "answers"] = Field(
        "judged",
        description="Which passages are never negatives. judged: known positives; answers: passages with an answer "
        "instead (released QA).",
    )
    relevant_grade: Integer = Field(
        1,
        ge=-(2**31),
        lt=2**31,
        description="A passage of at least this grade is never a negative; see collection.positive_grade.",
    )
    same_text: bool = Field(
        False,
        exclude_if=equals(False),
        description="Also exclude passages whose text equals a known positive or the query, whatever their ids; "
        "masks of known positives cover them too, and relabelling drops copies of a new positive. Off in the "
        "papers, which go by ids.",
    )


RanksAfter = Literal["nothing", "removals", "filters"]


class Draw(Section):
    """The negatives that a pool takes from one source: how many, from which ranks, how, and the source's own settings.

    place: of the source among those of the pool, from 0; ranks: first and last, from 1 on; draw: how candidates are
    chosen; scored: whether the source's scores are those of the query under the checkpoint that mines
    """

    model_config = ConfigDict(extra="allow")

    count: Integer = Field(ge=0)
    place: Integer = Field(ge=0)
    draw: Chosen = Chosen(kind="uniform")
    ranks: list[tuple[Integer, Integer]] | None = None
    scored: bool = False


class Offer(Removal):
    """The candidates that the stages `merge` and `score` read. part: of the training queries; only these get
    negatives"""

    episode: Integer = Field(ge=1, le=255)
    seed: Integer
    sources: dict[str, Draw]
    part: Part | None = None

    @field_validator("sources")
    @classmethod
    def in_the_order_of_the_pool(cls, sources):
        """Sort the sources by their place in the pool: a job gets its settings as JSON with sorted keys."""
        return dict(sorted(sources.items(), key=lambda item: item[1].place))


class Pool(Offer):
    """The settings of a `merge` stage. filters: {name: setting} of the active ones; filter_scores: whose scores they
    compare; positive_score: which positive's, if a draw or a filter compares with it; positive_judges: whose scores
    these compare with it"""

    sources: dict[str, Draw] = Field(min_length=1)
    ranks_after: RanksAfter = "removals"
    filters: dict[str, Any] = {}
    filter_scores: Judge | None = None
    positive_score: PositiveScore | None = None
    positive_judges: list[Judge] = []

    def identity(self):
        """Draws and filters tell whose s+ they compare with."""
        return self.model_dump(mode="json", exclude={"positive_judges"})


class ScoreSettings(Offer):
    """Settings of the stage `score`. sources: those with candidates to score; of: what these are scored with, queries
    or their first positives"""

    of: Literal["queries", "positives"] = "queries"


class RelabelSettings(Section):
    """Settings of the stage `relabel`."""

    relabel: Chosen


# The forms of negatives.forms, and ANCE-Tele's.
FileForm = Literal[
    "tevatron",
    "pos-neg",
    "nemo",
    "n-tuple",
    "triplet",
    "labeled-pair",
    "labeled-list",
    "triples",
    "origin",
    "dpr",
    "token-ids",
]

WITHOUT_SCORES = ("triples", "dpr", "token-ids")


class NegativesFileSettings(Section):
    """Settings of the stage `negatives_file`. sha256: of the file"""

    path: str
    sha256: str
    form: FileForm

    def identity(self):
        """The file is identified by its content, whatever its path."""
        return self.model_dump(mode="json", exclude={"path"})
