"""config/systems.yaml shares what it trains on with config/apidocs.yaml, and its rows are comparable."""

import pytest

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.settings.read import merged_files

SYSTEMS, APIDOCS = (merged_files([REPOSITORY / f"config/{name}.yaml"]) for name in ("systems", "apidocs"))
ROWS = SYSTEMS["ablations"]["systems"]["experiments"]
# Pools of 20: the arms that draw from named ranks. None: zero-shot, ANCE-Tele, with the negatives of apidocs.yaml, and
# the rows that are on top of another row.
ARMS = ("ranks-1-20", "ranks-181-200", "ranks-1-20-and-181-200", "ranks-1-200")
ON_TOP = {name: row for name, row in ROWS.items() if "start_from" in row.get("training", {})}
SHORT = [name for name in ROWS if name not in {"zero-shot", "ance-tele", "ance", *ON_TOP}]
POOLS = dict.fromkeys(SHORT, 60) | dict.fromkeys(ARMS, 20) | dict.fromkeys(["nce", "in-batch"], 0)


@pytest.fixture(scope="module")
def plan():
    return Plan.of_files([str(REPOSITORY / "config/systems.yaml")])


@pytest.mark.parametrize(
    "section", ["collection", "counts", "encoder", "mining", "negatives", "training", "episodes", "experiments"]
)
def test_shared_sections_are_the_same(section):
    assert SYSTEMS[section] == APIDOCS[section]


def test_evaluation_is_the_same_but_for_the_columns():
    columns = {"measures": ["RR@10", "R@100", "Errors@200"], "depth": 200}  # no deeper than what it measures
    assert SYSTEMS["evaluation"] == APIDOCS["evaluation"] | columns


def test_ance_tele_is_the_same():
    assert ROWS["ance-tele"] == APIDOCS["experiments"]["ance-tele"]


def test_rows_have_labels_of_their_own_and_pools_of_one_size():
    assert len({row["label"] for row in ROWS.values()}) == len(ROWS) == 29 and len(SHORT) == 14
    for name in SHORT:
        row = ROWS[name]
        assert row["episodes"] == [{"training": {"steps": 6}}]
        assert sum(row["negatives"]["counts"].values()) == POOLS[name]
        assert (row.get("training", {}).get("negatives_per_query") == 0) == (POOLS[name] == 0)


def test_what_is_on_top_of_a_row_shares_its_checkpoint(plan):
    """One warm-up for ANCE, STAR and ADORE, and no passage is encoded again for ADORE."""
    (warm_up,), (ance,) = plan.trajectories["bm25-negatives"], plan.trajectories["ance"]
    assert ance.trains[0].name == warm_up.trains[0].name and len(ance.trains) == 4
    for name, row in ON_TOP.items():
        (started,) = plan.trajectories[name]
        (below,) = plan.trajectories[row["training"]["start_from"]["experiment"]]
        assert started.episodes[0].checkpoint == below.episodes[-1].checkpoint
        assert (
            started.episodes[-1].vectors.passages.name == below.episodes[-1].vectors.passages.name
        ) == name.startswith("adore"), name
    assert len(ON_TOP) == 12


def test_ranks_are_retrieved_as_deep_as_they_are_named():
    """A query of the demo has one positive, which is taken out of the ranking before ranks are counted."""
    for name in ARMS:
        ranges = ROWS[name]["negatives"]["ranks"]["query"]
        assert ROWS[name]["mining"]["depth"] > ranges[-1][1]
        assert sum(last - first + 1 for first, last in ranges) >= 20
