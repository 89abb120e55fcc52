"""Tables, literally: their figures, marks, footers, and the sources of each figure."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import ttest_rel

from stages import warn
from teleport.arrays import save_array
from teleport.collection.equal import digests_of
from teleport.evaluation.significance import Scores, crossed_p_value, holm, paired_p_value
from teleport.refusal import Refusal
from teleport.report import table
from teleport.report.page.overview import page_table
from teleport.report.stages import Stages
from teleport.report.table import write_table
from teleport.report.verdicts import p_text
from teleport.running.artefact import MANIFEST
from teleport.running.files import write_json
from teleport.seed import derive_seed

QUERIES = [f"q{n}" for n in range(10)]


class World:
    """Evaluations with given scores, and the stages they come from."""

    def __init__(self, stages):
        self.stages, self.rows, self.seeds = stages, [], {}
        facts = {"corpus_digest": "0123456789abcdef" * 4, "num_passages": 9660}
        facts["versions"] = {"numpy": "2.4.6", "scipy": "1.17.0"}
        self.collection = self.stage("corpus", {}, {}, facts)

    def stage(self, kind, settings, inputs, facts=None, frame=None):
        job = self.stages.make(kind, settings, inputs)
        if frame is not None:
            pq.write_table(pa.table(frame), job.output("per_query.parquet"))
            means = pd.DataFrame(frame).groupby("measure")["value"].mean().to_dict()
            facts |= {"means": facts.get("means", means)}
        self.stages.finish(job, facts)
        path = job.folder / MANIFEST
        names = {role: f"{up.kind}/{up.key}" for role, up in inputs.items()}
        provenance = {"code": "c0de", "git_commit": "abc123"}
        write_json(path, json.loads(path.read_text()) | {"inputs": names, "provenance": provenance})
        return job

    def evaluation(self, scores, split="test", seed=None, kind="retrieve", queries=QUERIES, **facts):
        """An evaluate stage whose `queries` have `scores` {measure: [value per query]}, with all that is upstream."""
        inputs = {"corpus": self.collection}
        if kind == "retrieve":
            settings = {} if seed is None else {"seed": seed}
            checkpoint = self.stage("pretrained" if seed is None else "train", settings, {})
            inputs["queries"] = self.stage("encode", {}, {"checkpoint": checkpoint})
        run = self.stage(kind, {"split": split}, inputs)
        frame = {
            "query_id": queries * len(scores),
            "measure": [name for name in scores for _ in queries],
            "value": np.concatenate(list(scores.values())).astype(float),
        }
        facts = {"num_queries": len(queries)} | facts
        inputs = {"corpus": self.collection, "run": run}
        job = self.stage("evaluate", {"split": split}, inputs, facts, frame)
        if seed is not None:
            self.seeds[job.key] = seed
        return job

    def row(self, system, episode, columns=None, **runs):
        names = {split: [f"evaluate/{job.key}" for job in jobs] for split, jobs in runs.items()}
        seeds = [self.seeds[job.key] for job in next(iter(runs.values())) if job.key in self.seeds]
        row = {"system": system, "episode": episode, "seeds": seeds, "runs": names}
        self.rows.append(row | {"columns": columns or {}})

    def spec(self, splits=("test",), measures=("RR@10", "R@100"), title="Every system", **significance):
        return {
            "name": "main",
            "title": title,
            "columns": [],
            "measures": {split: list(measures) for split in splits},
            "splits": list(splits),
            "significance": {"baseline": "Zero-shot", "test": "permutation", "resamples": 9999, "level": 0.05}
            | significance,
            "collection": {"corpus": f"corpus/{self.collection.key}", "splits": {}},
            "rows": self.rows,
        }

    def write(self, spec):
        """The texts of the written files by suffix."""
        folder = self.stages.root / "tables"
        write_table(spec, self.stages.root, folder)
        suffixes = ["csv", "md", "tex", "sources.csv", "pairs.csv"]
        assert sorted(p.name for p in folder.iterdir()) == sorted(f"main.{suffix}" for suffix in suffixes)
        return {suffix: (folder / f"main.{suffix}").read_text(encoding="utf-8") for suffix in suffixes}


@pytest.fixture
def world(stages):
    return World(stages)


@pytest.fixture
def small(world):
    """Ten queries: BM25 is a little off, System & Co is better on all of them (exact p = 2 / 2^10)."""
    base = np.arange(10) / 10
    off = np.array([0.1, -0.1] * 5)
    world.row("BM25", 0, test=[world.evaluation({"RR@10": base + off, "R@100": base}, kind="bm25")])
    world.row("Zero-shot", 0, test=[world.evaluation({"RR@10": base, "R@100": base + 0.5})])
    world.row("System & Co", 1, test=[world.evaluation({"RR@10": base + 0.05, "R@100": base + 0.5}, seed=42)])
    return world


CSV = """\
system,episode,RR@10,R@100,RR@10 p,R@100 p
BM25,0,0.45,0.45,1,0.00390625
Zero-shot,0,0.45,0.95,,
System & Co,1,0.5,0.95,0.00390625,1
"""
MARKDOWN = """\
Every system

* System & Co .500: not significantly above BM25 (+.050, p .22); +.050 over Zero-shot (p .0039).

By RR@10, at 0.05, two-sided, Holm-corrected over all of these comparisons; this compares these checkpoints: \
another seed may differ. Only 10 queries: other queries may well give another result (25 are the usual minimum).

| System | Episode | RR@10 | R@100 |
| :-- | --: | --: | --: |
| BM25 | 0 | 0.450 | 0.450† |
| Zero-shot | 0 | 0.450 | **0.950** |
| System & Co | 1 | **0.500**† | **0.950** |

Collection 0123456789abcdef: 9,660 passages, 10 test queries.

Made from numpy 2.4.6, scipy 1.17.0.

