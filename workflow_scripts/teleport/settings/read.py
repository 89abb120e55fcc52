"""Reading a configuration: merge, validate, and say what is wrong with file, line, key and remedy.

An experiment is a set of overrides merged over the configuration. 1e-5, which YAML reads as text, becomes a number.
"""

import difflib
import re
import types
import typing

from pydantic import BaseModel, ValidationError
from snakemake.utils import update_config

from teleport.refusal import Refusal
from teleport.settings.configuration import Config
from teleport.settings.experiment import Episode, Experiment, WrittenExperiment
from teleport.settings.measures import measure_cutoffs
from teleport.settings.registry import SOURCES, Loaded
from teleport.settings.section import ANALYSES_TABLE, MAIN_TABLE, NAME, TABLE_NAME, merged
from teleport.settings.yaml_mapping import Locations, read_mapping

REQUIRED = ("encoder", "training", "episodes")  # where an experiment does not state them itself
KINDS = ("kind", "source")  # keys that name which of several sections one is


def load(raw, files=()):
    """Validate the merged mapping `raw`; `files` are the YAML files it came from, for the lines in messages.

    Returns (Config, {experiment name: Experiment}). Raises Refusal with one line per mistake.
    """
    locations = Locations(files)
    if raw.get("ablations") and "collection" not in raw:
        raise Refusal(
            "the configuration has ablations but no collection: an ablation file comes after the file it ablates, "
            "as in `--configfile config/apidocs.yaml config/ablations/negatives.yaml`."
        )
    config = validated(Config, raw, (), locations)
    check_names(config, locations)
    check_required(config, locations)
    check_depth(config, locations)
    experiments = {}
    for place, name, overrides in named_experiments(config):
        experiment = experiment_of(config, raw, overrides, place, locations)
        if experiments.setdefault(name, experiment) != experiment:
            raise Refusal(f"{locations.of(place)}: another experiment has this name but other settings. Rename one.")
    for name, external in config.external.items():
        check_external(name, config, experiments, locations)
        if external.encoder is not None:
            own = {"label": external.label, "encoder": external.encoder, "episodes": [], "seeds": config.seeds[:1]}
            experiments[name] = experiment_of(config, raw, own, ("external", name), locations)
    if not experiments and not config.external and not (config.bm25 and "bm25" in config.model_fields_set):
        raise Refusal(
            "the configuration has no experiments: add at least one entry under `experiments` or `external`, or state "
            "`bm25` to have that alone."
        )
    return config, experiments


def experiment_of(config, raw, overrides, place, locations):
    """The `Experiment` at a `place` of the configuration. What it does not override is taken over as it is.

    raw: the mapping that `config` was read from; overrides: the experiment as it is written
    """
    shared = {name: value for name, value in config if name in WrittenExperiment.model_fields and value is not None}
    plain = merged({name: raw[name] for name in shared if name in raw}, overrides)
    taken_over = {name: value for name, value in shared.items() if name not in overrides}
    experiment, method = validated(WrittenExperiment, plain | taken_over, place, locations), []
    for number, override in enumerate(experiment.episodes):
        settings = {"lag": override.lag, "entry": len(method) + 1}
        for section in ("mining", "negatives", "training"):
            own = getattr(override, section)
            settings[section] = merged(plain.get(section, {}), own) if own else getattr(experiment, section)
        entry = (*(place if "episodes" in overrides else ()), "episodes", number)
        method += [validated(Episode, settings, entry, locations)] * override.repeat
    return Experiment.taken_from(experiment, method=method)


def load_files(files):
    """What `load` returns for YAML files, merged in order as `--configfile` does."""
    raw = {}
    for file in files:
        update_config(raw, read_mapping(file))  # Snakemake's own: every mapping deeply, also those in WHOLE
    return load(raw, files)


