"""The charts of the page, each an Altair chart of rows that are given later."""

import altair as alt

from teleport.report.page.chart import EPISODES, SOURCE_COLOURS, rows_chart
from teleport.report.page.charts_of_negatives import gaps, overlap, query_map, ranks, shares, stacked, swings

STATE_COLOURS = {
    "kept": "#0072b2",
    "learned": "#009e73",
    "swung back": "#e69f00",
    "forgotten": "#d55e00",
    "missed": "#b8bcc4",
}


def charts():
    """{name: chart} of all charts of the page."""
    return {
        "systems": systems(),
        "episodes": by_episode(),
        "kinds": kinds(),
        "curve": curve("episode:O", "Episode"),
        "layers": curve("layer:N", "Layers"),
        "sources": stacked("source:N", "Source", SOURCE_COLOURS),
        "first": stacked("first:O", "First met in episode"),
        "new": stacked("near:N", "New negative", {"near the positive before": "#e69f00", "elsewhere": "#b8bcc4"}),
        "shares": shares(),
        "overlap": overlap(),
        "ranks": ranks(),
        "gaps": gaps(),
        "rates": rates(),
        "states": stacked("state:N", "Query", STATE_COLOURS, "step:O", "Step between checkpoints"),
        "traces": traces(),
        "swings": swings(),
        "map": query_map(),
        "scatter": scatter(),
    }


def score(name, title, **options):
    """A quantitative position, whose axis need not begin at 0."""
    return alt.X(name, title=title, scale=alt.Scale(zero=False), **options)


def systems():
    """A dot per row of a table, with 95 % intervals over queries (thin) and seeds (thick)."""
    base = rows_chart(alt.Step(17)).encode(y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)))
    queries = base.mark_rule(opacity=0.55).encode(score("low:Q", None), x2="high:Q")
    seeds = base.mark_rule(strokeWidth=4, opacity=0.45).encode(score("seed_low:Q", None), x2="seed_high:Q")
    tooltip = ["label:N", alt.Tooltip("mean:Q", format=".4f"), alt.Tooltip("over_queries:Q", format=".4f")]
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(score("mean:Q", None), tooltip=tooltip)
    return queries + seeds + dots


def by_episode():
    """A line per system over its episodes, with 95 % intervals over queries."""
    base = rows_chart(250).encode(
        x=alt.X("episode:O", title="Episode", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("system:N", title=None, sort=None, legend=alt.Legend(orient="bottom", labelLimit=240)),
    )
    free = alt.Scale(zero=False)
    interval = base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title=None, scale=free), y2="high:Q")
    tooltip = ["system:N", "episode:O", alt.Tooltip("mean:Q", format=".4f")]
    line = base.mark_line(point=alt.OverlayMarkDef(size=55)).encode(
        y=alt.Y("mean:Q", title=None, scale=free), tooltip=tooltip
    )
    return interval + line


def kinds():
    """Seconds per kind of stage, in the order of the workflow."""
    return (
        rows_chart(alt.Step(18))
        .mark_bar(color="#0072b2")
        .encode(
            y=alt.Y("kind:N", sort=None, title=None),
            x=alt.X("seconds:Q", title="Seconds, all stages of a kind one after another"),
            tooltip=["kind:N", "stages:Q", alt.Tooltip("seconds:Q", format=",.1f")],
        )
    )


def curve(colour, title):
    """A value over the steps of all episodes, one line per seed and part."""
    legend = alt.Legend(orient="top", symbolType="stroke", gradientLength=120)
    return (
        rows_chart(190)
        .mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("step:Q", title="Step"),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(format="~g")),
            color=alt.Color(colour, title=title, scale=alt.Scale(**EPISODES), legend=legend),
            detail=["seed:N", "episode:O"],
            strokeDash=alt.StrokeDash("seed:N", legend=None),
            tooltip=["episode:O", "seed:N", "step:Q", alt.Tooltip("value:Q", format=".5g")],
        )
    )


def rates():
    """The forgetting rate of every step of every system."""
    legend = alt.Legend(orient="top")
    return (
        rows_chart(alt.Step(15))
        .mark_bar()
        .encode(
            y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            yOffset=alt.YOffset("step:O"),
            x=alt.X("rate:Q", title="Share of queries whose score drops", axis=alt.Axis(format="%", tickCount=6)),
            color=alt.Color("step:O", title="Into checkpoint", scale=alt.Scale(**EPISODES), legend=legend),
            tooltip=["label:N", "step:O", alt.Tooltip("rate:Q", format=".1%")],
        )
    )


def traces():
    """The score of single queries at every checkpoint."""
    return (
        rows_chart(alt.Step(22))
        .mark_rect()
        .encode(
            x=alt.X("checkpoint:O", title="After episode", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("query:N", sort=None, title=None, axis=alt.Axis(labelLimit=170)),
            color=alt.Color("score:Q", title=None, scale=alt.Scale(scheme="blues", domain=[0, 1])),
            tooltip=["query:N", "checkpoint:O", alt.Tooltip("score:Q", format=".3f")],
        )
    )


def scatter():
    """The scores of two systems on every query; larger: several queries lie there."""
    base = alt.Chart(alt.NamedData("values")).properties(width="container", height=380)
    points = base.mark_point(filled=True).encode(
        x=alt.X("a:Q", scale=alt.Scale(nice=False), title="", axis=alt.Axis(tickCount=6)),
        y=alt.Y("b:Q", scale=alt.Scale(nice=False), title="", axis=alt.Axis(tickCount=6)),
        size=alt.Size("count:Q", scale=alt.Scale(type="sqrt", range=[24, 900]), legend=None),
        color=alt.Color(
            "shown:N",
            title=None,
            scale=alt.Scale(domain=["top tens are here", "score only"], range=["#0072b2", "#b8bcc4"]),
            legend=alt.Legend(orient="top"),
        ),
        opacity=alt.value(0.75),
        tooltip=["a:Q", "b:Q", "count:Q", "queries:N"],
    )
    diagonal = base.transform_aggregate(low="min(a)", high="max(a)").mark_rule(strokeDash=[4, 3], opacity=0.6)
    return diagonal.encode(x="low:Q", y="low:Q", x2="high:Q", y2="high:Q") + points
