"""What the page takes from a plan: systems that two tables call by one name, and searches of all training queries."""

import yaml

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.report.page.contents import page_contents
from teleport.report.page.overview import settings_of
from teleport.report.page.queries import compared_rows
from teleport.settings import read as config


def test_systems_of_two_tables_that_are_called_alike():
    given = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())
    shares = {"a": 0.25, "b": 0.75}
    given["ablations"] = {
        name: {"title": name.upper(), "experiments": {name: {"label": "high", "negatives": {"alpha": share}}}}
        for name, share in shares.items()
    }
    spec = page_contents(Plan(*config.load(given)), ["config.yaml"])
    named = {each["label"]: each["system"] for each in spec["experiments"]}
    assert named | {"high (a)": "high", "high (b)": "high"} == named and "high" not in named
    tables = [table for table in spec["tables"] if table["name"] in shares]
    rows = [table | {"rows": [row | {"label": row["system"]} for row in table["rows"]]} for table in tables]
    assert [row["label"] for row in compared_rows(rows)] == ["high", "high (B)"]
    assert [row["number"] for of in rows for row in of["rows"]] == [0, 1]
    assert [row["label"] for row in compared_rows(rows[:1] * 2)] == ["high"]
    alphas = [settings_of(spec, row)["negatives.alpha"] for table in tables for row in table["rows"]]
    assert alphas == [0.25, 0.75]


def test_a_method_counts_its_trainings():
    given = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text()) | {"ablations": {}}
    for episodes, text in (([{}], "1 training, with the loss "), ([{}, {}], "2 trainings, each from ")):
        given["experiments"] = {"one": {"label": "One", "episodes": episodes}}
        (experiment,) = page_contents(Plan(*config.load(given)), ["config.yaml"])["experiments"]
        assert experiment["method"].startswith(text), experiment["method"]


def test_a_search_of_a_part_of_the_queries_is_not_the_search_with_a_checkpoint():
    """With mining.parts the page counts those of an analysis alone: other queries would score 0 as if not found."""

    def searches(parts, **evaluation):
        given = yaml.safe_load((REPOSITORY / "config/config.yaml").read_text())
        given["mining"] = given.get("mining", {}) | {"parts": parts}
        own = {"episodes": [{"repeat": 2}], "negatives": {"counts": {"query": 9}}}
        given |= {"ablations": {}, "experiments": {"ance": {"label": "ANCE"} | own}}
        given["evaluation"] |= evaluation
        (experiment,) = page_contents(Plan(*config.load(given)), ["config.yaml"])["experiments"]
        return list(experiment["seeds"][0]["searches"])

    assert searches(1) == ["0", "1"] and searches(2) == []
    assert searches(2, analyses={"forgetting": True}) == ["0", "1", "2"]
