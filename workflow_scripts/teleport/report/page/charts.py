"""The charts of the page."""

import altair as alt

from teleport.report.charts import (
    BLUE,
    COUNTS,
    DOT,
    EPISODE,
    FREE,
    GHOST,
    GREY,
    INK,
    NUMBER,
    ORANGE,
    PART_COLOURS,
    PERCENT,
    SOURCE_COLOURS,
    STATE_COLOURS,
    SYSTEM,
    TEN,
    UPRIGHT,
    bars,
    chart,
    colour,
    heat,
    in_order,
    plane,
    stacked,
    steps,
    tip,
)


def curve(field, title):
    """A column of the trainings of one experiment, a colour per value of `field`."""
    colours = colour(field, title, symbolType="stroke")
    dashes = alt.StrokeDash("seed:N", legend=None)
    return steps(190, EPISODE, color=colours, detail=["seed:N", "episode:O"], strokeDash=dashes)


def overview_charts():
    """Of systems, their stages and their trainings."""
    # A dot per row of a table, with 95 % intervals over queries (thin) and seeds (thick).
    base = chart(alt.Step(17)).encode(y=in_order("label:N"))
    queries = base.mark_rule().encode(alt.X("low:Q", **FREE), x2="high:Q")
    seeds = base.mark_rule(strokeWidth=4, color=GREY).encode(alt.X("seed_low:Q", **FREE), x2="seed_high:Q")
    tips = [SYSTEM, tip("mean:Q", "Mean", ".4f"), tip("low:Q", "from", ".4f"), tip("high:Q", "to", ".4f")]
    mean = alt.X("mean:Q", **FREE)
    ours, paper = base.transform_filter("!datum.paper"), base.transform_filter("datum.paper")
    dots = ours.mark_point(size=55, color=BLUE, **DOT).encode(mean, tooltip=tips)
    ghosts = paper.mark_point(color=ORANGE, **GHOST).encode(mean, tooltip=[SYSTEM, tips[1], tip("what:N", "By")])
    seconds = alt.X("seconds:Q", title="Seconds, all stages of a kind one after another")
    kinds = [tip("kind:N", "Kind"), tip("stages:Q", "Stages"), tip("seconds:Q", "Seconds", ",.1f")]
    return {
        "systems": queries + dots + ghosts,
        "systems of seeds": queries + seeds + dots + ghosts,
        "episodes": episodes(),
        "kinds": bars(18, "kind:N", seconds, *kinds, fill=BLUE),
        "curve": curve("episode:O", "Episode"),
        "layers": curve("layer:N", "Layers"),
    }


def episodes():
    """A line per system over its episodes, from the checkpoint that it starts with; its name stands at the edge."""
    free = {"title": None, "scale": alt.Scale(zero=False, nice=False)}
    by_system = alt.Color("system:N", scale=alt.Scale(range=TEN), legend=None)
    base, tips = chart(250).encode(color=by_system), [tip("system:N"), EPISODE, tip("mean:Q", "Mean", ".4f")]
    lines = base.encode(x=alt.X("episode:O", title="Episode", axis=UPRIGHT))
    names = base.transform_filter("datum.last").encode(x=alt.value("width"), y=alt.Y("at:Q", **free))
    return (
        lines.mark_rule().encode(y=alt.Y("low:Q", **free), y2="high:Q")
        + lines.mark_line(point=alt.OverlayMarkDef(size=55)).encode(y=alt.Y("mean:Q", **free), tooltip=tips)
        + names.mark_point(shape="square", size=60, xOffset=6, **DOT)
        + names.mark_text(align="left", dx=14, limit=150).encode(text="system:N", color=alt.value(INK))
    )


