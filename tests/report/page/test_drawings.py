"""What charts draw: bounds, orders, titles and names of lines, and marks that can be told from the page."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import vl_convert
from page_colours import GROUNDS, contrast, over

from teleport.report.charts import CONFIG, HEAT, INK, ON_HEAT, Figure, charts
from teleport.report.page.drawings import (
    LABEL_GAP,
    drawn_pools,
    episode_figures,
    gap_figure,
    intervals,
    rank_rows,
    rate_figure,
    river_figure,
    spread,
    swing_figure,
    system_figures,
    training_figures,
)
from teleport.report.page.negatives import GAP_BINS
from teleport.report.page.overview import starts_of


def cell(mean, half=0.1):
    return {"mean": mean, "over_queries": half, "over_seeds": None, "stages": [f"evaluate/{mean}"], "measure": "RR@10"}


def table(column="RR@10", means=(0.5, 0.6, 0.7), starts=None):
    """Two systems, A of two episodes and B of one, as `page_table` gives them."""
    named = [("A", 1), ("A", 2), ("B", 1)]
    rows = [
        {"label": f"{system} {episode}", "system": system, "episode": episode, "cells": {column: cell(mean)}}
        for (system, episode), mean in zip(named, means, strict=True)
    ]
    return {"columns": [column], "rows": rows, "starts": starts or {}}


def test_episode_0_of_every_system_that_shares_its_start():
    (figure,) = episode_figures(table(starts={"A": cell(0.2), "B": cell(0.2)}))
    lines = {name: [(r["episode"], r["mean"]) for r in figure.rows if r["system"] == name] for name in "AB"}
    assert lines == {"A": [(0, 0.2), (1, 0.5), (2, 0.6)], "B": [(0, 0.2), (1, 0.7)]}
    (without,) = episode_figures(table())
    assert {row["system"] for row in without.rows} == {"A"}  # one episode alone is no line


@pytest.mark.parametrize("episodes", [2, 40])
def test_stacked_bars_never_lie_on_each_other(episodes):
    rows = [{"episode": n, "source": "query", "count": 3, "share": 1.0, "order": 0} for n in range(episodes)]
    svg = vl_convert.vegalite_to_svg(Figure("sources", rows, "").spec | {"width": 300})
    bars = [
        (float(x), float(w)) for x, w in re.findall(r'aria-roledescription="bar" d="M([\d.]+),[\d.]+h([\d.]+)', svg)
    ]
    assert len(bars) == episodes and max(width for _, width in bars) <= 34
    assert all(x + width < after for (x, width), (after, _) in pairwise(sorted(bars)))


def test_episodes_that_lie_further_apart_are_drawn_so():
    content = table()
    content["rows"][1]["episode"] = 5  # 1, then 5, from a start at 0
    content["starts"] = {"A": cell(0.2)}
    (figure,) = episode_figures(content)
    svg = vl_convert.vegalite_to_svg(figure.spec | {"width": 400})
    found = re.findall(r'aria-label="Episode: (\d+);[^"]*"[^>]*transform="translate\(([\d.]+)', svg)
    places = {int(episode): float(x) for episode, x in found}
    assert places[5] - places[1] == pytest.approx(4 * (places[1] - places[0]))


def test_starts_are_those_of_the_experiments_whoever_shares_them():
    class Reader:
        def finished(self, name):
            return name is not None and name != "evaluate/missing"

        def query_scores(self, name):
            return {"RR@10": pd.Series([0.0, 1.0] if name == "evaluate/start" else [1.0, 1.0], ["q1", "q2"])}

        def facts(self, name):
            return {"means": {"RR@10": self.query_scores(name)["RR@10"].mean()}}

    def experiment(label, *stages):
        return {"system": label, "seeds": [{"runs": [{"test": stage} if stage else {}]} for stage in stages]}

    spec = {"experiments": [experiment("A", *["evaluate/start"] * 3), experiment("B", "evaluate/start")]}
    spec["experiments"] += [
        experiment("C", "evaluate/other"),
        experiment("D", "evaluate/missing"),
        experiment("E", None),
        experiment("C", "evaluate/of another table"),
    ]
    rows = [{"runs": {"test": ["evaluate/start", "evaluate/other"]}}, {"runs": {"test": ["evaluate/missing"]}}]
    starts = starts_of(Reader(), spec, rows, "test", "RR@10")
    assert {label: (each["mean"], len(each["seeds"])) for label, each in starts.items()} == {
        "A": (0.5, 1),
        "B": (0.5, 1),
        "C": (1.0, 1),
    }


@pytest.mark.parametrize(
    ("column", "mean", "half", "low", "high"),
    [
        ("RR@10", 0.5, 0.1, 0.4, 0.6),
        ("RR@10", 0.95, 0.1, 0.85, 1.0),
        ("test R@50", 0.05, 0.1, 0.0, 0.15),
        ("Errors@200", 26.0, 4.0, 22.0, 30.0),
        ("Errors@200", 2.0, 4.0, 0.0, 6.0),
        ("Hole@10", 0.99, 0.1, 0.89, 1.0),
    ],
)
def test_intervals_stay_within_the_bounds_of_their_measure(column, mean, half, low, high):
    ends = intervals(cell(mean, half), column)
    assert (ends["low"], ends["high"]) == pytest.approx((low, high)) and ends["seed_low"] is None


@pytest.mark.parametrize(("column", "order"), [("RR@10", "B A A"), ("Errors@20", "A A B"), ("Hole@10", "A A B")])
def test_the_best_system_comes_first_also_where_less_is_better(column, order):
    (figure,) = system_figures(table(column), {})
    assert [row["label"][0] for row in figure.rows] == order.split()
    assert figure.text.startswith("Best first" if column == "RR@10" else "Fewest first")


def test_what_a_paper_prints_of_a_system_is_a_diamond_beside_it():
    published = {(("evaluate/0.6",), "RR@10"): [("Table 1", 0.61), ("Table 2", 0.63)], (("evaluate/0.6",), "R@5"): []}
    (figure,) = system_figures(table(), published)
    ghosts = [(row["label"], row["mean"], row["what"]) for row in figure.rows if row.get("paper")]
    assert ghosts == [("A 2", 0.61, "Table 1"), ("A 2", 0.63, "Table 2")] and figure.text.endswith("the paper's own.")
    svg = vl_convert.vegalite_to_svg(figure.spec | {"width": 500, "autosize": "pad"})
    assert svg.count('stroke="white"') == 2 and len(re.findall(r'<path aria-label="[^"]*System', svg)) == 5
    (without,) = system_figures(table(), {})
    assert not any(row.get("paper") for row in without.rows) and "Diamonds" not in without.text


def texts(figure):
    """[(x, y, text)] of all text that a chart draws (SVG)."""
    svg = vl_convert.vegalite_to_svg(figure.spec | {"width": 500, "autosize": "pad"})
    found = re.findall(r'<text[^>]*transform="translate\(([-\d.]+),([-\d.]+)\)[^>]*>([^<]*)</text>', svg)
    return [(float(x), float(y), text) for x, y, text in found]


def test_axes_say_what_they_show():
    named = {"episode": 1, "seed": 1, "step": [1, 2], "lines": 2}
    loss, layers = training_figures(pd.DataFrame(named | {"loss": [2.0, 1.0], "lower_layers": [1, 2]}))
    assert "Loss" in [text for _, _, text in texts(loss)] and "Gradient norm by layer" in [
        t for _, _, t in texts(layers)
    ]
    (by_episode,), (systems,) = episode_figures(table()), system_figures(table(), {})
    assert [text for _, _, text in texts(by_episode)].count("RR@10") == 1
    assert [text for _, _, text in texts(systems)].count("RR@10") == 1
    assert [row["value"] for row in loss.rows] == [2.0, 1.0]


@pytest.mark.parametrize("ends", [np.full(10, 0.5), np.linspace(0.5, 0.52, 10), np.linspace(0, 1, 10), [0.1, 0.9, 0.9]])
def test_names_of_lines_that_end_close_together_do_not_cover_each_other(ends):
    cells = [(f"System {at}", n, end - 0.3 * (n == 1)) for at, end in enumerate(ends) for n in (1, 2)]
    rows = [{"label": "", "system": s, "episode": n, "cells": {"RR@10": cell(mean, 0.02)}} for s, n, mean in cells]
    (figure,) = episode_figures({"columns": ["RR@10"], "rows": rows, "starts": {}})
    places = sorted(y for _, y, text in texts(figure) if text.startswith("System"))
    assert len(places) == len(ends) and min(b - a for a, b in pairwise(places)) > 12  # pixels, of letters of 11


def test_names_stay_where_they_have_room():
    assert spread([0.1, 0.5, 0.9], 0, 1) == [0.1, 0.5, 0.9]
    assert spread([0.5, 0.5], 0, 1) == pytest.approx([0.5, 0.5 + LABEL_GAP])
    assert spread([1.0, 1.0, 1.0], 0, 1) == pytest.approx([1 - 2 * LABEL_GAP, 1 - LABEL_GAP, 1])


def marks_of(chart):
    """The mark of every layer of a chart, as dicts."""
    layers = chart.get("layer", [chart])
    return [each["mark"] if isinstance(each["mark"], dict) else {"type": each["mark"]} for each in layers]


def test_every_mark_can_be_told_from_the_page_and_every_number_from_its_cell():
    """3:1 for marks with their opacity, 4.5:1 for text, on white and on the dark page."""
    for name, chart in charts().items():
        for mark in marks_of(chart):
            opacity = mark.get("opacity", 0.7 if mark["type"] in ("point", "circle", "square", "tick") else 1)
            assert opacity == 1, (name, mark)  # the colours are tested as they are
    for shade in np.linspace(0, 1, 11):
        assert contrast(ON_HEAT, over(HEAT[1], shade, HEAT[0])) >= 4.5
    assert CONFIG["text"]["color"] == INK
    names = [each for each in charts()["episodes"]["layer"] if each["mark"]["type"] == "text"]
    assert [each["encoding"]["color"] for each in names] == [{"value": INK}] and len(GROUNDS) == 2


def test_the_last_ten_ranks_have_a_step_of_their_own():
    rows = rank_rows({"pools": {2: {"ranks": {"query": [5, 3, 1]}}}})
    assert [(row["rank"], row["count"]) for row in rows] == [(1, 5), (11, 3), (21, 1), (31, 1)]
    chart = Figure("ranks", rows, "Ranks.").spec
    assert chart["mark"]["interpolate"] == "step-after"  # so the last step needs where it ends


@pytest.mark.parametrize(
    ("episodes", "drawn"), [(1, [1]), (10, list(range(1, 11))), (60, [1, 8, 14, 21, 27, 34, 40, 47, 53, 60])]
)
def test_no_more_episodes_are_told_apart_by_colour_than_there_are_colours(episodes, drawn):
    assert list(drawn_pools({"pools": {number: {} for number in range(1, episodes + 1)}})) == drawn


@pytest.mark.parametrize("listed", [True, False])
def test_the_river_of_another_seed_opens_no_list_of_the_first(listed):
    said = {"split": "test", "queries": 3, "seed": 2, "measure": "RR@10", "checkpoints": [0, 1]}
    said["states"] = [{"kept": 2, "forgotten": 1}]
    figure = river_figure(said, "tele", listed)
    urls = ["list.html#test/tele/0/kept", "list.html#test/tele/0/forgotten"] if listed else [None, None]
    assert [row["url"] for row in figure.rows] == urls and ("A click" in figure.text) == listed


def test_swings_are_named_by_the_episodes_that_have_a_pool():
    """Episode 2 mines nothing."""
    level = {"pairs": {1: 10, 3: 10, 4: 10}, "swings": {1: 2}}
    (row,) = swing_figure({"A": {"trained": level}}).rows
    assert row == {"name": "A, in 1, out 3, in 4", "count": 2, "share": 0.2}


def test_score_gaps_have_their_dashed_line_and_leave_out_what_lies_beyond():
    counts = np.zeros(len(GAP_BINS) - 1, int)
    counts[[0, 10, 12, -1]] = 1, 5, 3, 1
    figure = gap_figure({"pools": {1: {"gaps": counts.tolist(), "scored": 10, "scored_queries": 4}}})
    assert len(figure.rows) == len(counts) - 2 and "10.0% / 10.0% in episode 1" in figure.text
    svg = vl_convert.vegalite_to_svg(figure.spec | {"width": 500, "autosize": "pad"})
    assert len(re.findall(r"<line[^>]*stroke-dasharray=\"4,3\"", svg)) == 1


def test_forgetting_rates_are_of_single_episodes_and_of_seeds_that_have_both_checkpoints():
    """A page may be made while one seed is behind another, or without the checkpoints between first and last."""
    seeds = [{"checkpoints": [0, 1, 2, 3], "rates": [0.1, 0.2, 0.3]}, {"checkpoints": [0, 2, 3], "rates": [0.5, 0.6]}]
    rows = rate_figure({"X": seeds, "Y": [{"checkpoints": [0, 3], "rates": [0.9]}]}, "nDCG@10").rows
    assert [(row["label"], row["step"], round(row["rate"], 6)) for row in rows] == [
        ("X", 1, 0.1),
        ("X", 2, 0.2),
        ("X", 3, 0.45),
    ]


def test_the_interval_of_a_count_has_no_upper_bound():
    assert intervals(cell(0.95), "RR@10")["high"] == 1 and intervals(cell(499.0, 2), "NumRet")["high"] == 501
