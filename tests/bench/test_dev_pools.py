"""The table of dev pools on the page of results is what the kept scores say."""

import re

import dev_pools
from paths import REPOSITORY

ROWS = {"warm-up": "warm-up", "(a)": "same-passages", "(c)": "random", "(e)": "mined"}
POOLS = ("all passages", "start", "BM25")


def test_the_page_says_what_the_kept_scores_are():
    text = (REPOSITORY / "docs/results.md").read_text().split("\n## Dev sets that mislead\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| (warm-up|\([a-i]\)).*? \| (\.\d+) \| (\.\d+) \| (\.\d+) \|$", text, re.M)
    means = dev_pools.means()
    assert [ROWS[row] for row, *_ in found] == list(ROWS.values())
    for row, *cells in found:
        assert cells == [f"{means.loc[ROWS[row], pool]:.3f}"[1:] for pool in POOLS], row