def check_names(config, locations):
    """Raise Refusal for an experiment, external system or ablation whose name can be no folder or no table."""
    named = [(place, NAME) for place, _, _ in named_experiments(config)]
    named += [(("external", name), NAME) for name in config.external]
    named += [(("ablations", name), TABLE_NAME) for name in config.ablations]
    for place, pattern in named:
        if not re.fullmatch(pattern, place[-1]):
            where = locations.of(place)
            raise Refusal(f"{where}: the name must match {pattern}, as it becomes a folder or a file. Rename it.")
    for name in config.ablations:
        if name == MAIN_TABLE or name.split("-")[0] == ANALYSES_TABLE:
            raise Refusal(
                f"{locations.of(('ablations', name))}: the table of every system and episode is {MAIN_TABLE}, those of "
                f"analyses begin with {ANALYSES_TABLE}. Rename the ablation."
            )


def check_required(config, locations):
    """Raise Refusal when keys are missing that experiments need, or when judgments alone are asked for more."""
    encoders = [("external", name) for name, external in config.external.items() if external.encoder is not None]
    named = list(named_experiments(config))
    if config.collection.source == "judgments":
        refuse_texts(config, [place for place, _, _ in named] + encoders, locations)
    needed = set()
    for _, _, overrides in named:  # without episodes there is no training
        needed |= set(REQUIRED) - {*overrides, "training" if overrides.get("episodes") == [] else None}
    missing = [key for key in REQUIRED if key in needed and getattr(config, key) is None]
    if missing:
        raise Refusal("\n".join(f"{locations.of((key,))}: this key is required; add it." for key in missing))


def check_depth(config, locations):
    """Raise Refusal for a measure that looks at more passages than a search for it returns."""
    evaluation = config.evaluation
    searched = [split for split in evaluation.splits if config.collection.source != "judgments"]
    for split in searched:
        for name, cutoff in measure_cutoffs(evaluation.measures_of(split)).items():
            if cutoff > evaluation.depth:
                place = locations.of(("evaluation", "measures"))
                problem = f"{name!r} looks at {cutoff} passages, and evaluation.depth is {evaluation.depth}"
                raise Refusal(f"{place}: {problem}. Set the depth to at least {cutoff}, or leave the measure out.")


def refuse_texts(config, encoded, locations):
    """Raise Refusal for what needs the texts of passages or queries, which judgments alone do not have.

    encoded: the places of everything with an encoder
    """
    evaluation, rule = config.evaluation, "the collection has judgments alone, no texts"
    asked = {place: "to encode. Leave it out" for place in encoded}
    if config.bm25 and "bm25" in config.model_fields_set:
        asked["bm25",] = "to search. Leave the key out"
    asked |= {("evaluation", "rerank", split): "to encode. Leave it out" for split in evaluation.rerank}
    for split in evaluation.splits:
        for measure in evaluation.measures_of(split):
            if measure.startswith("Cov@"):
                asked["evaluation", "measures"] = f"in which {measure} could find answers. Leave it out"
    if evaluation.contrast_split and evaluation.analyses.against.run == "BM25":
        asked["evaluation", "analyses", "against", "run"] = "to search by BM25. Name an entry of external"
    if asked:
        place, remedy = next(iter(asked.items()))
        raise Refusal(f"{locations.of(place)}: {rule} {remedy}, or give another collection.")


def check_external(name, config, experiments, locations):
    """Raise Refusal for an entry of `external` whose name is taken, or that has a run of an unknown split."""
    if name in experiments:
        raise Refusal(f"{locations.of(('external', name))}: an experiment has this name. Rename one of them.")
    for split in set(config.external[name].runs or ()) - set(config.evaluation.splits):
        where, splits = locations.of(("external", name, "runs", split)), ", ".join(config.evaluation.splits)
        raise Refusal(f"{where}: evaluation.splits has {splits}. Add {split!r} there.")


def named_experiments(config):
    """(place in the configuration, name, overrides) of every experiment, those of ablations included."""
    for name, overrides in config.experiments.items():
        yield ("experiments", name), name, overrides
    for table, ablation in config.ablations.items():
        for name, overrides in ablation.experiments.items():
            yield ("ablations", table, "experiments", name), name, overrides


