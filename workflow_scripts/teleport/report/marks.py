"""Marks of significance in a table: which rows are compared with which, and what a mark says."""

import numpy as np

from teleport.evaluation.significance import LEAST_SEEDS, Scores, compare, holm
from teleport.seed import derive_seed

SEED = 42  # of the tests: rows have seeds of their own, or none
MARK = "†"  # of a table with one baseline
PRINTED = {"*": "∗"}  # a star that is none of Markdown's


def baselines(significance):
    """{mark: [labels of the baselines]}; significance: that of a specification, None where nothing is tested."""
    given = significance["baseline"] if significance else {}
    given = {MARK: given} if isinstance(given, str) else given
    return {PRINTED.get(mark, mark): [at] if isinstance(at, str) else list(at) for mark, at in given.items()}


def of_split(value, split, otherwise):
    """What holds for a split of a setting that is one value, or a value by split."""
    return value.get(split, otherwise) if isinstance(value, dict) else value


def level_of(significance, split):
    """The level of a split: below it, a p is marked."""
    return of_split(significance["level"], split, 0.05)


def compared_rows(rows, significance, labels):
    """{index of a row: [indices of the baseline rows `labels`]}. A baseline is the last episode of the system called
    so; with `by_episode`, the same episode where it has that."""
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
            found = [compare(ours, each, method, significance["resamples"], seed) for each in theirs]
            largest.append(max(comparison.p for comparison in found))
            comparisons += found
        p_values[mark] = np.full(len(rows), np.nan)
        p_values[mark][list(against)] = holm(largest)
    return p_values, comparisons


def significance_text(significance, splits, comparisons):
    """What the marks say: a list of sentences. comparisons: those that were made."""
    levels = {split: level_of(significance, split) for split in splits}
    below = " and ".join(f"{level:g} on {split}" for split, level in levels.items())
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
            f"Of a trained system with fewer than {LEAST_SEEDS} seeds a mark speaks of these checkpoints: another seed "
            "may turn it."
        )
    if "crossed" in methods:
        which = f"Trained systems with {LEAST_SEEDS} seeds or more are tested" if over_queries else "Tested"
        notes.append(f"{which} over queries and seeds, both random (crossed random effects).")
    return notes


def baseline_text(significance, mark):
    """What the rows of a mark are compared with, in words."""
    *first, last = baselines(significance)[mark]
    names = f"each of {', '.join(first)} and {last}" if first else last
    return names + (" of the same episode" if significance.get("by_episode") else "")
