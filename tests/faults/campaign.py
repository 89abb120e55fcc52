"""The campaign's log, a line of JSON per case, and the table of docs/measured/faults.md made from it.

    FAULT_LOG=campaign.jsonl make test-faults
    python tests/faults/campaign.py campaign.jsonl      # puts the table into the page
    python tests/faults/campaign.py part.jsonl "Part"   # puts it below the heading "Part"

`FAULT_CASES` is how many bad inputs are drawn for each reader; there are fewer of other faults, in proportion.
"""

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/measured/faults.md"
SLICE = not os.environ.get("FAULT_CASES")  # whether these are the few that run with all tests
CASES = int(os.environ.get("FAULT_CASES") or 20)
LOG = os.path.abspath(os.environ["FAULT_LOG"]) if os.environ.get("FAULT_LOG") else None  # tests go to other folders


def cases_of(inputs):
    """How many cases there are of a fault that has one for so many bad inputs of a reader; at least one."""
    return max(1, CASES // inputs)


def sample(cases, inputs, seed):
    """One of `cases` for so many bad inputs of a reader, drawn from a seed, or all where there are fewer (list)."""
    cases = list(cases)
    return random.Random(seed).sample(cases, min(len(cases), cases_of(inputs)))


class Campaign:
    """Notes cases and what came of them; `check` fails when one has not ended as it should."""

    def __init__(self):
        self.wrong = []

    def note(self, fault, of, wrong, case=None, could_fail=True):
        """One case of a `fault` of a stage kind or reader `of`; wrong: what is not as it should be, or nothing."""
        if wrong:
            self.wrong.append(f"{fault}, {of}, {case}: {wrong}")
        if LOG:
            line = {"fault": fault, "of": of, "case": str(case), "wrong": str(wrong or ""), "could_fail": could_fail}
            with open(LOG, "a", encoding="utf-8") as log:  # a short line is appended as a whole
                log.write(json.dumps(line) + "\n")

    def check(self):
        assert not self.wrong, f"{len(self.wrong)} wrong:\n" + "\n".join(self.wrong[:20])


def table(path):
    """The log as lines of Markdown: cases of each fault, of how many kinds, how many could fail, and how many did."""
    with open(path, encoding="utf-8") as log:
        cases = [json.loads(line) for line in log]
    counts, wrong = Counter(case["fault"] for case in cases), Counter(c["fault"] for c in cases if c["wrong"])
    could = Counter(case["fault"] for case in cases if case["could_fail"])
    lines = ["| fault | of so many kinds | cases | could fail | not as promised |", "|---|--:|--:|--:|--:|"]
    for fault, number in sorted(counts.items()):
        kinds = len({case["of"] for case in cases if case["fault"] == fault})
        lines.append(f"| {fault} | {kinds} | {number:,} | {could[fault]:,} | {wrong[fault]} |")
    return "\n".join([*lines, f"| **all** | | {len(cases):,} | {sum(could.values()):,} | {sum(wrong.values())} |"])


def replace_table(page, head, lines, heading=""):
    """Put `lines` (text) in the place of the table of a page (path) whose first line begins with `head`: the first one
    behind a `heading`."""
    start = f"## {heading}\n" if heading else ""
    text = page.read_text(encoding="utf-8")
    assert start in text, f"{page} has no heading {heading}"
    above, rest = text[: text.index(start) + len(start)], text[text.index(start) + len(start) :]
    before, found, rest = rest.partition(head)
    before = above + before
    assert found, f"{page} has no table that begins with {head}"
    _, blank, after = rest.partition("\n\n")
    page.write_text(before + lines + (blank + after or "\n"), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python tests/faults/campaign.py LOG [HEADING]")
    replace_table(PAGE, "| fault |", table(sys.argv[1]), *sys.argv[2:])
