"""Tables of analyses, literally; columns of re-ranked candidates; figures of published tables from the same stages."""

import json

import numpy as np
import pytest

from stages import warn
from teleport.arrays import save_array
from teleport.evaluation.significance import holm, paired_p_value
from teleport.report.analyses import write_analyses
from teleport.report.table import columns
from teleport.running.artefact import STAGES, Artefact


@pytest.fixture
def collection(stages):
    return stages.finish(stages.make("corpus"), {"corpus_digest": "0123456789abcdef" * 4, "num_passages": 9660})


def stage(stages, kind, **facts):
    job = stages.finish(stages.make(kind), facts)
    return f"{kind}/{job.key}"


def errors(stages, mean, top, *shares):
    """A finished stage whose histogram has these (queries, errors), from no error on."""
    decades = zip((0, 1, 10), shares, strict=False)
    histogram = [{"from": lowest, "queries": queries, "errors": of_all} for lowest, (queries, of_all) in decades]
    facts = {"errors": mean, "errors_per_positive": mean / 2, "ties_per_positive": 0.25, "top_errors": top, "top": 200}
    return stage(stages, "errors", **facts, num_queries=1234, histogram=histogram)


def contrast(stages, overlap, wins):
    facts = {"overlap": overlap, "wins": wins, "losses": 13, "ties": 1, "depth": 100, "num_queries": 43}
    return stage(stages, "contrast", **facts, measure="nDCG@10")


def write(stages, collection, rows, **more):
    spec = {
        "name": "analyses",
        "title": "Analyses: T",
        "collection": {"corpus": f"corpus/{collection.key}", "splits": {}},
        "rows": rows,
    }
    spec |= {"errors of": "dev", "against": "BM25"} | more
    write_analyses(json.loads(json.dumps(spec)), stages.root, stages.root / "tables")
    suffixes = ("csv", "md", "tex", "sources.csv")
    return {suffix: (stages.root / f"tables/analyses.{suffix}").read_text() for suffix in suffixes}


MARKDOWN = """\
Analyses: T

| System | Episode | Errors | Errors per positive | Top-200 errors | Ties per positive | Overlap with BM25 | Wins over BM25 | Losses | Ties | Negatives in the top 100 |
| :-- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |
| BM25 | 0 | – | – | – | – | 1.000 | 0 | 13 | 1 | – |
| ANCE | 1 | 1,300.0 ± 141.4 | 650.0 ± 70.7 | 35.5 ± 0.7 | 0.25 ± 0.00 | 0.174 | 29 | 13 | 1 | 0.630 |

Collection 0123456789abcdef: 9,660 passages.

Mean ± standard deviation over seeds.

Errors: irrelevant passages of the whole corpus with a higher score than a positive, summed over the positives of a query, mean over 1,234 dev queries. Top-K errors count at most K per positive. Ties: irrelevant passages with the positive's score, which do not count.

Errors of ANCE, episode 1, by decades: 0: 70.0% of queries, 0.0% of errors; 1-9: 25.0% of queries, 75.0% of errors; 10-99: 5.0% of queries, 25.0% of errors.

Overlap: the share of the first 100 passages that both have. Wins, losses and ties of 43 queries by nDCG@10.

Negatives in the top K: share of a training query's negatives that are among its first K negatives under the checkpoint that was trained on them.
"""  # noqa: E501


def test_a_table_of_analyses_literally(stages, collection):
    first = errors(stages, 1200.0, 35.0, (0.75, 0.0), (0.25, 1.0))
    ance = {"errors": [first, errors(stages, 1400.0, 36.0, (0.65, 0.0), (0.25, 0.5), (0.1, 0.5))]}
    ance |= {"contrast": [contrast(stages, 0.174, 29)]}
    ance |= {"negatives": [stage(stages, "negatives_overlap", overlap=0.63, depth=100, num_queries=80)]}
    rows = [
        {"system": "BM25", "episode": 0, "analyses": {"contrast": [contrast(stages, 1.0, 0)]}},
        {"system": "ANCE", "episode": 1, "analyses": ance},
    ]
    texts = write(stages, collection, rows)
    assert texts["md"] == MARKDOWN
    header, bm25, second = (line.split(",") for line in texts["csv"].splitlines())
    assert header[:4] == ["system", "episode", "Errors", "Errors per positive"]
    found = dict(zip(header, second, strict=True))
    assert [found[name] for name in ("Errors", "Errors sd")] == ["1300", "141.421"]
    assert [found[name] for name in ("queries 1-9", "errors 1-9", "queries 10-99")] == ["0.25", "0.75", "0.05"]
    assert dict(zip(header, bm25, strict=True))["Errors"] == ""
    assert r"1,300.0 $\pm$ 141.4" in texts["tex"]
    sources = [line.split(",") for line in texts["sources.csv"].splitlines()[1:]]
    assert [line[:3] for line in sources] == [
        ["BM25", "0", "contrast"], *[["ANCE", "1", name] for name in ("errors", "errors", "contrast", "negatives")]
    ]  # fmt: skip
    assert all(Artefact(stages.root / STAGES / line[3]).facts for line in sources)


