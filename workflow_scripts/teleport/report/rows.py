"""The rows of each table and the stages behind them, decided from the plan alone.

A table is a dict of plain values, in which a stage is its name ("kind/key"): table.py and analyses.py describe theirs.
"""

import unicodedata
from copy import copy
from functools import cache
from itertools import chain

from teleport.plan.about_key import AboutKey
from teleport.plan.stage import Stage, draws_from_retrieval, mined_by_others, out_of_domain
from teleport.refusal import Refusal
from teleport.report.verdicts import baselines
from teleport.settings.section import ALSO_TABLE, ANALYSES_TABLE, MAIN_TABLE, MINER

# Of the kinds of stages that a training reads, those whose results do not become negatives.
NOT_MINING = ("download", "corpus", "split", "tokens", "pretrained", "ranker", "train")


def in_folder(kind, config):
    """results/tables or results/experiments, with the configuration's name below it when it has one."""
    return f"results/{kind}/{config.name}" if config.name else f"results/{kind}"


def label_of(plan, name):
    """The label of an experiment in tables."""
    return plan.experiments[name].label or name


def named(value):
    """`value` with each `Stage` replaced by its name; tuples become lists."""
    if isinstance(value, Stage):
        return value.name
    if isinstance(value, dict):
        return {key: named(each) for key, each in value.items()}
    return [named(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def needs_training(stage):
    """Whether a stage is a training or was made from one."""
    return stage.kind == "train" or any(map(needs_training, stage.inputs.values()))


# ---- Rows


def single_row(plan, name, runs, label=None):
    """A row of BM25 or a run from elsewhere, from its {split: evaluate stage}; it need not cover all splits."""
    owner = "the lexical baseline" if name == "BM25" else name
    runs = {split: [stage] for split, stage in runs.items()}
    analyses = {"contrast": [plan.contrasts[name]]} if name in plan.contrasts else {}
    of = f"that of {owner}"
    return {"system": label or name, "episode": 0, "seeds": [], "runs": runs, "analyses": analyses, "of": of}


def checkpoint_row(plan, name, episode, system):
    """A row for the checkpoint after `episode` of an experiment: evaluations, and analyses, of every seed. `selected`:
    the trainings whose step a dev set has selected; `relabelled`: the pools of the episode whose negatives were judged;
    "of": the owner of the row, for messages."""
    trajectories = plan.trajectories[name]
    seeds = [trajectory.episodes[episode] for trajectory in trajectories]
    checkpoints = {of_seed.checkpoint.stage.name: of_seed.checkpoint.stage for of_seed in seeds}
    seeded = len(checkpoints) > 1 or any(map(needs_training, checkpoints.values()))  # else all seeds share one
    seeds = seeds if seeded else seeds[:1]
    row = {"system": system, "episode": episode, "of": f"that of {name}"}
    row["seeds"] = [trajectory.seed for trajectory in trajectories if seeded]
    row["cost"] = [cost_stages(trajectory.trains[:episode]) for trajectory in trajectories if episode]
    for kind in ("runs", "analyses"):
        row[kind] = {key: [getattr(of_seed, kind)[key] for of_seed in seeds] for key in getattr(seeds[0], kind)}
    trains = [of_seed.train for of_seed in seeds if of_seed.train]
    pools = [train.inputs.get("negatives") for train in trains]
    row["relabelled"] = [pool for pool in pools if pool and pool.kind == "relabel"] or None
    return row | {"selected": [train for train in trains if train.settings.training.select == "dev"]}


def main_names(plan):
    """The experiments of the main table (list of names): those of the configuration itself, or else of all tables."""
    return list(plan.config.experiments) or [name for name in plan.experiments if name not in plan.config.external]


def shows_episodes(plan):
    """Whether the main table has a row for every episode. By default it has, unless one of its experiments is a
    published method (`about`): a table of methods has one row for each."""
    every = plan.config.evaluation.every_episode
    return not any(plan.experiments[name].about for name in main_names(plan)) if every is None else every


def main_rows(plan):
    """BM25, zero-shot, every experiment of the configuration after every episode or the last one, and systems from
    elsewhere. Zero-shot is one row per distinct pretrained encoder, searched with the configuration's index. With
    another index it would be the same system again."""
    rows, zero_shot = [single_row(plan, "BM25", plan.bm25_runs)] if plan.bm25_runs else [], {}
    for name in main_names(plan):
        usual = plan.experiments[name].search_index == plan.config.search_index
        if usual and plan.trajectories[name][0].from_pretrained:
            row = checkpoint_row(plan, name, 0, f"Zero-shot ({label_of(plan, name)})")
            row["of"] += " before its first episode"
            zero_shot.setdefault(frozenset(stage.name for stages in row["runs"].values() for stage in stages), row)
    if len(zero_shot) == 1:
        next(iter(zero_shot.values()))["system"] = "Zero-shot"
    rows += zero_shot.values()
    for name in main_names(plan):
        last = len(plan.experiments[name].method)
        episodes = range(1 if shows_episodes(plan) else max(last, 1), last + 1)
        rows += [checkpoint_row(plan, name, episode, label_of(plan, name)) for episode in episodes]
    for name, external in plan.config.external.items():
        runs, label = plan.external_runs.get(name), external.label or name
        rows.append(single_row(plan, name, runs, label) if runs else checkpoint_row(plan, name, 0, label))
    return rows


def ablation_rows(plan, table):
    """An ablation's experiments after their last episode or every one; before them, if configured, BM25 and experiments
    of other tables."""
    ablation, rows = plan.config.ablations[table], []
    if ablation.bm25 and not plan.bm25_runs:
        key = f"ablations.{table}.bm25"
        raise AboutKey(f"{key}: the configuration has `bm25: null`. Remove one of them.", key)
    if ablation.bm25:
        rows.append(single_row(plan, "BM25", plan.bm25_runs) | {"columns": system_columns([], ablation.columns)})
    for name in dict.fromkeys([*ablation.also, *ablation.experiments]):
        if name not in plan.experiments:
            known, key = ", ".join(plan.experiments), f"ablations.{table}.also"
            raise AboutKey(f"{key}: there is no experiment {name!r}. The experiments are {known}.", key)
        last = len(plan.experiments[name].method)
        for episode in range(1, last + 1) if ablation.every_episode and last else [last]:
            columns = system_columns(until(plan.trajectories[name], episode), ablation.columns)
            rows.append(checkpoint_row(plan, name, episode, label_of(plan, name)) | {"columns": columns})
    return rows


# ---- Tables


def tables_of(plan):
    """[(name, title, rows, its `significance` or None, columns)] of main and every ablation."""
    significance, rows = plan.config.evaluation.significance, main_rows(plan)
    baseline_set = "baseline" in significance.model_fields_set  # else: without such a row there is no test
    tested = baseline_set or any(row["system"] == significance.baseline for row in rows)
    title = "Every system and episode" if shows_episodes(plan) else "Every system"
    tables = [(MAIN_TABLE, title, rows, significance.model_dump() if tested else None, ())]
    for name, ablation in plan.config.ablations.items():
        by_episode = {"by_episode": True} if ablation.every_episode else {}
        overrides = ablation.model_dump(include={"baseline", "test", "level"}, exclude_none=True)
        test = None if ablation.baseline is None else significance.model_dump() | overrides | by_episode
        tables.append((name, ablation.title, ablation_rows(plan, name), test, ablation.columns))
    return tables


def measured_tables(plan):
    """{name: table} of main and every ablation, as table.py describes them."""
    return {name: measured_table(plan, name, *table) for name, *table in tables_of(plan)}


def other_tables(plan):
    """{"also-NAME": table} of the other collections that experiments are trained on, each as `main`, and without its
    test if the baseline is not trained there."""
    tables = {}
    for of, other in plan.others.items():
        if other.trajectories:
            _, _, rows, test, columns = next(iter(tables_of(other)))
            if not {row["system"] for row in rows}.issuperset(chain.from_iterable(baselines(test).values())):
                test = None
            name = f"{ALSO_TABLE}-{of}"
            tables[name] = measured_table(other, name, f"Also trained on: {of}", rows, test, columns)
    return tables


def measured_table(plan, name, title, rows, test, columns):
    """One table, as table.py describes it. Raises Refusal if two systems share a name or the baseline is not a row."""
    owners = {}
    for row in rows:
        label, owner = unicodedata.normalize("NFKC", row["system"]).casefold(), row["of"]
        if (other := owners.setdefault(label, owner)) != owner:
            both = f"table {name} has two rows called {row['system']!r}: {other}, and {owner}"
            raise Refusal(f"{both}. Give an experiment, or an entry of external, another name or `label`.")
    labels = sorted({row["system"] for row in rows})
    for label in chain.from_iterable(baselines(test).values()):
        if label not in labels:
            key = "evaluation.significance.baseline" if name == MAIN_TABLE else f"ablations.{name}.baseline"
            raise AboutKey(f"{key}: {label!r} is not a row of table {name}. Its rows are {', '.join(labels)}.", key)
    evaluation, splits = plan.config.evaluation, plan.config.evaluation.splits
    if any(row.get("selected") for row in rows):
        columns = [*columns, "step"]
        rows = [row | {"columns": row.get("columns", {}) | {"step": row.get("selected") or None}} for row in rows]
    keys = ("system", "episode", "seeds", "runs", "columns", "cost", "relabelled")
    rows = [{key: row[key] for key in keys if row.get(key) is not None} for row in rows]
    table = {"name": name, "title": title, "columns": list(columns), "collection": plan.collection, "rows": rows}
    table |= {"splits": list(splits), "measures": {split: evaluation.measures_of(split) for split in splits}}
    if evaluation.rerank:
        reranked = evaluation.rerank.items()
        table["reranked"] = {split: rerank.measures or evaluation.measures_of(split) for split, rerank in reranked}
    if plan.out_of_domain:
        table["out_of_domain"] = {name: out_of_domain_columns(plan, name, labels) for name in plan.out_of_domain}
    if name == MAIN_TABLE and plan.warnings:
        table["warnings"] = [f"Warning: {text}" for text in plan.warnings]
    return named(table | {"significance": test})


def out_of_domain_columns(plan, name, labels):
    """Return a table's entry on another collection: the file of its evaluation, its corpus, the first measure of each
    split, and those of the systems `labels` that are trained on it, too."""
    other, trained = plan.out_of_domain[name], [each for each, of in plan.trajectories.items() if name in of[0].also]
    evaluation = other.config.evaluation
    return {
        "file": plan.written[name][0],
        "corpus": other.corpus,
        "measures": {out_of_domain(name, split): evaluation.measures_of(split)[:1] for split in evaluation.splits},
        "trained": sorted({label_of(plan, each) for each in trained} & set(labels)),
    }


def reference_name(plan):
    """How tables call the run of `analyses.against`; None if it is not set."""
    evaluation = plan.config.evaluation
    run = evaluation.analyses.against.run if evaluation.contrast_split else None
    return (plan.config.external[run].label or run) if run in plan.config.external else run


def analysis_tables(plan):
    """{name: table} of `analyses` and `analyses-NAME` of every ablation, as analyses.py describes them; {} without
    evaluation.analyses."""
    settings, tables, against = plan.config.evaluation.analyses, {}, reference_name(plan)
    for table, title, rows, test, _ in tables_of(plan) if settings else ():
        name = ANALYSES_TABLE if table == MAIN_TABLE else f"{ANALYSES_TABLE}-{table}"
        kept = ("system", "episode", "seeds", "analyses")
        analysed = [{key: row[key] for key in kept} for row in rows if row["analyses"]]
        analysed = [row | {"analyses": dict(sorted(row["analyses"].items()))} for row in analysed]
        content = {"name": name, "title": f"Analyses: {title}", "collection": plan.collection, "rows": analysed}
        content |= {"errors of": settings.errors, "against": against}
        forgets = {row["system"] for row in analysed if "forgetting" in row["analyses"]}
        if test and forgets.issuperset(chain.from_iterable(baselines(test).values())):
            content["significance"] = test
        tables[name] = named(content)
    return tables


# ---- The columns of a system besides its measures, and the stages that it costs


def system_columns(trajectories, wanted):
    """{column: value} of the columns `wanted` of an experiment, from its `Trajectory` per seed (none: BM25).

    "seconds" is a list of `cost_stages` per seed. "index" is the index of evaluation: its name, the stage with its
    size, and the stage with its recall. "gap" has the trainings since the last mining and the one with its negatives,
    each with the name of its number of steps; None if no checkpoint of the system mined. Values are None, 0 or [] where
    nothing was trained; BM25 has no index.
    """
    trained = [trajectory for trajectory in trajectories if trajectory.trains]
    last = trained[0] if trained else None
    mined = [each for each in last.episodes if each.since is not None] if last else []
    run = next(iter(trajectories[0].episodes[-1].runs.values())).inputs["run"] if trajectories else None
    columns = {
        "negatives": negatives_text(last.trains[-1]) + miner_text(last.episodes[-1]) if last else None,
        "loss": losses_text(last.trains[-1].settings.training) if last else None,
        "episodes": len(last.trains) if last else 0,
        "refreshes": refreshes(last) if last else 0,
        "gap": [*map(kept_steps, mined[-1].since), ["steps", mined[-1].train]] if mined else None,
        "index": run and [index_text(run.inputs["index"].settings.index), run.inputs["index"], run],
        "seconds": [cost_stages(trajectory.trains) for trajectory in trained],
    }
    return {name: columns[name] for name in wanted}


def kept_steps(train):
    """[the fact with the step whose weights are the checkpoint of a train stage, the stage]."""
    return ["selected_step" if train.settings.training.select == "dev" else "steps", train]


def losses_text(training):
    """The losses of a settings.Training, such as "softmax + 0.5 kl" (text)."""
    return " + ".join(f"{loss.weight:g} {loss.kind}" if loss.weight != 1 else loss.kind for loss in training.losses)


def until(trajectories, episode):
    """Copies of trajectories that end after an episode (number)."""
    parts = list(map(copy, trajectories))
    for part in parts:
        part.episodes = part.episodes[: episode + 1]
    return parts


def is_taught(role):
    """Whether a stage reads a teacher's scores or vectors in a role, not those of the checkpoint that mines."""
    of, _, whose = role.partition(".")
    return of in ("scores", "anchors", "vectors") and whose.partition(".")[0] != MINER


def refreshes(trajectory):
    """How often a checkpoint mined again: retrieved, or retrieved for other queries; "every step" with live search."""
    if trajectory.trains[-1].settings.live:
        return "every step"
    searches = ((stage.name for stage in pool.inputs.values() if stage.kind == "retrieve") for pool in trajectory.pools)
    return len(set(map(frozenset, searches)) - {frozenset()})


def negatives_text(train):
    """The negatives of a train stage, such as "query 15, lookahead 15; relative margin 0.05" or "live 200" (text)."""
    live, pool = train.settings.live, train.inputs.get("negatives")
    if live:
        compressed = f" of {index_text(live.index)}" if live.index.kind == "pq" else ""
        return f"live {live.depth}{compressed}{', compressed scores' if live.scores == 'compressed' else ''}"
    if pool is None:
        return "in batch"
    relabelled = [f"relabelled by {pool.settings.relabel.kind}"] if pool.kind == "relabel" else []
    pool, sources = pool.inputs["negatives"] if relabelled else pool, []
    for name, draw in pool.settings.sources.items():
        ranks = ", ".join(f"{first}-{last}" for first, last in draw.ranks or ())
        how = "" if draw.draw.kind == "uniform" else f" {draw.draw.kind}"
        miners = f" by {', '.join(draw.by)}" if name == "neighbours" else ""
        sources.append(f"{name} {draw.count}{miners}{how}{f' of {ranks}' if ranks else ''}")
    rule = pool.settings.positive_score
    changed = pool.settings.filters | ({"positive_score": rule} if rule not in (None, "lowest") else {})
    filters = [name.replace("_", " ") + ("" if value is True else f" {value}") for name, value in changed.items()]
    return "; ".join([", ".join(sources), *filters, *relabelled])


def miner_text(episode):
    """Who mined for an `Episode`: "; mined by NAME" if the configuration names a checkpoint from elsewhere, else ""."""
    named, pool = episode.settings.mining.checkpoint, episode.pool
    if isinstance(named, str) or not pool or not draws_from_retrieval(pool) or mined_by_others(pool):
        return ""
    of = "" if named.episode == "last" else f", episode {named.episode}"
    return f"; mined by {named.encoder.checkpoint.place if named.encoder else named.external or named.experiment}{of}"


def index_text(index):
    """A settings.FrozenIndex as "flat" or "pq 24", with the number of parts (text)."""
    return f"pq {index.numbers[0]}" if index.kind == "pq" else index.kind


def cost_stages(trains):
    """The stages whose seconds are the cost of a system, each once: {"mining": those that mined for its trainings,
    "teaching": its teachers' vectors and scores, and the trainings of a teacher, "training": its trainings, and the
    retrievals that give their dev queries passages to rank}."""
    dev = [train.inputs["dev"] for train in trains if "dev" in train.inputs]
    mined, all_mined = (by_name(mining_stages(trains, teachers)) for teachers in (False, True))
    training = {name: stage for name, stage in by_name([*mining_stages(dev), *dev]).items() if name not in mined}
    training |= by_name(trains)
    taught = {name: stage for name, stage in all_mined.items() if name not in mined}
    for stage in list(taught.values()):
        if behind := trainings_behind(stage):
            taught |= by_name(chain.from_iterable(cost_stages(behind).values()))
    teaching = [stage for name, stage in taught.items() if name not in mined.keys() | training.keys()]
    return {"mining": list(mined.values()), "teaching": teaching, "training": list(training.values())}


def by_name(stages):
    """{name: Stage}"""
    return {stage.name: stage for stage in stages}


def trainings_behind(stage):
    """The train stages (list) of the checkpoint that a stage reads, the last one first."""
    trainings = []
    while (stage := stage.inputs.get("continued") or stage.inputs.get("checkpoint")) and stage.kind == "train":
        trainings.append(stage)
    return trainings


def mining_stages(stages, teachers=True):
    """The stages whose results become the negatives of `stages`, each once: merges, retrievals, vectors, indexes. Pools
    of earlier episodes and checkpoints are left out, because another refresh or training made them. So are the passages
    that dev queries are ranked among, and without `teachers` the stages that only these need."""
    mining, unread, left_out = {}, list(stages), ("momentum", "dev")
    while unread:
        inputs = [(role, stage) for role, stage in unread.pop().inputs.items() if role not in left_out]
        read = [stage for role, stage in inputs if stage.kind not in NOT_MINING and (teachers or not is_taught(role))]
        unread += [stage for stage in read if stage.name not in mining]
        mining |= {stage.name: stage for stage in read}
    return list(mining.values())
