# One rule per kind of stage, with its name and what it does; teleport/plan/kinds.py has its resources. All are `stage` with
# another value of the wildcard `kind`. A profile's `set-resources` changes resources without rerunning anything, also
# `save_every`: seconds of work that a kill may cost (60).


# Base rule; matches no file.
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
    priority: lambda wildcards: resources_of(wildcards).priority
    conda:
        "../environment.yml"
    threads: lambda wildcards: resources_of(wildcards).threads
    resources:
        # A further attempt gets more, because the last one may have had too little.
        mem_mb=lambda wildcards, attempt: requested(wildcards, attempt).mem_mb,
        runtime=lambda wildcards, attempt: requested(wildcards, attempt).minutes,
        gpu=lambda wildcards: resources_of(wildcards).gpus,
        network=lambda wildcards: int(resources_of(wildcards).network),
        attempt=lambda wildcards, attempt: attempt,
        in_turn=1,  # stages in one job of a cluster follow each other: profiles/slurm
    params:
        code=lambda wildcards: code(planned(wildcards)),
        run=run_stage,
        if_killed=lambda wildcards, input: if_killed(wildcards.kind),  # the shell prints it: a killed process cannot
        label=lambda wildcards, input: label(f"{wildcards.kind}/{wildcards.key}"),
    message:
        "{params.label}"
    shell:
        "{{ {params.run} --code {params.code} || {params.if_killed}; }} > {log} 2>&1"


use rule stage as download with:
    """Fetch official files, continue where a connection was cut, verify them."""
    wildcard_constraints:
        kind="download",


use rule stage as corpus with:
    """Read, validate and number the passages."""
    wildcard_constraints:
        kind="corpus",


use rule stage as split with:
    """Read and validate the queries, judgments and answers of one split."""
    wildcard_constraints:
        kind="split",


use rule stage as check with:
    """Refuse a collection that is too small for the depths, before anything expensive starts."""
    wildcard_constraints:
        kind="check",


use rule stage as pretrained with:
    """Fetch, verify and bring the pretrained checkpoint into the form of every later one."""
    wildcard_constraints:
        kind="pretrained",


use rule stage as tokens with:
    """Tokenise every text once; no later stage calls the tokenizer."""
    wildcard_constraints:
        kind="tokens",


use rule stage as lexical_index with:
    """The words of all passages, inverted: one index for the runs of all splits and depths."""
    wildcard_constraints:
        kind="lexical_index",


use rule stage as bm25 with:
    """Search by words (BM25): a baseline's run, and neighbours to draw negatives from."""
    wildcard_constraints:
        kind="bm25",


use rule stage as negatives_file with:
    """Negatives of a file from elsewhere, checked and numbered."""
    wildcard_constraints:
        kind="negatives_file",


use rule stage as scores_file with:
    """Scores or verdicts of pairs from elsewhere (a teacher), checked and numbered."""
    wildcard_constraints:
        kind="scores_file",


use rule stage as encode with:
    """Vectors of passages and queries under one checkpoint (ANCE-Tele, Eq. 1), joined where there are shards."""
    input:
        inputs,
        shards=shard_manifests,
    wildcard_constraints:
        kind="encode",
    group:
        shared_job


use rule encode as encode_shard with:
    """The vectors of a part of the passages, if several jobs encode them (`set-scatter`)."""
    input:
        inputs,
    output:
        temp("results/shards/{kind}/{key}/{scatteritem}/manifest.json"),
    log:
        "results/logs/{kind}_shard/{key}/{scatteritem}.log",
    benchmark:
        "results/benchmarks/{kind}_shard/{key}/{scatteritem}.tsv"
    message:
        "shard {wildcards.scatteritem} of {params.label}"


use rule stage as index with:
    """The index over the passage vectors; for exact search (flat) only a check that they are sound."""
    wildcard_constraints:
        kind="index",
    group:
        shared_job


use rule stage as retrieve with:
    """Nearest passages of queries or of their positives (lookahead, Eq. 6), joined where there are shards."""
    input:
        inputs,
        shards=shard_manifests,
    wildcard_constraints:
        kind="retrieve",
    group:
        shared_job


use rule encode_shard as retrieve_shard with:
    """The neighbours of a part of the queries, if several jobs search (`set-scatter`)."""
    wildcard_constraints:
        kind="retrieve",


use rule stage as positives with:
    """Positives of the training questions found by answer match (question answering)."""
    wildcard_constraints:
        kind="positives",
    group:
        shared_job


use rule stage as score with:
    """Scores of pairs of a query and a passage, for a draw, a filter, a mask or a loss."""
    wildcard_constraints:
        kind="score",


use rule stage as ranker with:
    """Fetch and verify a cross-encoder that teaches."""
    wildcard_constraints:
        kind="ranker",


use rule stage as cross_train with:
    """Train a cross-encoder on positives and a pool of mined negatives (RocketQA's second step)."""
    wildcard_constraints:
        kind="cross_train",


use rule stage as cross_score with:
    """Scores of pairs by a cross-encoder, which reads query and passage together."""
    wildcard_constraints:
        kind="cross_score",


use rule stage as merge with:
    """The pool of negatives, so many drawn from each source (ANCE-Tele: Eq. 4-6)."""
    wildcard_constraints:
        kind="merge",


use rule stage as relabel with:
    """The pool without its probable positives, and the positives with those that relabelling adds."""
    wildcard_constraints:
        kind="relabel",


use rule stage as train with:
    """One episode's training on its pool. With `gpu` above 1 (set-resources in a profile) one job uses several GPUs."""
    wildcard_constraints:
        kind="train",


use rule stage as evaluate with:
    """Measures of one run on one split, per query and in the mean."""
    wildcard_constraints:
        kind="evaluate",


use rule stage as external with:
    """A run from elsewhere, checked and brought into the form of our own."""
    wildcard_constraints:
        kind="external",


use rule stage as rerank with:
    """The passages of a given run in the order of a checkpoint's scores."""
    wildcard_constraints:
        kind="rerank",


use rule stage as errors with:
    """Pairwise errors by exact ranks in the whole corpus; products of all queries and passages, on the processor."""
    wildcard_constraints:
        kind="errors",


use rule stage as contrast with:
    """A run beside a reference run: overlap, queries won and lost."""
    wildcard_constraints:
        kind="contrast",


use rule stage as negatives_overlap with:
    """Training negatives among the first negatives of the checkpoint that was trained on them."""
    wildcard_constraints:
        kind="negatives_overlap",


use rule stage as forgetting with:
    """Training queries that an episode makes worse."""
    wildcard_constraints:
        kind="forgetting",


# On a cluster these run beside Snakemake, because the nodes may have no network.
localrules:
    download,
    pretrained,
    ranker,
    delete_vectors,


# Not `temp()`: a new reader of vectors that are gone would rerun every earlier one (tests/workflow/test_temp.py).
rule delete_vectors:
    """Delete a checkpoint's vectors once every planned stage has read them (`keep_vectors`)."""
    input:
        lambda wildcards: manifests(PLAN.deleted_vectors[f"encode/{wildcards.key}"]),
    output:
        "results/stages/encode/{key}/deleted.json",
    log:
        "results/logs/delete_vectors/{key}.log",
    priority: 100
    conda:
        "../environment.yml"
    params:
        run=manage("delete_vectors", folder="results/stages/encode/{key}"),
        label=lambda wildcards, input: label(f"encode/{wildcards.key}"),
    message:
        "delete the vectors of {params.label}"
    shell:
        "{params.run} > {log} 2>&1"
