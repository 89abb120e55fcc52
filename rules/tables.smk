# What a person reads: one table per entry of TABLES, the papers' tables with their figures beside ours (PUBLISHED),
# and per experiment an index with links to its stages.
#
# Specifications grow with seeds and episodes, and a program's argument ends at 128 KiB, so they go through a pipe.
# printf is built into the shell and has no such limit; a long command Snakemake itself runs from a file. Specifications
# have a person's texts: as functions, because Snakemake takes braces in other params for wildcards.


localrules:
    all,
    tables,
    table,
    analyses,
    published_table,
    published,
    published_checkpoints,
    report_page,
    experiment,
    mined,


# Both write the same files: `published` from what is on disk, without waiting for any stage.
ruleorder: published_table > published


# Only the tables, and the checks of whether collections and settings suit each other: `snakemake tables --cores all`.
rule tables:
    input:
        manifests(stage for stage in PLAN.stages.values() if stage.kind == "check"),
        files_of(TABLES),
        files_of(ANALYSES),
        files_of(PUBLISHED),
    message:
        "all tables"


# One frame as CSV, Markdown and LaTeX, with the stages behind each cell beside it.
rule table:
    input:
        stages_of(TABLES),
    output:
        shown("captions/table.rst", "Tables"),
        multiext("{folder}/{table}", ".md", ".tex", ".sources.csv", ".pairs.csv"),
    log:
        "results/logs/{folder}/{table}.log",
    wildcard_constraints:
        folder="results/tables(/[^/]+)?",
        table="(?!analyses)[^/.]+",
    conda:
        "../environment.yml"
    params:
        spec=lambda wildcards: spec_of(TABLES, wildcards).text,
        code=CODE["teleport.report.table"],
        run=manage("write", "table"),
    message:
        "table {wildcards.table}"
    shell:
        "{{ printf '%s\\n' {params.spec:q} | {params.run}; }} > {log} 2>&1"


# Analyses beside the measures, where `evaluation.analyses` asks for it.
use rule table as analyses with:
    input:
        stages_of(ANALYSES),
    output:
        shown("captions/table.rst", "Tables"),
        multiext("{folder}/{table}", ".md", ".tex", ".sources.csv"),
    wildcard_constraints:
        folder="results/tables(/[^/]+)?",
        table="analyses[^/.]*",
    params:
        spec=lambda wildcards: ANALYSES[wildcards.folder, wildcards.table].text,
        code=CODE["teleport.report.analyses"],
        run=manage("write", "analyses"),
    message:
        "table {wildcards.table}"


# A paper's table with our figures beside its own, after everything that it shows.
use rule table as published_table with:
    input:
        stages_of(PUBLISHED),
    output:
        shown("captions/published.rst", "The papers' tables"),
        multiext("{folder}/{table}", ".md", ".tex"),
    wildcard_constraints:
        folder="results/published(/[^/]+)?",
        table="[^/]+",
    params:
        spec=lambda wildcards: spec_of(PUBLISHED, wildcards).text,
        code=CODE["teleport.report.published_table"],
        run=manage("write", "published_table"),
    message:
        "published table {wildcards.table}"


# The same tables from the stages that are finished now: `snakemake published --cores 1` runs none.
use rule table as published with:
    input:
        [],
    output:
        files_of(PUBLISHED, ("csv", "md", "tex")),
    log:
        "results/logs/published.log",
    params:
        spec=lambda wildcards: [spec.text for spec in PUBLISHED.values()],
        finished=[finish_times(spec) for spec in PUBLISHED.values()],
        code=CODE["teleport.report.published_table"],
        run=manage("write", "published_table", folder=in_folder("published", CONFIG)),
    message:
        (
            "published tables, from what has been run"
            if PUBLISHED
            else "no published tables: name some under the key `published` of the configuration"
        )


# Published checkpoints beside their published figures; nothing is trained: `snakemake published_checkpoints --cores all`.
rule published_checkpoints:
    input:
        untrained_tables,
    log:
        "results/logs/published_checkpoints.log",
    conda:
        "../environment.yml"
    message:
        "published checkpoints"
    shell:
        "cat {input:q} | tee {log}"


# The report page, from what the stages have left behind: `snakemake --report report.zip` takes it along. The folder that
# Snakemake empties before it is made anew is its own, so that the pages of other configurations stay.
use rule table as report_page with:
    input:
        manifests(PLAN.stages.values()),
        files_of(TABLES, ("csv", "pairs.csv")),
    output:
        f"{PAGE_FOLDER}/index.html",
        report(
            directory(f"{PAGE_FOLDER}/_page"),
            htmlindex="index.html",
            caption="captions/page.rst",
            category="Report page",
            labels={"page": CONFIG.name or "report"},
        ),
    log:
        f"results/logs/{PAGE_FOLDER}.log",
    params:
        spec=lambda wildcards: PAGE.text,
        code=CODE["teleport.report.page.write"],
        run=manage("page", folder=PAGE_FOLDER),
    message:
        f"report page {PAGE_FOLDER}/index.html"


# results/experiments/NAME: plan.tsv and links to the stages, which other experiments may share. It waits for none of
# them, and comes first, so that one can look while they run.
use rule table as experiment with:
    input:
        [],
    output:
        "{folder}/plan.tsv",
    log:
        "results/logs/{folder}/plan.log",
    wildcard_constraints:
        folder="results/experiments/.+",
    priority: 1000
    params:
        spec=lambda wildcards: spec_of(INDEXES, wildcards).text,
        code=CODE["teleport.report.experiments"],
        run=manage("link"),
    message:
        "links of {wildcards.folder}"


# The mined negatives of an episode, for other trainers: results/experiments/NAME/episode-1/negatives.jsonl.
rule mined:
    input:
        merged,
    output:
        "{folder}/negatives.jsonl",
    log:
        "results/logs/{folder}/negatives.log",
    wildcard_constraints:
        folder="results/experiments/.+",
    conda:
        "../environment.yml"
    params:
        code=CODE["teleport.negatives.export"],
        run=lambda wildcards, input, output: told(command("manage.py", "export", Path(input[0]).parent, output[0])),
    message:
        "negatives of {wildcards.folder}"
    shell:
        "{params.run} > {log} 2>&1"
