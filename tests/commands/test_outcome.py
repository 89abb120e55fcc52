"""What a run ends with: verdicts above its tables, and where to look."""

from pathlib import Path

from commands.job_texts import outcome

TABLE = r"""Every system and episode

* Tele .589: +.065 over Zero-shot (p .0006); 93 s of mining and training.
* \*Other\* .577: not significantly above Zero-shot (+.053, p .08).

By RR@10, at 0.05, two-sided, Holm-corrected over all of these comparisons.

| System | Episode | RR@10 |
| :-- | --: | --: |
| * starred | 1 | 0.589 |

* no verdict: it stands below the table
"""


def test_verdicts_first_then_where_to_look(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, bare, page = "results/tables/main.md", "results/tables/x/rows.md", "results/report/index.html"
    Path("results/tables/x").mkdir(parents=True)
    Path(table).write_text(TABLE)
    Path(bare).write_text("Rows\n\n| System |\n| :-- |\n")
    others = ["results/tables/main.csv", "results/experiments/x/plan.tsv", "results/stages/a/b/manifest.json"]
    assert outcome([page, *others, table, bare]) == [
        "Every system and episode:",
        "Tele .589: +.065 over Zero-shot (p .0006); 93 s of mining and training.",
        "*Other* .577: not significantly above Zero-shot (+.053, p .08).",
        "By RR@10, at 0.05, two-sided, Holm-corrected over all of these comparisons.",
        f"to look at: {table}",
        f"to look at: {bare}",
        f"to look at: {page}",
    ]
    assert outcome([]) == []
