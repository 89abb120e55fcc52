# The configuration, the plan made from it, and the input functions of the stage rules. Rules stay declarative: what
# a stage reads and which settings it has is decided in workflow_scripts/teleport/plan.py.

import json
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "workflow_scripts"))

from snakemake.exceptions import WorkflowError

from teleport.code import code_digest, module_path, stage_code_digest
from teleport.config import load
from teleport.plan import Plan
from teleport.report.published_specs import finished, published_specs
from teleport.report.specs import experiment_specs, in_folder, table_specs

try:
    CONFIG, EXPERIMENTS = load(config, workflow.configfiles)
    PLAN = Plan(CONFIG, EXPERIMENTS)
    TABLES = table_specs(PLAN)
    PUBLISHED = published_specs(PLAN)
except ValueError as error:
    raise WorkflowError(f"\n{error}")

INDEXES = experiment_specs(PLAN)


wildcard_constraints:
    key="[0-9a-f]{12}",


class Labels:
    """`{LABEL:kind/key}` in a message: untracked text, so that a new experiment which shares a stage reruns nothing."""

    def __format__(self, name):
        return PLAN.label(name)


LABEL = Labels()


def manifest(stage):
    return f"results/stages/{stage.name}/manifest.json"


def planned(kind, wildcards):
    name = f"{kind}/{wildcards.key}"
    if name not in PLAN.stages:
        raise WorkflowError(
            f"{name} is not a stage of this configuration: see plan.tsv below results/experiments."
        )
    return PLAN.stages[name]


def inputs_of(kind):
    """Input function: the manifests of the stages that a stage reads."""
    return lambda wildcards: [
        manifest(stage) for stage in planned(kind, wildcards).inputs.values()
    ]


def spec_of(kind):
    """Params function: kind, key, settings and inputs as run_stage.py takes them."""
    return lambda wildcards: planned(kind, wildcards).spec()


def command(script, *arguments):
    """A script of this repository under the interpreter of this workflow, quoted for the shell."""
    return shlex.join(
        [
            sys.executable,
            f"{workflow.basedir}/workflow_scripts/{script}",
            *map(str, arguments),
        ]
    )


# Params functions of `threads` or `input` are not tracked: how a stage runs and where the repository lies decide no
# result, so they rerun nothing.
def run_stage(wildcards, threads, resources):
    save_every = resources.get("save_every", 60)
    attempt = ["--attempt", workflow.attempt] if workflow.remote_exec else []
    return command(
        "run_stage.py", "--threads", threads, "--save-every", save_every, *attempt
    )


def run_download(wildcards, threads):
    places = json.dumps(planned("download", wildcards).places, sort_keys=True)
    return command("run_stage.py", "--threads", threads, "--places", places)


def write_table(wildcards, input):
    return command("write_table.py")


def write_published(wildcards, output):
    return command("write_published.py")


def link_experiment(wildcards, input):
    return command("link_experiment.py")


def table_files():
    return [f"{folder}/{name}.csv" for (folder, name) in TABLES]


def experiment_indexes():
    return [f"{folder}/plan.tsv" for folder in INDEXES]


def published_files(suffixes=("csv",)):
    return [f"{folder}/{name}.{s}" for (folder, name) in PUBLISHED for s in suffixes]
