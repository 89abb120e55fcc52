"""A mapping that a person wrote in YAML, as configurations and published tables are: read, located, validated.

A mistake in it, of YAML or of a model, is a sentence with file, line and key.
"""

import difflib
import math
import os
import re
import typing
from itertools import chain
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError

from teleport.refusal import Refusal
from teleport.running.files import kind_of
from teleport.settings.other_trainers import KEYS, our_value
from teleport.settings.section import mistakes_of

MOST_NODES = 1_000_000  # aliases followed: ten lines of aliases can stand for more than any memory holds

MOST_HOMES = 3  # places of a misplaced key, and kinds that have it, that a message lists


class Loader(yaml.SafeLoader):
    """Reports the location of an impossible value, such as the date 2026-13-45 or `!!bool x`."""

    def construct_object(self, node, deep=False):
        try:
            return super().construct_object(node, deep)
        except (ValueError, RecursionError) as error:
            problem = str(error)
        except (AttributeError, LookupError):  # from PyYAML, for a tag that does not fit the value
            problem = f"{node.value!r} is no {node.tag.rpartition(':')[2]}"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def read_mapping(path):
    """The content (dict) of a YAML file. Raises Refusal with file and line for any other content."""
    content = parsed(path, Loader("").construct_document)
    if not isinstance(content, dict):
        state = "empty" if content is None else f"a {type(content).__name__}"
        raise Refusal(f"{path}: the file is {state}, not a mapping. Write `key: value` lines.")
    return content


def parsed(path, construct=lambda tree: tree):
    """The node tree of a YAML file, or the result of `construct` for it; None for an empty one."""
    if not Path(path).is_file():  # a pipe might never end
        state = f"this is {kind_of(os.stat(path).st_mode)}" if os.path.exists(path) else "the file does not exist"
        raise Refusal(f"{path}: {state}. Give the path of a YAML file.")
    encoded = Path(path).read_bytes()
    try:
        tree = yaml.compose(encoded.decode("utf-8"), Loader)
        count_nodes(tree, {})
        return tree and construct(tree)
    except UnicodeDecodeError as error:
        line = encoded.count(b"\n", 0, error.start) + 1
        place, problem = f", line {line}", f"byte 0x{encoded[error.start]:02x}"
    except RecursionError:
        place, problem = "", "brackets inside brackets without end"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place, problem = f", line {mark.line + 1}", " ".join((error.problem or error.context).split())
    except yaml.YAMLError as error:
        place, problem = "", " ".join(str(error).split())
    raise Refusal(f"{path}{place}: not YAML in UTF-8 ({problem}). Correct it there.")


def count_nodes(node, sizes):
    """How many nodes there are at and below `node`, following aliases; `sizes`: known counts by id. Raises
    MarkedYAMLError for aliases that are circular or expand to too much, and for text that no UTF-8 can hold."""
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # while it is being counted: an infinite size reveals a circle
        below = node.value if isinstance(node, yaml.SequenceNode) else []
        below = chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else below
        sizes[id(node)] = 1 + sum(count_nodes(each, sizes) for each in below)
        if isinstance(node, yaml.ScalarNode) and re.search("[\ud800-\udfff]", node.value):  # from an escape
            problem = "an escape is half of a surrogate pair: write the character itself"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    if sizes[id(node)] > MOST_NODES:
        circle, large = "an alias stands for what it is a part of", f"more than {MOST_NODES:,} values, aliases followed"
        problem = circle if sizes[id(node)] == math.inf else large
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return sizes[id(node)]


