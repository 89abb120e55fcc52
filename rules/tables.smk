# What a person reads: one table per entry of TABLES, and per experiment an index with links to its stages.


localrules:
    all,
    tables,
    table,
    experiment,


rule tables:
    # Only the tables: `snakemake tables`.
    input:
        table_files(),


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
        "{params.run} --spec {params.spec:q} --output {wildcards.folder} > {log} 2>&1"


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
        "{params.run} --spec {params.spec:q} > {log} 2>&1"
