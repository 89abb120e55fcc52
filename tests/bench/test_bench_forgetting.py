"""The contrasts of bench/forgetting.py by hand, and what config/forgetting.yaml says of its arms."""

import importlib
import re
from types import SimpleNamespace

import pandas as pd
import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.settings.read import load_files


@pytest.fixture
def bench():
    return importlib.import_module("forgetting")


@pytest.fixture(scope="module")
def plan():
    return Plan(*load_files([str(REPOSITORY / "config/forgetting.yaml")]))


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


def test_tables_and_page(bench, plan, tmp_path, monkeypatch):
    shares = {"q": [0.3, 0.4], "q-momentum": [0.1, 0.3], "softer": [0.2, 0.2]}

    def arm(trajectories):
        values = shares.get(trajectories[0].name, [])
        return pd.DataFrame({1: values, "forgotten": values, "RR@10": 0.5}, index=range(len(values)))

    monkeypatch.setattr(bench, "of_arm", arm)
    text, frame = bench.of_table(plan, "forgetting")
    assert "| Q-Neg | 2 | 0.350 ± 0.071 | 0.350 ± 0.071 | 0.500 ± 0.000 |" in text
    fixed = "| Q-Neg w/ Mom-Neg − Q-Neg (**the contrast fixed beforehand**) | forgotten, 2 to 4 | 2 |"
    assert f"{fixed} -0.150 | 0.071 | 0.5 |" in text and text.count("fixed beforehand") == frame["planned"].sum() == 1
    assert list(zip(frame["arm"], frame["against"], strict=True))[::2] == [
        ("q-momentum", "q"), ("softer", "q"), ("q-momentum", "softer")
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{bench.BEGIN}old\n{bench.END}after\n")
    monkeypatch.setattr(bench, "made_by", lambda plan: "Made.\n")
    monkeypatch.setattr("sys.argv", ["forgetting.py", "--page", str(page)])
    bench.main()
    assert re.fullmatch(r"before\n<!-- .* -->\n\| Negatives.*Made\.\n<!-- .* -->\nafter\n", page.read_text(), re.DOTALL)
    assert (tmp_path / "results/tables/forgetting/contrasts.csv").read_text().startswith("arm,against,measure,seeds,")


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