def validated(model, data, place, locations):
    """`data` as `model`. Raises Refusal naming every mistake's file, line and key below `place`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Refusal("\n".join(describe(model, m, data, place, locations) for m in error.errors())) from None


def describe(model, mistake, data, place, locations):
    """One mistake in `data` as `file, line N: key: rule, value. Remedy.`"""
    location = mistake["loc"]
    where = locations.of((*place, *written_keys(location, data)))
    if mistake["type"] == "extra_forbidden":
        keys = sorted({key for m in models_at(model, location[:-1], data) for key in m.model_fields})
        close = difflib.get_close_matches(str(location[-1]), keys, n=1)
        remedy = f"Did you mean {close[0]}?" if close else f"Known keys: {', '.join(keys)}."
        return f"{where}: unknown key. {remedy}"
    if mistake["type"] == "missing":
        return f"{where}: this key is required; add it."
    message = mistake["msg"].removeprefix("Value error, ")
    given = "" if isinstance(mistake["input"], dict | list) else f", not {mistake['input']!r}"
    bounded = mistake["type"].startswith(("less_than", "greater_than", "finite"))
    fields = [m.model_fields.get(location[-1]) for m in models_at(model, location[:-1], data)] if bounded else []
    why = next((f" ({field.description.rstrip('.')})" for field in fields if field), "")
    return f"{where}: {message[0].lower()}{message[1:]}{given}{why}."


def written_keys(location, data):
    """The keys in a `location` of pydantic's, which has the name of a chosen kind as a key, too."""
    keys = []
    for key in location:
        if data != key and not (isinstance(data, dict) and key not in data and key in (data.get(k) for k in KINDS)):
            keys.append(key)
            data = value_at(data, key)
    return keys


def value_at(data, key):
    """What plain data has at a key or an index; None where it has none, and the data where the key names its kind."""
    if isinstance(data, dict):
        return data.get(key)
    return data[key] if isinstance(data, list) else None


def models_at(model, location, data):
    """The pydantic models that the value at `location` (a path of keys) of `data` may be of (list)."""
    models = [model]
    for part in location:
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        of_kind = [m for m in models if typing.Literal[part] in (f.annotation for f in m.model_fields.values())]
        models = [m for field in fields for m in models_in(field.annotation)] or of_kind or models
        data = value_at(data, part)
        models = [m.model_of(data) if issubclass(m, Loaded) and isinstance(data, dict) else m for m in models]
    return models


def models_in(annotation):
    """The pydantic models that occur in a type annotation."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def json_schema():
    """The JSON Schema of a configuration (dict); an experiment's overrides are its settings with nothing required."""
    schema = Config.model_json_schema()
    override = WrittenExperiment.model_json_schema(ref_template="#/$defs/{model}Override")
    for name, value in ({"Experiment": override} | override.pop("$defs")).items():
        value.pop("required", None)
        schema["$defs"][f"{name}Override"] = value
    for owner in (schema, schema["$defs"]["Ablation"]):
        owner["properties"]["experiments"]["additionalProperties"] = {"$ref": "#/$defs/ExperimentOverride"}
    schema.pop("required")  # in an editor an ablation file is valid alone: it lacks what the file that it ablates has
    for suffix in ("", "Override"):
        training = schema["$defs"][f"EpisodeTraining{suffix}"]["properties"]
        numbers = {"type": "string", "pattern": r"^[0-9.]+[eE][-+]?[0-9]+$"}
        rate = training["learning_rate"]
        rate["anyOf"] = [{"type": rate.pop("type"), "exclusiveMinimum": rate.pop("exclusiveMinimum")}, numbers]
        negatives = schema["$defs"][f"Negatives{suffix}"]["properties"]
        for key in ("counts", "ranks"):
            negatives[key]["propertyNames"] = {"enum": list(SOURCES)}
    return schema
