"""The mistakes in a mapping that a person wrote, as sentences with file, line and key, for any model."""

import difflib
import typing

from pydantic import BaseModel, ValidationError

from teleport.refusal import Refusal
from teleport.settings.section import mistakes_of


def validated(model, data, place, locations):
    """`data` as `model`. Raises Refusal naming every mistake's file, line and key below `place`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Refusal("\n".join(describe(model, m, data, place, locations) for m in mistakes_of(error))) from None


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
    if message[1:2].islower():  # not the name of an index
        message = f"{message[0].lower()}{message[1:]}"
    return f"{where}: {message}{given}{why}."


def walked(model, location, data):
    """The keys of pydantic's `location` that are written in `data`, and the possible models of the value there.

    A location also has keys for the name of a chosen kind, and for the type of several that was tried, such as
    "list[str]".
    """
    keys, models = [], [model]
    for key in location:
        there = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
        fields = [m.model_fields[key] for m in models if key in m.model_fields]
        of_kind = [m for m in models if typing.Literal[key] in (f.annotation for f in m.model_fields.values())]
        if of_kind and key not in there:  # a kind, even if another kind has a field of its name
            models = of_kind
        elif key in there or fields or isinstance(key, int):  # a missing value has only a field, or an index in a list
            keys.append(key)
            data = there.get(key)
            # Without a field the key is a name that the user chose, and its value has the same models.
            models = [m for field in fields for m in models_in(field.annotation)] if fields else models
    return keys, models


def models_in(annotation):
    """The pydantic models that occur in a type annotation (list)."""
    if isinstance(annotation, type):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in models_in(part)]
