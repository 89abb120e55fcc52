# Training dense retrievers with mined negatives, as a workflow.
#
#   snakemake --cores all                                             the embedded default, config/config.yaml
#   snakemake --cores all --configfile config/NAME.yaml               another collection or scale
#   snakemake --cores all --configfile config/apidocs.yaml config/ablations/negatives.yaml
#                                                                     the first file ablated by the second

from snakemake.utils import min_version

min_version("9.27")


include: "rules/common.smk"
include: "rules/stages.smk"
include: "rules/targets.smk"
include: "rules/tables.smk"


rule all:
    default_target: True
    input:
        [files_of(kind, ("csv",)) for kind in TABLES],
        [f"{folder}/plan.tsv" for folder in FOLDERS],
        manifests(PLAN.stages.values()),
        f"{PAGE_FOLDER}/index.html" if CONFIG.report else [],
        [f"results/stages/{name}/deleted.json" for name in PLAN.deleted_vectors],


onstart:
    require_devices()


onsuccess:
    paths = [*files_of("measured", ("md",)), f"{PAGE_FOLDER}/index.html"]
    for line in outcome(internals.made_or_found(workflow, paths)):
        logger.info(line)
