# The configuration, the plan made from it, and the functions that the rules call. What a stage reads and which settings
# it has is decided in workflow_scripts/teleport/plan/.

import inspect
import json
import os
import shlex
import sys
from functools import cache, lru_cache, partial
from itertools import chain
from pathlib import Path

# The folder of this repository, also where another workflow takes it as a module or names its Snakefile from elsewhere.
HOME = Path(inspect.currentframe().f_code.co_filename).absolute().parents[1]
sys.path.insert(0, str(HOME / "workflow_scripts"))

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from commands import snakemake_internals as internals
from commands.dry_run import MOST_JOBS, DryRun
from commands.edited import codes_of
from commands.encoding import encodings_said
from commands.forecast.left import left_of_run
from commands.forecast.printed import cost_sentence, shortages
from commands.forecast.requests import Requests, group_of
from commands.job_texts import episode_scores, outcome
from commands.resources import own_resources
from commands.terminal import Terminal
from teleport.plan.kinds import needs
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.page_specs import page_spec
from teleport.report.published_specs import finish_times, published_specs, untrained
from teleport.report.specs import analysis_specs, experiment_specs, in_folder, table_specs
from teleport.running.code import digests_of_all
from teleport.running.devices import require_usable_apart
from teleport.running.launch import if_killed
from teleport.settings.read import load

if set("{}") & set(str(HOME)):
    raise WorkflowError(
        f"{HOME} has braces, which Snakemake takes for names of wildcards. Rename the folder, or move it."
    )

CALL = internals.how_called(workflow)

# ---- The configuration and its plan

# A `configfile:` is merged under every --configfile, so the default is read only where none is given: a paper's
# configuration never inherits a value of the embedded one.
if not CALL.configfiles_given:
    DEFAULT = "config/config.yaml"

    configfile: DEFAULT if Path(DEFAULT).exists() else HOME / DEFAULT  # started elsewhere, with -s


CLUSTER = config.pop("cluster", {})  # of a profile: what the nodes are, and the limits of their partition
try:
    CONFIG, EXPERIMENTS = load(config, workflow.configfiles)
    PLAN = Plan(CONFIG, EXPERIMENTS)
    REQUESTS = Requests(PLAN, CLUSTER)
    TABLES, ANALYSES, PUBLISHED = table_specs(PLAN), analysis_specs(PLAN), published_specs(PLAN)
    for rule_name, given in internals.set_resources(workflow).items():
        own_resources(rule_name, given)  # now, not when its first job starts
except Refusal as error:
    sys.exit(f"error: {error}")  # a WorkflowError would come with this line and a traceback

INDEXES = experiment_specs(PLAN)
PAGE_FOLDER, PAGE = page_spec(PLAN, workflow.configfiles)

# ---- The code

# The code that Snakemake records for a stage is what its main process has read. A job of a cluster reads the Snakefile
# anew: it is told what was read, and refuses to run code edited since.
if CALL.main:
    os.environ["TELEPORT_CODE"] = json.dumps(digests_of_all())
    os.environ["TELEPORT_FORCED"] = "[]"  # until Snakemake knows it: `forced`


envvars:
    "TELEPORT_CODE",
    "TELEPORT_FORCED",


CODE = json.loads(os.environ["TELEPORT_CODE"])


@cache
def forced():
    """The rules and files (set) that `--forcerun` names; "all stages" with `--forceall`. A cluster's job is told."""
    if CALL.main:
        asked = workflow.dag_settings
        os.environ["TELEPORT_FORCED"] = json.dumps(
            ["all stages"] if asked.forceall else sorted(map(str, asked.forcerun))
        )
    return set(json.loads(os.environ["TELEPORT_FORCED"]))


@cache  # it reads a manifest
def codes(stage):
    """The digests of the code that a stage runs."""
    return codes_of(stage, CODE)


# ---- What a person is told


def left():
    """The `Left` of this run, once its jobs run; what a cluster has is not known here."""
    names, shards = internals.unfinished(workflow), len(gather.encode("{scatteritem}"))
    return None if CALL.submits else left_of_run(PLAN, names, shards, internals.room(workflow))


