# One rule per kind of stage. All have the form of `stage`, and are told by the wildcard `kind`.
# `save_every`: seconds of work that a kill may cost; a profile's `set-resources` changes it without rerunning anything.
# What vectors wait for has a higher priority than what makes more of them: few are on the disk at a time (keep_vectors).


# The form: it makes nothing itself. A light stage has its threads and resources.
rule stage:
    input:
        inputs,
    output:
        "results/stages/{kind}/{key}/manifest.json",
    log:
        "results/logs/{kind}/{key}.log",
    benchmark:
        "results/benchmarks/{kind}/{key}.tsv"
    wildcard_constraints:
        kind="(?!)",  # matches no text
    conda:
        "../environment.yml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=60,
    params:
        spec=lambda wildcards: planned(wildcards).spec(),
        code=lambda wildcards: code_of(planned(wildcards)),
        run=run_stage,
    message:
        "{LABEL:{wildcards.kind}/{wildcards.key}}"
    shell:
        "{params.run} --spec {params.spec:q} --code {params.code} > {log} 2>&1 || (status=$?; if [ $status = 137 ]; then "
        "echo 'error: the process was killed by signal 9. Unless you or the scheduler did that, the kernel did for want "
        "of memory (dmesg names it): run fewer jobs at once (--cores), or, on a cluster, give this one more "
        "(--set-resources {wildcards.kind}:mem_mb=N); `make forecast` says what it needs and what helps.' >> {log}; fi; exit $status)"


# Fetch official files, continue where a connection was cut, verify them.
use rule stage as download with:
    wildcard_constraints:
        kind="download",
    resources:
        mem_mb=1000,
        runtime=1440,


# Read, validate and number passages, queries and judgments.
use rule stage as collection with:
    wildcard_constraints:
        kind="collection",
    resources:
        mem_mb=8000,
        runtime=240,


# Refuse a collection that is too small for the depths, before anything expensive starts.
use rule stage as check with:
    wildcard_constraints:
        kind="check",
    priority: 100
    resources:
        mem_mb=1000,
        runtime=10,


# Fetch, verify and bring the pretrained checkpoint into the form of every later one.
use rule stage as pretrained with:
    wildcard_constraints:
        kind="pretrained",
    priority: 50


# Tokenise every text once; no later stage calls the tokenizer.
use rule stage as tokens with:
    wildcard_constraints:
        kind="tokens",
    priority: 50
    threads: 8
    resources:
        mem_mb=8000,
        runtime=240,


# The words of all passages, inverted: one index for the runs of all splits and depths.
use rule stage as lexical_index with:
    wildcard_constraints:
        kind="lexical_index",
    resources:
        mem_mb=8000,
        runtime=240,


# Search by words (BM25): a baseline's run, and neighbours to draw negatives from.
use rule stage as bm25 with:
    wildcard_constraints:
        kind="bm25",
    threads: 8
    resources:
        mem_mb=16000,
        runtime=240,
        save_every=60,


# Negatives of a file from elsewhere, checked and numbered.
use rule stage as negatives_file with:
    wildcard_constraints:
        kind="negatives_file",


# Vectors of passages and queries under one checkpoint; of the passages joined from shards, where there are some.
use rule stage as encode with:
    input:
        inputs,
        shards=shard_manifests,
    wildcard_constraints:
        kind="encode",
    threads: 8
    resources:
        mem_mb=32000,
        runtime=480,
        save_every=60,
        gpu=1,


# The vectors of a part of the passages, where they are encoded by several jobs (`set-scatter`).
use rule encode as encode_shard with:
    input:
        inputs,
    output:
        temp("results/shards/{kind}/{key}/{scatteritem}/manifest.json"),
    log:
        "results/logs/{kind}_shard/{key}/{scatteritem}.log",
    benchmark:
        "results/benchmarks/{kind}_shard/{key}/{scatteritem}.tsv"
    message:
        "shard {wildcards.scatteritem} of {LABEL:{wildcards.kind}/{wildcards.key}}"


# The index over the passage vectors; flat: exact search needs only that they are sound. Others are trained. Where vectors
# are released it holds a GPU, of which it has no use: the next encoding would start, and both vectors be there.
use rule stage as index with:
    wildcard_constraints:
        kind="index",
    priority: 10
    threads: by_index(1, 8)
    resources:
        gpu=int(bool(PLAN.released)),
        mem_mb=by_index(4000, 64000),
        runtime=by_index(60, 720),


# Nearest passages of queries or of their positives (lookahead, Eq. 6).
use rule stage as retrieve with:
    wildcard_constraints:
        kind="retrieve",
    priority: 10
    threads: 8
    resources:
        mem_mb=64000,
        runtime=480,
        save_every=60,
        gpu=1,


# Positives of the training questions found by answer match (question answering).
use rule stage as positives with:
    wildcard_constraints:
        kind="positives",
    priority: 10
    threads: 8


# The pool of negatives, so many from each source (ANCE-Tele: Eq. 4-6).
use rule stage as merge with:
    wildcard_constraints:
        kind="merge",
    priority: 10
    threads: lambda wildcards: 8 if planned(wildcards).settings.remove == "answers" else 1


# One episode's training on its pool. With `gpu` above 1 (a profile's set-resources) one job takes so many GPUs.
use rule stage as train with:
    wildcard_constraints:
        kind="train",
    priority: 10
    threads: 8
    resources:
        mem_mb=32000,
        runtime=2880,
        save_every=60,
        gpu=1,


# Measures of one run on one split, per query and in the mean.
use rule stage as evaluate with:
    wildcard_constraints:
        kind="evaluate",


# A run from elsewhere, checked and brought into the form of our own.
use rule stage as external with:
    wildcard_constraints:
        kind="external",


# The passages of a given run in the order of a checkpoint's scores.
use rule stage as rerank with:
    wildcard_constraints:
        kind="rerank",
    priority: 10
    resources:
        mem_mb=32000,
        runtime=240,


# Pairwise errors by exact ranks in the whole corpus; products of all queries and passages, on the processor.
use rule stage as errors with:
    wildcard_constraints:
        kind="errors",
    priority: 10
    threads: 8
    resources:
        mem_mb=32000,
        runtime=480,
        save_every=60,


# A run beside a reference run: overlap, queries won and lost.
use rule stage as contrast with:
    wildcard_constraints:
        kind="contrast",


# Training negatives among the first negatives of the checkpoint that was trained on them.
use rule stage as negatives_overlap with:
    wildcard_constraints:
        kind="negatives_overlap",


# Training queries that an episode makes worse.
use rule stage as forgetting with:
    wildcard_constraints:
        kind="forgetting",


localrules:
    release,


# The vectors of a checkpoint go when every planned stage has read them, where `keep_vectors` says so.
rule release:
    input:
        lambda wildcards: manifests(PLAN.released[f"encode/{wildcards.key}"]),
    output:
        "results/stages/encode/{key}/released.json",
    log:
        "results/logs/release/{key}.log",
    priority: 100
    conda:
        "../environment.yml"
    params:
        run=lambda wildcards, output: command(
            "manage.py", "release", "--output", Path(output[0]).parent
        ),
    message:
        "release the vectors of {LABEL:encode/{wildcards.key}}"
    shell:
        "{params.run} > {log} 2>&1"