† differs from Zero-shot, p < 0.05 (two-sided, paired, Holm-corrected within the column).

Tested over queries: permutation test, 9,999 resamples.

For a trained system with fewer than 3 seeds, a mark compares these checkpoints: another seed may differ.

Best of each column in bold.
"""  # noqa: E501
PAIRS = """\
column,a,b,difference,p,method,checkpoints,won,lost
RR@10,0,1,0,1,permutation,False,5,5
RR@10,0,2,0.05,0.21875,permutation,True,5,5
RR@10,1,2,0.05,0.00195312,permutation,True,10,0
"""
LATEX = r"""\begin{table}
\centering
\caption{Every system}
\label{tab:main}
\begin{tabular}{lrrr}
\toprule
System & Episode & RR@10 & R@100 \\
\midrule
BM25 & 0 & 0.450 & 0.450$^{\dagger}$ \\
Zero-shot & 0 & 0.450 & \textbf{0.950} \\
System \& Co & 1 & \textbf{0.500}$^{\dagger}$ & \textbf{0.950} \\
\bottomrule
\end{tabular}
\par\footnotesize Collection 0123456789abcdef: 9,660 passages, 10 test queries.
\par\footnotesize Made from numpy 2.4.6, scipy 1.17.0.
\par\footnotesize $^{\dagger}$ differs from Zero-shot, p $<$ 0.05 (two-sided, paired, Holm-corrected within the column).
\par\footnotesize Tested over queries: permutation test, 9,999 resamples.
\par\footnotesize For a trained system with fewer than 3 seeds, a mark compares these checkpoints: another seed may differ.
\par\footnotesize Best of each column in bold.
\end{table}
"""  # noqa: E501


def test_the_three_forms_literally(small):
    texts = small.write(small.spec())
    assert texts["csv"] == CSV
    assert texts["md"] == MARKDOWN
    assert texts["tex"] == LATEX
    assert texts["pairs.csv"] == PAIRS


def test_a_mean_over_queries_is_the_one_that_the_evaluate_stage_computed(world):
    """It is computed in one place: a table does not compute it again."""
    world.row("Zero-shot", 0, test=[world.evaluation({"RR@10": np.arange(10) / 10}, means={"RR@10": 0.4321})])
    assert world.write(world.spec(measures=["RR@10"]))["csv"].splitlines()[1].split(",")[2] == "0.4321"


ELSEWHERE_CSV = """\
system,episode,RR@10,squad nDCG@10,RR@10 p,squad nDCG@10 p
BM25,0,0.45,0.55,1,1
Zero-shot,0,0.45,0.55,,
System & Co,1,0.5,,0.00585938,
System & Co,2,0.5,0.45,0.00585938,0.00390625
"""
ELSEWHERE_ROWS = """\
| System | Episode | RR@10 | squad nDCG@10 |
| :-- | --: | --: | --: |
| BM25 | 0 | 0.450 | **0.550** |
| Zero-shot | 0 | 0.450 | **0.550** |
| System & Co | 1 | **0.500**† | – |
| System & Co | 2 | **0.500**† | 0.450† |

Collection 0123456789abcdef: 9,660 passages, 10 test queries.

Out of domain: squad, evaluated as config/squad.yaml says. Collection fedcba9876543210: 77 passages, 10 test-of-squad \
queries.

Only BM25, each start and each system's last checkpoint are evaluated out of domain.

