# The tables, the report page, and per experiment an index with links to its stages. Each is one job that plans from the
# configuration, which is written down here, and reads the finished stages.


localrules:
    all,
    configuration,
    tables,
    published,
    published_checkpoints,
    report_page,
    experiments,
    mined,


# The whole configuration as one file, with values from --config or from another workflow.
rule configuration:
    output:
        CONFIGURATION,
    log:
        f"{in_folder('logs/configuration', CONFIG)}.log",
    priority: 1000  # the links need it
    conda:
        "../environment.yml"
    params:
        text=lambda wildcards: CONFIGURATION_TEXT,
        written=lambda wildcards: written_configuration(),
    message:
        f"configuration {CONFIGURATION}"
    # Not `run:`, for which Snakemake starts itself again and quotes its own path wrongly if a folder has an apostrophe.
    shell:
        "cp {params.written:q} {output:q} 2> {log:q}"


# Every table as CSV, Markdown and LaTeX: measures and analyses with the stages behind each cell, and the papers' tables
# with our figures beside their own. `snakemake tables --cores all` makes the stages and these tables: no page, no links
# to the stages and no plan.tsv.
rule tables:
    input:
        CONFIGURATION,
        manifests(PLAN.stages.values()),
    output:
        shown("measured", "captions/table.rst", "Tables"),
        shown("analyses", "captions/table.rst", "Tables"),
        shown("published", "captions/published.rst", "The papers' tables"),
        [f"{path}.{suffix}" for kind in TABLES for path in TABLES[kind] for suffix in FORMS[kind]],
    log:
        f"{in_folder('logs/tables', CONFIG)}.log",
    conda:
        "../environment.yml"
    params:
        code=CODE["teleport.report.write"],
        published=[file_digest(published_path(name)) for name in CONFIG.published],
        run=manage("tables", CONFIGURATION),
    message:
        "tables"
    shell:
        "{params.run} > {log} 2>&1"


# The papers' tables from the stages that are finished now: `snakemake published --cores 1` runs none.
rule published:
    input:
        CONFIGURATION,
    log:
        f"{in_folder('logs/published', CONFIG)}.log",
    conda:
        "../environment.yml"
    params:
        run=manage("tables", CONFIGURATION, "--published"),
    message:
        (
            "published tables, from what is finished"
            if CONFIG.published
            else "no published tables: name some under the key `published` of the configuration"
        )
    shell:
        "{params.run} 2>&1 | tee {log}"


# Published checkpoints beside their published figures; nothing is trained: `snakemake published_checkpoints --cores all`.
use rule published as published_checkpoints with:
    input:
        CONFIGURATION,
        untrained_stages,
    log:
        f"{in_folder('logs/published_checkpoints', CONFIG)}.log",
    params:
        run=manage("tables", CONFIGURATION, "--untrained"),
    message:
        "published checkpoints"


# The report page, from the finished stages: `snakemake --report report.zip` includes it. Snakemake empties its folder
# before it is written, so each configuration has its own.
use rule tables as report_page with:
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
        f"{in_folder('logs/report', CONFIG)}.log",
    params:
        code=CODE["teleport.report.page.write"],
        assets=[file_digest(path) for path in sorted(ASSETS.iterdir())],
        published=[file_digest(published_path(name)) for name in CONFIG.published],
        run=manage("report", CONFIGURATION),
    message:
        f"report page {PAGE_FOLDER}/index.html"


# results/experiments/NAME: plan.tsv and links to the stages, which other experiments may share. They wait for no stage
# and come first, so that you can look while the stages run.
use rule tables as experiments with:
    input:
        CONFIGURATION,
    output:
        [f"{folder}/plan.tsv" for folder in FOLDERS],
    log:
        f"{in_folder('logs/experiments', CONFIG)}.log",
    priority: 1000
    params:
        code=CODE["teleport.report.links"],
        stages=digest_of(PLAN.stages),  # a file that was edited in place is another stage
        run=manage("link", CONFIGURATION),
    message:
        "links of the experiments"


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
        run=lambda wildcards, input, output: guarded(command("manage.py", "export", Path(input[0]).parent, output[0])),
    message:
        "negatives of {wildcards.folder}"
    shell:
        "{params.run} 2>&1 | tee {log}"