def negatives_charts():
    """Of pools and what was mined."""
    by_source = colour("source:N", None, SOURCE_COLOURS)
    near = {"near the positive before": ORANGE, "elsewhere": GREY}
    share = alt.X("count:Q", stack="normalize", title=None, axis=alt.Axis(format="%"))
    swung = alt.X("count:Q", title="Pairs of a query and a passage", axis=COUNTS)
    ranks = chart(220, "line", interpolate="step-after", strokeWidth=1.8).encode(
        x=alt.X("rank:Q", title="Rank"),
        y=alt.Y("count:Q", title="Negatives", axis=COUNTS),
        color=colour("source:N", "Source", SOURCE_COLOURS),
        strokeDash=alt.StrokeDash("episode:O", title="Episode", legend=alt.Legend(orient="top")),
        tooltip=[EPISODE, tip("source:N"), tip("rank:Q"), NUMBER],
    )
    # How far negatives lie below the positive, in shares of its score.
    base = chart(220)
    gaps = base.mark_line(interpolate="monotone", strokeWidth=1.8).encode(
        x=alt.X("gap:Q", title="Gap to the positive, in shares of its score", axis=PERCENT),
        y=alt.Y("share:Q", title="Share of the negatives", axis=alt.Axis(format="%")),
        color=colour("episode:O", "Episode"),
        tooltip=[EPISODE, tip("gap:Q", "Gap", ".0%"), tip("share:Q", "Share", ".2%")],
    )
    suspect = base.transform_aggregate(n="count()").mark_rule(strokeDash=[4, 3], color=TEN[6])
    return {
        "sources": stacked("source:N", "Source", SOURCE_COLOURS),
        "first": stacked("first:O", "First met in episode"),
        "new": stacked("near:N", "New negative", near),
        "shares": bars(
            17, "label:N", share, SYSTEM, tip("source:N"), NUMBER, color=by_source, order=alt.Order("order:Q")
        ),
        "overlap": heat("Of", "… also in episode", 200),
        "ranks": ranks,
        "gaps": gaps + suspect.encode(x=alt.datum(0.05)),
        # Negatives that were in, out and in again, by the episode in which they were in at first.
        "swings": bars(18, "name:N", swung, tip("name:N"), NUMBER, tip("share:Q", "Share", ".2%"), fill=ORANGE),
    }


def query_charts():
    """Of single queries: forgetting by step, the life of a query's negatives, its map, two systems on all queries."""
    rate = alt.X("rate:Q", title="Share of queries whose reciprocal rank drops", axis=PERCENT)
    by_step = {"yOffset": alt.YOffset("step:O"), "color": colour("step:O", "In episode")}
    base = chart(alt.Step(16)).encode(x=rate, y=in_order("label:N"), **by_step)
    tips = [SYSTEM, tip("step:O", "Episode"), tip("rate:Q", "Rate", ".1%")]
    ours = base.transform_filter("!datum.paper").mark_bar().encode(tooltip=tips)
    paper = base.transform_filter("datum.paper").mark_point(**GHOST)
    river = {"x": "step:O", "x_title": "From checkpoint to checkpoint", "y_title": "Queries", "href": "url:N"}
    # A query, its positives and negatives on the plane that all episodes share, an episode at a time.
    episode = alt.param(name="shown", value=1, bind=alt.binding_range(min=1, max=9, step=1, name="Episode "))
    shapes = {"negative": "circle", "positive": "cross", "query itself": "diamond"}
    texts = plane(colour("what:N", None, PART_COLOURS, columns=4), shapes, size=alt.Size("size:Q", scale=None))
    return {
        "rates": ours + paper.encode(tooltip=[*tips, tip("what:N", "By")]),
        "river": stacked("state:N", "Query", STATE_COLOURS, **river),
        "traces": heat("Query", "After episode", alt.Step(22), ".2f"),
        "life": life(),
        "map": texts.transform_filter("datum.episode == shown").add_params(episode),
        "scatter": scatter(),
    }


def life():
    """The negatives of a query by episode: colour is the source, position the rank; the positive is a line."""
    y = alt.Y("rank:Q", title="Rank, by the model that mined", scale=alt.Scale(type="log", reverse=True, nice=False))
    base = chart(300).encode(x=alt.X("episode:O", title="Episode", axis=UPRIGHT), y=y, detail="passage:N")
    negatives, positive = (base.transform_filter(f"datum.what {sign} 'positive'") for sign in ("!=", "=="))
    tips = [tip("passage:N", "Passage"), tip("what:N", "Source"), EPISODE, tip("rank:Q")]
    said = {"color": colour("what:N", None, PART_COLOURS), "tooltip": tips}
    return (
        negatives.mark_line(color=GREY, strokeWidth=0.7)
        + negatives.mark_point(size=50, **DOT).encode(href="url:N", **said)
        + positive.mark_line(strokeWidth=3, point=True).encode(**said)
    )


def scatter():
    """The scores of two systems on every query; larger: several queries lie there."""
    base, axis = chart(320), {"scale": alt.Scale(nice=False, padding=14), "axis": alt.Axis(tickCount=6)}
    scores = [tip("a:Q", "From", ".3f"), tip("b:Q", "To", ".3f")]
    points = base.mark_point(color=BLUE, stroke="white", strokeWidth=0.7, **DOT).encode(
        x=alt.X("a:Q", title="From", **axis),
        y=alt.Y("b:Q", title="To", **axis),
        size=alt.Size("count:Q", scale=alt.Scale(type="sqrt", range=[24, 900]), legend=None),
        href="url:N",
        tooltip=[*scores, tip("count:Q", "Queries", ","), tip("queries:N", "such as")],
    )
    diagonal = base.transform_aggregate(low="min(a)", high="max(a)").mark_rule(strokeDash=[4, 3])
    return diagonal.encode(x="low:Q", y="low:Q", x2="high:Q", y2="high:Q") + points
