"""What is planned besides a search and its measures: re-ranked candidates, and what `evaluation.analyses` asks for."""

from teleport.collection.records import archive_and_member
from teleport.plan.identity import identify_file
from teleport.plan.stage import Stage
from teleport.settings.scoring import (
    ContrastSettings,
    ErrorsSettings,
    ExternalSettings,
    ForgettingSettings,
    NegativesOverlapSettings,
    RerankSettings,
)
from teleport.settings.search import RetrieveSettings
from teleport.settings.section import RERANKED


def reranked(split):
    """What stands for the re-ranked candidates of a split among runs."""
    return f"{split}{RERANKED}"


def rerank(trajectory, split, episode):
    """The evaluation of the candidates of a split in the order of the last checkpoint (ANCE, Table 1)."""
    plan, vectors, given = trajectory.plan, trajectory.vectors[-1], candidates(trajectory.plan, split)
    if not episode:
        trajectory.add_existing(given, 0, f"candidates-{split}")
    inputs = {"candidates": given, "queries": vectors.queries, "passages": vectors.passages}
    run = trajectory.add("rerank", RerankSettings(split=split), inputs, episode, f"rerank-{split}")
    evaluated = plan.score(run, split, plan.config.evaluation.rerank[split].measures)
    return trajectory.add_existing(evaluated, episode, f"evaluate-reranked-{split}")


def candidates(plan, split):
    """What every checkpoint re-ranks on a split: the passages of a file, or the first of BM25."""
    named, source = plan.config.evaluation.rerank[split], plan.config.collection
    if named.bm25:
        return plan.bm25(split, named.bm25, plan.title)
    inputs, digest = {"collection": plan.collection}, None
    if source.source == "downloads" and named.file.partition("!")[0] in source.files:
        inputs |= plan.collection.inputs
    else:
        digest = identify_file(archive_and_member(named.file)[0], f"evaluation.rerank.{split}.file")
    dropped = {"unknown_queries": "drop", "unknown_passages": "drop"}
    settings = ExternalSettings(file=named.file, sha256=digest, split=split, form=named.form, **dropped)
    return Stage("external", settings, inputs)


def analyse(trajectory, episode):
    """{name: stage} of what is asked for of the last checkpoint: errors, contrast, negatives, forgetting."""
    evaluation, vectors, found = trajectory.evaluation, trajectory.vectors[-1], {}
    asked, collection = evaluation.analyses, {"collection": trajectory.collection}
    if asked and asked.errors:
        settings = ErrorsSettings(split=asked.errors)
        inputs = collection | {"queries": vectors.queries, "passages": vectors.passages}
        found["errors"] = trajectory.add("errors", settings, inputs, episode)
    if asked and asked.against:
        found["contrast"] = contrast(trajectory.plan, trajectory.runs[-1][evaluation.contrast_split].inputs["run"])
        if not episode:
            trajectory.add_existing(found["contrast"].inputs["reference"], 0, "reference")
        trajectory.add_existing(found["contrast"], episode, "contrast")
    pool = trajectory.pools[episode - 1] if episode else None
    if pool and "positives" in pool.inputs:
        collection["positives"] = pool.inputs["positives"]
    if asked and asked.negatives and pool:
        inputs = collection | {"negatives": pool, "queries": search_train(trajectory, episode)}
        found["negatives"] = trajectory.add("negatives_overlap", NegativesOverlapSettings(), inputs, episode)
    if asked and asked.forgetting and episode:
        before, after = (search_train(trajectory, place) for place in (episode - 1, episode))
        inputs = collection | {"before": before, "after": after}
        found["forgetting"] = trajectory.add("forgetting", ForgettingSettings(), inputs, episode)
    return found


def search_train(trajectory, episode):
    """The retrieval of all training queries with the checkpoint after an episode.

    Where the next episode mines at the same depth, and not a part of the queries, it is the same stage.
    """
    searches = trajectory.train_searches
    if episode not in searches:
        vectors, depth = trajectory.vectors[episode], trajectory.experiment.method[max(episode, 1) - 1].mining.depth
        settings = RetrieveSettings(of="queries", split="train", depth=depth)
        searches[episode] = trajectory.retrieve(vectors, vectors.index, settings, episode, "search-train")
    return searches[episode]


def contrast(plan, run):
    """A run of the split of `analyses.against` beside the reference run."""
    evaluation = plan.config.evaluation
    settings = ContrastSettings(split=evaluation.contrast_split, measure=evaluation.contrast_measure, **plan.collapse)
    return Stage("contrast", settings, {"collection": plan.collection, "run": run, "reference": reference(plan)})


def reference(plan):
    """The run that others are compared with. Raises ValueError when there is none of that name."""
    evaluation, external = plan.config.evaluation, plan.config.external
    split, name = evaluation.contrast_split, evaluation.analyses.against.run
    if name == "BM25":
        return plan.bm25(split, evaluation.depth, plan.title)
    if name not in external or split not in (external[name].runs or {}):
        others = "".join(f" or {other}" for other, entry in external.items() if split in (entry.runs or {}))
        found = f"{name!r} is no entry of external with a run of {split!r}"
        raise ValueError(f"evaluation.analyses.against.run: {found}. Name BM25{others}.")
    return plan.external(name, split)
