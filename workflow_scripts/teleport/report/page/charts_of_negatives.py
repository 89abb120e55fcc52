"""The charts of negatives and of what becomes of queries."""

import altair as alt

from teleport.report.page.chart import COUNTS, EPISODES, SOURCE_COLOURS, rows_chart


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
    percents = alt.Axis(format="%", tickCount=6)
    area = (
        rows_chart()
        .mark_line(interpolate="monotone", strokeWidth=1.8)
        .encode(
            x=alt.X("gap:Q", title="Gap to the positive, in shares of its score", axis=percents),
            y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
            color=alt.Color("episode:O", title="Episode", scale=alt.Scale(**EPISODES), legend=alt.Legend(orient="top")),
            tooltip=["episode:O", alt.Tooltip("gap:Q", format=".0%"), alt.Tooltip("share:Q", format=".2%")],
        )
    )
    mark = alt.Chart(alt.InlineData([{}])).mark_rule(strokeDash=[4, 3], color="#d55e00").encode(x=alt.datum(0.05))
    return area + mark


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
