"""Reads a configuration: merges and validates it, and reports mistakes with file, line, key and remedy.

An experiment is a set of overrides merged over the configuration. YAML reads 1e-5 as text; it becomes a number.
"""

import os
from pathlib import Path

from teleport.refusal import Refusal
from teleport.settings.configuration import Config, mistakes, named_experiments
from teleport.settings.experiment import Episode, Experiment, WrittenExperiment
from teleport.settings.negatives import OF_COUNTS
from teleport.settings.pool import WITHOUT_SCORES
from teleport.settings.registry import FILTERS
from teleport.settings.section import FILE, MINER
from teleport.settings.yaml_mapping import Locations, read_mapping, validated
from teleport.training.seen import JUDGMENTS

# An override replaces these whole: another kind of checkpoint, index, loss or start has other parameters.
WHOLE = (
    "checkpoint",
    "query_checkpoint",
    "index",
    "search_index",
    "counts",
    "draw",
    "draws",
    "loss",
    "relabel",
    "start_from",
    "file",
)


def load(raw, files=()):
    """(Config, {experiment name: Experiment}) of the merged mapping `raw`; `files`: the YAML files it came from, for
    line numbers in messages. Raises Refusal with one line per mistake."""
    locations = Locations(path for path, _ in with_bases(files))
    if raw.get("ablations") and "collection" not in raw:
        raise Refusal(
            "the configuration has ablations but no collection: an ablation file comes after the file it ablates, "
            "as in `--configfile config/apidocs.yaml config/ablations/negatives.yaml`."
        )
    config, experiments = validated(Config, raw, (), locations), {}
    config._files = tuple(files)
    problems = []
    for place, sentence in mistakes(config):
        where = locations.of(place) if place[0] in raw else locations.of_missing(place)
        problems.append(f"{where}: {sentence}")
    if problems:
        raise Refusal("\n".join(dict.fromkeys(problems)))
    written = {name: raw[name] for name in WrittenExperiment.model_fields if name in raw}
    for place, name, overrides in named_experiments(config):
        experiment = experiment_of(config, written, overrides, place, locations)
        if experiments.setdefault(name, experiment) != experiment:
            raise Refusal(f"{locations.of(place)}: another experiment has this name and other settings. Rename one.")
    every = [episode for experiment in experiments.values() for episode in experiment.method]
    for refuse in (refuse_undrawn, refuse_unfiltered):
        refuse(written, every, (), locations)
    for name, external in config.external.items():
        if external.encoder is not None:
            overrides = {
                "label": external.label,
                "encoder": external.encoder,
                "episodes": [],
                "seeds": config.seeds[:1],
            }
            experiments[name] = experiment_of(config, written, overrides, ("external", name), locations)
    if not experiments and not config.external and not (config.bm25 and "bm25" in config.model_fields_set):
        raise Refusal(
            "the configuration has no experiments: add at least one entry under `experiments` or `external`, or state "
            "`bm25` to have that alone."
        )
    return config, experiments


