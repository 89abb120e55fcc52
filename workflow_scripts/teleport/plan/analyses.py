"""The stages planned besides a search and its measures: re-ranking, and the analyses of `evaluation.analyses`."""

from teleport.plan.about_key import AboutKey
from teleport.plan.identity import identify_file
from teleport.plan.stage import Stage
from teleport.records import archive_and_member
from teleport.settings import measures
from teleport.settings.search import RerankSettings, RetrieveSettings
from teleport.settings.section import RERANKED, NoSettings

TOP = 100  # how many passages overlaps look at, if the lists have as many (ANCE, Table 6 and Section 6.3)


def reranked(split):
    """The key of the re-ranked candidates of a split among an episode's runs."""
    return f"{split}{RERANKED}"


def rerank(trajectory, episode, split):
    """The evaluation of a split's candidates, re-ranked by an episode's checkpoint (ANCE, Table 1)."""
    plan, vectors, number = trajectory.plan, episode.vectors, episode.number
    inputs = {"candidates": candidates(plan, split)} | vectors.of_split(split)
    if number == 0:
        trajectory.link(inputs["candidates"], 0, f"candidates-{split}")
    run = trajectory.link(Stage("rerank", RerankSettings(split=split), inputs), number, f"rerank-{split}")
    evaluated = plan.score(run, split, plan.config.evaluation.rerank[split].measures)
    return trajectory.link(evaluated, number, f"evaluate-reranked-{split}")


def candidates(plan, split):
    """Return the stage with the passages that every checkpoint re-ranks on a split: from a file, or the top of BM25."""
    named, source = plan.config.evaluation.rerank[split], plan.config.collection
    if named.bm25:
        return plan.bm25(split, named.bm25)
    inputs, digest, archive = plan.parts(split), None, named.file.partition("!")[0]
    if source.source == "downloads" and archive in source.files:
        inputs |= plan.downloads(source.model_copy(update={"files": {archive: source.files[archive]}}))
    else:
        digest = identify_file(archive_and_member(named.file)[0], f"evaluation.rerank.{split}.file")
    dropped = {"unknown_queries": "drop", "unknown_passages": "drop"}
    settings = measures.ExternalSettings(file=named.file, sha256=digest, split=split, form=named.form, **dropped)
    return Stage("external", settings, inputs)


def analyse(trajectory, episode):
    """{name: stage} of an episode's analyses: errors, contrast, negatives, forgetting."""
    number, vectors, pool, analyses = episode.number, episode.vectors, episode.pool, {}
    plan, evaluation = trajectory.plan, trajectory.evaluation
    if not (settings := evaluation.analyses):
        return analyses
    if settings.errors:
        inputs = {f"split.{settings.errors}": plan.split(settings.errors)} | vectors.of_split(settings.errors)
        inputs |= {"corpus": plan.corpus} if evaluation.ignore_own_text else {}  # for the ids of its passages
        of_errors = measures.ErrorsSettings(split=settings.errors, ignore_own_text=evaluation.ignore_own_text)
        stage = Stage("errors", of_errors, inputs)
        analyses["errors"] = trajectory.link(stage, number)
    if settings.against:
        analyses["contrast"] = contrast(plan, episode.runs[evaluation.contrast_split].inputs["run"])
        if number == 0:
            trajectory.link(analyses["contrast"].inputs["reference"], 0, "reference")
        trajectory.link(analyses["contrast"], number)
    reads_train = (settings.negatives and pool) or (settings.forgetting and number)
    train = {"split.train": plan.split("train")} if reads_train else {}
    if (source := pool or episode.train) and "positives" in source.inputs:
        train["positives"] = source.inputs["positives"]
    if settings.negatives and pool:
        search = search_train(trajectory, episode)
        overlap = measures.NegativesOverlapSettings(depth=min(TOP, search.settings.depth))
        trained = {role: stage for role, stage in episode.train.inputs.items() if role in ("negatives", "positives")}
        stage = Stage("negatives_overlap", overlap, train | trained | {"queries": search})
        analyses["negatives"] = trajectory.link(stage, number)
    if settings.forgetting and number:
        before = trajectory.episodes[number - 1]
        inputs = {"before": search_train(trajectory, before), "after": search_train(trajectory, episode)}
        stage = Stage("forgetting", NoSettings(), train | inputs)
        analyses["forgetting"] = trajectory.link(stage, number)
    return analyses


def search_train(trajectory, episode):
    """The retrieval of all training queries with the checkpoint of an episode.

    All searches of an experiment are equally deep. If the next episode mines at this depth, and not only a part of the
    queries, it is the same stage.
    """
    if episode.train_search is None:
        depth = max(each.mining.depth for each in trajectory.experiment.method)
        settings = RetrieveSettings(of="queries", split="train", depth=depth)
        index, link = episode.vectors.index, "search-train"
        episode.train_search = trajectory.retrieve(episode.vectors, index, settings, episode.number, link)
    return episode.train_search


def contrast(plan, run):
    """The contrast stage of a run of the split of `analyses.against` with the reference run."""
    evaluation, split = plan.config.evaluation, plan.config.evaluation.contrast_split
    settings = measures.ContrastSettings.taken_from(
        plan.collapse,
        split=split,
        measure=evaluation.contrast_measure,
        depth=min(TOP, evaluation.depth),
        ignore_own_text=evaluation.ignore_own_text,
    )
    return Stage("contrast", settings, plan.parts(split) | {"run": run, "reference": reference(plan)})


def reference(plan):
    """The run that others are compared with."""
    evaluation, external = plan.config.evaluation, plan.config.external
    split, name = evaluation.contrast_split, evaluation.analyses.against.run
    if name == "BM25":
        return plan.bm25(split, evaluation.searched)
    if name not in external or split not in (external[name].runs or {}):
        others = "".join(f" or {other}" for other, entry in external.items() if split in (entry.runs or {}))
        missing = f"{name!r} is not an entry of external with a run of {split!r}"
        key = "evaluation.analyses.against.run"
        raise AboutKey(f"{key}: {missing}. Name BM25{others}.", key)
    return plan.external(name, split)