Made from numpy"""


@pytest.fixture
def elsewhere(world):
    """Evaluations of another collection, on which training has cost a tenth of every query; and the specification."""
    base, squad = np.arange(10) / 10, np.arange(1, 11) / 10
    facts = {"corpus_digest": "fedcba9876543210" * 4, "num_passages": 77}
    corpus = f"corpus/{world.stage('corpus', {}, {}, facts).key}"

    def runs(own, other=None, **how):
        scored = {} if other is None else {"test-of-squad": [world.evaluation({"nDCG@10": other}, **how)]}
        return {"test": [world.evaluation({"RR@10": own}, **how)]} | scored

    world.row("BM25", 0, **runs(base, squad, kind="bm25"))
    world.row("Zero-shot", 0, **runs(base, squad))
    world.row("System & Co", 1, **runs(base + 0.05, seed=42))
    world.row("System & Co", 2, **runs(base + 0.05, squad - 0.1, seed=42))
    other = {"file": "config/squad.yaml", "corpus": corpus, "measures": {"test-of-squad": ["nDCG@10"]}, "trained": []}
    return world, world.spec(measures=["RR@10"]) | {"out_of_domain": {"squad": other}}


def test_other_collections_are_columns_beside_ones_own_literally(elsewhere):
    world, spec = elsewhere
    texts = world.write(spec)
    assert texts["csv"] == ELSEWHERE_CSV
    assert ELSEWHERE_ROWS in texts["md"]
    pairs = [line.split(",") for line in texts["pairs.csv"].splitlines() if line.startswith("squad nDCG@10,")]
    assert [pair[1:4] for pair in pairs] == [["0", "1", "0"], ["0", "3", "-0.1"], ["1", "3", "-0.1"]]
    of = [line.split(",")[2] for line in texts["sources.csv"].splitlines()[1:]]
    assert of == ["test", "test-of-squad"] * 2 + ["test"] + ["test", "test-of-squad"]


def test_the_note_on_another_collection_names_who_is_trained_on_it_and_its_level(elsewhere):
    world, spec = elsewhere
    spec["out_of_domain"]["squad"]["trained"] = ["System & Co"]
    spec["significance"]["level"] = {"test": 0.001}
    text = world.write(spec)["md"]
    assert "queries. Also trained on it: System & Co.\n" in text
    assert "p < 0.001 on test and 0.05 on test-of-squad (" in text
    assert "| 0.500 | 0.450† |" in text.replace("**", "")


def test_a_column_of_another_collection_without_any_figure_is_empty(elsewhere):
    """As on the report page, before any evaluation there is finished."""
    world, spec = elsewhere
    spec["rows"] = [row | {"runs": {"test": row["runs"]["test"]}} for row in spec["rows"]]
    texts = world.write(spec)
    assert texts["csv"].splitlines()[-1] == "System & Co,2,0.5,,0.00585938,"
    assert "| System & Co | 2 | **0.500**† | – |" in texts["md"]


def test_a_verdict_ends_with_what_its_system_cost(small):
    """The mean over seeds of the seconds that its stages took."""
    spec, cost = small.spec(), []
    for of_seed in ([60.0, 31.4], [94.0]):
        stages = [small.stage("train", {}, {}) for _ in of_seed]
        for stage, seconds in zip(stages, of_seed, strict=True):
            manifest = json.loads((stage.folder / MANIFEST).read_text())
            write_json(stage.folder / MANIFEST, manifest | {"provenance": {"wall_seconds": seconds}})
        cost.append({"mining": [], "teaching": [], "training": [f"train/{stage.key}" for stage in stages]})
    spec["rows"][2]["cost"] = cost
    verdict = next(line for line in small.write(spec)["md"].splitlines() if line.startswith("* "))
    assert verdict.endswith("+.050 over Zero-shot (p .0039); 93 s of mining and training.")


def test_sources_lead_to_stages_and_commit(small):
    text = small.write(small.spec())["sources.csv"]
    lines = [line.split(",") for line in text.splitlines()]
    assert text.startswith("system,episode,split,seed,stage,folder,run,checkpoint,code,git_commit\n")
    assert [line[:4] for line in lines[1:]] == [
        ["BM25", "0", "test", ""],
        ["Zero-shot", "0", "test", ""],
        ["System & Co", "1", "test", "42"],
    ]
    assert [[part.rsplit("/", 1)[0] for part in line[4:8]] for line in lines[1:]] == [
        ["evaluate", "results/stages/evaluate", "results/stages/bm25", ""],
        ["evaluate", "results/stages/evaluate", "results/stages/retrieve", "results/stages/pretrained"],
        ["evaluate", "results/stages/evaluate", "results/stages/retrieve", "results/stages/train"],
    ]
    assert all(
        (small.stages.root / folder / MANIFEST).is_file() for line in lines[1:] for folder in line[5:8] if folder
    )
    assert all(line[8:] == ["c0de", "abc123"] for line in lines[1:])


def test_seeds_give_mean_and_deviation_and_are_random_in_the_test(world):
    rng = np.random.default_rng(2)
    base, seeds = rng.random(10), [rng.random(10) for _ in range(3)]
    world.row("Zero-shot", 0, test=[world.evaluation({"RR@10": base})])
    world.row("A|B", 1, test=[world.evaluation({"RR@10": s}, seed=n) for n, s in enumerate(seeds)])
    spec = world.spec(measures=["RR@10"])
    texts, means = world.write(spec), [s.mean() for s in seeds]
    mean, deviation = np.mean(means), np.sqrt(sum((m - np.mean(means)) ** 2 for m in means) / 2)
    p = crossed_p_value(Scores(np.transpose(seeds), (0, 1, 2)), Scores(base[:, None]))
    assert texts["csv"] == (
        "system,episode,RR@10,RR@10 sd,RR@10 p\n"
        f"Zero-shot,0,{base.mean():.6g},,\n"
        f"A|B,1,{mean:.6g},{deviation:.6g},{p:.6g}\n"
    )
    assert rf"| A\|B | 1 | {'**' if mean > base.mean() else ''}" in texts["md"]
    assert f" ± {deviation:.3f} |" in texts["md"]
    assert rf" $\pm$ {deviation:.3f} \\" in texts["tex"]
    notes = page_table(Stages(world.stages.root), {"experiments": []}, spec)["printed"].notes
    sentence = "Mean ± standard deviation over seeds."
    assert f"\n{sentence}\n" in texts["md"] and sentence in notes
    assert "\nTested over queries and seeds, both random (crossed random effects).\n" in texts["md"]
    assert "checkpoints" not in texts["md"]
    assert [line.split(",")[3] for line in texts["sources.csv"].splitlines()[1:]] == ["", "0", "1", "2"]


def test_two_seeds_are_averaged_and_speak_of_these_checkpoints(world):
    rng = np.random.default_rng(2)
    base, seeds = rng.random(10), [rng.random(10) for _ in range(2)]
    world.row("Zero-shot", 0, test=[world.evaluation({"RR@10": base})])
    world.row("A", 1, test=[world.evaluation({"RR@10": s}, seed=n) for n, s in enumerate(seeds)])
    texts = world.write(world.spec(measures=["RR@10"]))
    p = paired_p_value(np.mean(seeds, axis=0), base, 9999, derive_seed(42, "significance", "A", 1, "RR@10"))
    assert texts["csv"].splitlines()[2].endswith(f",{p:.6g}")
    assert "fewer than 3 seeds, a mark compares these checkpoints" in texts["md"] and "crossed" not in texts["md"]


def test_seeds_of_the_same_number_are_paired_in_whatever_order(world):
    rng = np.random.default_rng(3)
    scores = {"Zero-shot": {n: rng.random(10) for n in (1, 2, 3)}}
    scores["A"] = {n: values + 0.1 * rng.random(10) for n, values in reversed(scores["Zero-shot"].items())}
    for system, seeds in scores.items():
        world.row(system, 1, test=[world.evaluation({"RR@10": v}, seed=n) for n, v in seeds.items()])
    lines = world.write(world.spec(measures=["RR@10"]))["csv"].splitlines()
    ours, theirs = (
        Scores(np.transpose([scores[name][n] for n in (1, 2, 3)]), (1, 2, 3)) for name in ("A", "Zero-shot")
    )
    p = crossed_p_value(ours, theirs)
    assert 0 < p < 0.05 and lines[2].endswith(f",{p:.6g}")


def test_several_baselines_have_a_mark_each_and_a_group_is_beaten_by_what_differs_from_all_of_it(world):
    """STAR and ADORE's Table 2: * over three kinds of negatives, † over ANCE."""
    base, near, far = np.arange(10) / 20, np.array([0.02, -0.01] * 5), np.full(10, 0.2)
    scores = {"Zero-shot": base, "In-batch": base + near, "ANCE": base + far, "STAR": base + far + near}
    for system, values in scores.items():
        world.row(system, 1, test=[world.evaluation({"RR@10": values}, seed=1)])
    baseline = {"*": ["Zero-shot", "In-batch"], "†": "ANCE"}
    texts = world.write(world.spec(measures=["RR@10"], baseline=baseline))
    assert texts["csv"].splitlines()[0] == "system,episode,RR@10,RR@10 p ∗,RR@10 p †"
    assert [line.split("|")[3].strip() for line in texts["md"].splitlines()[4:8]] == [
        "0.225†", "0.230†", "0.425∗", "**0.430**∗",
    ]  # fmt: skip
    of_star = [paired_p_value(scores["STAR"], scores[name], 9999, 0) for name in baseline["*"]]
    of_ance = [paired_p_value(scores["ANCE"], scores[name], 9999, 0) for name in baseline["*"]]
    expected = holm([max(of_ance), max(of_star)])
    found = [line.split(",") for line in texts["csv"].splitlines()[1:]]
    assert [row[3] for row in found[:2]] == ["", ""] and found[2][4] == ""
    assert [float(row[3]) for row in found[2:]] == pytest.approx(expected, rel=1e-5)
    assert "\n∗ differs from each of Zero-shot and In-batch, p < 0.05" in texts["md"]
    assert "\n† differs from ANCE, p < 0.05" in texts["md"] and r"0.425$^{*}$" in texts["tex"]