def experiment_of(config, written, overrides, place, locations):
    """The `Experiment` at a `place` of the configuration. Settings that it does not override are taken as they are.

    written: the settings of `config` that its files set; overrides: the experiment as written
    """
    shared = {name: value for name, value in config if name in WrittenExperiment.model_fields and value is not None}
    plain = merged({name: written[name] for name in shared if name in written}, overrides)
    taken_over = {name: value for name, value in shared.items() if name not in overrides}
    experiment, method = validated(WrittenExperiment, plain | taken_over, place, locations), []
    refuse_foreign_queries(overrides.get("encoder") or {}, written.get("encoder") or {}, place, locations)
    for number, override in enumerate(experiment.episodes):
        settings = {"lag": override.lag, "entry": len(method) + 1}
        for section in ("mining", "negatives", "training"):
            changes = getattr(override, section)
            settings[section] = merged(plain.get(section) or {}, changes) if changes else getattr(experiment, section)
        own = "episodes" in overrides
        entry = (*(place if own else ()), "episodes", number)
        places = (entry, place, ()) if own else (place, entry, ())  # an entry that others share names no experiment
        episode = validated(Episode, settings, places[0], locations, places[1:])
        if method and method[-1].mines and method[-1].training.continues and episode.training.continues:
            episode = episode.model_copy(update={"entry": method[-1].entry})  # segments of one training
        if override.lag and override.repeat == 1 and episode.entry == len(method) + 1:
            raise Refusal(
                f"{locations.of((*entry, 'lag'))}: lag mines with an earlier checkpoint of the same entry, and this "
                "entry is one episode. Write the episodes that lag as one entry with `repeat`, or leave lag out."
            )
        for refuse in (refuse_unread, refuse_undrawn, refuse_unfiltered):
            refuse({"negatives": override.negatives}, [episode], entry, locations)
        refuse_unknown_teachers(episode, experiment.teachers, (entry, place, ()), locations)
        method += [episode] * override.repeat
    for refuse in (refuse_unread, refuse_undrawn, refuse_unfiltered):
        refuse(overrides, method, place, locations)
    if method and experiment.encoder.truncate_dim:
        where = locations.of((*place, "encoder", "truncate_dim"), ("encoder", "truncate_dim"))
        raise Refusal(
            f"{where}: encoder.truncate_dim is for rows of evaluation, and {place[-1]} has episodes, which train on "
            "whole vectors. Set it in an entry of `external`, or beside `episodes: []`."
        )
    return Experiment.taken_from(experiment, method=method)


def merged(base, overrides):
    """`overrides` over `base`, mapping by mapping (dict); lists and the keys in WHOLE are replaced whole."""
    result = dict(base)
    for key, value in overrides.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict) and key not in WHOLE
        result[key] = merged(result[key], value) if both else value
    return result


def refuse_foreign_queries(overrides, shared, place, locations):
    """Raise Refusal if the `overrides` of an encoder name another checkpoint but keep the query_checkpoint of the
    `shared` settings, which belongs to their checkpoint."""
    another = "checkpoint" in overrides and overrides["checkpoint"] != shared.get("checkpoint")
    if another and "query_checkpoint" not in overrides and shared.get("query_checkpoint"):
        raise Refusal(
            f"{locations.of((*place, 'encoder', 'checkpoint'))}: the queries would be encoded by the query_checkpoint "
            "that goes with another checkpoint. Give its own beside it, or `query_checkpoint: null` and `tied: true`."
        )


def refuse_unknown_teachers(episode, teachers, places, locations):
    """Raise Refusal if an episode compares the scores of an unknown teacher or of a file without any, or if a teacher
    has the name of another judge. places: where its keys may be written, the nearest first"""
    file = episode.negatives.file
    for key, name in episode.judges:
        where = locations.of(*spellings(places, key))
        if name == FILE and (file is None or file.form in WITHOUT_SCORES):
            given = f"whose form {file.form} has none" if file else "and there is no such file"
            problem = f"{name!r} names the scores in negatives.file, {given}"
            raise Refusal(f"{where}: {problem}. Give a file with scores, or name a teacher.")
        if name == JUDGMENTS:
            raise Refusal(f"{where}: {name} are grades of pairs, and this compares others. Name a teacher.")
        if name not in (MINER, FILE, *teachers):
            known = ", ".join([MINER, FILE, *teachers])
            raise Refusal(f"{where}: there is no teacher {name!r}. Add it under `teachers`, or take one of {known}.")
    own = {MINER: "is the checkpoint that mines", FILE: "is negatives.file"}
    for name, what in (own | {JUDGMENTS: "are the grades of the collection"}).items():
        if name in teachers:
            where = locations.of(*((*place, "teachers", name) for place in places[1:]))
            raise Refusal(f"{where}: {name} {what}. Give the teacher another name.")


def spellings(places, key):
    """The paths of a key below `places`: without its numbers in lists, as a single loss may be written, and with
    them."""
    plain = [part for part in key if not isinstance(part, int)]
    return [(*place, *each) for place in places for each in (plain, key)]


def refuse_unread(written, episodes, place, locations):
    """Raise Refusal if `negatives` of a mapping written at a place sets a mode's settings and no episode uses a
    mode."""
    with_pool = [episode for episode in episodes if episode.has_pool]
    given = (written.get("negatives") or {}).items()
    of_mode = [key for key, value in given if key in OF_COUNTS and value is not None]
    if of_mode and with_pool and all(episode.negatives.counts is not None for episode in with_pool):
        raise Refusal(
            f"{locations.of((*place, 'negatives', of_mode[0]))}: negatives.{of_mode[0]} is set, and negatives.counts, "
            "which is in force, does not read it. Set counts to null beside it, or leave it out."
        )


