"""config/REFERENCE.md: every key with its default and its description, from the JSON Schema of the settings."""

import json

from teleport.settings.configuration import Config

KINDS = ("kind", "source")  # keys that name which of several sections one is
UNLISTED = (".kind", "loss.weight")  # endings of keys that the text of the key above names
HEADS = ("key", "default, and other values", "what it says")
# Keys of the configuration, and keys of their sections, that have a table of their own.
TABLES = ("collection", "counts", "encoder", "mining", "negatives", "training", "episodes")
TABLES += ("evaluation", "bm25", "external", "ablations", "figures", "report")
WITHIN = {"index": "mining", "live": "negatives", "dev": "training"}
HEAD = """\
# Every key of a configuration
Written by `teleport schema` from the settings in `workflow_scripts/teleport/settings/`, not by hand. The guide is
[README.md](README.md), and `schema.json` has the bounds as well.

A default of `null` means that the key is left out, or what the line says. *below*: the keys follow in their own section
or lines. `splits.NAME.queries`: you choose NAME. A kind in brackets: only that kind has the key.
"""


def reference():
    """The text of config/REFERENCE.md."""
    schema = Config.model_json_schema()
    config = resolved(schema, schema["$defs"])
    tables = {name: models_in(config["properties"][name]) for name in TABLES}
    within = {f"{of}.{name}": models_in(tables[of][0]["properties"][name]) for name, of in WITHIN.items()}
    tables = {"at the top": [config]} | tables | within
    have_tables = {model["title"] for models in tables.values() for model in models}
    sections = [f"\n## {name}\n{markdown(models, have_tables)}" for name, models in tables.items()]
    return HEAD + "".join(sections)


def resolved(schema, definitions):
    """A JSON Schema with the models that it refers to in their places."""
    if isinstance(schema, list):
        return [resolved(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    model = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}
    return {key: resolved(value, definitions) for key, value in (model | schema).items() if key != "$ref"}


def markdown(models, have_tables):
    """The table of the keys of one model or several (text)."""
    written, lines = {}, [HEADS, ["---"] * len(HEADS)]
    for model in models:
        for key, *cells in rows(model, set(have_tables)):
            if key not in KINDS:
                written.setdefault((key, *cells), []).append(f"`{kind_of(model)}`")
    for (key, *cells), kinds in written.items():
        of = "" if len(kinds) == len(models) else f" ({', '.join(kinds)})"
        lines.append([f"`{key}`{of}", *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def rows(model, shown, prefix=""):
    """[key, default, description] of each key of a model. The keys of a section that has no table of its own follow
    it, once in a model; shown: titles of the models whose keys are shown elsewhere (set)."""
    for name, field in model["properties"].items():
        key, text = prefix + name, " ".join(field.get("description", "").split())
        yield key, default_of(field, name in model.get("required", ())), text.replace("|", "\\|")
        named = any(
            "properties" not in each and each.get("type") == "object" for each in (field, *field.get("anyOf", ()))
        )
        for inner in models_in(field):
            if inner["title"] not in shown:
                shown.add(inner["title"])
                of = f"`{kind_of(inner)}`: " if kind_of(inner) else ""
                below = rows(inner, shown, f"{key}.NAME." if named else f"{key}.")
                yield from ((k, default, of + text) for k, default, text in below if not k.endswith(UNLISTED))


def default_of(field, required):
    """The default of a field, and the other values where there are few (text)."""
    values = [word for each in alternatives(field) for word in words_of(each)]
    switch = [True, False] if values and any(each.get("type") == "boolean" for each in alternatives(field)) else []
    words = list(dict.fromkeys(switch + values))
    if required:
        return f"required: {listed(words)}" if words else "required"
    default = field["default"]
    if isinstance(default, dict) and default and not (default := default.get("kind")):
        return "below"
    others = [word for word in words if word not in (default if isinstance(default, list) else [default])]
    return listed([default]) + (f"; {listed(others)}" if others else "")


def alternatives(schema):
    """The schemas of all that a schema may stand for, inside lists and as the values of mappings, too."""
    inside = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("patternProperties", {}).values()]
    inside += [each for key in ("items", "additionalProperties") if isinstance(each := schema.get(key), dict)]
    return [part for each in inside for part in alternatives(each)] or [schema]


def models_in(schema):
    """Return the `alternatives` of a schema that are models."""
    return [each for each in alternatives(schema) if "properties" in each]


def kind_of(model):
    """The value of `source` or `kind` by which a model is chosen, None where it is not."""
    return next((field["const"] for key, field in model["properties"].items() if key in KINDS), None)


def words_of(schema):
    """The values of a schema that are words, and of a model its kind (list)."""
    if "properties" in schema:
        return [kind_of(schema)] if kind_of(schema) else []
    return schema.get("enum", [schema["const"]] if "const" in schema else [])


def listed(values):
    """Values as code, with commas between them (text)."""
    return ", ".join(f"`{in_yaml(value)}`" for value in values)


def in_yaml(value):
    """A value as one writes it in a configuration."""
    if isinstance(value, list):
        return f"[{', '.join(map(in_yaml, value))}]"
    return value if isinstance(value, str) else json.dumps(value).replace("e-0", "e-")