def test_a_level_and_a_test_for_each_split(world):
    """p is 2 / 2^7 of seven queries, 0.016: marked on dl19 alone. STAR and ADORE: 0.01 on dev, 0.05 on TREC DL."""
    base, queries = np.arange(7) / 10, QUERIES[:7]
    for system, shift in (("Zero-shot", 0), ("A", 0.1)):
        scores = {"RR@10": base + shift * (1 + np.arange(7) / 100)}
        runs = {split: [world.evaluation(scores, split, 1, queries=queries)] for split in ("dev", "dl19")}
        world.row(system, 1, **runs)
    splits = ["dev", "dl19"]
    texts = world.write(world.spec(splits, ["RR@10"], level={"dev": 0.01}, test={"dl19": "t-test"}))
    assert "| A | 1 | **0.403** | **0.403**† |" in texts["md"]
    assert "p < 0.01 on dev and 0.05 on dl19 (" in texts["md"]
    assert "Tested over queries: permutation test, 9,999 resamples or t-test." in texts["md"]
    dev, dl19 = map(float, texts["csv"].splitlines()[2].split(",")[-2:])
    assert dev == 2 / 2**7 and 0 < dl19 < 1e-9


def test_several_splits_and_holm_within_each_column(world):
    rng = np.random.default_rng(1)
    base = rng.random(10)
    scores = {"B": base + rng.normal(0.05, 0.1, 10), "C": base + rng.normal(0.1, 0.1, 10)}
    for system, values in {"Zero-shot": base, **scores}.items():
        runs = {
            split: [world.evaluation({"RR@10": values + shift}, split)] for split, shift in (("dev", 0), ("test", 1))
        }
        world.row(system, 0, **runs)
    texts = world.write(world.spec(splits=["dev", "test"], measures=["RR@10"]))
    header, _, *lines = texts["csv"].splitlines()
    assert header == "system,episode,dev RR@10,test RR@10,dev RR@10 p,test RR@10 p"
    expected = holm([paired_p_value(values, base, 9999, 0) for values in scores.values()])  # 2^10 swaps: no seed needed
    assert expected[0] != expected[1]
    for column in (4, 5):
        assert [float(line.split(",")[column]) for line in lines] == pytest.approx(expected, rel=1e-5)
    assert "9,660 passages, 10 dev queries, 10 test queries." in texts["md"]


def test_the_baseline_is_the_last_episode_of_its_system(world):
    for episode in (1, 2):
        world.row("A", episode, test=[world.evaluation({"RR@10": np.arange(10) / 10 * episode}, seed=1)])
    lines = world.write(world.spec(measures=["RR@10"], baseline="A"))["csv"].splitlines()
    assert [line.split(",")[3] != "" for line in lines[1:]] == [True, False]


TWO_EPISODES = [("A", 1), ("A", 2), ("B", 1), ("B", 2)]


def test_episodes_are_compared_with_the_same_ones_of_the_baseline_where_it_has_them(world):
    scores = {(s, e): np.random.default_rng(e + 7 * (s == "A")).random(10) for s, e in (*TWO_EPISODES, ("B", 3))}
    for (system, episode), values in scores.items():
        world.row(system, episode, test=[world.evaluation({"RR@10": values}, seed=1)])
    texts = world.write(world.spec(measures=["RR@10"], baseline="A", by_episode=True))
    found = [line.split(",")[3] for line in texts["csv"].splitlines()[1:]]
    against = {("B", 1): ("A", 1), ("B", 2): ("A", 2), ("B", 3): ("A", 2)}
    expected = holm([paired_p_value(scores[row], scores[base], 9999, 0) for row, base in against.items()])
    assert len(set(expected)) > 1 and found[:2] == ["", ""]
    assert [float(p) for p in found[2:]] == pytest.approx(expected, rel=1e-5)
    assert "† differs from A of the same episode, or its last, p < 0.05" in texts["md"]


