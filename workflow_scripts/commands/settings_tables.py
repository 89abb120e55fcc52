"""The tables of config/README.md: every key with its default and what it says, from the models of the settings."""

import re
from pathlib import Path
from types import UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from teleport.running.files import write_text
from teleport.settings.collection import CollectionSource, Counts
from teleport.settings.configuration import Ablation, Config, Report
from teleport.settings.encoder import Encoder
from teleport.settings.evaluation import Evaluation, External
from teleport.settings.experiment import EpisodeTraining, Override
from teleport.settings.figures import Figure
from teleport.settings.negatives import Mining, Negatives
from teleport.settings.registry import Choice, Loaded
from teleport.settings.search import Bm25, Index
from teleport.settings.section import Section
from teleport.settings.training import Dev, Live

HEADS = ("key", "default, and other values", "what it says")
# Name in the markers → the model of the table's keys, or the union of several.
TABLES = {
    "configuration": Config,
    "collection": CollectionSource,
    "counts": Counts,
    "encoder": Encoder,
    "mining": Mining,
    "index": Index,
    "negatives": Negatives,
    "live": Live,
    "training": EpisodeTraining,
    "dev": Dev,
    "episodes": Override,
    "evaluation": Evaluation,
    "bm25": Bm25,
    "external": External,
    "ablations": Ablation,
    "figures": Figure,
    "report": Report,
}
KINDS = ("source", "kind")  # keys that say which of several models one is
MARKED = re.compile(r"(<!-- settings: (\w+) -->\n).*?(<!-- end of settings -->)", re.DOTALL)


def with_tables(text):
    """The text of a page with the tables between its markers made anew. Raises KeyError for a table that is none."""
    return MARKED.sub(lambda found: found[1] + markdown(TABLES[found[2]]) + found[3], text)


def write_tables(path):
    """Make the tables of a page anew."""
    write_text(path, with_tables(Path(path).read_text()))


def markdown(model):
    """The table of a model's keys, or of those of the models of a union (text)."""
    lines = [HEADS, ["---"] * len(HEADS)]
    written = {}
    for each in models_in(model):
        kind = f"`{kind_of(each)}`"
        for key, *cells in rows(each):
            if key not in KINDS:
                written.setdefault((key, *cells), []).append(kind)
    every = len(models_in(model))
    for (key, *cells), kinds in written.items():
        of = "" if len(kinds) == every else f" ({', '.join(kinds)})"
        lines.append([f"`{key}`{of}", *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def kind_of(model):
    """The value of `source` or `kind` by which a model is chosen, None where it is not."""
    return next((get_args(field.annotation)[0] for key, field in model.model_fields.items() if key in KINDS), None)


def rows(model, prefix=""):
    """[key, default, what it says] of each key of a model. The keys of a section that has no table of its own follow
    it, once in a model.
    """
    have_tables = {each for table in TABLES.values() for each in models_in(table)}
    for name, field in model.model_fields.items():
        key, said = prefix + name, " ".join((field.description or "").split())
        yield key, default_of(field), said.replace("|", "\\|")
        for inner in models_in(field.annotation):
            if issubclass(inner, Choice):
                for kind in inner.table:
                    own = rows(inner.model_of({"kind": kind}), f"{key}.")
                    yield from ((k, d, f"`{kind}`: {s}") for k, d, s in own if not k.endswith(".kind"))
            elif inner not in have_tables:
                have_tables.add(inner)
                inside = ".NAME." if dict in origins(field.annotation) else "."
                yield from rows(inner.any_of() if issubclass(inner, Loaded) else inner, f"{key}{inside}")


def default_of(field):
    """The default of a field, and the other values where there are few (text)."""
    words = literals(field.annotation)
    if field.is_required():
        return f"required: {listed(words)}" if words else "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        default = kind_of(type(default))
        if default is None:
            return "below"
    others = [word for word in words if word not in (default if isinstance(default, list) else [default])]
    return listed([default]) + (f"; {listed(others)}" if others else "")


def listed(values):
    return ", ".join(f"`{in_yaml(value)}`" for value in values)


def in_yaml(value):
    """A value as one writes it in a configuration."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(map(in_yaml, value))}]"
    return re.sub("e-0", "e-", f"{value:g}") if isinstance(value, float) and value < 0.001 and value else str(value)


def parts(annotation):
    """The types that an annotation may stand for, inside lists and as the values of mappings, too."""
    if get_origin(annotation) is Annotated:
        return parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType, list, dict, tuple):
        inside = get_args(annotation)[1:] if get_origin(annotation) is dict else get_args(annotation)
        return [part for each in inside for part in parts(each)]
    return [annotation]


def origins(annotation):
    """The generic types that an annotation is built of."""
    inner = [each for part in get_args(annotation) if get_origin(annotation) is not Literal for each in origins(part)]
    return [get_origin(annotation), *inner]


def models_in(annotation):
    """The models among the parts of an annotation."""
    return [part for part in parts(annotation) if isinstance(part, type) and issubclass(part, Section)]


def literals(annotation):
    """The values of an annotation that are words, each once; of what is chosen by name, the names."""
    found = []
    for part in parts(annotation):
        if isinstance(part, type) and issubclass(part, Choice):
            found += part.table
        elif isinstance(part, type) and issubclass(part, Section):
            found += filter(None, [kind_of(part)])
        elif get_origin(part) is Literal:
            found += get_args(part)
    switch = [True, False] if found and bool in parts(annotation) else []
    return list(dict.fromkeys(switch + found))
