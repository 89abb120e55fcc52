"""Is one system better than another? Marks of a table, tests of all pairs of its rows, and sentences on trained
systems."""

from itertools import combinations

import numpy as np

from teleport.evaluation.significance import LEAST_SEEDS, Scores, compare, holm
from teleport.report.words import listed
from teleport.seed import derive_seed
from teleport.settings.measures import better

SEED = 42  # of the tests: rows have seeds of their own, or none
MARK = "†"  # of a table with one baseline
PRINTED = {"*": "∗"}  # a star that is no Markdown
MOST_SWAPS = 2e8  # that all permutation tests of a table's pairs may draw; with more, the t-test takes their place
USUAL = {"test": "permutation", "resamples": 9999, "level": 0.05}  # for a table that sets no test
PAIRS = ["column", "a", "b", "difference", "p", "method", "checkpoints", "won", "lost"]


def baselines(significance):
    """{mark: [labels of the baselines]}; significance: that of a specification, None where nothing is tested."""
    given = significance["baseline"] if significance else {}
    given = {MARK: given} if isinstance(given, str) else given
    return {PRINTED.get(mark, mark): [at] if isinstance(at, str) else list(at) for mark, at in given.items()}


def of_split(value, split, otherwise):
    """Return the value for a split of a setting that is one value, or a value by split."""
    return value.get(split, otherwise) if isinstance(value, dict) else value


def level_of(significance, split):
    """The level of a split: below it, a p is marked."""
    return of_split(significance["level"], split, 0.05)


def compared_rows(rows, significance, labels):
    """{index of a row: [indices of the baseline rows `labels`]}. A baseline is the last episode of the system with that
    label; with `by_episode`, the same episode if it has one."""
    against = {i: [] for i in range(len(rows))}
    for label in labels:
        episodes = {row["episode"]: i for i, row in enumerate(rows) if row["system"] == label}
        same = episodes if significance.get("by_episode") else {}
        for i, row in enumerate(rows):
            against[i].append(same.get(row["episode"], episodes[max(episodes)]))
    return {i: bases for i, bases in against.items() if i not in bases}


def test_column(scores, rows, significance, column, split):
    """({mark: p of each row, float [rows], NaN where not tested}, [`Comparison`]) of a column of a table. scores:
    {index of a row: frame of queries x runs}; each row's `seeds` are those of its runs.

    A mark of several baselines says that a row differs from each of them, so its p is the largest (Berger 1982). p is
    Holm-corrected over the rows of a mark. A row's system and episode, and the name of the column, seed its resamples.
    """
    p_values, comparisons = {}, []
    for mark, labels in baselines(significance).items():
        against = compared_rows(rows, significance, labels)
        against = {i: bases for i, bases in against.items() if {i, *bases} <= scores.keys()}
        method, largest = of_split(significance["test"], split, "permutation"), []
        for i, bases in against.items():
            ours = Scores(scores[i].to_numpy(), tuple(rows[i]["seeds"]))
            seed = derive_seed(SEED, "significance", rows[i]["system"], rows[i]["episode"], column)
            theirs = [Scores(scores[j].loc[scores[i].index].to_numpy(), tuple(rows[j]["seeds"])) for j in bases]
            of_row = [compare(ours, each, method, significance["resamples"], seed) for each in theirs]
            largest.append(max(comparison.p for comparison in of_row))
            comparisons += of_row
        p_values[mark] = np.full(len(rows), np.nan)
        p_values[mark][list(against)] = holm(largest)
    return p_values, comparisons


def significance_text(significance, splits, comparisons):
    """Return the sentences (list) that explain the marks. comparisons: those that were made."""
    levels = {split: level_of(significance, split) for split in splits}
    below = listed([f"{level:g} on {split}" for split, level in levels.items()])
    below = f"{next(iter(levels.values())):g}" if len(set(levels.values())) == 1 else below
    corrected = "(two-sided, paired, Holm-corrected within the column)"
    marks = baselines(significance).items()
    notes = [f"{mark} differs from {baseline_text(significance, mark)}, p < {below} {corrected}." for mark, _ in marks]
    methods = {comparison.method for comparison in comparisons}
    resampled = f"permutation test, {significance['resamples']:,} resamples"
    over_queries = [text for method, text in (("permutation", resampled), ("t-test", "t-test")) if method in methods]
    if over_queries:
        notes.append(f"Tested over queries: {' or '.join(over_queries)}.")
    if any(comparison.checkpoints for comparison in comparisons):
        notes.append(
            f"For a trained system with fewer than {LEAST_SEEDS} seeds, a mark compares these checkpoints: another "
            "seed may differ."
        )
    if "crossed" in methods:
        which = f"Trained systems with {LEAST_SEEDS} seeds or more are tested" if over_queries else "Tested"
        notes.append(f"{which} over queries and seeds, both random (crossed random effects).")
    return notes


