# The configuration, its plan, and the functions that the rules call. workflow_scripts/teleport/plan/ decides the inputs
# and settings of a stage.

import inspect
import json
import os
import shlex
import sys
import time
from functools import cache, lru_cache, partial
from itertools import chain
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

import teleport
from commands.edited import code_of, is_edited, outdated_by
from commands.encoding import encoding_sentences
from commands.forecast.printed import cost_sentence, shortages
from commands.forecast.requests import Requests, group_of
from commands.job_texts import episode_scores
from commands.resources import gpus_of, own_resources
from commands.terminal import PLANNED, end_as_asked
from teleport.plan.identity import file_digest
from teleport.plan.kinds import KINDS, is_scattered, needs
from teleport.plan.key_lines import with_line
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.report.links import experiment_folders
from teleport.report.paper.plan import planned_figures
from teleport.report.published import published_path, stages_behind
from teleport.report.rows import in_folder
from teleport.report.write import FORMS, planned_tables, untrained_tables
from teleport.running.artefact import MANIFEST, is_finished
from teleport.running.code import digest_of, digests_of_all
from teleport.running.devices import require_usable_apart
from teleport.running.files import read_saved, write_text
from teleport.running.job import spec_path, write_spec
from teleport.running.launch import if_killed
from teleport.settings.read import load, with_extended
from teleport.settings.section import in_one_spelling

# The folder of this repository, also if another workflow uses it as a module or names its Snakefile from elsewhere.
HOME = Path(inspect.currentframe().f_code.co_filename).absolute().parents[1]
if not (HOME / "workflow_scripts/teleport/__init__.py").samefile(teleport.__file__):
    raise WorkflowError(
        f"the installed library is in {Path(teleport.__file__).parent}, not in {HOME} with these rules. "
        f"Install this one, {Path(sys.executable).parent}/pip install --no-deps -e {HOME}, or run its own Snakefile."
    )
if set("{}") & set(str(HOME)):
    raise WorkflowError(f"{HOME} has braces, which Snakemake reads as wildcards. Rename the folder, or move it.")

# On a cluster each job's process reads the code again; the first process passes it this variable.
MAIN = "TELEPORT_CODE" not in os.environ
# The workflow's Python comes first on the path; an environment that `--sdm conda` activates comes before it.
os.environ |= {"PATH": os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])}

# ---- The configuration and its plan


def int_or_float(number):
    return int(number) if number.is_integer() else number


# A `configfile:` is merged under every --configfile, so the default is read only without --configfile: a paper's
# configuration never inherits a value of the default.
if not workflow.configfiles:
    DEFAULT = "config/config.yaml"

    configfile: DEFAULT if Path(DEFAULT).exists() else HOME / DEFAULT  # started elsewhere, with -s


# From a cluster's profile: the hardware of the nodes and the limits of their partition; empty on one machine.
described = config.pop("cluster", {})
try:
    of_command_line = {key: value for key, value in workflow.config_settings.config.items() if key != "cluster"}
    GIVEN = with_extended(config, workflow.configfiles, of_command_line)
    CONFIG, EXPERIMENTS = load(GIVEN, workflow.configfiles)
    PLAN = Plan(CONFIG, EXPERIMENTS)
    REQUESTS = Requests(PLAN, described, lambda name: is_finished(name) and not outdated(name))
    CLUSTER = REQUESTS.cluster if described else None
    TABLES = with_line(planned_tables)(PLAN)
    with_line(planned_figures)(PLAN)  # a figure that cannot be drawn is refused now
except Refusal as error:
    sys.exit(f"error: {error}")  # a WorkflowError would come with this line and a traceback

FOLDERS = list(experiment_folders(PLAN))  # results/experiments/NAME
PAGE_FOLDER = in_folder("report", CONFIG)
ASSETS = HOME / "workflow_scripts/teleport/report/page/assets"
# Tables, page and links are planned from the whole configuration, including --config.
CONFIGURATION = f"{in_folder('configuration', CONFIG)}.json"
CONFIGURATION_TEXT = json.dumps(
    {
        "files": [in_one_spelling(file) for file in workflow.configfiles],
        # 12.0 is 12: how a number is written reruns nothing.
        "config": json.loads(json.dumps(GIVEN, default=str), parse_float=lambda text: int_or_float(float(text))),
    },
    indent=1,
)

# ---- The code

# Snakemake records the code that its main process has read. A job of a cluster reads the Snakefile again: it gets the
# digests of that code, and refuses to run code that was edited since.
if MAIN:
    os.environ["TELEPORT_CODE"] = json.dumps(digests_of_all())
    os.environ["TELEPORT_FORCED"] = "{}"  # until Snakemake knows it: `forced`


