"""The charts of the page."""

import altair as alt

from teleport.report import charts as shared
from teleport.report.charts import bars, beside_paper, chart, colour, heat, in_order, plane, stacked, steps, tip

SHARE = tip("share:Q", "Share", ".2%")
WHOLE = alt.Axis(tickMinStep=1, labelExpr="datum.value % 1 ? '' : datum.value")


def curve(field, title):
    """A column of the trainings of one experiment, a colour per value of `field`."""
    colours, dashes = colour(field, title, symbolType="stroke"), alt.StrokeDash("seed:N", legend=None)
    return steps(190, shared.EPISODE, color=colours, detail=["seed:N", "episode:O"], strokeDash=dashes)


def overview_charts():
    """Of systems, their stages and their trainings."""
    seconds = alt.X("seconds:Q", title="Seconds, all stages of a kind one after another")
    kinds = [tip("kind:N", "Kind"), tip("stages:Q", "Stages"), tip("seconds:Q", "Seconds", ",.1f")]
    return {
        "systems": systems(),
        "episodes": episodes(),
        "kinds": bars(18, "kind:N", seconds, *kinds, fill=shared.BLUE),
        "curve": curve("episode:O", "Episode"),
        "layers": curve("layer:N", "Layers"),
    }


def systems():
    """A dot per row of a table, with 95 % intervals over queries (thin) and seeds (thick)."""
    free, mean = shared.FREE, tip("mean:Q", "Mean", ".4f")
    base = chart(alt.Step(17)).encode(alt.X("mean:Q", **free), in_order("label:N"))
    seeds = base.mark_rule(strokeWidth=4, color=shared.GREY).encode(alt.X("seed_low:Q", **free), x2="seed_high:Q")
    dots = base.transform_filter("!datum.paper").mark_point(size=55, color=shared.BLUE, **shared.DOT)
    ghosts = base.transform_filter("datum.paper").mark_point(color=shared.ORANGE, **shared.GHOST)
    return (
        base.mark_rule().encode(alt.X("low:Q", **free), x2="high:Q")
        + seeds
        + dots.encode(tooltip=[shared.SYSTEM, mean, tip("low:Q", "from", ".4f"), tip("high:Q", "to", ".4f")])
        + ghosts.encode(tooltip=[shared.SYSTEM, mean, tip("what:N", "By")])
    )


def episodes():
    """A line per system over its episodes, from the checkpoint that it starts with; its name stands at the edge."""
    free = {"title": None, "scale": alt.Scale(zero=False, nice=False)}
    base = chart(250).encode(color=alt.Color("system:N", scale=alt.Scale(range=shared.TEN), legend=None))
    scale = alt.Scale(zero=False, nice=False, padding=14)  # what lies far apart is drawn so
    lines = base.encode(x=alt.X("episode:Q", title="Episode", scale=scale, axis=WHOLE))
    names = base.transform_filter("isValid(datum.at)").encode(x=alt.value("width"), y=alt.Y("at:Q", **free))
    tips = [tip("system:N"), shared.EPISODE, tip("mean:Q", "Mean", ".4f")]
    return (
        lines.mark_rule().encode(y=alt.Y("low:Q", **free), y2="high:Q")
        + lines.mark_line(point=alt.OverlayMarkDef(size=55)).encode(y=alt.Y("mean:Q", **free), tooltip=tips)
        + names.mark_point(shape="square", size=60, xOffset=6, **shared.DOT)
        + names.mark_text(align="left", dx=14, limit=150).encode(text="system:N", color=alt.value(shared.INK))
    )


def negatives_charts():
    """Of pools and what was mined; swings are of negatives that were in, out and in again, by the episode of the first.

    The gaps are how far negatives lie below the positive, in shares of its score.
    """
    sources, percent = shared.SOURCE_COLOURS, alt.Axis(format="%")
    near = {"near the positive before": shared.ORANGE, "elsewhere": shared.GREY}
    shares = [alt.X("count:Q", stack="normalize", title=None, axis=percent), shared.SYSTEM, tip("source:N")]
    parts = {"color": colour("source:N", None, sources), "order": alt.Order("order:Q")}
    swung = alt.X("count:Q", title="Pairs of a query and a passage", axis=shared.COUNTS)
    ranks = chart(220, "line", interpolate="step-after", strokeWidth=1.8).encode(
        x=alt.X("rank:Q", title="Rank"),
        y=alt.Y("count:Q", title="Negatives", axis=shared.COUNTS),
        color=colour("source:N", "Source", sources),
        strokeDash=alt.StrokeDash("episode:O", title="Episode", legend=alt.Legend(orient="top")),
        tooltip=[shared.EPISODE, tip("source:N"), tip("rank:Q"), shared.NUMBER],
    )
    base = chart(220)
    gaps = base.mark_line(interpolate="monotone", strokeWidth=1.8).encode(
        x=alt.X("gap:Q", title="Gap to the positive, in shares of its score", axis=shared.PERCENT),
        y=alt.Y("share:Q", title="Share of the negatives", axis=percent),
        color=colour("episode:O", "Episode"),
        tooltip=[shared.EPISODE, tip("gap:Q", "Gap", ".0%"), SHARE],
    )
    suspect = base.transform_aggregate(n="count()").mark_rule(strokeDash=[4, 3], color=shared.TEN[6])
    return {
        "sources": stacked("source:N", "Source", sources),
        "first": stacked("first:O", "First met in episode"),
        "new": stacked("near:N", "New negative", near),
        "shares": bars(17, "label:N", *shares, shared.NUMBER, **parts),
        "overlap": heat("Of", "… also in episode", 200),
        "ranks": ranks,
        "gaps": gaps + suspect.encode(x=alt.datum(0.05)),
        "swings": bars(18, "name:N", swung, tip("name:N"), shared.NUMBER, SHARE, fill=shared.ORANGE),
    }