def test_without_a_test_there_are_no_p_values(small):
    texts = small.write(small.spec() | {"significance": None})
    assert texts["csv"].splitlines()[0] == "system,episode,RR@10,R@100"
    assert "†" not in texts["md"]
    assert "dagger" not in texts["tex"]


def test_latex_escapes_every_text(small):
    small.rows[2]["system"] = r"50%_of {#1} ~ $x^2 \ & † a|b"
    escaped = r"50\%\_of \{\#1\} \textasciitilde{} \$x\textasciicircum{}2 \textbackslash{} \& $^{\dagger}$ a$|$b"
    text = small.write(small.spec(title="A & B_1", baseline=small.rows[2]["system"]))["tex"]
    assert f"\n{escaped} & 1 & " in text
    assert r"\caption{A \& B\_1}" in text
    assert f" differs from {escaped}, p $<$ 0.05" in text


def test_a_table_without_its_collection_is_refused_with_the_file(small, tmp_path):
    (small.stages.root / "results/stages" / small.spec()["collection"]["corpus"] / MANIFEST).unlink()
    with pytest.raises(Refusal, match=f"results/stages/corpus/{small.collection.key}/manifest.json"):
        write_table(small.spec(), tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("measures", "counted"),
    [
        (["RR@10"], "10 test queries"),
        (["Cov@5", "Cov@20"], "25 test questions with answers"),
        (["Cov@5", "RR@10"], "10 test queries, 25 test questions with answers"),
    ],
)
def test_the_footer_counts_what_the_figures_are_means_of(world, measures, counted):
    scores = {name: np.zeros(len(QUERIES)) for name in measures}
    world.row("BM25", 0, test=[world.evaluation(scores, kind="bm25", num_questions=25)])
    spec = world.spec(measures=measures) | {"significance": None}
    assert f": 9,660 passages, {counted}.\n" in world.write(spec)["md"]


def test_the_footer_tells_queries_that_are_trained_on_too(world):
    """By id and text; a collection without training leaves nothing to tell, nor does a table of untrained systems."""
    splits = {}
    texts = {"train": ["a", "b", "c"], "test": ["a", "b", "other"], "dev": ["new", "b of dev", "c of dev"]}
    for split, of_split in texts.items():
        job = world.stages.make("split", {"split": split}, {})
        save_array(job.output("digests.npy"), digests_of(of_split))
        splits[split] = f"split/{world.stages.finish(job).key}"
    scores = {"RR@10": np.zeros(len(QUERIES))}
    runs = {split: [world.evaluation(scores, split, kind="bm25")] for split in ("test", "dev")}
    world.row("BM25", 0, **runs)
    spec = world.spec(("test", "dev"), ["RR@10"]) | {"significance": None}
    spec["collection"] = spec["collection"] | {"splits": splits}
    assert "Training reads" not in world.write(spec)["md"]
    world.row("A", 1, **{split: [world.evaluation(scores, split, seed=1)] for split in runs})
    said = world.write(spec)["md"]
    sentence = "Training reads 2 of the test queries, too."
    assert f"\n{sentence}\n" in said and said.count("Training reads") == 1
    assert page_table(Stages(world.stages.root), {"experiments": []}, spec)["printed"].notes.count(sentence) == 1
    assert "Training reads" not in world.write(spec | {"collection": world.spec()["collection"]})["md"]


def test_table_and_page_say_what_their_stages_warned_of(world):
    """A warning of any stage behind a row, once, whatever rows share it; none of other stages."""
    shared, other = (world.stage("tokens", {}, {}) for _ in range(2))
    warn(shared, "half of the tokens are unknown")
    warn(other, "nobody shows this")
    for system in ("A", "B"):
        run = world.stage("retrieve", {}, {"corpus": world.collection, "tokens": shared})
        frame = {"query_id": QUERIES, "measure": ["RR@10"] * 10, "value": np.zeros(10)}
        job = world.stage("evaluate", {"split": "test"}, {"run": run}, {"num_queries": 10}, frame)
        world.row(system, 0, test=[job])
    spec = world.spec(measures=["RR@10"]) | {"significance": None}
    sentence = f"Warning of tokens/{shared.key}: half of the tokens are unknown"
    said = world.write(spec)["md"]
    assert said.count("Warning of ") == 1 and f"\n{sentence}\n" in said
    notes = page_table(Stages(world.stages.root), {"experiments": []}, spec)["printed"].notes
    assert [note for note in notes if "Warning" in note] == [sentence]


def test_stages_that_warn_of_the_same_share_a_sentence(world):
    runs = sorted((world.evaluation({"RR@10": np.zeros(10)}) for _ in range(4)), key=lambda job: job.key)
    for run, text in zip(runs, ["few passages"] * 3 + ["no passages"], strict=True):
        warn(run, text)
    spec = world.spec(measures=["RR@10"]) | {"significance": None}
    of = [f"Warning of evaluate/{job.key}" for job in runs]
    world.row("D", 0, test=[runs[3]])
    for system, job, more in zip("ABC", runs, ("", " and 1 more stage", " and 2 more stages"), strict=False):
        world.row(system, 0, test=[job])
        sentences = [f"{of[0]}{more}: few passages", f"{of[3]}: no passages"]
        assert [line for line in world.write(spec)["md"].splitlines() if "Warning" in line] == sentences