class Locations:
    """Finds the file and line of a key; later files win. Raises Refusal for a file that is not YAML or repeats a
    key."""

    def __init__(self, files):
        self.lines = {file: lines_below(file, parsed(file)) for file in reversed(list(files))}

    def of(self, *paths):
        """`file, line N: a.b.c` for the first of these paths that a file has in full, or for the deepest part of the
        first that is in a file."""
        key = ".".join(map(str, self.first(*paths)))
        return ": ".join(filter(None, (self.line(*paths), key))) or "configuration"

    def of_missing(self, *paths):
        """`of` for a key that is missing: of all files, if none has a key above it."""
        files = [] if self.line(*paths) else map(str, reversed(self.lines))
        return ": ".join(filter(None, (", ".join(files), self.of(*paths))))

    def first(self, *paths):
        """The first of these paths that a file has in full, or else the first."""
        there = (path for path in paths if any(tuple(map(str, path)) in lines for lines in self.lines.values()))
        return next(there, paths[0])

    def line(self, *paths):
        """`file, line N` for the deepest part of the first of these paths; "" if no file has any."""
        path = tuple(map(str, self.first(*paths)))
        for depth in range(len(path), 0, -1):
            for file, lines in self.lines.items():
                if path[:depth] in lines:
                    return f"{file}, line {lines[path[:depth]]}"
        return ""


