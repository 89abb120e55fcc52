"""The contrasts of bench/forgetting.py by hand, and what config/forgetting.yaml says of its arms."""

import importlib
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY
from teleport.plan.plan import Plan

MADE = {"commits": ["0123456" + 33 * "7"], "machine": "2 cores of X", "time": "1 stage", "seeds": [1], "budget": "b"}


@pytest.fixture
def bench():
    return importlib.import_module("forgetting")


@pytest.fixture(scope="module")
def plan():
    return Plan.of_files([str(REPOSITORY / "config/forgetting.yaml")])


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([3, 2, 1], 2 / 8),  # of the sums 6, 4, 2, 0, 0, -2, -4, -6 as far from 0 as 6: two
        ([3, 2, -1], 4 / 8),  # as far as 4: four
        ([1, -1], 1),
        ([0.01] * 8, 2 / 256),  # the smallest that eight seeds can have
    ],
)
def test_sign_flips_by_hand(bench, differences, p):
    seeds = range(1, len(differences) + 1)
    theirs = pd.Series(0.5, index=seeds)
    ours = (theirs + differences).sort_index(ascending=False)  # the lines of an arm have any order
    ours[99] = 7.0  # a seed that the other arm lacks
    number, mean, deviation, found = bench.contrast(ours, theirs)
    assert (number, found) == (len(differences), pytest.approx(p))
    assert (mean, deviation) == (
        pytest.approx(pd.Series(differences).mean()),
        pytest.approx(pd.Series(differences).std()),
    )


def test_one_seed_has_no_deviation_and_no_p(bench):
    number, mean, *nothing = bench.contrast(pd.Series({1: 0.5}), pd.Series({1: 0.25, 2: 0.0}))
    assert (number, mean) == (1, 0.25) and pd.isna(nothing).all()


def test_an_arm_has_the_seeds_whose_episodes_are_finished(bench, monkeypatch):
    def trajectory(seed, *shares):
        of = [
            SimpleNamespace(analyses={"forgetting": named(share)}, runs={"dev": named(share / 2)}) for share in shares
        ]
        return SimpleNamespace(seed=seed, episodes=[None, *of])

    def named(value):
        return SimpleNamespace(name=str(value))

    def artefact(path):
        return SimpleNamespace(facts={"rate": float(path.name), "means": {"RR@10": float(path.name)}})

    monkeypatch.setattr(bench, "is_finished", lambda name: float(name) < 0.9)
    monkeypatch.setattr(bench, "Artefact", artefact)
    found = bench.of_arm([trajectory(1, 0.1, 0.2, 0.3, 0.7, 0.9), trajectory(2, 0.1, 0.2, 0.9, 0.4, 0.5)])
    assert found.to_dict("index") == {
        1: {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.7, "forgotten": pytest.approx(0.4), "RR@10": 0.35}
    }


def test_tables(bench, plan, monkeypatch):
    shares = {"q": [0.3, 0.4], "q-momentum": [0.1, 0.3], "softer": [0.2, 0.2]}

    def arm(trajectories):
        values = shares.get(trajectories[0].name, [])
        return pd.DataFrame({1: values, "forgotten": values, "RR@10": 0.5}, index=range(len(values)))

    monkeypatch.setattr(bench, "of_arm", arm)
    monkeypatch.setattr(bench, "made_by", lambda names, **facts: MADE | facts)
    table = bench.of_table(plan, plan.config.ablations["forgetting"])
    assert [(row["row"], row["seeds"]) for row in table["rows"]] == [("q", 2), ("q-momentum", 2), ("softer", 2)]
    assert table["made"]["seeds"] == [0, 1]
    assert [(row["arm"], row["against"]) for row in bench.contrasts(table).to_dict("records")][::2] == [
        ("q-momentum", "q"), ("softer", "q"), ("q-momentum", "softer")
    ]  # fmt: skip
    text = bench.table_text(table)
    assert "| Q-Neg | 2 | 0.350 ± 0.071 | 0.350 ± 0.071 | 0.500 ± 0.000 |" in text
    fixed = "| Q-Neg w/ Mom-Neg − Q-Neg (**the contrast fixed beforehand**) | forgotten, 2 to 4 | 2 |"
    assert f"{fixed} -0.150 | 0.071 | 0.5 |" in text and text.count("fixed beforehand") == 1
    budget = "5 episodes of 50 steps, 16 queries with 7 own negatives each"
    assert text.endswith(f"*Commit 0123456; 2 cores of X; 1 stage; seeds 0, 1; {budget}.*\n")
    bars = bench.figure({"forgetting": table})["datasets"]["values"]
    assert [(bar["label"], bar["step"], round(bar["rate"], 3)) for bar in bars] == [
        ("Q-Neg", 1, 0.35), ("Q-Neg w/ Mom-Neg", 1, 0.2), ("Q-Neg, half from ranks 21 to 200", 1, 0.2)
    ]  # fmt: skip