def test_table_and_page_say_what_the_plan_warns_of_before_what_stages_warned_of(world):
    job = world.evaluation({"RR@10": np.zeros(10)})
    warn(job, "few passages")
    world.row("A", 0, test=[job])
    spec = world.spec(measures=["RR@10"]) | {"significance": None, "warnings": ["Warning: unread_key: no effect."]}
    said, sentences = world.write(spec), [*spec["warnings"], f"Warning of evaluate/{job.key}: few passages"]
    assert [line for line in said["md"].splitlines() if "Warning" in line] == sentences
    assert "Warning: unread\\_key: no effect." in said["tex"]
    assert page_table(Stages(world.stages.root), {"experiments": []}, spec)["printed"].notes[-2:] == sentences


@pytest.mark.parametrize("ignored", [True, False])
def test_table_and_page_say_which_queries_find_their_own_text_unless_it_is_ignored(world, ignored):
    split = world.stage("split", {"split": "test"}, {"corpus": world.collection}, {"same_text": 14})
    frame = {"query_id": QUERIES, "measure": ["RR@10"] * 10, "value": np.zeros(10)}
    for system in ("A", "B"):
        run = world.stage("retrieve", {}, {"corpus": world.collection})
        settings = {"split": "test"} | ({"ignore_own_text": True} if ignored else {})
        inputs = {"run": run, "split.test": split}
        world.row(system, 0, test=[world.stage("evaluate", settings, inputs, {"num_queries": 10}, frame)])
    spec = world.spec(measures=["RR@10"]) | {"significance": None}
    sentence = "Queries of test with the text of a passage: 14. Their search returns it first; "
    assert world.write(spec)["md"].count(sentence) == (not ignored)
    notes = page_table(Stages(world.stages.root), {"experiments": []}, spec)["printed"].notes
    assert len([note for note in notes if sentence in note]) == (not ignored)


def test_the_footer_says_what_was_relabelled(world):
    """The sums of all seeds of a row; a row whose pool nobody judged says nothing."""
    counts = {"relabelled": {"positive": 600, "dropped": 20, "query dropped": 31}, "dropped_queries": 3}
    counts |= {"pairs": 4000, "without_verdict": {"judge": 700}}
    pools = [world.stage("relabel", {"seed": seed}, {}, counts) for seed in (1, 2)]
    scores = {"RR@10": np.zeros(len(QUERIES))}
    world.row("Plain", 1, test=[world.evaluation(scores, seed=1)])
    world.row("Judged", 2, test=[world.evaluation(scores, seed=seed) for seed in (1, 2)])
    spec = world.spec(measures=["RR@10"]) | {"significance": None}
    assert "elabelled" not in world.write(spec)["md"]
    spec["rows"][1]["relabelled"] = [f"relabel/{pool.key}" for pool in pools]
    assert (
        "\nRelabelled for Judged, episode 2, 2 seeds: of 8,000 negatives 1,200 became positives, 40 were left out, 62 "
        "left out with 6 whole queries, 1,400 have no verdict of judge and stay.\n" in world.write(spec)["md"]
    )
    spec["rows"][1]["relabelled"] = [f"relabel/{pools[0].key}"]
    assert "Relabelled for Judged, episode 2: of 4,000 negatives" in world.write(spec)["tex"].replace("\\", "")
    spec["rows"][1]["relabelled"] = ["relabel/000000000000"]
    assert "elabelled" not in world.write(spec)["md"], "it is not there"


def test_verdicts_of_more_systems_than_a_table_has_are_counted(world):
    """Of seven trained systems five are above the table, all corrected together."""
    base = np.arange(10) / 10
    world.row("Zero-shot", 0, test=[world.evaluation({"RR@10": base})])
    for number in range(7):
        world.row(f"S{number}", 1, test=[world.evaluation({"RR@10": base + 0.05 + number / 100}, seed=1)])
    above, _, _ = world.write(world.spec(measures=["RR@10"]))["md"].partition("\n|")
    assert (
        above.count("\n* S") == 5
        and "(25 are the usual minimum). The report page has the verdicts of 2 more systems.\n" in above
    )
    assert f"(p {p_text(7 * 2 / 2**10)})" in above


def test_the_t_test_replaces_the_permutation_test(world):
    base = np.arange(10) / 10
    world.row("Zero-shot", 0, test=[world.evaluation({"RR@10": base})])
    better = base + np.array([0.1, 0.3] * 5)
    world.row("A", 1, test=[world.evaluation({"RR@10": better}, seed=1)])
    texts = world.write(world.spec(measures=["RR@10"], test="t-test"))
    p = ttest_rel(better, base).pvalue
    assert float(texts["csv"].splitlines()[2].split(",")[-1]) == pytest.approx(p, rel=1e-5)
    assert "\nTested over queries: t-test.\n" in texts["md"]


@pytest.mark.parametrize("test", ["permutation", "t-test"])
def test_the_tests_pair_queries_by_their_id(world, test):
    """The same scores twice, the second time in another order of the queries."""
    base, better = np.arange(10) / 10, np.arange(10) / 10 + np.array([0.1, 0.3] * 5)
    world.row("Zero-shot", 0, test=[world.evaluation({"RR@10": base})])
    world.row("A", 1, test=[world.evaluation({"RR@10": better}, seed=1)])
    world.row("B", 1, test=[world.evaluation({"RR@10": better[::-1]}, seed=2, queries=QUERIES[::-1])])
    _, _, a, b = world.write(world.spec(measures=["RR@10"], test=test))["csv"].splitlines()
    assert a.split(",")[2:] == b.split(",")[2:] and 0 < float(a.split(",")[-1]) < 0.01


def test_a_system_without_a_run_for_a_split_has_no_figure_there(world):
    base = np.arange(10) / 10
    runs = {split: [world.evaluation({"RR@10": base}, split)] for split in ("dev", "test")}
    world.row("Zero-shot", 0, **runs)
    world.row("Theirs", 0, test=[world.evaluation({"RR@10": base + 0.5}, kind="external")])
    texts = world.write(world.spec(splits=["dev", "test"], measures=["RR@10"]))
    assert "| Zero-shot | 0 | **0.450** | 0.450 |" in texts["md"]
    assert "| Theirs | 0 | – | **0.950**† |" in texts["md"]
    assert texts["csv"].splitlines()[2] == "Theirs,0,,0.95,,0.00195312"  # of 2^10 swaps, two are as extreme
    assert [line.split(",")[2] for line in texts["sources.csv"].splitlines()[1:]] == ["dev", "test", "test"]


