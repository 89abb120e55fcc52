"""Tables: a row per system and episode, a column per measure, from the scores of single queries.

A table, as the plan describes it (rows.py):

    {"name": "main", "title": "...", "collection": {"corpus": "corpus/KEY", "splits": {"test": "split/KEY"}},
     "splits": ["test"], "measures": {"test": ["RR@10"]}, "columns": ["negatives", "episodes", "seconds"],
     "significance": {"baseline": "Zero-shot", "test": "permutation", "resamples": 9999, "level": 0.05},
     "rows": [{"system": "ANCE-Tele", "episode": 3, "runs": {"test": ["evaluate/KEY", one per seed]}, "seeds": [1, 2],
               "cost": [{"mining": ["merge/KEY", ...], "teaching": [], "training": ["train/KEY", ...]}, one per seed],
               "columns": {"negatives": "query 60", "episodes": 3}}]}

Optional: `reranked`, measures of re-ranked candidates by split; a row has them as "SPLIT (re-ranked)" in `runs`.
`out_of_domain`: {"squad": {"file": "config/squad.yaml", "corpus": "corpus/KEY", "measures": {"test-of-squad":
["RR@10"]}, "trained": [systems that were trained on it, too]}}; a row may have "test-of-squad" in `runs`. `warnings`,
of the main table alone: sentences of the plan for the footer.
`cost`: the stages that mined and trained. `columns`: facts about a system besides its measures. With `significance`
null nothing is tested; as in the configuration, "baseline" may have a label, or several, for each mark, "test" and
"level" a value for each split; `"by_episode": true` compares episode by episode. `seeds` is empty if nothing was
trained. A row may have no figures for some splits: the run of an external system need not cover all.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from teleport.evaluation.significance import LEAST_SEEDS, least_p
from teleport.reader import trained_too
from teleport.report.figures import over_seeds, seconds
from teleport.report.render import NONE, SEVERAL_SEEDS, Printed, cell, literal, write_forms
from teleport.report.stages import Stages, collection_text, machines, relabelled_text, trace_figures, warnings_of
from teleport.report.verdicts import (
    baselines,
    level_of,
    of_split,
    p_text,
    pairs_of_rows,
    significance_text,
    test_column,
    verdicts,
)
from teleport.report.words import number
from teleport.settings.measures import better, coverage_cutoffs
from teleport.settings.section import RERANKED

MOST_VERDICTS = 5  # above a table; the report page has all
FEW_QUERIES = 25  # the fewest that comparisons of two systems should rest on (Buckley and Voorhees, SIGIR 2000)
WORK = ("mining", "teaching", "training")  # of `rows.cost_stages`
NORMAL_95 = 1.96  # half the width of a 95 % interval, in standard errors


class Measured(NamedTuple):
    """A figure of a row: how many queries it is a mean of, the mean of each seed (list), and half the widths of 95 %
    intervals around it, over queries and over seeds (None of a single one)."""

    queries: int
    seeds: list
    over_queries: float | None
    over_seeds: float | None


class Table(NamedTuple):
    """The figures of a table, frames with a line per row and the same columns ("RR@10", or "dev RR@10" of many splits).
    rows: system, episode, and the columns that the specification names. means: over queries, then over seeds, NaN
    for a split without a run. deviations: of the means, over seeds (ddof 1), NaN for a single seed. p_values: a frame
    for each mark, NaN in rows of its baselines and where nothing is tested; comparisons: those behind them. pairs: of
    the first measure of each split, as in verdicts.py. measured: {(number of the row, column): `Measured`}."""

    rows: pd.DataFrame
    means: pd.DataFrame
    deviations: pd.DataFrame
    p_values: dict
    comparisons: list
    pairs: pd.DataFrame | None = None
    measured: dict = {}


def write_table(spec, root, output_folder):
    """Write NAME.csv, .md, .tex, .sources.csv, .pairs.csv to `output_folder`, from results/ below `root` (a Path)."""
    stages = Stages(root)
    table, sources = make_table(spec, stages), trace_figures(spec["rows"], stages)
    sentences, note = verdicts_with_costs(spec, table, stages)
    lines = [f"* {literal(sentence)}" for sentence in sentences[:MOST_VERDICTS]]
    if len(sentences) > MOST_VERDICTS:
        note += f" The report page has the verdicts of {number(len(sentences) - MOST_VERDICTS, 'more system')}."
    lines += ["", note] * bool(lines)
    printed = Printed(spec["name"], spec["title"], cells_of(spec, table), footer(spec, table, stages), verdicts=lines)
    write_forms(printed, csv_frame(table), output_folder, sources=sources, pairs=table.pairs)


def verdicts_with_costs(spec, table, stages):
    """(`verdicts` by the first column of a `Table`, each with the system's cost: "…; 93 s of mining and training."; how
    they were tested); none for a table without a test."""
    if not spec["significance"]:
        return [], ""
    column = next(iter(columns(spec)))
    means, pairs = table.means[column], table.pairs
    level, rows, sentences = level_of(spec["significance"], spec["splits"][0]), spec["rows"], []
    references = [*chain.from_iterable(baselines(spec["significance"]).values())]
    for i, sentence in verdicts(rows, means, pairs[pairs["column"] == column], level, references):
        cost = cost_of(rows[i], stages)
        sentences.append(f"{sentence}{f'; {cost_text(cost)}' if cost else ''}.")
    few = any(0 < len(row["seeds"]) < LEAST_SEEDS for row in rows)
    note = f"By {column}, at {level:g}, two-sided, Holm-corrected over all of these comparisons"
    note += "; this compares these checkpoints: another seed may differ." if few else "."
    usual = of_split(spec["significance"]["test"], spec["splits"][0], "")
    if "t-test" in set(pairs[pairs["column"] == column]["method"]) - {usual}:
        note += " A t-test over queries: permutation tests of all pairs of rows would take too long."
    queries = [made.queries for (_, name), made in table.measured.items() if name == column]
    return sentences, " ".join([note, *few_queries_text(min(queries, default=FEW_QUERIES), level)])


def few_queries(queries, noun="query"):
    """Return a warning (in a list) if a number of queries, which `noun` names, is below FEW_QUERIES; else []."""
    if queries >= FEW_QUERIES:
        return []
    usual = f"{FEW_QUERIES} are the usual minimum"
    return [f"Only {number(queries, noun)}: other queries may well give another result ({usual})."]


def few_queries_text(queries, level):
    """Return warnings (list of sentences) if verdicts at a level rest on too few `queries`; [] if these are enough."""
    sentences = few_queries(queries)
    if sentences and (least := least_p(queries)) > level:
        sentences.append(
            f"With so few queries, no p of a permutation test is below {p_text(least)}, whatever the difference."
        )
    return sentences


def cost_of(row, stages):
    """Return the `mean_cost` of a row; None if nothing was trained, or if a stage is missing."""
    cost = row.get("cost")
    return mean_cost(cost, stages) if cost and all(map(stages.finished, cost_names(cost))) else None


def mean_cost(by_seed, stages):
    """(seconds of mining, of teaching, of training) by the stages of each seed, means over seeds, as if one ran after
    another."""

    def spent(names):
        return sum(seconds(stages.artefact(name)) for name in names)

    return tuple(over_seeds([spent(of_seed[work]) for of_seed in by_seed])[0] for work in WORK)


def cost_names(by_seed):
    """The names of all stages of a cost (set)."""
    return {name for of_seed in by_seed for names in of_seed.values() for name in names}


def cost_text(cost):
    """Return the text of a `mean_cost` in a verdict."""
    work = "mining, teaching and training" if cost[WORK.index("teaching")] else "mining and training"
    return f"{seconds_text(sum(cost))} of {work}"


def seconds_text(number):
    """Seconds in a table or verdict: "1,234 s"."""
    return f"{number:,.0f} s"


def make_table(spec, stages):
    """The `Table` of a specification. stages: `stages.Stages`"""
    rows = pd.DataFrame([describe(row, spec["columns"], stages) for row in spec["rows"]])
    by_seed, tested, pairs, measured = [{} for _ in spec["rows"]], {}, [], {}
    compared = [spec["measures"], *(other["measures"] for other in spec.get("out_of_domain", {}).values())]
    firsts = {split: names[0] for measures in compared for split, names in measures.items() if names}
    for column, (split, measure) in columns(spec).items():
        scores = {}
        for i, names in [(i, row["runs"][split]) for i, row in enumerate(spec["rows"]) if split in row["runs"]]:
            scores[i] = scores_of(stages, names, measure)
            measured[i, column] = measure_of(scores[i], means_of(stages, names, measure))
            by_seed[i][column] = measured[i, column].seeds
        tested[column] = test_column(scores, spec["rows"], spec["significance"], column, split.removesuffix(RERANKED))
        if firsts.get(split) == measure:
            pairs.append(pairs_of_rows(spec["rows"], scores, spec["significance"], column, split))
    pairs = pd.concat(pairs, ignore_index=True)
    return Table(rows, *means_over_seeds(by_seed, columns(spec)), *by_mark(tested), pairs, measured)


def scores_of(stages, names, measure):
    """The scores of a measure by the evaluate stages `names`, one per seed (DataFrame, queries x seeds)."""
    return pd.concat([stages.query_scores(name)[measure] for name in names], axis=1)


def means_of(stages, names, measure):
    """The means over queries of a measure in the evaluate stages `names`, one per seed (list)."""
    return [stages.facts(name)["means"][measure] for name in names]


def measure_of(scores, means):
    """The `Measured` of scores (DataFrame, queries x seeds), and of their `means_of`."""
    queries, seeds = scores.mean(axis=1), pd.Series(means)
    return Measured(
        len(queries), means, half_width(queries, NORMAL_95), half_width(seeds, stdtrit(len(seeds) - 1, 0.975))
    )


def half_width(values, errors):
    """Half the width of an interval of `errors` standard errors around a mean; None for a single value."""
    return float(errors * values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def by_mark(tested):
    """({mark: frame of p}, [comparisons]) from {column: result of `test_column`}."""
    marks = next(iter(tested.values()))[0]
    p_values = {mark: pd.DataFrame({column: p[mark] for column, (p, _) in tested.items()}) for mark in marks}
    return p_values, list(chain.from_iterable(comparisons for _, comparisons in tested.values()))


def means_over_seeds(rows, names):
    """(means, standard deviations) over seeds, frames of `names`; rows: [{column: figure of each seed}]."""
    cells = [[over_seeds(row.get(name, ())) for name in names] for row in rows]
    frames = ([[pair[part] for pair in row] for row in cells] for part in (0, 1))
    return tuple(pd.DataFrame(frame, columns=list(names), dtype=float) for frame in frames)


def describe(row, names, stages):
    """Return the cells of a row besides its measures, {column: text}; names: the columns of `system_columns`
    that it has. "seconds": mean over seeds, NaN where none were spent; "gap": from the first to the last step, as text;
    "index": with its size, and its recall if it is not exact; "step": the one that a dev set selected, for each
    seed."""
    cells = {name: row["columns"][name] for name in names}
    if cells.get("step"):
        cells["step"] = ", ".join(str(stages.facts(name)["selected_step"]) for name in cells["step"])
    if "seconds" in cells:
        cells["seconds"] = sum(mean_cost(cells["seconds"], stages)) if cells["seconds"] else float("nan")
    if cells.get("gap"):
        *since, own = [stages.facts(name)[fact] for fact, name in cells["gap"]]
        cells["gap"] = f"{sum(since):,}-{sum(since) + own - 1:,}"
    if cells.get("index"):
        name, *made_and_searched = cells["index"]
        made, searched = map(stages.facts, made_and_searched)
        recall = f", recall {searched['recall']:.2f}" if "recall" in searched else ""
        cells["index"] = f"{name}, {made['bytes'] / 1e6:.3g} MB{recall}"
    return {"system": row["system"], "episode": row["episode"]} | cells


def columns(spec):
    """{name of a column: (key in `runs`, measure)}, in order; its name has the split where there are several."""
    main = {
        (f"{split} " if len(spec["splits"]) > 1 else "") + f"{name}{suffix}": (f"{split}{suffix}", name)
        for measures, suffix in ((spec["measures"], ""), (spec.get("reranked", {}), RERANKED))
        for split in spec["splits"]
        for name in measures.get(split, ())
    }
    return main | {
        f"{split if len(other['measures']) > 1 else of} {name}": (split, name)
        for of, other in spec.get("out_of_domain", {}).items()
        for split, names in other["measures"].items()
        for name in names
    }


def csv_frame(table):
    """The columns of the CSV: those of the rows, measures, then " sd" (of seeds) and " p" (of several marks each: " p
    †")."""
    several = len(table.p_values) > 1
    more = [(table.deviations, " sd")]
    more += [(frame, f" p {mark}" if several else " p") for mark, frame in table.p_values.items()]
    given = [frame.add_suffix(suffix) for frame, suffix in more if frame.notna().any(axis=None)]
    return pd.concat([table.rows, table.means, *given], axis=1)


def cells_of(spec, table):
    """The cells of a `Table` as text (DataFrame), with the seconds last."""
    cells = pd.concat([row_cells(table.rows), measure_cells(spec, table)], axis=1)
    if "Seconds" in cells:
        cells["Seconds"] = cells.pop("Seconds")
    return cells


def row_cells(rows):
    """Return the cells of a table's rows besides its measures, as text; the number of episodes, if it is a column,
    replaces the row's episode."""
    texts = rows.drop(columns="episode") if "episodes" in rows else rows
    if "seconds" in texts:
        texts = texts.assign(seconds=texts["seconds"].map("{:,.0f}".format, na_action="ignore"))
    return texts.astype(object).where(texts.notna(), NONE).astype(str).rename(columns=str.capitalize)


def measure_cells(spec, table):
    """The measures' columns as text: "0.505", with " ± 0.003" over several seeds and its marks, such as "†". The best
    printed value of a column is **bold**: the lowest of errors (`Errors@k`), none of `Hole@k` and `Judged@k`, which are
    no quality."""
    cells = {}
    for name, (split, _) in columns(spec).items():
        means = table.means[name].map("{:.3f}".format, na_action="ignore").astype(float)  # pandas' round differs
        best = {1: means.max(), 0: None, -1: means.min()}[better(name)]
        marks = marks_of(table, name, spec["significance"], split.removesuffix(RERANKED))
        figures = zip(means, table.deviations[name], marks, strict=True)
        cells[name] = [cell(mean, sd, ".3f", mean == best, mark) for mean, sd, mark in figures]
    return pd.DataFrame(cells)


def marks_of(table, column, significance, split):
    """The marks of each cell of a column (list of str), none where it is not tested."""
    marks = [""] * len(table.rows)
    for mark, p_values in table.p_values.items():
        if column in p_values:
            below = p_values[column] < level_of(significance, split)
            marks = [text + mark * marked for text, marked in zip(marks, below.tolist(), strict=True)]
    return marks


def footer(spec, table, stages):
    """Return the sentences (list) that a reader needs beside the figures."""
    facts = stages.facts(spec["collection"]["corpus"])
    counts = count_queries(spec["rows"], {split: spec["measures"][split] for split in spec["splits"]}, stages)
    notes = [f"Collection {collection_text(facts, *counts)}", *overlaps(spec, stages)]
    notes += out_of_domain_notes(spec, stages)
    if "versions" in facts:
        notes.append(f"Made from {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}.")
    evaluated = [name for row in spec["rows"] for names in row["runs"].values() for name in names]
    return notes + legend(spec, table, stages) + spec.get("warnings", []) + warnings_of(stages, evaluated)


def legend(spec, table, stages):
    """The sentences (list) that explain the cells of a table, those of its files and of the page."""
    notes, test = [SEVERAL_SEEDS] if table.deviations.notna().any(axis=None) else [], spec["significance"]
    if test:
        splits = [split.removesuffix(RERANKED) for split, _ in columns(spec).values()]
        notes += significance_text(test, splits, table.comparisons)
    notes.append("Best of each column in bold.")
    if "step" in spec["columns"]:
        notes.append("Step: the training step that the dev queries selected; 0 is the start.")
    if "seconds" in spec["columns"]:
        names = cost_names(of_seed for row in spec["rows"] for of_seed in row["columns"]["seconds"])
        where = machines(map(stages.artefact, names))
        notes.append(f"Seconds of mining and training, as if each system ran alone, one stage after another: {where}.")
    relabelled = [row for row in spec["rows"] if all(map(stages.finished, row.get("relabelled") or [None]))]
    return notes + [relabelled_note(row, stages) for row in relabelled]


def out_of_domain_notes(spec, stages):
    """A sentence on each other collection of a table, and one on the systems that its columns leave out (list)."""
    notes = []
    for name, other in spec.get("out_of_domain", {}).items():
        if not stages.finished(other["corpus"]):
            continue
        counts = count_queries(spec["rows"], other["measures"], stages)
        trained = f" Also trained on it: {', '.join(other['trained'])}." if other["trained"] else ""
        collection = collection_text(stages.facts(other["corpus"]), *counts)
        notes.append(f"Out of domain: {name}, evaluated as {other['file']} says. Collection {collection}{trained}")
    rule = "Only BM25, each start and each system's last checkpoint are evaluated out of domain."
    return [*notes, rule] if notes else []


def relabelled_note(row, stages):
    """A sentence on the relabelled negatives of a row's training, in all of its seeds."""
    seeds = f", {len(row['relabelled'])} seeds" if len(row["relabelled"]) > 1 else ""
    text = relabelled_text(map(stages.facts, row["relabelled"]))
    return f"Relabelled for {row['system']}, episode {row['episode']}{seeds}: {text}."


def overlaps(spec, stages):
    """A sentence for each split with queries that are trained on, too (list)."""
    names = {split: spec["collection"]["splits"].get(split) for split in ("train", *spec["splits"])}
    if not any(row.get("seeds") for row in spec["rows"]) or not all(map(stages.finished, names.values())):
        return []
    return trained_too({split: stages.artefact(name) for split, name in names.items()})


def count_queries(rows, measures, stages):
    """Return how many queries the means of each split are over, such as "412 test queries": judged queries, questions
    with answers. measures: {split: names}"""
    runs = {split: names for row in reversed(rows) for split, names in row["runs"].items()}
    counts = []
    for split in filter(runs.get, measures):
        facts, names = stages.facts(runs[split][0]), measures[split]
        cutoffs = coverage_cutoffs(names)
        if len(cutoffs) < len(names):
            counts.append(f"{facts['num_queries']:,} {split} queries")
        if cutoffs:
            counts.append(f"{facts['num_questions']:,} {split} questions with answers")
    return counts
