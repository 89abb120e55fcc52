"""Search the collection of an experiment with its checkpoint."""

import json
import os
import re
from pathlib import Path

from commands.arguments import configuration
from teleport.api import open_results
from teleport.records import lines
from teleport.refusal import Refusal
from teleport.report.render import shortened
from teleport.settings.read import load_files

CHARACTERS = 160  # of a printed text
FOLDERS = re.compile(r"(?:seed-(\d+)(?:/|$))?(?:episode-(\d+)(?:/.*)?)?")  # in an experiment's


def search(what, queries, file, depth, as_json):
    """Yield lines of text: the first passages for each query; as_json: one JSON object per query, with whole texts.

    what: a configuration file with one experiment, or its NAME, as in config/NAME.yaml; or an experiment's folder, also
    that of a seed or an episode in it, or its name below results/experiments; file: of further queries, one per line
    """
    queries = [text for text in (*queries, *(text for _, text in (lines(file) if file else ()))) if text.strip()]
    if not queries:
        raise Refusal("there is no query. Give one in quotes, or --file with one per line.")
    experiment, episode, seed = experiment_at(what)
    for query, hits in zip(queries, experiment.search(queries, depth, episode, seed), strict=True):
        if as_json:
            yield json.dumps({"query": query, "hits": [hit._asdict() for hit in hits]}, ensure_ascii=False)
            continue
        yield query
        for hit in hits:
            title = f"{hit.title}: " if hit.title else ""
            yield f"{hit.rank:3}  {hit.score:7.4f}  {hit.id}  {title}{shortened(hit.text, CHARACTERS)}"
        yield ""


def experiment_at(what):
    """(`api.Experiment`, number of an episode or None, seed or None) by the name or path that a person gives."""
    if what.endswith((".yaml", ".yml")):
        if not load_files([what])[1]:
            raise Refusal(f"{what} has no experiment, and so no checkpoint to search with. Add one.")
        experiments = open_results("results", what)
        if len(experiments) != 1:
            several = f"has the experiments {', '.join(experiments)}: name one of them."
            raise Refusal(f"{what} {several if experiments else 'has no experiment yet: run the workflow first.'}")
        return next(iter(experiments.values())), None, None
    experiments = open_results("results")
    for path in map(Path, (what, os.path.relpath(what or ".", "results/experiments"))):
        for name in map(str, (path, *path.parents)):
            if name in experiments:
                below = "/".join(path.relative_to(name).parts)
                if not (numbers := FOLDERS.fullmatch(below)):
                    raise Refusal(f"{what}: {name} has no folder {below!r}. Give seed-N, episode-N, or {name}.")
                seed, episode = (number and int(number) for number in numbers.groups())
                return experiments[name], episode, seed
    if (file := configuration(what)) != what:
        return experiment_at(file)
    raise Refusal(
        f"{what} is neither a configuration file nor an experiment. Experiments: {', '.join(experiments) or 'none'}."
    )
