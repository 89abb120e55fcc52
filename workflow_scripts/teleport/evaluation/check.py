"""Stage `check`: check that the collection fits the experiments before any vector is computed."""

from typing import Literal

from pydantic import Field

from teleport.encoder.checkpoint import sides
from teleport.refusal import Refusal
from teleport.running.log import warn_once
from teleport.settings.measures import coverage_cutoffs
from teleport.settings.section import Integer, Section, equals

EMBEDDINGS = ("embeddings", "embed_tokens", "attention_bias")  # the ends of names of tables, which are no linear layers


class DevPool(Section):
    """How many queries of a split a training ranks, and against how many passages, `random` ones included."""

    split: str
    queries: Integer
    passages: Integer
    random: Integer


class Settings(Section):
    """What the plan needs from the collection, and trainings from the checkpoint."""

    splits: list[str]
    evaluation_depth: Integer = Field(description="0 where it is left out, and cut to the collection.")
    measures: dict[str, list[str]] = Field(description="split → measures, those of re-rankings and contrasts, too.")
    trains: bool = Field(description="Whether there is an episode; what follows counts only then.")
    mining_depth: Integer = Field(description="0 where nothing is mined, and as for evaluation_depth.")
    live_depth: Integer = Field(description="0 where no step searches.")
    batch_queries: Integer | None = Field(description="How many training queries the largest batch needs.")
    remove: Literal["judged", "answers"]
    answers: bool = Field(False, exclude_if=equals(False), description="Whether a relabelling looks for answers.")
    dev_splits: list[str] = Field(description="Those that trainings are watched by.")
    dev_pools: list[DevPool] = Field([], exclude_if=equals([]), description="The dev sets of trainings.")
    lora_targets: list[str] = Field(
        [], exclude_if=equals([]), description="Linear layers that get adapters; with the role `pretrained`."
    )


def run(job):
    """Compare the corpus (`corpus`), the splits (`split.NAME`) and, if layers are named, those of the checkpoint
    (`pretrained`) with the configuration, and warn of queries that are also training queries. Returns the counts
    compared."""
    from teleport.reader import trained_too  # imports numpy, which planning does not need

    settings, num_passages = job.settings, job.facts("corpus")["num_passages"]
    inputs = {role.partition(".")[2]: artefact for role, artefact in job.inputs.items() if role.startswith("split.")}
    splits = {name: artefact.facts for name, artefact in inputs.items()}
    depths = check_depths(settings, num_passages)
    queries = check_splits(settings, splits)
    for name in settings.splits:
        check_measures(settings.measures[name], name, splits[name])
    check_training(settings, splits)
    check_dev_pools(settings, inputs, num_passages)
    if settings.lora_targets:
        check_targets(settings.lora_targets, job.input("pretrained", "checkpoint"))
    for sentence in trained_too(inputs):
        warn_once(sentence)  # a process may run the checks of several experiments
    return {"num_passages": num_passages, "depths": depths, "queries": queries}


def check_depths(settings, num_passages):
    """Return the depths {setting: value}. Raises Refusal if one exceeds the corpus. 0: unset, its stage cuts it."""
    depths = {"evaluation.depth": settings.evaluation_depth}
    if settings.trains:
        depths |= {"mining.depth": settings.mining_depth}
        depths |= {"negatives.live.depth": settings.live_depth} if settings.live_depth else {}
    for key, depth in depths.items():
        if num_passages < depth:
            raise Refusal(
                f"The collection has {num_passages} passages, fewer than {key}: {depth}. Set {key} to at most "
                f"{num_passages}, or leave it out."
            )
    return depths


def needed_splits(evaluated, watched, trains):
    """{split: why it is needed}: evaluated splits, dev splits of trainings, and `train` if anything trains."""
    needed = {name: f"evaluation.splits names {name!r}" for name in evaluated}
    needed |= {name: f"training.dev.split names {name!r}" for name in watched}
    return needed | ({"train": "training needs the split 'train'"} if trains else {})


