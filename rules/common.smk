# The configuration, the plan made from it, and the functions that the rules call. What a stage reads and which settings
# it has is decided in workflow_scripts/teleport/plan/.

import json
import os
import shlex
import sys
from functools import cache
from itertools import chain
from pathlib import Path

# The folder of this repository, also where another workflow takes it as a module or names its Snakefile from elsewhere.
HOME = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parent
sys.path.insert(0, str(HOME / "workflow_scripts"))

from snakemake.exceptions import WorkflowError
from snakemake.io import IOFile
from snakemake.logging import logger
from snakemake.settings.types import DeploymentMethod

from commands.forecast.shortages import shortages
from commands.terminal import episode_scores, use_terminal
from teleport.plan.plan import Plan
from teleport.report.page_specs import page_spec
from teleport.report.published_specs import finish_times, published_specs, untrained
from teleport.report.specs import (
    analysis_specs,
    experiment_specs,
    in_folder,
    table_specs,
)
from teleport.runtime.code import STAGE_MODULES, files_digest, module_digest
from teleport.runtime.code import stage_code
from teleport.settings.read import load
from teleport.settings.registry import DEV, LIVE, LOSSES, SOURCES

REPORTS = [
    f"teleport.report.{name}"
    for name in ("table", "analyses", "published_table", "experiments", "page.write")
]

EXPORT = "teleport.negatives.export"

if set("{}") & set(str(HOME)):
    raise WorkflowError(
        f"{HOME} has braces, which Snakemake takes for names of wildcards. Rename the folder, or move it."
    )

try:
    CONFIG, EXPERIMENTS = load(config, workflow.configfiles)
    PLAN = Plan(CONFIG, EXPERIMENTS)
    TABLES = table_specs(PLAN)
    ANALYSES = analysis_specs(PLAN)
    PUBLISHED = published_specs(PLAN)
except ValueError as error:
    raise WorkflowError(f"\n{error}")

INDEXES = experiment_specs(PLAN)
PAGE_FOLDER, PAGE = page_spec(PLAN, workflow.configfiles)

# The code that Snakemake records for a stage is what its main process has read. A job of a cluster reads the Snakefile
# anew: it is told what was read, and refuses to run code edited since.
if workflow.is_main_process:
    if not workflow.output_settings.dryrun:
        use_terminal(logger, episode_scores(PLAN))
    named = {entry.module for entry in (*SOURCES.values(), *LOSSES.values())}
    modules = {*STAGE_MODULES.values(), *named, DEV, LIVE, *REPORTS, EXPORT}
    digests = {name: module_digest(name) for name in sorted(modules)}
    os.environ["TELEPORT_CODE"] = json.dumps(digests | {"files": files_digest()})
    # What a cluster's machines have is not known here.
    too_small = [] if workflow.non_local_exec else shortages(PLAN)
    for warning in PLAN.warnings + too_small:
        logger.warning(warning)


envvars:
    "TELEPORT_CODE",


CODE = json.loads(os.environ["TELEPORT_CODE"])
# With --sdm conda the environment's own interpreter runs the commands, otherwise that of this workflow.
IN_CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
PYTHON = "python" if IN_CONDA else sys.executable


wildcard_constraints:
    key="[0-9a-f]{12}",


# Jobs that encode the passages of one stage, each on a device of its own: --set-scatter encode=4, or in a profile.
scattergather:
    encode=1,


class Labels:
    """`{LABEL:kind/key}` in a message: untracked text, so that a new experiment which shares a stage reruns nothing."""

    def __format__(self, name):
        return PLAN.label(name) if name in PLAN.stages else name


LABEL = Labels()
# Messages are formatted with the names of the main workflow, which may have this one as a module.
workflow.modifier_stack[0].globals["LABEL"] = LABEL


def manifest(stage):
    return f"results/stages/{stage.name}/manifest.json"


def manifests(stages):
    return [manifest(stage) for stage in stages]


def planned(wildcards):
    """The stage of a job."""
    name = f"{wildcards.kind}/{wildcards.key}"
    if name not in PLAN.stages:
        raise WorkflowError(
            f"{name} is not a stage of this configuration: see plan.tsv below results/experiments."
        )
    return PLAN.stages[name]


def inputs(wildcards):
    """Input function: the manifests of the stages that a stage reads."""
    return manifests(planned(wildcards).inputs.values())


