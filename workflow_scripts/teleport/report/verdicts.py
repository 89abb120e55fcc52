"""Is one system better than another? Every pair of a table's rows, and a sentence for each system that was trained."""

from itertools import combinations

import pandas as pd

from teleport.evaluation.significance import LEAST_SEEDS, Scores, compare, holm
from teleport.report.marks import level_of, of_split
from teleport.seed import derive_seed

SEED = 42  # of the tests, as of those behind a table's marks
MOST_SWAPS = 2e8  # that all permutation tests of a table's pairs may draw; with more, the t-test takes their place
USUAL = {"test": "permutation", "resamples": 9999, "level": 0.05}  # of a table that tests nothing itself
PAIRS = ["column", "a", "b", "difference", "p", "method", "checkpoints", "won", "lost"]


def labels_of(rows):
    """What the rows of a table are called: the system, with its episode where it has rows for several (list)."""
    systems = [row["system"] for row in rows]
    return [
        f"{row['system']}, episode {row['episode']}" if systems.count(row["system"]) > 1 else row["system"]
        for row in rows
    ]


def pairs_of_rows(rows, scores, significance, column, split):
    """A line (DataFrame of PAIRS) per pair of rows: row b less row a, the earlier one, with a p of its own, which
    nothing corrects. scores: {index of a row: frame of queries x runs}"""
    test, pairs = significance or USUAL, list(combinations(sorted(scores), 2))
    method, queries = of_split(test["test"], split, "permutation"), len(next(iter(scores.values()), ()))
    if len(pairs) * queries * test["resamples"] > MOST_SWAPS:
        method = "t-test"
    lines = []
    for a, b in pairs:
        ours = Scores(scores[b].to_numpy(), tuple(rows[b]["seeds"]))
        theirs = Scores(scores[a].loc[scores[b].index].to_numpy(), tuple(rows[a]["seeds"]))
        names = (f"{rows[i]['system']} {rows[i]['episode']}" for i in (a, b))
        found = compare(ours, theirs, method, test["resamples"], derive_seed(SEED, "pair", *names, column))
        lines.append([column, a, b, round(found.difference, 9) + 0.0, *found[1:]])
    return pd.DataFrame(lines, columns=PAIRS)


def verdicts(rows, means, pairs, level):
    """[(index of a row, sentence)]: what the tests say of the last episode of each trained system, best first, beside
    what nothing here has trained (the first three of such rows) and its episode before, by the `pairs` of one column,
    whose p-values Holm's correction holds together. means: of that column, float by row."""
    judged = [i for i in range(len(rows)) if not pd.isna(means[i])]
    untrained = [i for i in judged if not rows[i]["seeds"]][:3]
    last = {rows[i]["system"]: i for i in judged if rows[i]["seeds"]}
    against = {}
    for system, i in last.items():
        before = [j for j in judged if rows[j]["system"] == system and j != i][-1:]
        against[i] = [*untrained, *before]
    found = {(pair.a, pair.b): pair for pair in pairs.itertuples()}
    asked = [(j, i) for i, others in against.items() for j in others]
    signed = [(found[pair], 1) if pair in found else (found[pair[::-1]], -1) for pair in asked]
    p_values = dict(zip(asked, holm([pair.p for pair, _ in signed]), strict=True))
    way = better(pairs["column"].iloc[0]) if len(pairs) else 1
    gains = {pair: sign * line.difference for pair, (line, sign) in zip(asked, signed, strict=True)}
    sentences = []
    for i in sorted(against, key=lambda i: (-way * means[i], i)):
        said = [comparison_text(rows, i, j, gains[j, i], p_values[j, i], level) for j in against[i]]
        if said:
            sentences.append((i, f"{rows[i]['system']} {figure(means[i])}: {'; '.join(said)}."))
    return sentences


def comparison_text(rows, i, j, gain, p, level):
    """What a test says of row i beside row j: "+.065 over Zero-shot (p .0006)", "not above BM25 (+.040, p .08)"."""
    same = rows[i]["system"] == rows[j]["system"]
    other, chance = f"episode {rows[j]['episode']}" if same else rows[j]["system"], f"p {p_text(p)}"
    subject = f"episode {rows[i]['episode']} is " if same else ""
    if p < level:
        return f"{subject}{figure(gain, '+')} {'over' if gain > 0 else 'under'} {other} ({chance})"
    return f"{subject}not {'above' if gain >= 0 else 'below'} {other} ({figure(gain, '+')}, {chance})"


def better(column):
    """1 where the larger mean of a column is the better one, -1 of errors, 0 of a hole rate, which is no quality."""
    return 0 if "Hole@" in column else -1 if "Errors@" in column else 1


def figure(value, sign=""):
    """A measure as text without the zero before its point: ".589", "+.065", "1.000"."""
    text = f"{round(value, 3) + 0.0:{sign}.3f}"  # no minus before zero
    return text.replace("0.", ".", 1) if abs(value) < 1 and round(abs(value), 3) < 1 else text


def p_text(p):
    """A p-value as text, with two digits: ".82", ".0006", "2e-05"."""
    return f"{p:.2g}".removeprefix("0") or "0"


def first_verdicts(spec, column, means, pairs):
    """[(index of a row, sentence)] of `verdicts` by a table's first column, and a sentence on how they were tested;
    none of a table that asks for no test."""
    if not spec["significance"]:
        return [], ""
    level, rows = level_of(spec["significance"], spec["splits"][0]), spec["rows"]
    found = verdicts(rows, means, pairs[pairs["column"] == column], level)
    few = any(0 < len(row["seeds"]) < LEAST_SEEDS for row in rows)
    note = f"By {column}, at {level:g}, two-sided, Holm-corrected over all that is said"
    return found, note + ("; of these checkpoints: another seed may turn it." if few else ".")
