"""The charts of a paper's figures, in the form of those of the page."""

import altair as alt

from teleport.report.page.charts import BLUE, FREE, ORANGE, TEN, UPRIGHT, chart, colour, in_order, tip

SHAPES = {"passage": "circle", "relevant": "cross", "query": "diamond"}


def paper_charts():
    """{name: chart} of the kinds of `figures`."""
    return {"plane": plane(), "scores": scores(), "lines": lines(), "bars": beside(), "histogram": histogram()}


def plane():
    """A query, its relevant passages, and those that systems gave it."""
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    place = {"title": None, "axis": axis, "scale": alt.Scale(domain=[-1.05, 1.05])}
    shapes = alt.Scale(domain=list(SHAPES), range=list(SHAPES.values()))
    return chart(320, "point", filled=True, opacity=1, size=60).encode(
        x=alt.X("x:Q", **place),
        y=alt.Y("y:Q", **place),
        color=colour("what:N", None, columns=2),
        shape=alt.Shape("shape:N", scale=shapes, legend=None),
        tooltip=[alt.Tooltip("what:N", title="What"), alt.Tooltip("passage:N", title="Passage")],
    )


def scores():
    """A line per query: the scores of its first passages in their order."""
    return chart(220, "line", strokeWidth=1.2).encode(
        x=alt.X("rank:Q", title="Rank"),
        y=alt.Y("score:Q", title="Score less the mean of all passages", scale=alt.Scale(zero=False)),
        color=alt.Color("query:N", scale=alt.Scale(range=TEN), legend=None),
        tooltip=["query:N", "rank:Q", tip("score:Q", ".3f", "Score")],
    )


def lines():
    """A value by step, a line per system and seed."""
    return chart(220, "line", strokeWidth=1.6, point=alt.OverlayMarkDef(size=14)).encode(
        x=alt.X("step:Q", title="Step"),
        y=alt.Y("value:Q", **FREE, axis=alt.Axis(format="~g")),
        color=colour("label:N", None, columns=2, symbolType="stroke"),
        detail=["seed:N", "part:N"],
        tooltip=["label:N", "seed:N", "step:Q", tip("value:Q", ".5g", "Value")],
    )


def beside():
    """Bars of ours in groups, and the paper's figures as diamonds."""
    base = chart(alt.Step(13)).encode(
        x=alt.X("value:Q", title=None),
        y=in_order("group:N"),
        yOffset=alt.YOffset("system:N", sort=None),
        color=colour("system:N", None),
    )
    tips = ["group:N", "system:N", tip("value:Q", ".4g", "Figure")]
    ours = base.transform_filter("!datum.paper").mark_bar().encode(tooltip=tips)
    paper = base.transform_filter("datum.paper").mark_point(
        shape="diamond", size=60, filled=True, opacity=1, stroke="white"
    )  # it may lie on a bar
    return ours + paper.encode(tooltip=tips)


def histogram():
    """Shares by the number of errors of a query: of queries, and of all errors."""
    parts = {"queries": BLUE, "errors": ORANGE}
    return chart(220, "bar").encode(
        x=alt.X("errors:N", sort=None, title="Errors of a query", axis=UPRIGHT),
        y=alt.Y("share:Q", title="Share", axis=alt.Axis(format="%")),
        xOffset=alt.XOffset("of:N", sort=list(parts)),
        color=colour("of:N", None, parts),
        tooltip=["errors:N", "of:N", tip("share:Q", ".1%", "Share")],
    )
