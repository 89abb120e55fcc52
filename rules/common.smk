# The configuration, the plan made from it, and the input functions of the stage rules. Rules stay declarative: what
# a stage reads and which settings it has is decided in workflow_scripts/teleport/plan/plan.py and trajectory.py.

import json
import os
import shlex
import sys
from functools import cache
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "workflow_scripts"))

from snakemake.exceptions import WorkflowError
from snakemake.io import IOFile

from teleport.runtime.code import (
    STAGE_MODULES,
    code_digest,
    files_digest,
    module_path,
    stage_code_digest,
)
from teleport.settings.read import load
from teleport.plan.plan import Plan
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

# The code that Snakemake records for a stage is what its main process has read. A job of a cluster reads the Snakefile
# anew: it is told what was read, and refuses to run code edited since.
if workflow.is_main_process:
    digests = {kind: stage_code_digest(kind) for kind in STAGE_MODULES}
    os.environ["TELEPORT_CODE"] = json.dumps(digests | {"files": files_digest()})


envvars:
    "TELEPORT_CODE",


CODE = json.loads(os.environ["TELEPORT_CODE"])


wildcard_constraints:
    key="[0-9a-f]{12}",


# Jobs that encode the passages of one stage, each on a device of its own: --set-scatter encode=4, or in a profile.
scattergather:
    encode=1,


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


@cache
def outdated(name):
    """Whether Snakemake will make a stage, or one that it reads, anew because its code has changed."""
    stage = PLAN.stages[name]
    recorded = workflow.persistence.params(IOFile(manifest(stage)))
    code = repr(CODE[stage.kind])
    return (recorded is not None and code not in recorded) or any(
        outdated(upstream.name) for upstream in stage.inputs.values()
    )


def shard_manifests(wildcards):
    """Input function: the shards that an encode job joins; none when it encodes all passages itself.

    Snakemake reruns a job whose set of input files has changed, so a finished stage keeps the set that it was made
    from. Where a cluster's job looks, that stage's record is out of reach, and its shards lie there or were not made.
    """
    folder = f"results/shards/encode/{wildcards.key}"
    stage = planned("encode", wildcards)
    shards = gather.encode(f"{folder}/{{scatteritem}}/manifest.json")
    if workflow.is_main_process:
        if Path(manifest(stage)).exists() and not outdated(stage.name):
            recorded = workflow.persistence.input(IOFile(manifest(stage)))
            if recorded is not None:
                return [path for path in recorded if path.startswith(folder)]
    elif not all(Path(path).exists() for path in shards):
        return []
    return shards if len(shards) > 1 else []


def spec_of(kind):
    """Params function: kind, key, settings and inputs as run_stage.py takes them."""
    return lambda wildcards: planned(kind, wildcards).spec()


def is_flat(wildcards):
    return planned("index", wildcards).settings["kind"] == "flat"


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
    options = {
        "--threads": threads,
        "--save-every": resources.get("save_every", 60),
        "--gpus": resources.get("gpu", 0),
        "--files": CODE["files"],
    }
    if workflow.remote_exec:  # a job of a cluster
        options["--attempt"] = workflow.attempt
    flags = ["--compile"] if resources.get("compile", 0) else []
    return command("run_stage.py", *chain(*options.items()), *flags)


def run_encode(wildcards, input, threads, resources):
    count = len(input.shards) or 1
    return f"{run_stage(wildcards, threads, resources)} --shards {count}"


def run_shard(wildcards, threads, resources):
    shard = wildcards.scatteritem
    return f"{run_stage(wildcards, threads, resources)} --shard {shard}"


def run_train(wildcards, threads, resources):
    """One process per GPU of the job; `processes` says another number, as for CPUs."""
    processes = resources.get("processes", max(1, resources.get("gpu", 1)))
    return f"{run_stage(wildcards, threads, resources)} --processes {processes}"


def run_download(wildcards, threads):
    places = json.dumps(planned("download", wildcards).places, sort_keys=True)
    return command(
        "run_stage.py",
        "--threads",
        threads,
        "--files",
        CODE["files"],
        "--places",
        places,
    )


def write_table(wildcards, input):
    return command("write_table.py")


def write_published(wildcards, output):
    return command("write_published.py")


def link_experiment(wildcards, input):
    return command("link_experiment.py")


def checks():
    """Manifests of the stages that look whether collections and settings suit each other, before the costly ones."""
    return [manifest(s) for s in PLAN.stages.values() if s.kind == "check"]


def table_files():
    return [f"{folder}/{name}.csv" for (folder, name) in TABLES]


def experiment_indexes():
    return [f"{folder}/plan.tsv" for folder in INDEXES]


def published_files(suffixes=("csv",)):
    return [f"{folder}/{name}.{s}" for (folder, name) in PUBLISHED for s in suffixes]
