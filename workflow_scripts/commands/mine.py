"""Negatives for a training elsewhere, in one command: the plan that mines them, and their summary."""

import subprocess
import sys
from array import array
from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np

from commands.edited import edited_stages
from commands.export import export, origin_file
from commands.methods import method_file
from teleport.negatives.forms import FORMS
from teleport.negatives.pool import is_mined
from teleport.plan.plan import Plan
from teleport.records import json_objects
from teleport.refusal import Refusal
from teleport.report.rows import in_folder, needs_training
from teleport.report.words import number
from teleport.running.artefact import STAGES, Artefact, is_finished
from teleport.running.files import require_output
from teleport.settings.read import load_files
from teleport.settings.yaml_mapping import read_mapping

METHOD = "config/variants/mined.yaml"
ORDERS = {"drawn": "as drawn, by source and rank", "hardest": "hardest first"}


def mine(name, output, method, form, order, most, scores, cores):
    """Mine negatives for config/NAME.yaml, write them to a file and print their summary; returns the status of the
    workflow if it fails. The arguments are those of the command."""
    hardest = order == "hardest"
    output = output or Path(f"{name}-negatives.{'tsv' if form == 'triples' else 'jsonl'}")
    origin, earlier = origin_file(output), ", which replaces an earlier one" * output.exists()
    require_output(output)
    require_output(origin, begins=b"{")
    if earlier and output.stat().st_size and not origin.exists():
        raise Refusal(f"{output} exists already, and no {origin} of an earlier `teleport mine`. Give another --output.")
    files, link, pool, plan = mined(name, method)
    require_scores(pool, method, form, ["--order hardest"] * hardest + ["--scores"] * scores)
    if not is_finished(pool.name) or pool.name in edited_stages(plan):
        given = [str(link), "--cores", cores, "--configfile", *map(str, files)]
        # -P: a file psutil.py that lies here is not imported.
        workflow = subprocess.Popen([sys.executable, "-P", "-m", "snakemake", *given])
        try:
            status = workflow.wait()
        finally:
            workflow.wait()  # after Ctrl-C, which it receives, too
        if status:
            return status
    stage = STAGES / pool.name  # the link may lead to what other settings have mined
    wanted = {"form": form, "most": most, "hardest": hardest, "origin": True}
    sentence = export(stage, output, scores=scores or FORMS[form].scores, **wanted)
    print(f"{sentence}{earlier}, {form}, {ORDERS[order]}; the origin of each row: {origin}.")
    print(*summary(Artefact(stage), origin), sep="\n")


def mined(name, method):
    """(the files of the configuration, the link of the pool (Path), its `Stage`, the plan) of the negatives that the
    experiment of `method`, a file or the name of one in config/methods, mines for config/NAME.yaml. Raises Refusal if a
    training comes first."""
    path = Path(f"config/{name}.yaml")
    method = Path(method) if Path(method).suffix else method_file(str(method))
    if not path.is_file():
        raise Refusal(f"{path}: no such file. `teleport new {name} FROM` writes it.")
    experiments = list(read_mapping(method).get("experiments") or {})
    if len(experiments) != 1:
        raise Refusal(f"{method} has {len(experiments)} experiments. Give a file with one, such as {METHOD}.")
    config, settings = load_files([path, method])
    if "train" not in config.collection.split_names():
        raise Refusal(
            f"{path}: the collection has no split train, and negatives are mined for training queries. Add its queries "
            "and judgments, named as the files of other splits are. To mine for the queries of test, copy its files."
        )
    plan = Plan(config, settings)
    trajectory = plan.trajectories[experiments[0]][0]
    pool = next(iter(trajectory.pools), None)
    if pool is None or needs_training(pool):
        why = "mines no negatives" if pool is None else "mines with a checkpoint that is trained first"
        raise Refusal(f"{method}: experiments.{experiments[0]} {why}. Give a file that mines with the start: {METHOD}.")
    link = next(row.link for row in trajectory.rows if row.stage is pool)
    return [path, method], Path(in_folder("experiments", plan.config), experiments[0], link), pool, plan


def require_scores(pool, method, form, options):
    """Raise Refusal if some options (list of text) want scores, and the form has no room for them, or no checkpoint
    scores the negatives of a planned pool (`Stage`)."""
    if form == "triples" and "--scores" in options:
        raise Refusal("--scores: the form triples has only ids and cannot hold scores. Take another form.")
    sources = pool.settings.sources
    if options and not is_mined(pool.inputs, sources.values()):
        raise Refusal(
            f"{options[0]}: the negatives of --method {method} come from {', '.join(sources)}, and no checkpoint "
            "scores them. Leave it out, or take a method whose checkpoint mines: without --method it is the start."
        )


def summary(pool_stage, origin):
    """Sentences (list of str) on the written negatives of a finished pool (`Artefact` of a merge stage): their number,
    the scores of positives and negatives under the checkpoint that mined, the candidates and queries that were left
    out and why. origin: the file of the negatives' origins (`commands.export.origin_file`)"""
    facts, searches = pool_stage.facts, retrievals(pool_stage)
    queries, above, sources, below, higher = 0, array("f"), Counter(), array("f"), 0
    rows = (row for _, row in json_objects(origin))
    for of_query in (list(rows) for _, rows in groupby(rows, key=lambda row: row["query_id"])):
        queries += 1
        positives = {p["docid"]: p["score"] for row in of_query for p in row["positives"] if "score" in p}
        negatives = [negative for row in of_query for negative in row["negatives"]]
        sources.update(negative["source"] for negative in negatives)
        scores = [negative["score"] for negative in negatives if "score" in negative]
        lowest = min(positives.values(), default=np.inf)
        higher += sum(score > lowest for score in scores)
        above.extend(positives.values())
        below.extend(scores)
    total, listed = sources.total(), ", ".join(f"{count:,} from {source}" for source, count in sources.items())
    a_query = total / max(1, queries)
    sentences = [f"{total:,} negatives ({listed}) of {queries:,} training queries, {a_query:.1f} a query."]
    if above and below:
        share = f"{higher / len(below):.1%} of the negatives score above the lowest positive of their query"
        sides = f"positives {middle(above)}; negatives {middle(below)}"
        sentences.append(f"Scores under the checkpoint that mined: {sides}; {share}.")
    for source, rules in facts.get("filters", {}).get("dropped", {}).items():
        seen = searches[source].facts["lines"] * searches[source].facts["depth"] if source in searches else 0
        for rule, count in rules.items():
            share = f" ({count / seen:.1%} of what was found)" if seen else ""
            sentences.append(f"Left out by {rule}: {count:,} candidates of {source}{share}.")
    if empty := facts["empty_queries"]:
        share = f"{number(empty, 'query')} ({empty / facts['queries']:.1%})"
        sentences.append(f"Left out: {share} that no negative is left for.")
    return sentences


def retrievals(pool_stage):
    """{source: retrieve stage (`Artefact`)} of the pool's sources that a checkpoint searched."""
    read = {role: pool_stage.input(role) for role in pool_stage.manifest["inputs"]}
    return {role: stage for role, stage in read.items() if stage.manifest["kind"] == "retrieve"}


def middle(scores):
    """Mean and median of scores (text)."""
    return f"mean {np.mean(scores):.3f}, median {np.median(scores):.3f}"
