# What a person reads: one table per entry of TABLES, the papers' tables with their figures beside ours (PUBLISHED),
# and per experiment an index with links to its stages.
#
# Specifications grow with seeds and episodes, and a program's argument ends at 128 KiB, so they go through a pipe.
# printf is built into the shell and has no such limit; a long command Snakemake itself runs from a file.


localrules:
    all,
    tables,
    table,
    published_table,
    published,
    experiment,


# Both write the same files: `published` from what is on disk, without waiting for any stage.
ruleorder: published_table > published


rule tables:
    # Only the tables: `snakemake tables --cores all`.
    input:
        checks(),
        table_files(),
        published_files(),


rule table:
    # One frame as CSV, Markdown and LaTeX, with the stages behind each cell beside it.
    input:
        lambda wildcards: [
            manifest(stage)
            for stage in TABLES[wildcards.folder, wildcards.table].stages
        ],
    output:
        multiext("{folder}/{table}", ".csv", ".md", ".tex", ".sources.csv"),
    log:
        "results/logs/{folder}/{table}.log",
    wildcard_constraints:
        folder="results/tables(/[^/]+)?",
        table="[^/.]+",
    conda:
        "../environment.yml"
    params:
        spec=lambda wildcards: TABLES[wildcards.folder, wildcards.table].text,
        code=code_digest(module_path("teleport.report.table")),
        run=write_table,
    message:
        "table {wildcards.table}"
    shell:
        "printf '%s\\n' {params.spec:q} | {params.run} --output {wildcards.folder} > {log} 2>&1"


rule published_table:
    # A paper's table with our figures beside its own, after everything that it shows.
    input:
        lambda wildcards: [
            manifest(stage)
            for stage in PUBLISHED[wildcards.folder, wildcards.table].stages
        ],
    output:
        multiext("{folder}/{table}", ".csv", ".md", ".tex"),
    log:
        "results/logs/{folder}/{table}.log",
    wildcard_constraints:
        folder="results/published(/[^/]+)?",
        table="[^/]+",
    conda:
        "../environment.yml"
    params:
        spec=lambda wildcards: PUBLISHED[wildcards.folder, wildcards.table].text,
        code=code_digest(module_path("teleport.report.published_table")),
        run=write_published,
    message:
        "published table {wildcards.table}"
    shell:
        "printf '%s\\n' {params.spec:q} | {params.run} --output {wildcards.folder} > {log} 2>&1"


rule published:
    # The same tables from the stages that are finished now: `snakemake published --cores 1` runs none.
    output:
        published_files(("csv", "md", "tex")),
    log:
        "results/logs/published.log",
    conda:
        "../environment.yml"
    params:
        specs=[spec.text for spec in PUBLISHED.values()],
        folder=in_folder("published", CONFIG),
        finished=[finished(spec) for spec in PUBLISHED.values()],
        code=code_digest(module_path("teleport.report.published_table")),
        run=write_published,
    message:
        (
            "published tables, from what has been run"
            if PUBLISHED
            else "no published tables: name some under the key `published` of the configuration"
        )
    shell:
        "printf '%s\\n' {params.specs:q} | {params.run} --output {params.folder} > {log} 2>&1"


rule experiment:
    # results/experiments/NAME: plan.tsv and links to the stages, which other experiments may share.
    input:
        lambda wildcards: [
            manifest(stage) for stage in INDEXES[wildcards.folder].stages
        ],
    output:
        "{folder}/plan.tsv",
    log:
        "results/logs/{folder}/plan.log",
    wildcard_constraints:
        folder="results/experiments/.+",
    conda:
        "../environment.yml"
    params:
        spec=lambda wildcards: INDEXES[wildcards.folder].text,
        code=code_digest(module_path("teleport.report.experiments")),
        run=link_experiment,
    message:
        "links of {wildcards.folder}"
    shell:
        "printf '%s\\n' {params.spec:q} | {params.run} > {log} 2>&1"
