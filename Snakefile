# Training dense retrievers with mined negatives, as a workflow.
#
#   .venv/bin/snakemake --cores all                                             the embedded default, config/config.yaml
#   .venv/bin/snakemake --cores all --configfile config/NAME.yaml               another collection or scale
#   .venv/bin/snakemake --cores all --configfile config/apidocs.yaml config/ablations/negatives.yaml
#                                                                     the first file ablated by the second

import snakemake
from packaging.version import Version
from snakemake.exceptions import WorkflowError

# Tried on 9.27.1; later 9.x is expected to work. Of what Snakemake's documentation does not promise, five names are used,
# `workflow.configfiles`, `config_settings`, `dag_settings`, `dryrun` and `resource_settings` in rules/common.smk, and
# three texts of its log records in commands/terminal.py. tests/workflow/test_snakemake_names.py lists and tries them.
if not Version("9.27") <= Version(snakemake.__version__) < Version("10"):
    raise WorkflowError(f"Snakemake is {snakemake.__version__}, this workflow needs 9.27 or later, below 10.")


include: "rules/common.smk"
include: "rules/stages.smk"
include: "rules/targets.smk"
include: "rules/tables.smk"


rule all:
    default_target: True
    input:
        [f"{path}.csv" for kind in TABLES for path in TABLES[kind]],
        [f"{folder}/plan.tsv" for folder in FOLDERS],
        manifests(PLAN.stages.values()),
        f"{PAGE_FOLDER}/index.html" if CONFIG.report else [],
        [f"results/stages/{name}/deleted.json" for name in PLAN.deleted_vectors],
    message:
        "all results of the configuration"


onstart:
    end_as_asked()
    warn_of_devices()