envvars:
    "TELEPORT_CODE",
    "TELEPORT_FORCED",


CODE = json.loads(os.environ["TELEPORT_CODE"])


@cache
def forced():
    """The rules and files of `--forcerun`, or the targets with `--force`, and "all stages" with `--forceall`: {name: the
    start of this workflow}. A cluster's job reads them from the environment."""
    if MAIN:
        options = workflow.dag_settings
        named = {*options.forcerun, *(options.targets if options.forcetargets else ())}
        named = {"all stages"} if options.forceall else named
        named = sorted(os.path.relpath(name) for name in named)  # as Snakemake reads ./results/…
        os.environ["TELEPORT_FORCED"] = json.dumps(dict.fromkeys(named, time.time()))
    return json.loads(os.environ["TELEPORT_FORCED"])


@cache  # it reads a manifest
def code(stage):
    """The digest of the code that a stage runs."""
    return code_of(stage, CODE)


# ---- Messages


if MAIN:
    PLANNED.costs = partial(cost_sentence, PLAN, CLUSTER and CLUSTER.hardware)
    PLANNED.scores = episode_scores(PLAN)
    for sentence in encoding_sentences(EXPERIMENTS, PLAN):
        logger.info(sentence)
    # The memory of a cluster's machines is not known here.
    for warning in PLAN.warnings + ([] if CLUSTER else shortages(PLAN)):
        logger.warning(warning)


label = cache(PLAN.label)  # the name of a stage in messages


def warn_of_devices():
    """Before the first job, warn if torch cannot use the devices that jobs of this machine will lease. Each job checks
    again, and fails if it cannot."""
    if not CLUSTER and any(needs(stage).gpus and not is_finished(name) for name, stage in PLAN.stages.items()):
        try:
            require_usable_apart()
        except Refusal as error:
            logger.warning(f"stages on a GPU will fail at once: {error}")


# ---- Stages


wildcard_constraints:
    key="[0-9a-f]{12}",


# Jobs that encode the passages of one stage, or search for its queries, each on a device of its own: --set-scatter
# encode=4 retrieve=4, or in a profile.
scattergather:
    encode=1,
    retrieve=1,


# Snakemake makes the names of all shards before any rule sees their number, so too large a number, of the command line
# or a profile, is refused here.
MOST_SHARDS = 1000
for scattered, number in workflow.resource_settings.overwrite_scatter.items():
    if number > MOST_SHARDS:
        sys.exit(
            f"error: set-scatter {f'{scattered}={number}'[:60]}: at most {MOST_SHARDS} shards. "
            "Give as many as there are devices."
        )


def manifest(stage):
    return f"results/stages/{stage.name}/manifest.json"


def manifests(stages):
    return [manifest(stage) for stage in stages]


def planned(wildcards):
    """The stage of a job."""
    name = f"{wildcards.kind}/{wildcards.key}"
    if name not in PLAN.stages:
        raise WorkflowError(
            f"{name} is not a stage of this configuration. plan.tsv in results/experiments/NAME lists its stages."
        )
    return PLAN.stages[name]


def resources_of(wildcards):
    """The resources of a job: a row of teleport/plan/kinds.py. On one machine, an index takes a GPU so that the next
    encoding waits until vectors are deleted."""
    return needs(planned(wildcards), () if CLUSTER else PLAN.deleted_vectors)


def requested(wildcards, attempt):
    """The time and memory of a job, by the forecast of its stage or shard."""
    shards = wildcards.get("scatteritem", "1-of-1").split("-of-")[1]
    return request_of(planned(wildcards), attempt, int(shards))


def shared_job(wildcards):
    """The job of a cluster that a stage shares; shards of an encoding run at the same time, each in its own. For rules
    of FOLLOWING and `encode` alone: one with a group is none of `localrules`."""
    return group_of(planned(wildcards)) if CLUSTER and "scatteritem" not in wildcards.keys() else None


# Snakemake asks for time and then for memory, for every job at the start and again when the job can begin. By then the
# size of the collection may be known, so an answer is kept only for these two questions.
request_of = lru_cache(maxsize=1)(REQUESTS.of)


def inputs(wildcards):
    """Input function: the manifests of the stages that a stage reads."""
    return manifests(planned(wildcards).inputs.values())


def reruns(stage):
    """Whether a stage was made by an older version of the code, or is forced."""
    return is_edited(stage, code(stage)) or forced_at(stage) is not None


