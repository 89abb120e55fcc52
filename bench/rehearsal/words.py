"""Texts of words with Zipf's frequencies, in blocks that are drawn alike whenever they are asked for."""

import numpy as np

BLOCK_TEXTS = 50_000
ZIPF_SHIFT = 2.7  # of Zipf and Mandelbrot: p(rank) ~ 1 / (rank + 2.7)


class Words:
    """The vocabulary, from its most frequent word on, and texts that are drawn from it."""

    def __init__(self, vocabulary, seed):
        self.vocabulary, self.seed = np.array(vocabulary, object), seed
        self.cumulative = np.cumsum(1 / (np.arange(len(vocabulary)) + ZIPF_SHIFT))
        self.cumulative /= self.cumulative[-1]

    def block(self, name, number, lengths):
        """Texts (lists of words) of block `number` of the set `name`; lengths: int [n], words of each."""
        rng = self.rng(name, number)
        drawn = self.vocabulary[np.searchsorted(self.cumulative, rng.random(lengths.sum()))].tolist()
        ends = np.cumsum(lengths).tolist()
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
