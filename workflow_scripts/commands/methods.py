"""The published methods of config/methods: the list in docs/methods.md, and what `teleport new --method` writes, sized
for a person's collection, with its cost."""

import difflib
import math
import re
import textwrap
from pathlib import Path

import yaml

from commands.forecast.forecast import Forecast
from commands.forecast.hardware import UNMEASURED
from commands.forecast.printed import this_machine
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.rows import mining_stages
from teleport.report.words import duration
from teleport.settings.read import merged_files

CONFIG = Path(__file__).parents[2] / "config"
MARKED = re.compile(r"(<!-- methods -->\n).*?(<!-- end of methods -->)", re.DOTALL)
WIDTH = 120
LEAST_BATCH = 8  # queries of a step, also where each brings 31 negatives: a batch of 2 would learn next to nothing


def method_file(name):
    """The path of a published method. Raises Refusal if there is no method of this name."""
    files = {path.stem: path for path in method_files()}
    if name not in files:
        close = difflib.get_close_matches(name, files, n=1)
        remedy = f"Did you mean {close[0]}?" if close else "docs/methods.md lists them: take a file's name."
        raise Refusal(f"--method {name}: config/methods has no {name}.yaml. {remedy}")
    return files[name]


def method_text(name, steps, batch):
    """The block `experiments` (YAML, text) of config/methods/NAME.yaml, resized. A training as long as the embedded
    default's gets `steps` steps. A step gets as many passages as `batch` queries without negatives, as far as
    LEAST_BATCH allows."""
    merged = merged_files([str(method_file(name))])
    usual = yaml.safe_load((CONFIG / "config.yaml").read_text(encoding="utf-8"))["training"]["steps"]
    merged["experiments"] = sized(merged["experiments"], steps / usual, batch)
    head = f"# config/methods/{name}.yaml, with trainings and batches scaled to this collection.\n"
    return head + yaml.safe_dump(merged, sort_keys=False, allow_unicode=True, width=math.inf)


def sized(block, factor, batch):
    """A part of a configuration (JSON) whose trainings are `factor` times as long, with batches for their negatives."""
    if isinstance(block, list):
        return [sized(each, factor, batch) for each in block]
    if not isinstance(block, dict):
        return block
    block = {key: sized(value, factor, batch) for key, value in block.items()}
    for key in ("steps", "stop_after_steps"):
        if isinstance(block.get(key), int):
            block[key] = max(1, round(factor * block[key]))
    if (negatives := block.get("negatives_per_query")) is not None and "batch_queries" not in block:
        block["batch_queries"] = max(min(LEAST_BATCH, batch), batch // (1 + negatives))
    return block


def cost_sentences(plan, file):
    """A sentence (in a list) on the time of a plan's trainings and the part of mining in it, or on an unmeasured GPU
    how to forecast it; [] if nothing is trained, or if the machine's measurement is not usable. file: the plan's"""
    try:
        line, hardware = this_machine()
    except Refusal:  # `teleport forecast` says what is wrong with it
        return []
    trains = [train for each in plan.trajectories.values() for trajectory in each for train in trajectory.trains]
    if not trains:
        return []
    if hardware is None:
        known = f"`.venv/bin/teleport forecast {file} --hardware h100` forecasts it for an H100"
        return [f"The time of mining and training is {UNMEASURED}; {known}."]
    stages, pools = Forecast(plan, hardware).stages, [train.inputs.get("negatives") for train in trains]
    pools = list({pool.name: pool for pool in pools if pool}.values())
    mining = {stage.name: stage for stage in (*pools, *mining_stages(pools))}
    mined, trained = (sum(stages[name].seconds for name in names) for names in (mining, {t.name for t in trains}))
    encoded = sum(stage.kind == "encode" and stage.settings.of == "passages" for stage in mining.values())
    collection = f", which encodes the collection {encoded} times" if encoded > 1 else ""
    rest = f"mining about {duration(mined)}{collection}" if pools else "nothing is mined"
    return [f"Training takes about {duration(trained)} on {line}, the evaluations on dev included; {rest}."]


def with_methods(text):
    """Return the text of a page with a new list between its markers."""
    return MARKED.sub(lambda match: match[1] + "".join(list_lines()) + match[2], text)


def method_files():
    """Return the paths of all published methods, sorted by name."""
    return sorted((CONFIG / "methods").glob("[!.]*.yaml"), key=lambda path: path.stem)


def methods_plan():
    """Return the `Plan` of all methods in one, on the embedded collection."""
    return Plan.of_files([CONFIG / "config.yaml", *method_files()])


def list_lines():
    """Yield the items of the list: a method with its paper, or a paper and below it its methods.

    The parts of a method that its settings leave out are in italics, for a paper if they are the same in all of its
    methods.
    """
    experiments, papers = methods_plan().experiments, {}
    for path in method_files():
        about = experiments[path.stem].about
        papers.setdefault(about.paper, []).append((f"[{path.stem}](../config/methods/{path.name})", about))
    for paper, methods in papers.items():
        if len(methods) == 1:
            ((name, about),) = methods
            yield list_item(f"{name}, {paper}: {about.rule}", about.left_out)
            continue
        shared = {about.left_out for _, about in methods}
        yield list_item(paper, *shared if len(shared) == 1 else [None])
        for name, about in methods:
            yield list_item(f"{name}: {about.rule}", None if len(shared) == 1 else about.left_out, "  ")


def list_item(text, left_out, indent=""):
    """Return an item of the list, in lines of at most `WIDTH` characters."""
    text += f"; *{left_out}*" if left_out else ""
    bullet, rest = f"{indent}* ", f"{indent}  "
    wrapped = textwrap.wrap(
        text, WIDTH, initial_indent=bullet, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapped) + "\n"
