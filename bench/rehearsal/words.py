"""Texts of words with Zipf's frequencies, repeated within a text as in real ones. A block has the same texts whenever
it is drawn."""

import numpy as np

BLOCK_TEXTS = 50_000
ZIPF_SHIFT = 2.7  # of Zipf and Mandelbrot: p(rank) ~ 1 / (rank + 2.7)
REPEATED, NEAR = 0.6, 20  # share of words that repeat one before them in their text; how far before at most


class Words:
    """The vocabulary, the most frequent word first, and texts drawn from it."""

    def __init__(self, vocabulary, seed):
        self.vocabulary, self.seed = np.array(vocabulary, object), seed
        shares = 1 / (np.arange(len(vocabulary)) + ZIPF_SHIFT)
        self.shares = shares / shares.sum()  # of the words of a text
        self.cumulative = np.cumsum(shares)
        self.cumulative /= self.cumulative[-1]

    def block(self, name, number, lengths):
        """Texts (lists of words) of block `number` of the set `name`; lengths: int [n], words of each."""
        rng = self.rng(name, number)
        places = np.arange(lengths.sum())
        ends = np.cumsum(lengths)
        earlier = places - rng.integers(1, NEAR + 1, len(places))
        repeats = (rng.random(len(places)) < REPEATED) & (earlier >= np.repeat(ends - lengths, lengths))
        places = np.where(repeats, earlier, places)
        ranks = np.searchsorted(self.cumulative, rng.random(len(places)))
        drawn, ends = self.vocabulary[ranks[places]].tolist(), ends.tolist()
        return [drawn[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]

    def rng(self, name, number=0):
        """The generator of block `number` of a set of texts, or of anything else with a name."""
        return np.random.default_rng([self.seed, *name.encode(), number])


def lengths(rng, count, mean, spread=0.4):
    """Lognormal numbers of words, int64 [count], at least 4."""
    drawn = np.exp(rng.normal(np.log(mean) - spread**2 / 2, spread, count))
    return np.maximum(4, drawn.round().astype(np.int64))


def blocks(count):
    """(number, first row, last row) of the blocks of `count` texts."""
    firsts = range(0, count, BLOCK_TEXTS)
    return [(number, first, min(first + BLOCK_TEXTS, count)) for number, first in enumerate(firsts)]
