# The rooms of an episode: encode, index, retrieve (queries, positives, evaluated queries), merge, train. Question
# answering has one more: the positives found by answer match.
# `save_every`: seconds of work that a kill may cost; a profile's `set-resources` changes it without rerunning anything.


rule encode_shard:
    # The vectors of a part of the passages, where they are encoded by several jobs (`set-scatter`).
    input:
        inputs_of("encode"),
    output:
        temp("results/shards/encode/{key}/{scatteritem}/manifest.json"),
    log:
        "results/logs/encode_shard/{key}/{scatteritem}.log",
    benchmark:
        "results/benchmarks/encode_shard/{key}/{scatteritem}.tsv"
    conda:
        "../environment.yml"
    threads: 8
    resources:
        mem_mb=32000,
        runtime=480,
        save_every=60,
        gpu=1,
    params:
        spec=spec_of("encode"),
        code=CODE["encode"],
        run=run_shard,
    message:
        "shard {wildcards.scatteritem} of {LABEL:encode/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule encode:
    # Vectors of all passages and queries under one checkpoint; of the passages joined from shards, where there are some.
    input:
        inputs_of("encode"),
        shards=shard_manifests,
    output:
        "results/stages/encode/{key}/manifest.json",
    log:
        "results/logs/encode/{key}.log",
    benchmark:
        "results/benchmarks/encode/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 8
    resources:
        mem_mb=32000,
        runtime=480,
        save_every=60,
        gpu=1,
    params:
        spec=spec_of("encode"),
        code=CODE["encode"],
        run=run_encode,
    message:
        "{LABEL:encode/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule index:
    # The index over the passage vectors; flat: exact search needs only that they are sound. Others are trained.
    input:
        inputs_of("index"),
    output:
        "results/stages/index/{key}/manifest.json",
    log:
        "results/logs/index/{key}.log",
    benchmark:
        "results/benchmarks/index/{key}.tsv"
    conda:
        "../environment.yml"
    threads: lambda wildcards: 1 if is_flat(wildcards) else 8
    resources:
        mem_mb=lambda wildcards: 4000 if is_flat(wildcards) else 64000,
        runtime=lambda wildcards: 60 if is_flat(wildcards) else 720,
    params:
        spec=spec_of("index"),
        code=CODE["index"],
        run=run_stage,
    message:
        "{LABEL:index/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule retrieve:
    # Nearest passages of queries or of their positives (lookahead, Eq. 6).
    input:
        inputs_of("retrieve"),
    output:
        "results/stages/retrieve/{key}/manifest.json",
    log:
        "results/logs/retrieve/{key}.log",
    benchmark:
        "results/benchmarks/retrieve/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 8
    resources:
        mem_mb=64000,
        runtime=480,
        save_every=60,
        gpu=1,
    params:
        spec=spec_of("retrieve"),
        code=CODE["retrieve"],
        run=run_stage,
    message:
        "{LABEL:retrieve/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule positives:
    # Positives of the training questions: given, or found by answer match (question answering).
    input:
        inputs_of("positives"),
    output:
        "results/stages/positives/{key}/manifest.json",
    log:
        "results/logs/positives/{key}.log",
    benchmark:
        "results/benchmarks/positives/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        spec=spec_of("positives"),
        code=CODE["positives"],
        run=run_stage,
    message:
        "{LABEL:positives/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule merge:
    # The pool of negatives: query and lookahead neighbours and the momentum queue (Eq. 4-6).
    input:
        inputs_of("merge"),
    output:
        "results/stages/merge/{key}/manifest.json",
    log:
        "results/logs/merge/{key}.log",
    benchmark:
        "results/benchmarks/merge/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        spec=spec_of("merge"),
        code=CODE["merge"],
        run=run_stage,
    message:
        "{LABEL:merge/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"


rule train:
    # One episode's training on its pool. With `gpu` above 1 (a profile's set-resources) one job takes so many GPUs.
    input:
        inputs_of("train"),
    output:
        "results/stages/train/{key}/manifest.json",
    log:
        "results/logs/train/{key}.log",
    benchmark:
        "results/benchmarks/train/{key}.tsv"
    conda:
        "../environment.yml"
    threads: 8
    resources:
        mem_mb=32000,
        runtime=2880,
        save_every=60,
        gpu=1,
    params:
        spec=spec_of("train"),
        code=CODE["train"],
        run=run_train,
    message:
        "{LABEL:train/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1"
