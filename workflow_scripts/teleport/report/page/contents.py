"""The content of the report page, decided from the plan alone: tables, experiments, stages, and who uses which.

    {"name": "systems", "configuration": ["config/systems.yaml"],
     "collection": {"corpus": "corpus/KEY", "splits": {"test": "split/KEY"}},
     "splits": ["test"], "measures": {"test": ["RR@10"]}, "queries": 200, "tables": [as in table.py],
     "published": [as in published_table.py], "ghosts": [[label, episode, rate]: forgetting rates that a paper prints],
     "stages": {"train/KEY": {"users": [...], "label": "..."}},
     "experiments": [{"name": "ance-tele", "system": "ANCE-Tele", "label": "ANCE-Tele", "method": "three trainings, …",
         "settings": {"negatives.alpha": 0.5}, "seeds": [
         {"seed": 42, "rows": [...], "episodes": [...], "runs": [...], "searches": {"0": stage}}]}]}

`queries`: how many of each split are shown in full, or "all". system: the name of an experiment in tables; label: its
name on the page; rows: every stage with its link and episode; episodes: the pool of each, what it was mined with and
the training, as in `episode_content`; runs: per checkpoint {split: evaluate stage}; searches: {checkpoint: retrieval of
the training queries with it}; vectors: {checkpoint: encode stages of queries and passages}.
"""

from collections import Counter
from itertools import pairwise

from teleport.report.published import episode_of, published_path, published_tables, read_published
from teleport.report.rows import label_of, measured_tables, named, system_columns
from teleport.report.words import number
from teleport.settings.evaluation import Report
from teleport.settings.section import MINER, in_one_spelling


def page_contents(plan, files=(), queries=None):
    """The contents of the report page of a plan; `files`: those of the configuration; `queries` replaces its own."""
    config = plan.config
    labels, published = unlike_labels(plan), [read_published(published_path(name)) for name in config.published]
    contents = {
        "name": config.name or "",
        "configuration": [in_one_spelling(file) for file in files],
        "collection": plan.collection,
        "splits": list(config.evaluation.splits),
        "measures": {split: config.evaluation.measures_of(split) for split in config.evaluation.splits},
        "queries": (config.report or Report()).queries if queries is None else queries,
        "tables": list(measured_tables(plan).values()),
        "published": list(published_tables(plan).values()),
        "ghosts": [ghost for table in published for ghost in ghosts(plan, table, labels)],
        "stages": {name: {"users": plan.users[name], "label": plan.labels[name]} for name in plan.stages},
        "experiments": [
            {
                "name": name,
                "system": label_of(plan, name),
                "label": labels[name],
                "method": method_text(plan.experiments[name], trajectories),
                "settings": dict(flat(plan.experiments[name].model_dump(mode="json", exclude_none=True))),
                "seeds": list(map(trajectory_content, trajectories)),
            }
            for name, trajectories in plan.trajectories.items()
        ],
    }
    return named(contents)


def flat(value, key=""):
    """Yield (dotted key, value) of nested mappings and of lists of mappings, which count from 1."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        value = {str(number): entry for number, entry in enumerate(value, 1)}
    if not isinstance(value, dict):
        yield key, value
        return
    for name, entry in value.items():
        yield from flat(entry, f"{key}.{name}" if key else name)


def unlike_labels(plan):
    """{name of an experiment: its label, with the name added if two experiments have the same label in tables}."""
    systems = {name: label_of(plan, name) for name in plan.trajectories}
    times = Counter(systems.values())
    return {name: system if times[system] == 1 else f"{system} ({name})" for name, system in systems.items()}


def method_text(experiment, trajectories):
    """Return a sentence on the trainings, loss and negatives of an experiment."""
    columns = system_columns(trajectories[:1], ["negatives", "loss", "episodes"])
    if not columns["episodes"]:
        return "nothing is trained."
    starts = {str(getattr(episode.training, "start_from", "")) for episode in experiment.method[1:]}
    ways = {"pretrained": ", each from the pretrained checkpoint", "previous": ", each continuing the one before"}
    way = ways.get(starts.pop(), "") if len(starts) == 1 else ""
    trainings = f"{number(columns['episodes'], 'training')}{way}"
    return f"{trainings}, with the loss {columns['loss']}; negatives of the last one: {columns['negatives']}."


def ghosts(plan, table, labels):
    """[label, episode, rate] of the forgetting rates that a published table prints of experiments of the plan."""
    printed = [each for each in table.cells.values() if each.figure == "forgetting" and each.value is not None]
    here = [each for each in printed if each.ours and each.column.configuration == plan.config.name]
    return [
        [labels[each.ours.experiment], episode_of(each.ours, of_seed), each.value / each.scale]
        for each in here
        for of_seed in plan.trajectories.get(each.ours.experiment, ())[:1]
    ]


def trajectory_content(trajectory):
    """The content of one seed of an experiment. Its searches are those that were mined, and those of an analysis, but
    for searches of a part of the training queries (mining.parts). Each belongs to the checkpoint whose vectors it
    searches: with a lag, no episode mines with the checkpoint before it."""
    searches = [pool.inputs.get("query") for pool in trajectory.pools]
    searches += [episode.train_search for episode in trajectory.episodes]
    whole = [s for s in searches if s and s.settings.part is None]
    by_vectors = {(s.inputs["queries"].name, s.inputs["passages"].name): s for s in whole}
    encoded = {str(e.number): e.vectors.encoded for e in trajectory.episodes}
    roles = ("queries.train", "passages")
    vectors = {n: tuple(of[role].name for role in roles) for n, of in encoded.items() if roles[0] in of}
    return {
        "seed": trajectory.seed,
        "rows": [{"link": row.link, "stage": row.stage, "episode": row.episode} for row in trajectory.rows],
        "episodes": [episode_content(*episodes) for episodes in pairwise(trajectory.episodes)],
        "runs": [episode.runs for episode in trajectory.episodes],
        "searches": {number: by_vectors[names] for number, names in vectors.items() if names in by_vectors},
        "vectors": vectors,
    }


def episode_content(before, episode):
    """The stages of an `Episode`: {role: Stage or None}. pool, train; query, lookahead: the retrievals that were mined,
    or that an analysis needs; queries, passages: the vectors that these searched, or without retrievals those of the
    checkpoint before; positives: the stage that matched answers; relabelled: the pool after its negatives were
    judged."""
    mined = episode.pool.inputs if episode.pool else {}
    searched = mined.get("query") or mined.get("lookahead") or mined.get(f"neighbours.{MINER}")
    vectors = searched.inputs if searched and "passages" in searched.inputs else before.vectors.of_split("train")
    roles = {role: mined.get(role) for role in ("query", "lookahead", "positives")}
    roles["lookahead"] = roles["lookahead"] or episode.lookahead
    roles |= {role: vectors[role] for role in ("queries", "passages")}
    trained = episode.train.inputs.get("negatives") if episode.train else None
    relabelled = trained if trained and trained.kind == "relabel" else None
    return roles | {"pool": episode.pool, "train": episode.train, "relabelled": relabelled}
