"""What is wrong in a mapping that a person wrote, by file, line and key: any model's mistakes as sentences."""

import difflib
import types
import typing

from pydantic import BaseModel, ValidationError

from teleport.refusal import Refusal

KINDS = ("kind", "source")  # keys that name which of several sections one is


def validated(model, data, place, locations):
    """`data` as `model`. Raises Refusal naming every mistake's file, line and key below `place`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Refusal("\n".join(describe(model, m, data, place, locations) for m in error.errors())) from None


def describe(model, mistake, data, place, locations):
    """One mistake in `data` as `file, line N: key: rule, value. Remedy.`"""
    *above, key = mistake["loc"] or [None]
    owners = walked(model, above, data)[1]
    where = locations.of((*place, *walked(model, mistake["loc"], data)[0]))
    if mistake["type"] == "extra_forbidden":
        known = sorted({name for owner in owners for name in owner.model_fields})
        close = difflib.get_close_matches(str(key), known, n=1)
        remedy = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(known)}."
        return f"{where}: unknown key. {remedy}"
    if mistake["type"] == "missing":
        return f"{where}: this key is required; add it."
    message = mistake["msg"].removeprefix("Value error, ")
    given = "" if isinstance(mistake["input"], dict | list) else f", not {mistake['input']!r}"
    bounded = mistake["type"].startswith(("less_than", "greater_than", "finite"))
    fields = [owner.model_fields.get(key) for owner in owners] if bounded else []
    why = next((f" ({field.description.rstrip('.')})" for field in fields if field), "")
    return f"{where}: {message[0].lower()}{message[1:]}{given}{why}."


def walked(model, location, data):
    """The keys of a `location` of pydantic's that are written in `data`, and the models that the value there may be of.

    A location has the name of a chosen kind as a key, too.
    """
    keys, models = [], [model]
    for key in location:
        if is_type(key, data, models):
            continue
        if data == key or (isinstance(data, dict) and key not in data and key in map(data.get, KINDS)):
            of_kind = [m for m in models if typing.Literal[key] in (f.annotation for f in m.model_fields.values())]
            models = of_kind or models
            continue
        keys.append(key)
        fields = [m.model_fields[key] for m in models if key in m.model_fields]
        there = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
        data = there.get(key)
        if fields:  # else it is a name of the user's, and what it names has the same models
            models = [m for field in fields for m in models_in(field.annotation)]
    return keys, models


def is_type(key, data, models):
    """Whether a key of a location is none of `data`, but which type of several pydantic has tried, such as "list[str]"
    or the name of one of the `models`."""
    if isinstance(key, int) or isinstance(data, dict) and key in data:
        return False
    names = {"bool", "float", "int", "str", *(model.__name__ for model in models)}
    return isinstance(data, list) or key.endswith("]") or key in names


def models_in(annotation):
    """The pydantic models that occur in a type annotation (list)."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in models_in(part)]