def query_charts():
    """Of single queries: forgetting by step, the life of a query's negatives, its map, two systems on all queries."""
    rate = alt.X("rate:Q", title="Share of queries whose reciprocal rank drops", axis=shared.PERCENT)
    by_step = {"yOffset": alt.YOffset("step:O"), "color": colour("step:O", "In episode")}
    by_step["tooltip"] = [shared.SYSTEM, tip("step:O", "Episode"), tip("rate:Q", "Rate", ".1%"), tip("what:N", "By")]
    river = {"x": "step:O", "x_title": "From checkpoint to checkpoint", "y_title": "Queries", "href": "url:N"}
    # A query, its positives and negatives on the plane that all episodes share, an episode at a time.
    episode = alt.param(name="shown", value=1, bind=alt.binding_range(min=1, max=9, step=1, name="Episode "))
    texts = plane(colour("what:N", None, shared.PART_COLOURS, columns=4))
    return {
        "rates": beside_paper(16, x=rate, y=in_order("label:N"), **by_step),
        "river": stacked("state:N", "Query", shared.STATE_COLOURS, **river),
        "traces": heat("Query", "After episode", alt.Step(22), ".2f"),
        "life": life(),
        "map": texts.transform_filter("datum.episode == shown").add_params(episode),
        "scatter": scatter(),
    }


def life():
    """The negatives of a query by episode: colour is the source, position the rank; the positive is a line."""
    y = alt.Y("rank:Q", title="Rank, by the model that mined", scale=alt.Scale(type="log", reverse=True, nice=False))
    x = alt.X("episode:O", title="Episode", axis=shared.UPRIGHT)
    tips = [tip("passage:N", "Passage"), tip("what:N", "Source"), shared.EPISODE, tip("rank:Q")]
    lines = chart(300).encode(x=x, y=y, detail="passage:N")
    named = lines.encode(color=colour("what:N", None, shared.PART_COLOURS), tooltip=tips)
    negatives, positive = "datum.what != 'positive'", "datum.what == 'positive'"
    return (
        lines.transform_filter(negatives).mark_line(color=shared.GREY, strokeWidth=0.7)
        + named.transform_filter(negatives)
        .mark_point(size=50, stroke="white", strokeWidth=0.7, **shared.DOT)
        .encode(href="url:N")
        + named.transform_filter(positive).mark_line(strokeWidth=3, point=True)
    )


def scatter():
    """The scores of two systems on every query; larger: several queries lie there, of which the first one is named."""
    base, axis = chart(320), {"scale": alt.Scale(nice=False, padding=14), "axis": alt.Axis(tickCount=6)}
    places = base.transform_aggregate(count="count()", first="argmin(at)", groupby=["a", "b"])
    places = places.transform_calculate(url="datum.first.url", queries="datum.first.id")
    scores = [tip("a:Q", "From", ".3f"), tip("b:Q", "To", ".3f")]
    points = places.mark_point(color=shared.BLUE, stroke="white", strokeWidth=0.7, **shared.DOT).encode(
        x=alt.X("a:Q", title="From", **axis),
        y=alt.Y("b:Q", title="To", **axis),
        size=alt.Size("count:Q", scale=alt.Scale(type="sqrt", range=[24, 900]), legend=None),
        order=alt.Order("count:Q", sort="descending"),
        href="url:N",
        tooltip=[*scores, tip("count:Q", "Queries", ","), tip("queries:N", "such as")],
    )
    diagonal = base.transform_aggregate(low="min(a)", high="max(a)").mark_rule(strokeDash=[4, 3])
    return diagonal.encode(x="low:Q", y="low:Q", x2="high:Q", y2="high:Q") + points
