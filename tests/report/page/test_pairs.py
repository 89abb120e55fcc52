"""Every pair of systems on the page, either way round, by the pairs that a table has tested."""

from types import SimpleNamespace

import pandas as pd

from teleport.report.page.overview import matrices
from teleport.report.page.write import Page
from teleport.report.verdicts import PAIRS

TESTED = pd.DataFrame([["RR@10", 0, 1, 0.1, 0.04, "t-test", False, 3, 2]], columns=PAIRS)
COLUMNS = {"RR@10": ("test", "RR@10"), "R@5": ("test", "R@5")}


def test_pairs_are_there_both_ways_with_their_split_and_systems():
    (pairs,) = matrices(TESTED, COLUMNS).values()
    said = {places: (pair["difference"], pair["won"], pair["a"], pair["b"]) for places, pair in pairs.items()}
    assert said == {(1, 0): (0.1, 3, 0, 1), (0, 1): (-0.1, 2, 1, 0)}
    assert (pairs[1, 0]["split"], pairs[1, 0]["measure"]) == ("test", "RR@10")


def test_a_p_is_that_of_the_two_systems_whatever_their_places_in_the_table():
    """By their numbers among the systems of all tables; none with a system whose stages went."""
    content = {"matrices": matrices(TESTED, COLUMNS), "rows": [{"at": 0, "number": 5}, {"at": 1, "number": 2}]}
    gone = content | {"rows": content["rows"][:1]}
    assert Page.pairs(SimpleNamespace(tables=[content])) == {"test RR@10": {"5 2": ".04", "2 5": ".04"}}
    assert Page.pairs(SimpleNamespace(tables=[gone])) == {}
