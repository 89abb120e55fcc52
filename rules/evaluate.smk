# Scores of runs: of every checkpoint, of BM25, and of runs from elsewhere.


rule bm25:
    # The lexical baseline's run.
    input:
        inputs_of("bm25"),
    output:
        "results/stages/bm25/{key}/manifest.json",
    log:
        "results/logs/bm25/{key}.log",
    benchmark:
        "results/benchmarks/bm25/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=32000,
        runtime=240,
    params:
        spec=spec_of("bm25"),
        code=CODE["bm25"],
        run=run_stage,
    message:
        "{LABEL:bm25/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule external:
    # A run from elsewhere, checked and brought into the form of our own.
    input:
        inputs_of("external"),
    output:
        "results/stages/external/{key}/manifest.json",
    log:
        "results/logs/external/{key}.log",
    benchmark:
        "results/benchmarks/external/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        spec=spec_of("external"),
        code=CODE["external"],
        run=run_stage,
    message:
        "{LABEL:external/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule evaluate:
    # Measures of one run on one split, per query and in the mean.
    input:
        inputs_of("evaluate"),
    output:
        "results/stages/evaluate/{key}/manifest.json",
    log:
        "results/logs/evaluate/{key}.log",
    benchmark:
        "results/benchmarks/evaluate/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        spec=spec_of("evaluate"),
        code=CODE["evaluate"],
        run=run_stage,
    message:
        "{LABEL:evaluate/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"