if CALL.main:
    if CALL.dry:
        costs = partial(cost_sentence, PLAN, CLUSTER.get("hardware"))
        internals.replace_terminal_handler(logger, lambda usual: DryRun(usual, costs))
        internals.plan_in_short(workflow, logger, MOST_JOBS)
    else:
        internals.replace_terminal_handler(logger, lambda usual: Terminal(usual, episode_scores(PLAN), left))
    for sentence in encodings_said(EXPERIMENTS, PLAN):
        logger.info(sentence)
    # What a cluster's machines have is not known here.
    for warning in PLAN.warnings + ([] if CALL.submits or CLUSTER else shortages(PLAN)):
        logger.warning(warning)


class Labels:
    """`{LABEL:kind/key}` in a message: untracked text, so that a new experiment which shares a stage reruns nothing."""

    def __init__(self):
        self.label = cache(PLAN.label)
        for name in PLAN.stages if CALL.main else ():  # in a message Snakemake would tell a defect without its place
            self.label(name)

    def __format__(self, name):
        return self.label(name) if name in PLAN.stages else name


internals.name_in_messages(workflow, "LABEL", Labels())

# ---- Stages


wildcard_constraints:
    key="[0-9a-f]{12}",


# Jobs that encode the passages of one stage, each on a device of its own: --set-scatter encode=4, or in a profile.
scattergather:
    encode=1,


def manifest(stage):
    return f"results/stages/{stage.name}/manifest.json"


def manifests(stages):
    return [manifest(stage) for stage in stages]


def planned(wildcards):
    """The stage of a job."""
    name = f"{wildcards.kind}/{wildcards.key}"
    if name not in PLAN.stages:
        raise WorkflowError(f"{name} is not a stage of this configuration: see plan.tsv below results/experiments.")
    return PLAN.stages[name]


def asked(wildcards):
    """What a job asks for of a machine: a row of teleport/plan/kinds.py."""
    return needs(planned(wildcards), PLAN.deleted_vectors)


def requested(wildcards, attempt):
    """The time and memory that a job asks for: by the forecast of its stage, or of a shard of it."""
    shards = wildcards.get("scatteritem", "1-of-1").split("-of-")[1]
    return request_of(planned(wildcards), attempt, int(shards))


def shared_job(wildcards):
    """The job of a cluster that a stage shares; shards of an encoding run at the same time, each in its own. For rules
    of FOLLOWING and `encode` alone: one with a group is none of `localrules`."""
    return group_of(planned(wildcards)) if CALL.submits and "scatteritem" not in wildcards.keys() else None


# Snakemake asks for time and then for memory, of every job at the start and again when it can begin: by then the size of
# the collection may be known, so an answer is kept no longer than for the two.
request_of = lru_cache(maxsize=1)(REQUESTS.of)


def inputs(wildcards):
    """Input function: the manifests of the stages that a stage reads."""
    return manifests(planned(wildcards).inputs.values())


@cache
def outdated(name):
    """Whether Snakemake will make a stage, or one that it reads, anew because its code has changed."""
    stage = PLAN.stages[name]
    recorded = internals.recorded_params(workflow, manifest(stage))
    edited = recorded is not None and not set(map(repr, codes(stage).values())) <= set(recorded)
    return edited or any(outdated(read.name) for read in stage.inputs.values())


def shard_manifests(wildcards):
    """Input function: the shards that an encode job joins; none when it encodes all passages itself, or queries alone.

    A finished stage keeps the set of shards that it was made from, else it would be made anew. Where a cluster's job
    looks, that stage's record is out of reach, and its shards lie there or were not made.
    """
    stage, folder = planned(wildcards), f"results/shards/encode/{wildcards.key}"
    shards = gather.encode(f"{folder}/{{scatteritem}}/manifest.json")
    if "passage" not in stage.settings.sides:
        return []
    if CALL.main and Path(manifest(stage)).exists() and not outdated(stage.name):
        if (recorded := internals.recorded_input(workflow, manifest(stage))) is not None:
            return [path for path in recorded if path.startswith(folder)]
    there = CALL.main or all(Path(path).exists() for path in shards)
    return shards if there and len(shards) > 1 else []


