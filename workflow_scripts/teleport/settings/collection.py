"""The settings that all forms of a collection share. A form's own settings are in its file in collection/forms/."""

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, SerializeAsAny, field_validator

from teleport.settings.section import NAME, Integer, Natural, NumberOrNull, Section, Unique, by_content, equals

SplitName = Annotated[str, Field(pattern=NAME)]
Dropped = Literal["empty", "repeated", "dangling"]


class TrainQueries(Section):
    """So many training queries, drawn by their ids: more of them have those of fewer among them."""

    count: Natural = Field(description="How many training queries are kept; all if there are fewer.")
    seed: Integer = Field(0, description="Seed of the draw; all seeds of experiments share these queries.")


class Judged(Section):
    """The settings of every form. patterns: for a form that is a folder, the names of its files, the corpus first;
    has_texts: whether passages and queries have texts, not only ids; parsed: whether texts are parsed from other files,
    which takes longer; unknown_cost: what no forecast knows, as text"""

    patterns: ClassVar = ()
    has_texts: ClassVar = True
    parsed: ClassVar = False
    unknown_cost: ClassVar = ""

    positive_grade: Natural = Field(
        1, lt=2**31, description="Lowest grade of a training positive; see negatives.relevant_grade."
    )
    positives: Literal["given", "answers"] = Field(
        "given",
        description="Positives of training queries. given: the judged ones; answers: for a query without one, the "
        "best retrieved passage with an answer (QA).",
    )
    train_queries: TrainQueries | None = Field(
        None, exclude_if=equals(None), description="Train on some of the training queries; null: on all."
    )
    drop: Unique[Dropped] | None = Field(
        None,
        exclude_if=equals(None),
        description="What is left out and counted instead of refused. empty: passages and queries without text, and "
        "DPR's questions without a positive; repeated: all but the first of an id or a judged pair; "
        "dangling: judgments and answers of missing queries or passages (a missing positive still "
        "counts, and no run can find it).",
    )

    @field_validator("drop")
    @classmethod
    def kinds_have_one_order(cls, drop):
        return drop and [kind for kind in get_args(Dropped) if kind in drop]

    def split_names(self):
        """The names of the splits (list); a form that does not list them reads them from its files."""
        return list(self.splits)

    def of_corpus(self):
        """These settings without those that do not affect passages: the settings of the stage `corpus`."""
        drop = [kind for kind in self.drop or () if kind != "dangling"] or None
        return self.at_defaults("positive_grade", "positives", "train_queries", drop=drop, splits={})

    def of_split(self, name):
        """These settings without those that affect other splits only: the settings of the stage `split` of this
        name."""
        kept = {"splits": {name: self.splits[name]}} if "splits" in type(self).model_fields else {}
        return self.at_defaults(*(() if name == "train" else ("positives", "train_queries")), **kept)

    def is_behind_passages(self, name):
        """Whether the queries of a split are in the archive that has the passages."""
        return False

    def at_defaults(self, *names, **others):
        """A copy with some settings at their defaults, and with the values in `others` for settings that this form
        has."""
        fields = type(self).model_fields
        others = {name: value for name, value in others.items() if name in fields}
        return self.model_copy(update={name: fields[name].get_default() for name in names} | others)


class Expected(Section):
    """The facts known about a file before it is fetched."""

    bytes: Natural | None = Field(None, description="Expected size.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Expected SHA-256.")
    md5: str | None = Field(None, pattern="^[0-9a-f]{32}$", description="Expected MD5, if only that is published.")


class Download(Expected):
    """An official file. Without a digest, the one of the first download is recorded and holds from then on."""

    mirrors: list[Annotated[str, Field(pattern="^https?://")]] = Field([], description="URLs, tried in this order.")


class Fetched(Judged):
    """Files that may be fetched: official ones, from mirrors to data/downloads, or from a local folder."""

    local: str | None = Field(None, description="A folder that has all `files`; then nothing is downloaded.")
    licences: dict[Annotated[str, Field(pattern=NAME)], str] = Field(
        {}, description="Name → terms of use that you accept by running this; shown once, noted in data/licences."
    )
    files: dict[Annotated[str, Field(pattern=NAME)], Download] = Field({}, description="File name → origin.")

    def files_of(self, *sections):
        """{name: origin} of the `files` that some sections name; for a member of an archive, the archive."""
        values = (value for section in sections for _, value in section if isinstance(value, str))
        used = {value.partition("!")[0] for value in values}
        return {name: file for name, file in self.files.items() if name in used}


class CorpusSettings(Section):
    """Settings of the stage `corpus`: the source, read by its form's module, and the versions and digests of its
    content."""

    source: SerializeAsAny[Judged] | dict
    versions: dict[str, str] = {}
    files: dict[str, str] = {}

    def identity(self):
        """Files by their content, whatever their paths."""
        return {"source": by_content(self.source.model_dump(), self.files), "versions": self.versions}


class SplitSettings(CorpusSettings):
    """Settings of the stage `split`: as for `corpus`, and the name of the split."""

    split: str

    def identity(self):
        return super().identity() | {"split": self.split}


class DownloadSettings(Section):
    """Settings of the stage `download`: the files, by their names."""

    files: dict[str, Expected]


class Counts(Section):
    """How large the collection will be, for the forecast of a collection that is not built; in no key."""

    passages: Natural = Field(description="Passages of the corpus.")
    queries: dict[str, Integer] = Field(description="Queries of each split.")
    positives: dict[str, Integer] = Field({}, description="Positives of each split; if not given, one per query.")
    passage_tokens: NumberOrNull = Field(
        None, gt=0, description="Mean tokens per passage, after cutting, special tokens included."
    )
    query_tokens: NumberOrNull = Field(None, gt=0, description="Mean tokens per query, counted in the same way.")
    download_bytes: Natural | None = Field(None, description="Bytes of collection.files, if sizes are not published.")

    def of_drawn(self, settings):
        """These `Counts` after a draw of training queries (`TrainQueries` or None)."""
        number = self.queries.get("train", 0)
        if settings is None or number <= settings.count:
            return self
        drawn = {"queries": self.queries | {"train": settings.count}}
        if "train" in self.positives:
            share = settings.count / number
            drawn["positives"] = self.positives | {"train": round(self.positives["train"] * share)}
        return self.model_copy(update=drawn)
