"""A finished experiment of one episode, planned as Snakemake plans it and made in this process, with its links and
tables, for the commands that read or write results."""

import contextlib
import shutil
from pathlib import Path

import yaml
from fault_world import NUMBERS, PASSAGES, SPLITS, in_order
from toy import CONFIG, make_checkpoint

from collection_world import WORDS, random_passages, write_folder
from commands.share import share
from teleport.plan.plan import Plan
from teleport.report.links import link_experiments
from teleport.report.write import write_tables
from teleport.running.code import stage_code
from teleport.running.job import Job, spec_of, write_spec
from teleport.running.run import run

CONFIGURATION, METHOD = "config/mine.yaml", "mined.yaml"
HOME = Path("results/experiments/mine/tuned")
EPISODE = HOME / "episode-1"
SHARED = "theirs"  # all stages, as `teleport share` has written them
TUNED = {
    "name": "mine",
    "collection": {"source": "folder", "path": "data/toy"},
    "encoder": CONFIG["encoder"],
    "mining": {"depth": 10},
    "negatives": {"counts": {"query": 4}},
    "training": NUMBERS,
    "episodes": [{}],
    "experiments": {"tuned": {"label": "Tuned"}},
    "evaluation": {"splits": ["test"], "depth": 20, "measures": ["RR@10"], "significance": {"resamples": 99}},
}
MINED = {"experiments": {"mined": {"label": "Mined"}}}  # the same settings: the same pool


def make_desk(folder):
    """Make it all below a folder; returns {kind: [names of its stages]}."""
    import numpy as np

    texts = random_passages(np.random.default_rng(0), PASSAGES, 5, 20)
    passages = [(f"d{i}", f"title{i}", " ".join(words)) for i, words in enumerate(texts)]
    queries = {split: [(f"q{i}", " ".join(texts[i][:4])) for i in numbers] for split, numbers in SPLITS.items()}
    judgments = {split: [(row, i, 1) for row, i in enumerate(numbers)] for split, numbers in SPLITS.items()}
    write_folder(folder / "data/toy", passages, queries, judgments)
    make_checkpoint(folder / "data/bert", WORDS)
    (folder / "config").mkdir()
    (folder / CONFIGURATION).write_text(yaml.safe_dump(TUNED))
    (folder / METHOD).write_text(yaml.safe_dump(MINED))
    with contextlib.chdir(folder):
        plan = Plan.of_files([CONFIGURATION, METHOD])
        for stage in in_order(plan.stages.values()).values():
            run(Job(spec_of(stage) | {"code": stage_code(stage.kind, stage.loads)}, threads=1))
            write_spec(stage)
        link_experiments(plan)
        write_tables(Plan.of_files([CONFIGURATION]))
        share(set(plan.stages), SHARED, vectors=True)
        shutil.rmtree("results/resume", ignore_errors=True)
    stages = {}
    for name in plan.stages:
        stages.setdefault(name.partition("/")[0], []).append(name)
    return stages