def refuse_undrawn(written, episodes, place, locations):
    """Raise Refusal if `negatives` of a mapping written at a place has a file, or ranks or draws of sources, and its
    episodes draw from none of these, nor read the scores of the file: they would silently train on something else."""
    drawn = {name for episode in episodes if episode.has_pool for name in episode.negatives.drawn}
    given = written.get("negatives") or {}
    compared = any(whose == FILE for episode in episodes for _, whose in episode.judges)
    named = {"file": {"file"} if given.get("file") and not compared else set()}
    named |= {key: set(given.get(key) or ()) for key in ("ranks", "draws")}
    for key, names in named.items():
        if drawn and names and not names & drawn:
            raise Refusal(
                f"{locations.of((*place, 'negatives', key))}: negatives.{key} is set, and the negatives come from "
                f"{', '.join(sorted(drawn))} alone. Give {' or '.join(sorted(names))} a count in negatives.counts, or "
                "leave the key out."
            )


def refuse_unfiltered(written, episodes, place, locations):
    """Raise Refusal if `negatives` of a mapping written at a place names a teacher for filters and its episodes have no
    filter that compares scores."""
    whose = ((written.get("negatives") or {}).get("filters") or {}).get("scores") or MINER
    on = [episode.negatives.filters.on for episode in episodes if episode.has_pool]
    if whose != MINER and on and not any(FILTERS[name].scores for filters in on for name in filters):
        where = locations.of((*place, "negatives", "filters", "scores"))
        known = ", ".join(name for name, entry in FILTERS.items() if entry.scores)
        raise Refusal(f"{where}: no filter compares the scores of {whose}. Set one of {known}, or leave the key out.")


def load_files(files):
    """Return the same as `load`, for YAML files merged in order as `--configfile` does."""
    return load(merged_files(files), files)


def merged_files(files):
    """The mapping (dict) of YAML files and of those that they extend, merged in order as `--configfile` does."""
    return merged_as_snakemake(content for _, content in with_bases(files))


def merged_as_snakemake(mappings):
    """Mappings merged in order by Snakemake's own function (dict): it merges every mapping deeply, even those in
    WHOLE."""
    from snakemake.utils import update_config  # here: a benchmark reads no files, and may have no Snakemake

    raw = {}
    for mapping in mappings:
        update_config(raw, mapping)
    return raw


def with_bases(files):
    """[(path, content without `extends`)] of YAML files in merging order: each follows the files that it extends, whose
    paths are relative to its own."""
    return [pair for file in files for pair in with_bases_of(file, ())]


def with_bases_of(file, above):
    """Return the same as `with_bases`, for one file. above: the files that extend it (tuple of paths)"""
    content, place = read_mapping(file), ("extends",)
    bases, pairs, above = content.pop("extends", []), [], (*above, os.path.realpath(file))
    for base in [bases] if isinstance(bases, str) else bases if isinstance(bases, list) else [None]:
        if not isinstance(base, str):
            raise Refusal(f"{Locations([file]).of(place)}: give the path of a file, or a list of paths, not {base!r}.")
        path = Path(file).parent / base
        if os.path.realpath(path) in above:
            raise Refusal(f"{Locations([file]).of(place)}: {base} extends this file too. Leave one of them out.")
        if not path.is_file():
            raise Refusal(f"{Locations([file]).of(place)}: there is no file {path}. Paths are relative to this file.")
        pairs += with_bases_of(os.path.normpath(path), above)
    return [*pairs, (file, content)]


def with_extended(config, files, given):
    """Snakemake's `config` (dict) with `extends` applied, which Snakemake does not know: the merged `files` with their
    bases, and over them what --config and profiles have `given` (dict). The `config` that another workflow gives its
    module comes from no file of the module, and is returned as it is."""
    contents = [read_mapping(file) for file in files]
    if not any("extends" in content for content in contents) or merged_as_snakemake([*contents, given]) != config:
        return config
    return merged_as_snakemake([merged_files(files), given])