def lines_below(file, node, path=()):
    """{path of keys: line} below a YAML node at `path`. Raises Refusal, naming both lines, for a repeated key, of which
    YAML would drop the first entry."""
    lines, entries = {}, []
    if isinstance(node, yaml.MappingNode):
        entries = [(key.value, key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        entries = [(str(number), value, value) for number, value in enumerate(node.value)]
    for name, start, value in entries:
        below, line = (*path, name), start.start_mark.line + 1
        if below in lines:
            twice = f"{'.'.join(below)} is on line {lines[below]}, too"
            raise Refusal(f"{file}, line {line}: {twice}. Join the two entries.")
        lines |= {below: line} | lines_below(file, value, below)
    return lines


def validated(model, data, place, locations, elsewhere=()):
    """`data` as `model`. A null that a setting does not take means its default, so that a later file or an override can
    remove a key. Raises Refusal naming every mistake's file, line and key below `place`, or below another of the places
    where its keys may be written, if only that has the key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        mistakes = mistakes_of(error)
    for mistake in mistakes:
        keys, _ = walked(model, mistake["loc"], data)
        owners = walked(model, keys[:-1], data)[1] if keys and mistake["input"] is None else []
        fields = [owner.model_fields[keys[-1]] for owner in owners if keys[-1] in owner.model_fields]
        if any(not field.is_required() for field in fields):
            return validated(model, without(data, *keys), place, locations, elsewhere)
    # Where a mapping or a name may stand, a mapping is wrong within: "should be 'previous'" would send people astray.
    within = [each for each in mistakes if not (type(each["input"]) is dict and "literal[" in str(each["loc"][-1:]))]
    sentences = (describe(model, mistake, data, (place, *elsewhere), locations) for mistake in within or mistakes)
    raise Refusal("\n".join(sentences))


def without(data, key, *below):
    """A copy of nested mappings and lists without the key at this path."""
    if not below:
        return {name: value for name, value in data.items() if name != key}
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    copied = {name: without(value, *below) if name == key else value for name, value in pairs}
    return copied if isinstance(data, dict) else list(copied.values())


def describe(model, mistake, data, places, locations):
    """One mistake in `data` as `file, line N: key: rule, value. Remedy.`"""
    *above, key = mistake["loc"] or [None]
    owners = walked(model, above, data)[1]
    keys = walked(model, mistake["loc"], data)[0]
    where = locations.of(*((*place, *keys) for place in places))
    if mistake["type"] == "extra_forbidden":
        known = sorted({name for owner in owners for name in owner.model_fields})
        meant = [*filter(None, [KEYS.get(key)]), *homes(owners, key, keys[:-1])]
        meant = meant or difflib.get_close_matches(str(key), known, n=1)
        if not meant and len(elsewhere := homes([model], key)) == 1:
            meant = [each for each in elsewhere if each.partition(" ")[0] != ".".join(map(str, keys))]
        remedy = f"Did you mean {' or '.join(meant)}?" if meant else f"Known keys: {', '.join(known)}."
        return f"{where}: unknown key. {remedy}"
    if mistake["type"] == "missing":
        return f"{locations.of_missing(*((*place, *keys) for place in places))}: this key is required; add it."
    message, value = mistake["msg"].removeprefix("Value error, "), mistake["input"]
    of_python = {"None": "null", "True": "true", "False": "false"}
    given = "" if isinstance(value, dict | list) else f", not {of_python.get(repr(value), repr(value))}"
    bounded = mistake["type"].startswith(("less_than", "greater_than", "finite"))
    fields = [owner.model_fields.get(key) for owner in owners] if bounded else []
    why = next((f" ({field.description.rstrip('.')})" for field in fields if field), "")
    if message[1:2].islower():  # not the name of an index
        message = f"{message[0].lower()}{message[1:]}"
    return f"{where}: {message}{given}{why}.{remedy_of(mistake, message)}"


def homes(models, key, above=()):
    """Where a misplaced `key` may belong (list of str), such as "training.loss.margin (qwen3)".

    These are the nearest keys of this name below `models`, each with the kinds that have it. [] for more than
    MOST_HOMES keys; kinds are left out if they are more. above: the keys of the models themselves
    """
    level = [(tuple(map(str, above)), model) for model in models]
    while level:
        kinds = {}
        for path, model in level:
            if key in model.model_fields:
                of = typing.get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()
                texts = [each for each in of if isinstance(each, str)]  # a kind that may be null has no list of names
                kinds.setdefault(".".join((*path, key)), {}).update(dict.fromkeys(texts))
        if kinds:
            few = {path: of for path, of in kinds.items() if 0 < len(of) <= MOST_HOMES and key != "kind"}
            named = [path + (f" ({', '.join(few[path])})" if path in few else "") for path in kinds]
            return named if len(named) <= MOST_HOMES else []
        fields = [((*path, name), field) for path, model in level for name, field in model.model_fields.items()]
        level = [(path, model) for path, field in fields for model in models_in(field.annotation)]
    return []


def remedy_of(mistake, message):
    """The remedy (text) of a mistake whose message has none: a value of another trainer, one in the place of a list, a
    percentage."""
    value, limits = mistake["input"], mistake.get("ctx", {})
    names = [*re.findall("'([^']*)'", message), str(value.get("kind") if isinstance(value, dict) else value)]
    of_these = {"loss", "measure", "measures"} & set(mistake["loc"])  # what other trainers name otherwise
    ours = next((each for each in map(our_value, names) if each and each not in names), None) if of_these else None
    if mistake["type"] == "list_type" and type(value) in (str, int, float):
        return f" Write [{ours or value}]."
    if min(limits.get("lt", 100), limits.get("le", 100)) <= 2 and isinstance(value, int | float) and 2 <= value <= 100:
        return f" {value:g} % is {value / 100:g}."
    return f" Did you mean {ours}?" if ours else ""


def walked(model, location, data):
    """The keys of pydantic's `location` that are written in `data`, and the possible models of the value there.

    A location also has keys for the name of a chosen kind, and for the type of several that was tried, such as
    "list[str]".
    """
    keys, models = [], [model]
    for key in location:
        there = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
        of_kind = [m for m in models if typing.Literal[key] in (f.annotation for f in m.model_fields.values())]
        if of_kind and key not in there:  # a kind, even if another kind has a field of its name
            models = of_kind
            continue
        fields = [m.model_fields[key] for m in models if key in m.model_fields]
        if key not in there and not fields and not isinstance(key, int):  # a type that was tried
            continue
        keys.append(key)
        data = there.get(key)
        if fields:  # without one the key is a name that the user chose, and its value has the same models
            models = [m for field in fields for m in models_in(field.annotation)]
    return keys, models


def models_in(annotation):
    """The pydantic models that occur in a type annotation (list)."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in models_in(part)]
