"""The charts of the page, each an Altair chart of rows that are given later, as the data set `values`."""

import altair as alt

# Okabe and Ito's colours, told apart by the colour-blind, on white and on black.
SOURCE_COLOURS = {
    "query": "#0072b2",
    "lookahead": "#e69f00",
    "momentum": "#009e73",
    "bm25": "#cc79a7",
    "random": "#8a8f98",
    "file": "#d55e00",
}
EPISODES = {"scheme": alt.SchemeParams(name="viridis", extent=[0.33, 0.95])}  # its dark end is lost on black
COUNTS = alt.Axis(labelExpr="datum.value ? format(datum.value, '~s') : '0'", tickCount=5)
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
        "layers": curve("layer:Q", "Layer"),
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


def rows_chart(height=220):
    return alt.Chart(alt.NamedData("values")).properties(width="container", height=height)


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


def stacked(field, title, colours=None, x="episode:O", x_title="Episode"):
    """A stacked bar per episode, by kinds of negatives or queries."""
    domain = {"domain": list(colours), "range": list(colours.values())} if colours else EPISODES
    scale = alt.Scale(**domain) if field.endswith(":O") or colours else alt.Undefined
    return (
        rows_chart(210)
        .mark_bar(size=34)
        .encode(
            x=alt.X(x, title=x_title, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("count:Q", title=None, axis=COUNTS),
            color=alt.Color(field, title=title, scale=scale, legend=alt.Legend(orient="right")),
            order=alt.Order("order:Q"),
            tooltip=[x, field, alt.Tooltip("count:Q", format=","), alt.Tooltip("share:Q", format=".1%")],
        )
    )


def shares():
    """Shares of sources in one pool of every system."""
    scale = alt.Scale(domain=list(SOURCE_COLOURS), range=list(SOURCE_COLOURS.values()))
    return (
        rows_chart(alt.Step(17))
        .mark_bar()
        .encode(
            y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X("count:Q", stack="normalize", title=None, axis=alt.Axis(format="%")),
            color=alt.Color("source:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
            order=alt.Order("order:Q"),
            tooltip=["label:N", "source:N", alt.Tooltip("count:Q", format=",")],
        )
    )


def overlap():
    """The share of the negatives of the episode of a line that the episode of a column has too."""
    base = rows_chart(200).encode(
        x=alt.X("other:O", title="… also in episode", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("episode:O", title="Of episode"),
    )
    cells = base.mark_rect().encode(
        color=alt.Color("share:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=None),
        tooltip=["episode:O", "other:O", alt.Tooltip("share:Q", format=".1%")],
    )
    dark = alt.condition("datum.share > 0.55", alt.value("white"), alt.value("#1b1d22"))
    return cells + base.mark_text(fontSize=12).encode(text=alt.Text("share:Q", format=".0%"), color=dark)


def ranks():
    """Negatives by the rank at which this episode's retrieval found them."""
    scale = alt.Scale(domain=list(SOURCE_COLOURS), range=list(SOURCE_COLOURS.values()))
    return (
        rows_chart()
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=alt.X("rank:Q", title="Rank"),
            y=alt.Y("count:Q", title=None, axis=COUNTS),
            color=alt.Color("source:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
            strokeDash=alt.StrokeDash("episode:O", title="Episode", legend=alt.Legend(orient="top")),
            tooltip=["episode:O", "source:N", "rank:Q", alt.Tooltip("count:Q", format=",")],
        )
    )


def gaps():
    """How far negatives lie below the positive, in shares of its score."""
    area = (
        rows_chart()
        .mark_line(interpolate="monotone", strokeWidth=1.8)
        .encode(
            x=alt.X("gap:Q", title="Gap to the positive, in shares of its score", axis=alt.Axis(format="%")),
            y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
            color=alt.Color("episode:O", title="Episode", scale=alt.Scale(**EPISODES), legend=alt.Legend(orient="top")),
            tooltip=["episode:O", alt.Tooltip("gap:Q", format=".0%"), alt.Tooltip("share:Q", format=".2%")],
        )
    )
    mark = alt.Chart(alt.InlineData([{}])).mark_rule(strokeDash=[4, 3], color="#d55e00").encode(x=alt.datum(0.05))
    return area + mark


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
            y=alt.Y("query:N", sort=None, title=None, axis=alt.Axis(labelLimit=300)),
            color=alt.Color("score:Q", title=None, scale=alt.Scale(scheme="blues", domain=[0, 1])),
            tooltip=["query:N", "checkpoint:O", alt.Tooltip("score:Q", format=".3f")],
        )
    )


def swings():
    """Negatives that were in, out and in again, by the episode in which they were in at first."""
    return (
        rows_chart(alt.Step(18))
        .mark_bar(color="#e69f00")
        .encode(
            y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
            x=alt.X("count:Q", title="Pairs of a query and a passage", axis=COUNTS),
            tooltip=["name:N", alt.Tooltip("count:Q", format=","), alt.Tooltip("share:Q", format=".2%")],
        )
    )


def query_map():
    """A query, its positives and negatives on the plane that all episodes share."""
    shapes = {"negative of this episode": "circle", "negative of another": "circle"}
    shapes |= {"positive": "cross", "query": "diamond"}
    colours = ["#0072b2", "#b8bcc4", "#d55e00", "#009e73"]
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    scale = alt.Scale(domain=[-1.05, 1.05])
    return (
        rows_chart(320)
        .mark_point(filled=True)
        .encode(
            x=alt.X("x:Q", title=None, axis=axis, scale=scale),
            y=alt.Y("y:Q", title=None, axis=axis, scale=scale),
            color=alt.Color("what:N", title=None, scale=alt.Scale(domain=list(shapes), range=colours)),
            shape=alt.Shape("what:N", scale=alt.Scale(domain=list(shapes), range=list(shapes.values()))),
            size=alt.Size("size:Q", scale=None),
            opacity=alt.Opacity("opacity:Q", scale=None),
            tooltip=["what:N", "passage:N"],
        )
        .configure_legend(orient="bottom", columns=2)
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