outdated = outdated_by(PLAN.stages, reruns)


def shard_manifests(wildcards):
    """Input function: the shards that a job joins; none when it makes the stage itself, or encodes queries alone.

    A finished stage keeps the set of shards that it was made from, as another set of inputs would rerun it. In a job of
    a cluster, whose stage is not finished, the shards lie there or were not made.
    """
    stage, folder = planned(wildcards), f"results/shards/{wildcards.kind}/{wildcards.key}"
    if not is_scattered(stage):
        return []
    paths = getattr(gather, wildcards.kind)(f"{folder}/{{scatteritem}}/{MANIFEST}")
    if MAIN and is_finished(stage.name) and not outdated(stage.name):
        number = read_saved(Path(manifest(stage))).get("provenance", {}).get("shards", 1)
        paths = [f"{folder}/{shard}-of-{number}/{MANIFEST}" for shard in range(1, number + 1)]
    there = MAIN or all(Path(path).exists() for path in paths)
    return paths if there and len(paths) > 1 else []


# ---- Commands. Snakemake does not track params functions of `threads` or `input`: how a stage runs, where the
# repository is and which message a failure prints decide no result, so they rerun nothing.


def command(script, *arguments):
    """A script of this repository, quoted for the shell."""
    return shlex.join(["python3", f"{HOME}/workflow_scripts/{script}", *map(str, arguments)])


@cache
def written_configuration():
    """The file that the rule `configuration` copies."""
    path = f"{in_folder('logs/configuration', CONFIG)}.json"
    if MAIN and not workflow.dryrun:
        write_text(Path(path), CONFIGURATION_TEXT)
    return path


@cache
def spec_of_stage(stage):
    """The JSON file from which the job of a stage takes its settings."""
    return write_spec(stage) if MAIN and not workflow.dryrun else spec_path(stage)


def forced_at(stage):
    """The time from which a stage is forced to rerun, by its name, its rule or `--forceall`; None if it is not."""
    times = forced()
    of_rule = (name for name in times if kind_of(name) == stage.kind)
    return next((times[name] for name in ("all stages", manifest(stage), *of_rule) if name in times), None)


@cache
def kind_of(rule):
    """The kind of stage that a rule makes; its name may have a prefix from a workflow that has this one as a module."""
    name = rule.removesuffix("_shard")
    return max((kind for kind in KINDS if name.endswith(kind)), key=len, default=None)


def run_stage(wildcards, input, threads, resources):
    settings = own_resources(wildcards.kind, resources)
    options = {
        "--threads": threads,
        "--gpus": gpus_of(resources),
        "--files": CODE["files"],
        "--save-every": settings.save_every,
    }
    if "scatteritem" in wildcards.keys():
        options["--shard"] = wildcards.scatteritem
    elif input.get("shards"):
        options["--shards"] = len(input.shards)
    if wildcards.kind == "train":  # a process per GPU; `processes`: this many, as on CPUs
        options["--processes"] = settings.processes or max(1, gpus_of(resources))
    if CLUSTER:
        options["--attempt"] = resources.attempt
    flags = ["--compile"] * settings.compile + [f"--artefacts={place}" for place in CONFIG.artefacts]
    if time_forced := forced_at(planned(wildcards)):
        options["--anew"] = time_forced
    return command("run_stage.py", spec_of_stage(planned(wildcards)), *chain(*options.items()), *flags)


def manage(*arguments, folder=None):
    """Params function: a command of manage.py, which writes to `folder` where one is named, with its wildcards."""

    def run(wildcards, input):
        output = ["--output", folder.format_map(wildcards)] if folder else []
        return guarded(command("manage.py", *arguments, *output))

    return run


def guarded(run):
    """A shell command that runs `run`, which makes no stage, and prints a message if it is killed."""
    return f"{{ {run} || {if_killed()}; }}"


# ---- Tables


def shown(kind, caption, category):
    """The CSV files of all tables of a kind, which `snakemake --report` takes along."""
    options = {"caption": caption, "category": category}
    return [report(f"{path}.csv", labels={"table": os.path.basename(path)}, **options) for path in TABLES[kind]]


def untrained_stages(wildcards):
    """Input function: the stages behind the published tables for which nothing is trained."""
    if tables := untrained_tables(PLAN):
        return manifests(PLAN.stages[name] for table in tables.values() for name in stages_behind(table))
    raise WorkflowError(
        "no published table has only figures of released checkpoints: name one under the key `published`, "
        "such as released-checkpoints with config/marco.yaml, config/nq.yaml or config/triviaqa.yaml."
    )