def test_a_table_of_analyses_says_what_its_stages_warned_of(stages, collection):
    start = stages.finish(stages.make("retrieve"))
    warn(start, "all vectors are equal")
    facts = {"overlap": 0.5, "wins": 1, "losses": 2, "ties": 3, "depth": 100, "num_queries": 6, "measure": "RR@10"}
    job = stages.finish(stages.make("contrast", inputs={"run": start}), facts)
    rows = [{"system": "A", "episode": 0, "analyses": {"contrast": [f"contrast/{job.key}"]}}]
    assert f"\nWarning of retrieve/{start.key}: all vectors are equal\n" in write(stages, collection, rows)["md"]


def forgetting(stages, forgotten):
    job = stages.make("forgetting")
    save_array(job.output("forgotten.npy"), np.array(forgotten))
    stages.finish(job, {"rate": float(np.mean(forgotten)), "gained": 0.25, "num_queries": len(forgotten)})
    return f"forgetting/{job.key}"


def test_forgetting_is_tested_against_the_same_episode_of_the_baseline(stages, collection):
    many, few = [True] * 9 + [False], [False] * 9 + [True]
    forgotten = {("A", 1): [many, many], ("A", 2): [many, few], ("B", 1): [few, few], ("B", 2): [many, many]}
    rows = [
        {
            "system": s,
            "episode": e,
            "seeds": [1, 2],
            "analyses": {"forgetting": [forgetting(stages, of_seed) for of_seed in of_seeds]},
        }
        for (s, e), of_seeds in forgotten.items()
    ]
    test = {"baseline": "A", "test": "permutation", "resamples": 9999, "level": 0.05, "by_episode": True}
    texts = write(stages, collection, rows, significance=test)
    means = {row: np.mean(of_seeds, axis=0) for row, of_seeds in forgotten.items()}
    expected = holm([paired_p_value(means["B", e], means["A", e], 9999, 0) for e in (1, 2)])  # 2^10 swaps: all of them
    header, *lines = (line.split(",") for line in texts["csv"].splitlines())
    assert header[-1] == "Forgotten p" and [line[-1] for line in lines[:2]] == ["", ""]
    assert [float(line[-1]) for line in lines[2:]] == pytest.approx(expected, rel=1e-5)
    assert [p < 0.05 for p in expected] == [True, True]
    assert "| B | 1 | 0.100 ± 0.000† |" in texts["md"] and "| A | 1 | 0.900 ± 0.000 |" in texts["md"]
    assert "† differs from A of the same episode, or its last" in texts["md"]


def test_columns_are_only_those_that_are_asked_for(stages, collection):
    overlap = stage(stages, "negatives_overlap", overlap=np.float64(0.5).item(), depth=100, num_queries=3)
    texts = write(stages, collection, [{"system": "A", "episode": 1, "analyses": {"negatives": [overlap]}}])
    assert texts["csv"] == "system,episode,Negatives in the top 100\nA,1,0.5\n"
    assert "Errors" not in texts["md"] and "Overlap" not in texts["md"]


def test_a_label_with_a_bar_breaks_no_heading(stages, collection):
    rows = [{"system": "A", "episode": 1, "analyses": {"contrast": [contrast(stages, 0.5, 2)]}}]
    texts = write(stages, collection, rows, against="B|C")
    heading = r"| System | Episode | Overlap with B\|C | Wins over B\|C | Losses | Ties |"
    assert f"{heading}\n" in texts["md"] and "Overlap with B|C," in texts["csv"]


def test_reranked_columns_come_last_with_their_own_measures():
    spec = {"splits": ["dev", "dl19"], "measures": {"dev": ["RR@10"], "dl19": ["nDCG@10", "R@100"]}}
    assert columns(spec) == {
        "dev RR@10": ("dev", "RR@10"), "dl19 nDCG@10": ("dl19", "nDCG@10"), "dl19 R@100": ("dl19", "R@100")
    }  # fmt: skip
    spec["reranked"] = {"dl19": ["nDCG@10"]}
    assert list(columns(spec).items())[3:] == [("dl19 nDCG@10 (re-ranked)", ("dl19 (re-ranked)", "nDCG@10"))]
    single = {"splits": ["test"], "measures": {"test": ["RR@10"]}, "reranked": {"test": ["RR@10"]}}
    assert list(columns(single)) == ["RR@10", "RR@10 (re-ranked)"]


def test_a_reference_keeps_its_name(stages, collection):
    """Whatever letters of a column's own it has."""
    rows = [{"system": "A", "episode": 0, "seeds": [], "analyses": {"contrast": [contrast(stages, 0.5, 3)]}}]
    assert "| Overlap with TOP-BM25 |" in write(stages, collection, rows, against="TOP-BM25")["md"]