def test_a_table_without_its_first_arm_is_none(bench, plan, monkeypatch):
    monkeypatch.setattr(bench, "of_arm", lambda of: pd.DataFrame({"RR@10": [0.5] * (of[0].name != "q")}))
    assert bench.of_table(plan, plan.config.ablations["forgetting"]) == {}


def test_what_is_here_in_part_leaves_the_eight_seeds_of_the_page(bench, monkeypatch, tmp_path):
    """One arm of three seeds is finished in results/: page and data stay as they are."""
    results = importlib.import_module("results")
    shutil.copytree(results.DATA, tmp_path / "measured")
    monkeypatch.setattr(results, "DATA", tmp_path / "measured")
    page = results.page_of("forgetting")
    before = page.read_text(), results.read_data("forgetting")
    values = {str(seed): {"1": 0.5, "forgotten": 0.9, "RR@10": 0.1} for seed in range(1, 9)}
    arm = {"row": "q", "label": "Q-Neg", "seeds": 3, "values": dict(list(values.items())[:3])}
    less = {"title": "few", "rows": [arm], "made": MADE}
    monkeypatch.setattr(bench, "measured", lambda: {"forgetting": less})
    monkeypatch.setattr(results, "draw", lambda chart, path: None)
    results.write_section("forgetting")
    assert (page.read_text(), results.read_data("forgetting")) == before
    more = [arm | {"row": row["row"], "seeds": 8, "values": values} for row in before[1]["forgetting"]["rows"]]
    monkeypatch.setattr(bench, "measured", lambda: {"forgetting": less | {"rows": more}})
    results.write_section("forgetting")
    assert "| Q-Neg | 8 | 0.500 ± 0.000 | 0.900 ± 0.000 | 0.100 ± 0.000 |" in page.read_text()
    assert page.read_text().split("<!-- made")[0] == before[0].split("<!-- made")[0]


def test_what_docs_results_says_of_forgetting_holds_in_its_data(bench):
    results = importlib.import_module("results")
    lines = bench.contrasts(results.read_data("forgetting")["forgetting"]).to_dict("records")
    of = {(line["arm"], line["against"], line["measure"]): line for line in lines}
    for against in ("q", "softer"):  # in every seed: no changes of the signs go as far
        found = of["q-momentum", against, "forgotten"]
        assert found["difference"] < 0 and found["p"] == pytest.approx(2 / 2 ** found["seeds"], rel=0.01)
    assert of["softer", "q", "forgotten"]["difference"] > of["q-momentum", "q", "forgotten"]["difference"]
    assert of["q-momentum", "q", "RR@10"]["difference"] < 0


def test_every_query_is_trained_twice_in_an_episode_and_half_of_the_softer_ranks_are_deep(plan):
    for name, experiment in plan.experiments.items():
        assert len(experiment.method) == 5
        for episode in experiment.method:
            assert episode.training.steps * episode.training.batch_queries == 2 * 400
            assert (episode.training.loss.kind == "softmax") == name.endswith("in-batch")
    ranks = [rank for low, high in plan.experiments["softer"].negatives.ranks["query"] for rank in range(low, high + 1)]
    assert len(ranks) == 2 * sum(rank <= 20 for rank in ranks) == 40 and max(ranks) <= 200
    pools = {name: [dict(pool.settings.sources) for pool in of[0].pools] for name, of in plan.trajectories.items()}
    counts = {
        name: [{source: draw.count for source, draw in pool.items()} for pool in of] for name, of in pools.items()
    }
    assert counts["q-momentum"] == [{"query": 10}] + [{"query": 5, "momentum": 5}] * 4
    assert counts["no-refresh"] == [{"query": 10}] + [{"momentum": 10}] * 4
    assert all(sum(pool.values()) == 10 for of in counts.values() for pool in of)