def baseline_text(significance, mark):
    """Return the baseline of a mark in words."""
    *first, last = baselines(significance)[mark]
    names = f"each of {', '.join(first)} and {last}" if first else last
    return names + (" of the same episode, or its last" if significance.get("by_episode") else "")


def labels_of(rows):
    """Return the labels (list) of a table's rows: the system, with its episode if it has rows for several."""
    systems = [row["system"] for row in rows]
    return [
        f"{row['system']}, episode {row['episode']}" if systems.count(row["system"]) > 1 else row["system"]
        for row in rows
    ]


def pairs_of_rows(rows, scores, significance, column, split):
    """A line (DataFrame of PAIRS) per pair of rows: row b less row a, the earlier one, with its uncorrected p. scores:
    {index of a row: frame of queries x runs}"""
    test, pairs, way = significance or USUAL, list(combinations(sorted(scores), 2)), better(column) or 1
    method, queries = of_split(test["test"], split, "permutation"), len(next(iter(scores.values()), ()))
    if len(pairs) * queries * test["resamples"] > MOST_SWAPS:
        method = "t-test"
    lines = []
    for a, b in pairs:
        ours = Scores(scores[b].to_numpy(), tuple(rows[b]["seeds"]))
        theirs = Scores(scores[a].loc[scores[b].index].to_numpy(), tuple(rows[a]["seeds"]))
        names = (f"{rows[i]['system']} {rows[i]['episode']}" for i in (a, b))
        comparison = compare(ours, theirs, method, test["resamples"], derive_seed(SEED, "pair", *names, column), way)
        lines.append([column, a, b, round(comparison.difference, 9) + 0.0, *comparison[1:]])
    import pandas as pd  # here: planning loads this module, too

    return pd.DataFrame(lines, columns=PAIRS)


def verdicts(rows, means, pairs, level, references=()):
    """[(index of a row, sentence without its full stop)] about the last episode of each trained system, best first.

    It is compared with the first three untrained rows and with its episode before, by the `pairs` of one column, whose
    p-values are Holm-corrected together. If all rows are runs from elsewhere, each is compared with the `references`,
    labels of the table's baselines. means: of that column, float by row."""
    judged = [i for i in range(len(rows)) if not np.isnan(means[i])]
    trained = [i for i in judged if rows[i]["seeds"]]
    untrained = [i for i in judged if not rows[i]["seeds"] and (trained or rows[i]["system"] in references)][:3]
    last = {rows[i]["system"]: i for i in trained or judged if i not in untrained}
    against = {}
    for system, i in last.items():
        before = [j for j in judged if rows[j]["system"] == system and j != i][-1:]
        against[i] = [*untrained, *before]
    tests = {(pair.b, pair.a): (pair.difference, pair.p) for pair in pairs.itertuples()}
    tests |= {(a, b): (-difference, p) for (b, a), (difference, p) in tests.items()}
    compared = [(i, j) for i, others in against.items() for j in others]
    p_values = dict(zip(compared, holm([tests[pair][1] for pair in compared]), strict=True))
    way = better(pairs["column"].iloc[0]) if len(pairs) else 1
    sentences = []
    for i in sorted(against, key=lambda i: (-way * means[i], i)):
        parts = [comparison_text(rows, i, j, tests[i, j][0], p_values[i, j], level) for j in against[i]]
        if parts:
            sentences.append((i, f"{rows[i]['system']} {figure(means[i])}: {'; '.join(parts)}"))
    return sentences


def comparison_text(rows, i, j, gain, p, level):
    """Return the result of a test of row i against row j: "+.065 over Zero-shot (p .0006)", "not significantly above
    BM25 (+.040, p .08)"."""
    same = rows[i]["system"] == rows[j]["system"]
    other, chance = f"episode {rows[j]['episode']}" if same else rows[j]["system"], f"p {p_text(p)}"
    subject = f"episode {rows[i]['episode']} is " if same else ""
    if p < level:
        return f"{subject}{figure(gain, '+')} {'over' if gain > 0 else 'under'} {other} ({chance})"
    return f"{subject}not significantly {'above' if gain >= 0 else 'below'} {other} ({figure(gain, '+')}, {chance})"


def figure(value, sign=""):
    """A measure as text without the zero before its point: ".589", "+.065", "1.000"."""
    text = f"{value:{sign}z.3f}"  # z: no minus before zero
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text


def p_text(p):
    """A p-value as text, with two digits: ".82", ".0006", "2e-05"; "under 1e-16" where a float is not precise
    enough."""
    return "under 1e-16" if p < 1e-16 else f"{p:.2g}".removeprefix("0")
