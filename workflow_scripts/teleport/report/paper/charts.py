"""The charts of a paper's figures, in the form of those of the page; nobody points at one, so they have no tooltips."""

import altair as alt

from teleport.report.charts import BLUE, FREE, ORANGE, TEN, UPRIGHT, beside_paper, chart, colour, in_order, plane, steps


def paper_charts():
    """{name: chart} of the kinds of `figures`."""
    by_system = colour("label:N", None, columns=2, symbolType="stroke")
    in_group = {"yOffset": alt.YOffset("system:N", sort=None), "color": colour("system:N", None)}
    return {
        # A query, its relevant passages, and those that systems gave it.
        "plane": plane(colour("what:N", None, columns=2)),
        "scores": scores(),
        # A value by step, a line per system and seed.
        "lines": steps(220, color=by_system, detail=["seed:N", "part:N"]),
        "bars": beside_paper(13, x=alt.X("value:Q", title=None), y=in_order("group:N"), **in_group),
        "histogram": histogram(),
    }


def scores():
    """A line per query: the scores of its first passages in their order."""
    return chart(220, "line", strokeWidth=1.2).encode(
        x=alt.X("rank:Q", title="Rank"),
        y=alt.Y("score:Q", title="Score less the mean of all passages", scale=FREE["scale"]),
        color=alt.Color("query:N", scale=alt.Scale(range=TEN), legend=None),
    )


def histogram():
    """Shares by the number of errors of a query: of queries, and of all errors."""
    parts = {"queries": BLUE, "errors": ORANGE}
    return chart(220, "bar").encode(
        x=alt.X("errors:N", sort=None, title="Errors of a query", axis=UPRIGHT),
        y=alt.Y("share:Q", title="Share", axis=alt.Axis(format="%")),
        xOffset=alt.XOffset("of:N", sort=list(parts)),
        color=colour("of:N", None, parts),
    )
