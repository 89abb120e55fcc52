"""The table of single queries that two runs answer differently, from stages made in this process."""

import pandas as pd

from teleport.analyses import contrast
from teleport.evaluation import external
from teleport.report.paper.figures import case_table, chosen
from teleport.report.render import Printed, latex, markdown
from teleport.report.stages import Reader


def test_stars_in_a_text_are_no_bold(stages, tmp_path):
    (tmp_path / "corpus.tsv").write_text("d1\tf(*args, **kwargs) and g(**options)\nd2\tother\n")
    (tmp_path / "queries.test.tsv").write_text("q1\twhat is **kwargs or 2 ** 3\n")
    (tmp_path / "qrels.test.tsv").write_text("q1 0 d1 1\n")
    collection, runs = stages.collection({"source": "folder", "path": str(tmp_path)}), {}
    for role, order in (("run", "12"), ("reference", "21")):
        (tmp_path / role).write_text(
            "".join(f"q1 Q0 d{n} 0 {score} t\n" for score, n in zip((2, 1), order, strict=True))
        )
        settings = {"file": str(tmp_path / role), "sha256": None, "split": "test", "form": "trec"}
        settings |= {"unknown_queries": "error", "unknown_passages": "error"}
        runs[role] = stages.run(external.run, "external", settings, collection)
    made = stages.run(contrast.run, "contrast", {"split": "test", "measure": "RR@10"}, collection | runs)
    corpus, split = (collection[role] for role in ("corpus", "split.test"))
    reader = Reader(tmp_path, {"corpus": f"corpus/{corpus.key}", "splits": {"test": f"split/{split.key}"}})
    figure = {"queries": None, "won": 1, "lost": 1}
    table, values = case_table(reader, "cases", figure, "Ours", f"contrast/{made.key}", "Theirs")
    assert values["text"].tolist() == ["f(*args, **kwargs) and g(**options)"]
    assert "d1: f(∗args, ∗∗kwargs) and g(∗∗options) (1)" in markdown(table) and "2 ∗∗ 3" in markdown(table)
    assert r"\textbf" not in latex(table)


def test_a_tie_up_to_rounding_is_neither_won_nor_lost():
    frame = pd.DataFrame({"query_id": ["a", "b", "c"], "difference": [0.5, 1 / 3 - (1 - 2 / 3), 1 - 2 / 3 - 1 / 3]})
    assert (frame["difference"] != 0).sum() >= 2, "nothing would tell a tie from a win"
    assert chosen(frame, "cases", {"queries": None, "won": 3, "lost": 3}, 1)["query_id"].tolist() == ["a"]


def test_tags_and_bars_of_labels_are_shown_by_a_page():
    shown = {"ANCE <ours>": r"ANCE \<ours>", "a|b": r"a\|b", "p < 0.05": "p < 0.05", "*a* **b**": r"\*a\* \*\*b\*\*"}
    shown |= {"[2](x) `c`": r"\[2\](x) \`c\`", "_a_b_": r"\_a_b\_", "a&lt;b & c": r"a\&lt;b & c", r"a\|b": r"a\\\|b"}
    frame = pd.DataFrame({"System": list(shown), "RR@10": "**0.5**"})
    written = markdown(Printed("main", "Title", frame, ["† differs from <b>"]))
    assert all(f"| {text} | **0.5** |" in written for text in shown.values())
    assert written.endswith("† differs from &lt;b>\n")
