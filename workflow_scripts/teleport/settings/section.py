"""The base of every part of the configuration: frozen, without unknown keys."""

import errno
import os
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, model_validator

from teleport.refusal import Refusal

# Names of configurations, experiments, splits, and external systems become folders or parts of file names.
NAME = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
TABLE_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"  # of ablations: they become file names, where a dot begins the ending
MAIN_TABLE = "main"
ANALYSES_TABLE = "analyses"
ALSO_TABLE = "also"
MINER = "miner"  # the checkpoint that mines, as a judge
FILE = "file"  # the scores in the file of negatives, as a judge
RERANKED = " (re-ranked)"  # after a split, for its re-ranked candidates


def not_bool(value):
    """Refuse true and false, which YAML also reads from yes, no, on and off: pydantic would take them for 1 and 0."""
    if isinstance(value, bool):
        raise Refusal("input should be a number (YAML reads yes and on as true, no and off as false)")
    return value


def equals(default):
    """For `exclude_if` of a setting that was added later: a stage's key has it only if its value is not `default`."""
    return lambda value: value == default


def mistakes_of(error):
    """The mistakes in a ValidationError (list of dict). Any exception of a validator but Refusal is a defect of ours,
    and is raised as it is."""
    mistakes = error.errors()
    for mistake in mistakes:
        cause = mistake.get("ctx", {}).get("error")
        if isinstance(cause, Exception) and not isinstance(cause, Refusal):
            raise cause
    return mistakes


def distinct(values):
    """Refuse a list that has a value twice."""
    if len(set(values)) < len(values):
        raise Refusal("values must differ from each other")
    return values


def entries(value, pattern=None):
    """The type of a mapping of names to values of this type. A later file removes an entry by setting it to null."""
    name = Annotated[str, Field(pattern=pattern)] if pattern else str

    def without_null(given):
        return {name: entry for name, entry in given.items() if entry is not None} if isinstance(given, dict) else given

    return Annotated[dict[name, value], BeforeValidator(without_null, json_schema_input_type=dict[name, value | None])]


def exactly_one(*names):
    """A validator of a section that requires exactly one of these keys to be given (not null)."""

    def check(self):
        if sum(getattr(self, name) is not None for name in names) != 1:
            either = " and ".join(names) if len(names) == 2 else ", ".join(names)
            raise Refusal(f"give exactly one of {either} (to override one by the other, set the first to null)")
        return self

    return model_validator(mode="after")(check)


def in_one_spelling(path):
    """A path, relative if it is below the working directory, as tables and messages show it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else os.path.normpath(path))


def possible_path(path):
    """Refuse a path that no file system accepts, such as one of 5,000 characters."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise Refusal("input should be a path that the file system accepts: a name in it is too long") from None
    except ValueError:
        raise Refusal("input should be a path without NUL characters and half surrogate pairs") from None
    return path


class Local(str):
    """A path of the configuration. Keys have the content at the path, never the path."""


def by_content(value, digests):
    """`value` (JSON) with every path replaced by the digest of its content: of a file, or {name below it: digest} for a
    folder. A name without a digest belongs to a file that another stage fetches, and is kept.

    digests: {path: SHA-256} of all files that are read
    """
    if isinstance(value, dict):
        return {key: by_content(each, digests) for key, each in value.items()}
    if not isinstance(value, Local) or value in digests:
        return digests.get(value, value) if isinstance(value, Local) else value
    files = {Path(path): digest for path, digest in digests.items()}
    below = {path: digest for path, digest in files.items() if path.is_relative_to(value)}
    return {str(path.relative_to(value)): digest for path, digest in below.items()} or value


def one_line(text):
    """Refuse text that does not fit one table cell: empty, with line breaks or with invisible characters."""
    if not text or text != text.strip() or not text.isprintable():
        raise Refusal("input should be one line of visible text, because tables show it")
    return text


