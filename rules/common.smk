# The configuration, the plan made from it, and the input functions of the stage rules. Rules stay declarative: what
# a stage reads and which settings it has is decided in workflow_scripts/teleport/plan.py.

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
# Formatted into the commands, not tracked: where the interpreter and the repository lie changes no result.
RUN_STAGE = shlex.join(
    [sys.executable, f"{workflow.basedir}/workflow_scripts/run_stage.py"]
)
WRITE_TABLE = shlex.join(
    [sys.executable, f"{workflow.basedir}/workflow_scripts/write_table.py"]
)
WRITE_PUBLISHED = shlex.join(
    [sys.executable, f"{workflow.basedir}/workflow_scripts/write_published.py"]
)
LINK_EXPERIMENT = shlex.join(
    [sys.executable, f"{workflow.basedir}/workflow_scripts/link_experiment.py"]
)


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