def require_devices():
    """Before the first job: torch computes on the devices that jobs of this machine will lease. Each job asks again."""
    to_run = internals.unfinished(workflow) & PLAN.stages.keys()
    here = not CALL.submits and not CALL.conda and internals.room(workflow).get("gpu", 1)
    if here and any(needs(PLAN.stages[name]).gpus for name in to_run):
        try:
            require_usable_apart()
        except Refusal as error:
            sys.exit(f"error: {error}")


# ---- Commands. Params functions of `threads` or `input` are not tracked: how a stage runs, where the repository lies and
# what is said of a failure decide no result, so they rerun nothing.


def command(script, *arguments):
    """A script of this repository under the interpreter of its environment, quoted for the shell."""
    python = "python" if CALL.conda else sys.executable  # conda's, or that of this workflow
    return shlex.join([python, f"{HOME}/workflow_scripts/{script}", *map(str, arguments)])


@cache
def spec_of_stage(stage):
    """The JSON file from which the job of a stage takes its settings."""
    return stage.write() if CALL.main and not CALL.dry else f"results/stages/{stage.name}/stage.json"


def is_forced(stage):
    """Whether a stage is made anew although nothing changed: `--forcerun` names it or its rule, or `--forceall`."""
    return not forced().isdisjoint({"all stages", stage.kind, f"{stage.kind}_shard", manifest(stage)})


def run_stage(wildcards, input, threads, resources):
    own = own_resources(wildcards.kind, resources)
    options = {"--threads": threads, "--gpus": resources.gpu, "--files": CODE["files"], "--save-every": own.save_every}
    if cpu_code := CODE[wildcards.kind]:
        options["--cpu-code"] = cpu_code
    if "scatteritem" in wildcards.keys():
        options["--shard"] = wildcards.scatteritem
    elif input.get("shards"):
        options["--shards"] = len(input.shards)
    if wildcards.kind == "train":  # a process per GPU; `processes`: so many, as on CPUs
        options["--processes"] = own.processes or max(1, resources.gpu)
    if own.engine:
        options["--engine"] = own.engine
    if CALL.submitted:
        options["--attempt"] = resources.attempt
    flags = ["--compile"] * own.compile + ["--anew"] * is_forced(planned(wildcards))
    return command("run_stage.py", spec_of_stage(planned(wildcards)), *chain(*options.items()), *flags)


def say_if_killed(wildcards, input):
    """What the shell does when a stage has failed: a killed process cannot say itself what helps."""
    return if_killed(wildcards.kind)


def manage(*arguments, folder=None):
    """Params function: a command of manage.py, writing to `folder`, with its wildcards, or to the folder of these."""
    where = folder or "{folder}"
    return lambda wildcards, input: told(command("manage.py", *arguments, "--output", where.format_map(wildcards)))


def told(run):
    """A command of no stage, with what the shell says where it is killed."""
    return f"{{ {run} || {if_killed()}; }}"


# ---- Tables


def files_of(specs, suffixes=("csv",)):
    """The files of some tables."""
    return [f"{folder}/{name}.{s}" for (folder, name) in specs for s in suffixes]


def shown(caption, category):
    """The CSV file of a table, which `snakemake --report` takes along."""
    return report("{folder}/{table}.csv", caption=caption, category=category, labels={"table": "{table}"})


def spec_of(specs, wildcards):
    """The Spec of what a job writes: a table, or the index of an experiment."""
    named = {key if isinstance(key, str) else "/".join(key): spec for key, spec in specs.items()}
    if (name := "/".join(wildcards)) not in named:
        has = f"which has {', '.join(named) or 'none of its kind'}"
        raise WorkflowError(f"{name} is not of this configuration, {has}. Ask for one of these, or add it.")
    return named[name]


def stages_of(specs):
    """Input function: the manifests of the stages that a table or an experiment shows."""
    return lambda wildcards: manifests(spec_of(specs, wildcards).stages)


def untrained_tables(wildcards):
    """Input function: the published tables for which nothing is trained."""
    if tables := files_of(untrained(PUBLISHED), ("md",)):
        return tables
    raise WorkflowError(
        "no published table has figures of checkpoints from elsewhere alone: name one under the key `published`, "
        "such as released-checkpoints with config/marco.yaml, config/nq.yaml or config/triviaqa.yaml."
    )