@pytest.mark.parametrize("share", ["Hole@10", "Judged@10"])
def test_a_share_of_judged_results_has_no_best(world, share):
    world.row("Zero-shot", 0, test=[world.evaluation({share: np.full(10, 0.25), "RR@10": np.ones(10)})])
    assert "| Zero-shot | 0 | 0.250 | **1.000** |" in world.write(world.spec(measures=[share, "RR@10"]))["md"]


SYSTEMS_CSV = """\
system,episode,negatives,loss,episodes,seconds,RR@10
BM25,0,,,0,,0.5
Zero-shot,0,,,0,,0.25
ANCE-Tele,3,"query 15, lookahead 15, momentum 30",softmax,3,1290,0.75
"""
SYSTEMS_MARKDOWN = """\
Systems

| System | Negatives | Loss | Episodes | RR@10 | Seconds |
| :-- | :-- | :-- | --: | --: | --: |
| BM25 | – | – | 0 | 0.500 | – |
| Zero-shot | – | – | 0 | 0.250 | – |
| ANCE-Tele | query 15, lookahead 15, momentum 30 | softmax | 3 | **0.750** ± 0.000 | 1,290 |

Collection 0123456789abcdef: 9,660 passages, 10 test queries.

Made from numpy 2.4.6, scipy 1.17.0.

Mean ± standard deviation over seeds.

Best of each column in bold.

Seconds of mining and training, as if each system ran alone, one stage after another: A and B.
"""
SYSTEMS_LATEX = r"""\begin{tabular}{lllrrr}
\toprule
System & Negatives & Loss & Episodes & RR@10 & Seconds \\
\midrule
BM25 & – & – & 0 & 0.500 & – \\
Zero-shot & – & – & 0 & 0.250 & – \\
ANCE-Tele & query 15, lookahead 15, momentum 30 & softmax & 3 & \textbf{0.750} $\pm$ 0.000 & 1,290 \\
\bottomrule
"""


def spent(world, kind, seconds, processor, **facts):
    """The name of a finished stage that took so many seconds."""
    job = world.stage(kind, {}, {}, facts)
    path = job.folder / MANIFEST
    took = {"provenance": {"wall_seconds": seconds, "hardware": {"processor": processor}}}
    write_json(path, json.loads(path.read_text()) | took)
    return f"{kind}/{job.key}"


def test_a_table_of_systems_literally(world):
    """Seconds: the mean of 1,000 + 200 + 80 (of killed runs) and of 1,300 over two seeds."""
    shared = spent(world, "encode", 1000.0, "A", earlier_seconds=80.0)
    trained = [spent(world, "train", 200.0, "B")], [spent(world, "train", 1300.0, "A")]
    works = zip(([shared], []), trained, strict=True)
    seeds = [{"mining": mined, "teaching": [], "training": names} for mined, names in works]
    said = {"negatives": "query 15, lookahead 15, momentum 30", "loss": "softmax", "episodes": 3, "seconds": seeds}
    nothing = {"negatives": None, "loss": None, "episodes": 0, "seconds": []}
    scores = {value: {"RR@10": np.full(10, value)} for value in (0.25, 0.5, 0.75)}
    world.row("BM25", 0, nothing, test=[world.evaluation(scores[0.5], kind="bm25")])
    world.row("Zero-shot", 0, nothing, test=[world.evaluation(scores[0.25])])
    world.row("ANCE-Tele", 3, said, test=[world.evaluation(scores[0.75], seed=seed) for seed in (1, 2)])
    columns = ["negatives", "loss", "episodes", "seconds"]
    spec = world.spec(measures=["RR@10"], title="Systems") | {"significance": None, "columns": columns}
    texts = world.write(spec)
    assert texts["csv"].splitlines()[0] == f"{SYSTEMS_CSV.splitlines()[0]},RR@10 sd"
    assert [line.rsplit(",", 1)[0] for line in texts["csv"].splitlines()] == SYSTEMS_CSV.splitlines()
    assert texts["md"] == SYSTEMS_MARKDOWN
    assert SYSTEMS_LATEX in texts["tex"]


def test_refreshes_and_gap_of_a_table(world):
    """The gap goes from the first to the last step of the training: 600 steps, after 400 and the 200 that dev kept."""
    before = spent(world, "train", 1.0, "A", steps=400, selected_step=300)
    kept = spent(world, "train", 1.0, "B", steps=300, selected_step=200)
    train = spent(world, "train", 1.0, "C", steps=600, selected_step=500)
    trained = [["steps", before], ["selected_step", kept], ["steps", train]]
    for system, refreshes, gap in (("BM25 Neg", 0, None), ("ANCE", 3, trained)):
        scores = world.evaluation({"RR@10": np.ones(10)}, seed=0)
        world.row(system, 1, {"refreshes": refreshes, "gap": gap}, test=[scores])
    texts = world.write(world.spec(measures=["RR@10"]) | {"significance": None, "columns": ["refreshes", "gap"]})
    assert "| System | Episode | Refreshes | Gap | RR@10 |\n" in texts["md"]
    assert "| BM25 Neg | 1 | 0 | – | **1.000** |\n| ANCE | 1 | 3 | 600-1,199 | **1.000** |\n" in texts["md"]