def code_of(stage):
    """The digest of the code that a stage runs: its module, and those that the plan chose for it."""
    return stage_code(stage.kind, stage.loads, CODE.__getitem__)


@cache
def outdated(name):
    """Whether Snakemake will make a stage, or one that it reads, anew because its code has changed."""
    stage = PLAN.stages[name]
    recorded = workflow.persistence.params(IOFile(manifest(stage)))
    edited = recorded is not None and repr(code_of(stage)) not in recorded
    return edited or any(outdated(read.name) for read in stage.inputs.values())


def shard_manifests(wildcards):
    """Input function: the shards that an encode job joins; none when it encodes all passages itself.

    Snakemake reruns a job whose set of input files has changed, so a finished stage keeps the set that it was made
    from. Where a cluster's job looks, that stage's record is out of reach, and its shards lie there or were not made.
    """
    stage, folder = planned(wildcards), f"results/shards/encode/{wildcards.key}"
    shards = gather.encode(f"{folder}/{{scatteritem}}/manifest.json")
    if workflow.is_main_process:
        if Path(manifest(stage)).exists() and not outdated(stage.name):
            recorded = workflow.persistence.input(IOFile(manifest(stage)))
            if recorded is not None:
                return [path for path in recorded if path.startswith(folder)]
    elif not all(Path(path).exists() for path in shards):
        return []
    return shards if len(shards) > 1 else []


def by_index(flat, trained):
    """Threads or a resource: of exact search, and of an index that has to be trained."""
    return lambda wildcards: (
        flat if planned(wildcards).settings.index.kind == "flat" else trained
    )


def command(script, *arguments):
    """A script of this repository under the interpreter of its environment, quoted for the shell."""
    path = f"{HOME}/workflow_scripts/{script}"
    return shlex.join([PYTHON, path, *map(str, arguments)])


# Params functions of `threads` or `input` are not tracked: how a stage runs and where the repository lies decide no
# result, so they rerun nothing.
def run_stage(wildcards, input, threads, resources):
    options = {
        "--threads": threads,
        "--save-every": resources.get("save_every", 60),
        "--gpus": resources.get("gpu", 0),
        "--files": CODE["files"],
    }
    if "scatteritem" in wildcards.keys():
        options["--shard"] = wildcards.scatteritem
    elif input.get("shards"):
        options["--shards"] = len(input.shards)
    if wildcards.kind == "train":  # a process per GPU; `processes`: so many, as on CPUs
        gpus = max(1, resources.get("gpu", 1))
        options["--processes"] = resources.get("processes", gpus)
    if origins := planned(wildcards).origins:
        options["--origins"] = json.dumps(origins, sort_keys=True)
    if workflow.remote_exec:  # a job of a cluster
        options["--attempt"] = workflow.attempt
    flags = ["--compile"] if resources.get("compile", 0) else []
    return command("run_stage.py", *chain(*options.items()), *flags)


def manage(subcommand, folder=None):
    """Params function: a subcommand of manage.py, writing to `folder` or that of the wildcards."""
    return lambda wildcards, output: command(
        "manage.py", subcommand, "--output", folder or wildcards.folder
    )


def files_of(specs, suffixes=("csv",)):
    """The files of some tables."""
    return [f"{folder}/{name}.{s}" for (folder, name) in specs for s in suffixes]


def spec_of(specs, wildcards):
    """The Spec of what a job writes: a table, or the index of an experiment."""
    named = {
        key if isinstance(key, str) else "/".join(key): spec
        for key, spec in specs.items()
    }
    if (name := "/".join(wildcards)) not in named:
        has = f"which has {', '.join(named) or 'none of its kind'}"
        raise WorkflowError(
            f"{name} is not of this configuration, {has}. Ask for one of these, or add it."
        )
    return named[name]


def stages_of(specs):
    """Input function: the manifests of the stages that a table or an experiment shows."""
    return lambda wildcards: manifests(spec_of(specs, wildcards).stages)


def released_tables(wildcards):
    """Input function: the published tables for which nothing is trained."""
    if found := files_of(untrained(PUBLISHED), ("md",)):
        return found
    raise WorkflowError(
        "no published table has figures of checkpoints from elsewhere alone: name one under the key `published`, "
        "such as released-checkpoints with config/marco.yaml, config/nq.yaml or config/triviaqa.yaml."
    )