def check_splits(settings, splits):
    """Return {name: number of queries} of the needed splits. Raises Refusal if they are too few; splits: their facts"""
    queries = {name: split["queries"] for name, split in splits.items()}
    needed = needed_splits(settings.splits, settings.dev_splits, settings.trains)
    for name, reason in needed.items():
        if not queries[name]:
            have = ", ".join(f"{other} ({count} queries)" for other, count in sorted(queries.items()))
            raise Refusal(
                f"{reason}, but the collection has no judged queries there; it has: {have}. Add its queries and "
                "judgments to the collection, or change the configuration."
            )
    if settings.trains and (most := queries["train"]) < settings.batch_queries:
        raise Refusal(
            f"a batch (training.batch_queries, from one of mining.parts) needs {settings.batch_queries} training "
            f"queries, but the split 'train' has {most}. Lower one of the two."
        )
    return {name: queries[name] for name in needed}


def check_measures(measures, name, counts):
    """Raise Refusal when one of the measures of the split `name` has no answers, judgments or positives; counts: the
    split's facts."""
    covering = list(coverage_cutoffs(measures))
    if covering and not counts.get("answers"):
        raise Refusal(
            f"evaluation asks for {covering[0]!r} on the split {name!r}, which has no answers. Add "
            f"answers.{name}.jsonl to the collection, or remove the measure."
        )
    judged = [measure for measure in measures if measure not in covering]
    if judged and counts.get("judgments") == 0:
        raise Refusal(
            f"evaluation asks for {judged[0]!r} on the split {name!r}, which has no judgments, only answers. Use "
            "answer coverage there, for example [Cov@5, Cov@20, Cov@100]."
        )
    if counts.get("positive_grade") == 1 and counts.get("judgments") and counts.get("positives") == 0:
        raise Refusal(
            f"none of the {counts['judgments']} judgments of the split {name!r} has a grade of 1 or more, so its "
            "measures would all be 0. Give judgments that have positives."
        )


def check_training(settings, splits):
    """Raise Refusal when negatives.remove has no answers, or training.dev no positives to look for."""
    train = splits.get("train", {})
    if settings.remove == "answers" and (missing := train["queries"] - train.get("answers", 0)) > 0:
        raise Refusal(
            f"negatives.remove is 'answers', but {missing} of {train['queries']} training queries have no answers. Add "
            "them to answers.train.jsonl, or set negatives.remove to judged."
        )
    if settings.answers and not train.get("answers"):
        raise Refusal(
            "negatives.relabel looks for answers in negatives, but the training queries have none. Add them to "
            "answers.train.jsonl, or relabel by a judge."
        )
    for name in settings.dev_splits:
        if not splits[name].get("judgments") or splits[name].get("positives") == 0:
            raise Refusal(
                f"training.dev.split names {name!r}, which has no judged positive. Add its judgments to the "
                "collection, or name another split."
            )


def check_dev_pools(settings, splits, num_passages):
    """Raise Refusal for a dev set whose queries have more positives than its pool has passages, whichever are drawn;
    warn if the pool may be too small. splits: {name: Artefact}"""
    import numpy as np

    from teleport.reader import read_positives

    for pool in settings.dev_pools:
        positives = read_positives(splits[pool.split], pool.split)
        queries = min(pool.queries, np.count_nonzero(positives.lengths))
        if num_passages <= pool.passages or queries <= pool.passages - pool.random:
            continue
        fits = queries <= pool.passages * np.bincount(positives.values).max()  # a passage may be of several queries
        sentence = (
            f"training.dev: {queries} queries of {pool.split} are ranked against {pool.passages} passages, of which "
            f"{pool.random} are random, so some {'may' if fits else 'will'} have no positive among them. Set "
            f"dev.passages to {queries} more than dev.random at least, or lower dev.queries."
        )
        if not fits:
            raise Refusal(sentence)
        warn_once(sentence)


def check_targets(targets, checkpoint):
    """Raise Refusal for a name in encoder.lora.targets that no linear layer of a checkpoint (its folder) has."""
    from safetensors import safe_open

    with safe_open(sides(checkpoint)[1] / "model.safetensors", framework="numpy") as file:
        weights = file.keys()
        matrices = [name for name in weights if len(file.get_slice(name).get_shape()) == 2]
    names = [name.removesuffix(".weight").rpartition(".")[2] for name in matrices]
    known = list(dict.fromkeys(name for name in names if not name.endswith(EMBEDDINGS)))
    if unknown := [name for name in targets if name not in known]:
        problem = f"has {unknown[0]!r}, but the linear layers of the checkpoint are {', '.join(known)}"
        raise Refusal(f"encoder.lora.targets {problem}. Name some of these, or null for all.")
