"""What the page takes from a written table, which may be older than the configuration."""

from types import SimpleNamespace

import pytest

from teleport.report.page.overview import answers, written
from teleport.report.page.write import Page

PAIRS = "column,a,b,difference,p,method,checkpoints,won,lost\n"


@pytest.fixture
def folder(tmp_path):
    """A written table of two systems by RR@10, with their pair."""
    (tmp_path / "main.csv").write_text("system,episode,RR@10,R@5\nA,1,0.5,0.9\nB,1,0.6,0.8\n")
    (tmp_path / "main.sources.csv").write_text("system,stage\nA,evaluate/A\nB,evaluate/B\n")
    (tmp_path / "main.pairs.csv").write_text(f"{PAIRS}RR@10,0,1,0.1,0.04,t-test,False,3,2\n")
    return tmp_path


def table(*measures):
    rows = [{"system": system, "episode": 1, "seeds": [], "columns": {}} for system in "AB"]
    rows = [row | {"runs": {"test": [f"evaluate/{row['system']}"]}} for row in rows]
    spec = {"name": "main", "splits": ["test"], "measures": {"test": list(measures)}, "rows": rows}
    return spec | {"significance": None}


def test_pairs_are_there_both_ways_with_their_split_and_systems(folder):
    spec = table("RR@10", "R@5")
    (pairs,) = answers(None, spec, *written(folder, spec, []))["matrices"].values()
    said = {places: (pair["difference"], pair["won"], pair["a"], pair["b"]) for places, pair in pairs.items()}
    assert said == {(1, 0): (0.1, 3, 0, 1), (0, 1): (-0.1, 2, 1, 0)}
    assert (pairs[1, 0]["split"], pairs[1, 0]["measure"]) == ("test", "RR@10")


def test_a_table_of_other_stages_answers_nothing(folder):
    """As after an edit of a setting: its verdicts are those of other figures."""
    spec = table("RR@10", "R@5")
    spec["rows"][0]["runs"] = {"test": ["evaluate/another"]}
    assert answers(None, spec, *written(folder, spec, []))["matrices"] == {}


@pytest.mark.parametrize("measures", [("nDCG@10", "RR@10"), ("R@5", "RR@10"), ("R@5",)])
def test_a_table_of_other_measures_than_the_configuration_answers_nothing(folder, measures):
    """As while the workflow makes it anew, with another first measure."""
    spec = table(*measures)
    assert answers(None, spec, *written(folder, spec, []))["matrices"] == {}


def test_a_p_is_that_of_the_two_systems_whatever_their_places_in_the_table(folder):
    """By their numbers among the systems of all tables; none with a system whose stages went."""
    spec = table("RR@10", "R@5")
    content = answers(None, spec, *written(folder, spec, []))
    content["rows"] = [{"at": 0, "number": 5}, {"at": 1, "number": 2}]
    gone = content | {"rows": content["rows"][:1]}
    assert Page.pairs(SimpleNamespace(tables=[content])) == {"test RR@10": {"5 2": ".04", "2 5": ".04"}}
    assert Page.pairs(SimpleNamespace(tables=[gone])) == {}