def test_the_step_that_a_dev_set_has_selected_is_a_column(world):
    """Of two seeds; a row without a dev set has none."""
    trains = [world.stage("train", {}, {}, {"selected_step": step}) for step in (20, 0)]
    world.row("BM25", 0, {"step": None}, test=[world.evaluation({"RR@10": [0.5] * 10}, kind="bm25")])
    scores = [world.evaluation({"RR@10": [value] * 10}, seed=seed) for seed, value in ((1, 0.6), (2, 0.7))]
    world.row("Easy", 1, {"step": [f"train/{train.key}" for train in trains]}, test=scores)
    texts = world.write(world.spec(measures=["RR@10"]) | {"significance": None, "columns": ["step"]})
    assert "| BM25 | 0 | – | 0.500 |" in texts["md"]
    assert "| Easy | 1 | 20, 0 | **0.650** ± 0.071 |" in texts["md"]
    assert "0 is the start" in texts["md"]


def test_an_index_has_its_size_and_a_compressed_one_its_recall(world):
    for label, size, facts in (("flat", 7_780_000, {}), ("pq 24", 515_000, {"recall": 0.7102})):
        stages = world.stage("index", {"bytes": size}, {}, {"bytes": size}), world.stage("retrieve", facts, {}, facts)
        index = [label, *(f"{stage.kind}/{stage.key}" for stage in stages)]
        world.row(label, 1, {"index": index}, test=[world.evaluation({"RR@10": np.ones(10)}, seed=0)])
    texts = world.write(world.spec(measures=["RR@10"]) | {"significance": None, "columns": ["index"]})
    assert (
        "| flat, 7.78 MB | **1.000** |" in texts["md"] and "| pq 24, 0.515 MB, recall 0.71 | **1.000** |" in texts["md"]
    )


def test_the_columns_of_a_table_are_those_that_are_asked_for_in_their_order(world):
    world.row("A", 2, {"loss": "nll", "negatives": "in batch"}, test=[world.evaluation({"RR@10": np.ones(10)}, seed=0)])
    spec = world.spec(measures=["RR@10"]) | {"significance": None, "columns": ["loss", "negatives"]}
    texts = world.write(spec)
    assert texts["csv"] == "system,episode,loss,negatives,RR@10\nA,2,nll,in batch,1\n"
    assert "| System | Episode | Loss | Negatives | RR@10 |\n" in texts["md"]
    assert "| A | 2 | nll | in batch | **1.000** |\n" in texts["md"]
    assert texts["sources.csv"].splitlines()[1].startswith("A,2,test,0,")


def test_means_are_rounded_as_verdicts_and_logs_print_them():
    """pandas rounds 233 of 400 to .582, as it multiplies before; `.3f` says .583."""
    figures = [pd.DataFrame({"RR@10": values}) for values in ([233 / 400, 13 / 400], [np.nan, np.nan])]
    spec = {"splits": ["test"], "measures": {"test": ["RR@10"]}, "significance": None}
    cells = table.measure_cells(spec, table.Table(pd.DataFrame(index=[0, 1]), *figures, {}, []))
    assert cells["RR@10"].tolist() == [f"**{233 / 400:.3f}**", f"{13 / 400:.3f}"] == ["**0.583**", "0.033"]


def test_a_system_of_trained_passages_alone_has_the_seeds_of_its_trainings(world):
    """Its queries are encoded by the start, which no seed decides; `compare` reads its seeds from its stages, too."""
    frozen = world.stage("encode", {}, {"checkpoint": world.stage("pretrained", {}, {})})
    frame = {"query_id": QUERIES, "measure": ["RR@10"] * 10, "value": np.arange(10) / 10}
    jobs = []
    for seed in (1, 2, 3):
        passages = world.stage("encode", {}, {"checkpoint": world.stage("train", {"seed": seed}, {})})
        run = world.stage("retrieve", {}, {"queries": frozen, "passages": passages})
        inputs = {"corpus": world.collection, "run": run}
        jobs.append(world.stage("evaluate", {"split": "test", "seed": seed}, inputs, {"num_queries": 10}, frame))
        world.seeds[jobs[-1].key] = seed
    world.row("System", 1, test=jobs)
    assert [Stages(world.stages.root).trained_seed(f"evaluate/{job.key}") for job in jobs] == [1, 2, 3]
    sources = world.write(world.spec(measures=["RR@10"]) | {"significance": None})["sources.csv"].splitlines()
    assert [line.split(",")[3] for line in sources] == ["seed", "1", "2", "3"]


def test_only_experiments_differ_in_settings_from_the_row_above(world):
    """BM25 and runs from elsewhere have none, and nothing is above the first row."""
    for system, value in (("BM25", 0.1), ("A", 0.2), ("B", 0.3), ("Elsewhere", 0.4)):
        world.row(system, 0, test=[world.evaluation({"RR@10": [value] * 10}, kind="bm25")])
    spec = world.spec(measures=["RR@10"]) | {"significance": None}
    settings = {"A": {"negatives.alpha": 0.5}, "B": {"negatives.alpha": 0.25}}
    runs = {row["system"]: {split: names[0] for split, names in row["runs"].items()} for row in spec["rows"]}
    experiments = [
        {"system": system, "settings": of, "seeds": [{"runs": [runs[system]]}]} for system, of in settings.items()
    ]
    shown = page_table(Stages(world.stages.root), {"experiments": experiments}, spec)
    assert [row["differs"] for row in shown["rows"]] == [None, None, [["negatives.alpha", 0.25, 0.5]], None]


def test_a_table_of_one_row_has_a_page(world):
    """Such as BM25 alone, or whatever is finished first."""
    world.row("BM25", 0, test=[world.evaluation({"RR@10": [0.5] * 10}, kind="bm25")])
    spec = world.spec(measures=["RR@10"]) | {"significance": None}
    shown = page_table(Stages(world.stages.root), {"experiments": []}, spec)
    assert [row["system"] for row in shown["rows"]] == ["BM25"] and shown["matrices"] == {}