T = TypeVar("T")
Unique = Annotated[list[T], AfterValidator(distinct)]
Line = Annotated[str, AfterValidator(one_line)]
Number = Annotated[FiniteFloat, BeforeValidator(not_bool)]
Integer = Annotated[int, BeforeValidator(not_bool)]
IntegerOrNull = Annotated[int | None, BeforeValidator(not_bool)]  # the schema would omit the bounds of Integer | None
NumberOrNull = Annotated[FiniteFloat | None, BeforeValidator(not_bool)]
NotNegative = Annotated[FiniteFloat, Field(ge=0), BeforeValidator(not_bool)]
Natural = Annotated[int, Field(ge=1), BeforeValidator(not_bool)]
Share = Annotated[FiniteFloat, Field(ge=0, lt=1), BeforeValidator(not_bool)]
Depth = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(not_bool)]
PerQuery = Annotated[int, Field(ge=1, le=100_000), BeforeValidator(not_bool)]  # negatives: all are in memory
Tokens = Annotated[int, Field(ge=3, le=32_768), BeforeValidator(not_bool)]
Text = Annotated[str, Field(min_length=1)]
ConfigurationFile = Annotated[str, Field(pattern=r"\.ya?ml$")]
LocalPath = Annotated[Text, AfterValidator(possible_path), AfterValidator(lambda path: Local(in_one_spelling(path)))]


class Section(BaseModel):
    """A part of the configuration: unknown keys are errors, values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def taken_from(cls, section, **others):
        """The fields shared with `section`, which is validated already, and `others`; nothing is validated again."""
        shared = {name: getattr(section, name) for name in cls.model_fields if name in type(section).model_fields}
        return cls.model_construct(**shared | others)

    def identity(self):
        """Return the settings that enter a stage's key (JSON): all that decide the result, and no path."""
        return self.model_dump(mode="json")


def value_if_set(section, key):
    """The value of a key if the configuration sets it, 0 if it has its default."""
    return getattr(section, key) if key in section.model_fields_set else 0


class Part(Section):
    """Part `number`, from 0, of the training queries in their order, divided into `of` parts of equal size.

    The last part also has the remainder of the division (ANCE, `ann_chunk_factor`).
    """

    number: Integer
    of: Integer

    def rows(self, num_queries):
        """The first query row of the part, and the first one after it."""
        size = num_queries // self.of
        return self.number * size, num_queries if self.number == self.of - 1 else (self.number + 1) * size


def rows_of_part(part, num_queries):
    """The first row of a `Part` of the queries, and the first one after it; part: None for all."""
    return part.rows(num_queries) if part else (0, num_queries)


class Chosen(Section):
    """An entry of settings/registry.py chosen by name, as a stage gets it: `kind`, and its own settings."""

    model_config = ConfigDict(extra="allow")

    kind: str

    @property
    def own(self):
        """The settings besides `kind` (dict)."""
        return dict(self.model_extra)


class Weighted(Chosen):
    """A loss of a training. weight: its factor in the sum of the training's losses"""

    weight: Number = Field(1.0, exclude_if=equals(1.0))


# The scorer whose scores a draw, a filter, a mask or a loss compares: MINER, FILE, or a teacher.
Judge = Annotated[str, Field(pattern=NAME)]


class Scored(Section):
    """Settings of what compares scores of pairs."""

    scores: Judge = Field(
        MINER,
        description="Whose scores: miner (the checkpoint that mines), file (negatives.file) or a name in `teachers`.",
    )


class Compared(Scored):
    """Settings of what compares vectors, which files and cross-encoders do not have."""

    scores: Judge = Field(
        MINER, description="Whose vectors: miner (the checkpoint that mines) or a name in `teachers`."
    )


class ScaledScores(Scored):
    """Settings of a loss that compares the size of a teacher's scores with that of the model's."""

    teacher_scale: Number = Field(
        1.0,
        gt=0,
        description="Factor on the teacher's scores. A teacher's cosines need one, as the model's need encoder.scale.",
    )


class NoSettings(Section):
    """Settings of stages whose inputs decide everything."""
