"""Significance: how often systems that do not differ are marked at 5 %, and how often a difference of 0.03 is found.

python bench/significance.py [--trials 3000] [--page docs/measured/significance.md]

Every trial draws two systems. Their scores are reciprocal ranks in the first 10, of a latent position. The query, the
system with the query, the training with the query, and the seed each add a normal deviate to it.
"""

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from rounds import parser
from teleport.evaluation.significance import Scores, compare, crossed_p_value, variances
from teleport.seed import derive_seed

LEVEL, EFFECT, LEAST = 0.05, 0.03, 0.03  # shares below LEAST are listed in words
DEVIATIONS, QUERIES = (0.0, 0.01, 0.02), (43, 200, 6980)
MEAN, QUERY, SYSTEM, TRAINING = 1.2, 1.2, 0.5, 0.5  # of the latent position, in units of log rank
PAGE = Path(__file__).resolve().parents[1] / "docs/measured/significance.md"
TEXT = """\
# How often a test marks two systems
Made by `python bench/significance.py`: {trials} trials a cell. Two systems have no difference, and their means over all
queries deviate from seed to seed by the *deviation*. The shares are those of trials with p < {level:g}, without Holm's
correction. Power is the same where one system is better by {effect:g}. Scores are reciprocal ranks in the first 10,
{mean:.2f} on average. Over queries alone, the test is the permutation test, for {most:,} queries the t-test.

| what | tested | seeds | deviation | {heads} | {power} |
| :-- | :-- | --: | --: | {rules} |
{lines}

Shares below {least:g}: {below}.
"""


@cache
def slope():
    """How much the mean reciprocal rank gains for each unit that the latent position is better."""
    latent = np.random.default_rng(0).normal(MEAN, np.hypot(QUERY, np.hypot(SYSTEM, TRAINING)), 10**6)
    return (reciprocal(latent - 0.05).mean() - reciprocal(latent + 0.05).mean()) / 0.1


def reciprocal(latent):
    """RR@10 of latent positions: the rank is their exponential, rounded up."""
    ranks = np.ceil(np.exp(latent))
    return np.where(ranks <= 10, 1 / ranks, 0.0)


def draw(rng, num_queries, num_seeds, shift_deviation, shift_effect=0.0, same_shift=False):
    """Scores of two systems, a list of two float64 [Q, R]. same_shift: their checkpoints have the same mean."""
    queries, shifts = rng.normal(MEAN, QUERY, (num_queries, 1)), rng.normal(0, shift_deviation, (2, num_seeds))
    systems = []
    for number in (0, 1):
        of_queries = rng.normal(0, SYSTEM, (num_queries, 1)) + rng.normal(0, TRAINING, (num_queries, num_seeds))
        shift = shifts[0 if same_shift else number] + number * shift_effect
        systems.append(reciprocal(queries + of_queries + shift))
    return systems


def of_pair(pair, way, seed):
    """p of a pair of `draw`. way: "same seeds", "other seeds", or the test over queries of "means" over seeds."""
    num_seeds = pair[0].shape[1]
    if way == "means":
        ours, theirs = (Scores(values.mean(axis=1, keepdims=True)) for values in pair)
    else:
        first = num_seeds if way == "other seeds" else 0
        ours, theirs = Scores(pair[0], tuple(range(num_seeds))), Scores(pair[1], tuple(range(first, first + num_seeds)))
    test = "permutation" if len(pair[0]) < max(QUERIES) else "t-test"
    return compare(ours, theirs, test, resamples=999, seed=seed).p


def share(trials, way, num_seeds, deviation, num_queries, effect=0.0, same_shift=False):
    """The share of trials with p < LEVEL (float)."""
    root = derive_seed(0, way, num_seeds, deviation, num_queries, effect, same_shift)
    rng, unit, found = np.random.default_rng(root), slope(), 0
    for trial in range(trials):
        pair = draw(rng, num_queries, num_seeds, deviation / unit, effect / unit, same_shift)
        found += of_pair(pair, way, trial) < LEVEL
    return found / trials


def components(differences_QR):
    """The variances of the differences of two systems under the same seeds: over queries, over seeds, and the rest."""
    num_queries, num_seeds = differences_QR.shape
    over_seeds, interaction = variances(differences_QR)
    rest = interaction * num_queries * num_seeds
    queries = differences_QR.mean(axis=1).var(ddof=1) - rest / num_seeds
    return max(0.0, queries), max(0.0, (over_seeds - interaction) * num_seeds), rest


def share_found(trials, differences_QR, effect):
    """The share of trials with p < LEVEL (float) if the true difference is `effect`, and queries and seeds vary as in
    the measured differences of two systems. What the two share, such as a warm-up, is in neither."""
    num_queries, num_seeds = differences_QR.shape
    queries, seeds, rest = np.sqrt(components(differences_QR))
    rng, found, names = np.random.default_rng(derive_seed(0, "contrast", effect)), 0, tuple(range(num_seeds))
    nothing = Scores(np.zeros_like(differences_QR), names)
    for _ in range(trials):
        drawn = rng.normal(effect, queries, (num_queries, 1)) + rng.normal(0, seeds, num_seeds)
        found += crossed_p_value(Scores(drawn + rng.normal(0, rest, differences_QR.shape), names), nothing) < LEVEL
    return found / trials


def smallest(differences_QR, trials=400, power=0.8):
    """The smallest true difference (float, to .0005) that `power` of the trials of `share_found` find."""
    low, high = 0, 200  # of .0005
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share_found(trials, differences_QR, middle / 2000) >= power else (middle, high)
    return high / 2000


def cases():
    """[(what, tested, way, seeds, whether the checkpoints have the same mean)] of the rows, each by deviation."""
    rows = [("1 seed, of these checkpoints", "queries", "same seeds", 1, True)]
    rows += [("1 seed, of the systems", "queries", "same seeds", 1, False)]
    rows += [("mean of 3 seeds, of the systems", "queries", "means", 3, False)]
    crossed = product((3, 5), ("same seeds", "other seeds"))
    return rows + [(way, "queries and seeds", way, number, False) for number, way in crossed]


def main():
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=3000)
    options.add_argument("--page", type=Path, default=PAGE)
    args, lines, below = options.parse_args(), [], []
    for (what, tested, way, seeds, same), deviation in product(cases(), DEVIATIONS):
        cells = [
            f"{share(args.trials, way, seeds, deviation, number, effect, same):.3f}"
            for effect in (0.0, EFFECT)
            for number in QUERIES
        ]
        named = zip(cells, QUERIES, strict=False)  # not the power
        below += [f"{cell} of {what}, {seeds}, {number:,} queries" for cell, number in named if float(cell) < LEAST]
        lines.append(f"| {' | '.join([what, tested, str(seeds), f'{deviation:g}', *cells])} |")
        print(lines[-1], flush=True)
    facts = {"trials": f"{args.trials:,}", "most": max(QUERIES), "level": LEVEL, "least": LEAST}
    facts["below"] = "; ".join(below) or "none"
    facts |= {"heads": " | ".join(f"{n:,} queries" for n in QUERIES), "rules": " | ".join(["--:"] * 2 * len(QUERIES))}
    facts |= {"power": " | ".join(f"power, {n:,}" for n in QUERIES), "effect": EFFECT, "lines": "\n".join(lines)}
    mean = draw(np.random.default_rng(0), 10**6, 1, 0.0)[0].mean()
    args.page.write_text(TEXT.format_map(facts | {"mean": mean}), encoding="utf-8")


if __name__ == "__main__":
    main()
