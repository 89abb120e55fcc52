"""The kinds of stages: the module of each, and the resources that it needs.

One row per kind, in the order of the workflow; the rules, the code digests and `teleport forecast` read them from here.
The rule of the same name in rules/stages.smk describes a kind, with the equation that it computes.
"""

from typing import NamedTuple


class Kind(NamedTuple):
    """A row: the module with `run` and `Settings`, and the resources that a job requests; `needs` may raise them.

    threads: at most, if a machine has them; mem_mb and minutes: of a first attempt on a cluster, without a forecast;
    gpus: CUDA devices, if there are any; priority: of jobs that are ready, the highest starts first; network: it may
    fetch files.
    """

    module: str
    threads: int = 1
    mem_mb: int = 8000
    minutes: int = 60
    gpus: int = 0
    priority: int = 0
    network: bool = False


# What may refuse a configuration (100) comes first. Stages that read vectors (10) run before stages that make more, so
# that few are on the disk at a time (keep_vectors). Results that a person waits for (20), such as an evaluation and the
# few vectors of its queries, come before a training, which takes hours.
KINDS = {
    "download": Kind("teleport.collection.download", mem_mb=1000, minutes=1440, network=True),
    "corpus": Kind("teleport.collection.corpus", minutes=240, network=True),  # with `source: ir_datasets`
    "split": Kind("teleport.collection.split", minutes=60, priority=100, network=True),
    "check": Kind("teleport.evaluation.check", mem_mb=1000, minutes=10, priority=100),
    "pretrained": Kind("teleport.encoder.pretrained", priority=50, network=True),
    "tokens": Kind("teleport.encoder.tokens", threads=8, minutes=240, priority=50),
    "lexical_index": Kind("teleport.search.lexical_index", mem_mb=16000, minutes=240),
    "bm25": Kind("teleport.search.bm25", threads=8, mem_mb=16000, minutes=240),
    "encode": Kind("teleport.encoder.encode", threads=8, mem_mb=32000, minutes=480, gpus=1),
    "index": Kind("teleport.search.index", mem_mb=4000, priority=20),
    "retrieve": Kind("teleport.search.retrieve", 8, mem_mb=64000, minutes=480, gpus=1, priority=20),
    "positives": Kind("teleport.negatives.positives", threads=8, priority=10),
    "negatives_file": Kind("teleport.negatives.file"),
    "scores_file": Kind("teleport.negatives.scores_file"),
    "score": Kind("teleport.negatives.score", mem_mb=32000, minutes=240, priority=10),
    "ranker": Kind("teleport.encoder.ranker", priority=50, network=True),
    "cross_train": Kind("teleport.training.cross_train", 8, mem_mb=32000, minutes=2880, gpus=1, priority=10),
    "cross_score": Kind("teleport.negatives.cross_score", 8, mem_mb=32000, minutes=1440, gpus=1, priority=10),
    "merge": Kind("teleport.negatives.merge", priority=10),
    "relabel": Kind("teleport.negatives.relabel", threads=8, priority=10),
    "train": Kind("teleport.training.train", 8, mem_mb=32000, minutes=2880, gpus=1, priority=10),
    "evaluate": Kind("teleport.evaluation.evaluate", priority=20),
    "external": Kind("teleport.evaluation.external"),
    "rerank": Kind("teleport.search.rerank", mem_mb=32000, minutes=240, priority=10),
    "errors": Kind("teleport.analyses.errors", threads=8, mem_mb=32000, minutes=480, priority=10),
    "contrast": Kind("teleport.analyses.contrast"),
    "negatives_overlap": Kind("teleport.analyses.negatives_overlap"),
    "forgetting": Kind("teleport.analyses.forgetting"),
}


def needs(stage, deleted_vectors=()):
    """Return the resources that a planned stage needs (Kind). deleted_vectors: the encode stages whose vectors are
    deleted once read

    The index over these vectors takes a GPU token, so that the next encode waits until they are gone.
    """
    kind = KINDS[stage.kind]
    if stage.kind == "index":
        kind = kind._replace(gpus=int(stage.inputs["passages"].name in deleted_vectors))
        trained = stage.settings.index.kind != "flat"
        return kind._replace(threads=8, mem_mb=64000, minutes=720) if trained else kind
    if stage.kind == "encode" and stage.settings.of != "passages":
        return kind._replace(priority=KINDS["retrieve"].priority)
    if stage.kind in ("score", "cross_score", "merge") and stage.settings.remove == "answers":
        return kind._replace(threads=8)
    return kind


def is_scattered(stage):
    """Whether `set-scatter` splits a stage into shards: the passages of an encoding, the lines of a search."""
    return stage.kind == "retrieve" or (stage.kind == "encode" and stage.settings.of == "passages")
