# The collection in its one canonical form, the pretrained checkpoint, the token map: made once, read by everything.


rule download:
    # Fetch official files, continue where a connection was cut, verify them.
    input:
        inputs_of("download"),
    output:
        "results/stages/download/{key}/manifest.json",
    log:
        "results/logs/download/{key}.log",
    benchmark:
        "results/benchmarks/download/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=1440,
    params:
        spec=spec_of("download"),
        code=CODE["download"],
        run=run_download,
    message:
        "{LABEL:download/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule collection:
    # Read, validate and number passages, queries and judgments.
    input:
        inputs_of("collection"),
    output:
        "results/stages/collection/{key}/manifest.json",
    log:
        "results/logs/collection/{key}.log",
    benchmark:
        "results/benchmarks/collection/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=240,
    params:
        spec=spec_of("collection"),
        code=CODE["collection"],
        run=run_stage,
    message:
        "{LABEL:collection/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule check:
    # Refuse a collection that is too small for the depths, before anything expensive starts.
    input:
        inputs_of("check"),
    output:
        "results/stages/check/{key}/manifest.json",
    log:
        "results/logs/check/{key}.log",
    benchmark:
        "results/benchmarks/check/{key}.tsv"
    priority: 100
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        spec=spec_of("check"),
        code=CODE["check"],
        run=run_stage,
    message:
        "{LABEL:check/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule pretrained:
    # Fetch, verify and bring the pretrained checkpoint into the form of every later one.
    input:
        inputs_of("pretrained"),
    output:
        "results/stages/pretrained/{key}/manifest.json",
    log:
        "results/logs/pretrained/{key}.log",
    benchmark:
        "results/benchmarks/pretrained/{key}.tsv"
    priority: 50
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        spec=spec_of("pretrained"),
        code=CODE["pretrained"],
        run=run_stage,
    message:
        "{LABEL:pretrained/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule tokens:
    # Tokenise every text once; no later stage calls the tokenizer.
    input:
        inputs_of("tokens"),
    output:
        "results/stages/tokens/{key}/manifest.json",
    log:
        "results/logs/tokens/{key}.log",
    benchmark:
        "results/benchmarks/tokens/{key}.tsv"
    priority: 50
    conda:
        "../environment.yml"
    threads: 8
    resources:
        mem_mb=8000,
        runtime=240,
    params:
        spec=spec_of("tokens"),
        code=CODE["tokens"],
        run=run_stage,
    message:
        "{LABEL:tokens/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"
