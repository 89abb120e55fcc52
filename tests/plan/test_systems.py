"""config/systems.yaml is the demo's slice: what it shares with config.yaml is the same, and its rows are comparable."""

import pytest

from paths import REPOSITORY
from teleport.settings.yaml_mapping import read_mapping

SYSTEMS, DEMO = (read_mapping(REPOSITORY / f"config/{name}.yaml") for name in ("systems", "config"))
ROWS = SYSTEMS["ablations"]["systems"]["experiments"]
# Pools of 20: the arms that draw from named ranks. None: zero-shot, ANCE-Tele, whose negatives are the demo's.
ARMS = ("ranks-1-20", "ranks-181-200", "ranks-1-20-and-181-200", "ranks-1-200")
POOLS = dict.fromkeys(ROWS, 60) | dict.fromkeys(ARMS, 20) | dict.fromkeys(["nce", "in-batch"], 0)


@pytest.mark.parametrize(
    "section", ["collection", "counts", "encoder", "mining", "negatives", "training", "episodes", "experiments"]
)
def test_shared_sections_are_the_demos(section):
    assert SYSTEMS[section] == DEMO[section]


def test_evaluation_is_the_demos_but_for_the_columns():
    columns = {"measures": ["RR@10", "R@100"], "depth": 100}  # no deeper than what it measures
    assert SYSTEMS["evaluation"] == DEMO["evaluation"] | columns
    assert set(columns["measures"]) <= set(DEMO["evaluation"]["measures"])


def test_ance_tele_is_the_demos():
    assert ROWS["ance-tele"] == DEMO["experiments"]["ance-tele"]


def test_rows_have_labels_of_their_own_and_pools_of_one_size():
    assert len({row["label"] for row in ROWS.values()}) == len(ROWS) == 16
    for name, row in ROWS.items():
        if name not in ("zero-shot", "ance-tele"):
            assert row["episodes"] == [{"training": {"steps": 6}}]
            assert sum(row["negatives"]["counts"].values()) == POOLS[name]
            assert (row.get("training", {}).get("negatives_per_query") == 0) == (POOLS[name] == 0)


def test_ranks_are_retrieved_as_deep_as_they_are_named():
    """A query of the demo has one positive, which is taken out of the ranking before ranks are counted."""
    for name in ARMS:
        ranges = ROWS[name]["negatives"]["ranks"]["query"]
        assert ROWS[name]["mining"]["depth"] > ranges[-1][1]
        assert sum(last - first + 1 for first, last in ranges) >= 20
