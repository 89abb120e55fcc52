"""The charts of the page, each an Altair chart of rows that are given later, as the data set `values`."""

import altair as alt

# Okabe and Ito's colours, told apart by the colour-blind, on white and on black.
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#b8bcc4"
SOURCE_COLOURS = {"query": BLUE, "lookahead": ORANGE, "momentum": GREEN}
SOURCE_COLOURS |= {"bm25": "#cc79a7", "random": "#8a8f98", "file": RED}
STATE_COLOURS = {"kept": BLUE, "learned": GREEN, "swung back": ORANGE, "forgotten": RED, "missed": GREY}
EPISODES = {"scheme": alt.SchemeParams(name="viridis", extent=[0.33, 0.95])}  # its dark end is lost on black
COUNTS = alt.Axis(labelExpr="datum.value ? format(datum.value, '~s') : '0'", tickCount=5)
PERCENT = alt.Axis(format="%", tickCount=6)
UPRIGHT = alt.Axis(labelAngle=0)
FREE = {"title": None, "scale": alt.Scale(zero=False)}  # of an axis that need not begin at 0
SHADES = alt.Scale(scheme="blues", domain=[0, 1])


def charts():
    """{name: chart} of all charts of the page."""
    return overview_charts() | negatives_charts() | query_charts()


def chart(height, mark=None, **options):
    """A chart as wide as its place, of one mark with its options, or without one: what layers share."""
    whole = alt.Chart(alt.NamedData("values")).properties(width="container", height=height)
    return getattr(whole, f"mark_{mark}")(**options) if mark else whole


def bars(step, names, values, *tooltip, **channels):
    """A lying bar per name, `step` pixels each, in the order of the rows."""
    options = {"color": channels.pop("fill")} if "fill" in channels else {}
    return chart(alt.Step(step), "bar", **options).encode(x=values, y=in_order(names), tooltip=tooltip, **channels)


def stacked(field, title, colours=EPISODES, x="episode:O", x_title="Episode"):
    """A stacked bar per episode, by kinds of negatives or queries."""
    return chart(210, "bar", size=34).encode(
        x=alt.X(x, title=x_title, axis=UPRIGHT),
        y=alt.Y("count:Q", title=None, axis=COUNTS),
        color=colour(field, title, colours, "right"),
        order=alt.Order("order:Q"),
        tooltip=[x, field, tip("count:Q", ","), tip("share:Q", ".1%")],
    )


def curve(field, title):
    """A value over the steps of all episodes, one line per seed and value of `field`."""
    legend = alt.Legend(orient="top", symbolType="stroke", gradientLength=120)
    return chart(190, "line", strokeWidth=1.6, point=alt.OverlayMarkDef(size=14)).encode(
        x=alt.X("step:Q", title="Step"),
        y=alt.Y("value:Q", **FREE, axis=alt.Axis(format="~g")),
        color=alt.Color(field, title=title, scale=alt.Scale(**EPISODES), legend=legend),
        detail=["seed:N", "episode:O"],
        strokeDash=alt.StrokeDash("seed:N", legend=None),
        tooltip=["episode:O", "seed:N", "step:Q", tip("value:Q", ".5g")],
    )


def in_order(field, limit=260):
    """A line per name, in the order of the rows."""
    return alt.Y(field, sort=None, title=None, axis=alt.Axis(labelLimit=limit))


def colour(field, title, scale, orient="top"):
    """A colour per value, by keyword arguments of a scale or {value: colour}, with a legend."""
    given = scale if scale is EPISODES else {"domain": list(scale), "range": list(scale.values())}
    return alt.Color(field, title=title, scale=alt.Scale(**given), legend=alt.Legend(orient=orient))


def tip(field, form):
    """A number in the tooltip."""
    return alt.Tooltip(field, format=form)


def overview_charts():
    """Of systems, their stages and their trainings."""
    # A dot per row of a table, with 95 % intervals over queries (thin) and seeds (thick).
    base = chart(alt.Step(17)).encode(y=in_order("label:N"))
    queries = base.mark_rule(opacity=0.55).encode(alt.X("low:Q", **FREE), x2="high:Q")
    seeds = base.mark_rule(strokeWidth=4, opacity=0.45).encode(alt.X("seed_low:Q", **FREE), x2="seed_high:Q")
    tips = ["label:N", tip("mean:Q", ".4f"), tip("over_queries:Q", ".4f")]
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(alt.X("mean:Q", **FREE), tooltip=tips)
    # A line per system over its episodes, with 95 % intervals over queries.
    legend = alt.Legend(orient="bottom", labelLimit=240)
    base = chart(250).encode(
        x=alt.X("episode:O", title="Episode", axis=UPRIGHT),
        color=alt.Color("system:N", title=None, sort=None, legend=legend),
    )
    interval = base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", **FREE), y2="high:Q")
    line = base.mark_line(point=alt.OverlayMarkDef(size=55))
    line = line.encode(y=alt.Y("mean:Q", **FREE), tooltip=["system:N", "episode:O", tip("mean:Q", ".4f")])
    seconds = alt.X("seconds:Q", title="Seconds, all stages of a kind one after another")
    return {
        "systems": queries + seeds + dots,
        "episodes": interval + line,
        "kinds": bars(18, "kind:N", seconds, "kind:N", "stages:Q", tip("seconds:Q", ",.1f"), fill=BLUE),
        "curve": curve("episode:O", "Episode"),
        "layers": curve("layer:N", "Layers"),
    }


def negatives_charts():
    """Of pools and what was mined."""
    by_source = {"color": colour("source:N", None, SOURCE_COLOURS), "order": alt.Order("order:Q")}
    share = alt.X("count:Q", stack="normalize", title=None, axis=alt.Axis(format="%"))
    swung = alt.X("count:Q", title="Pairs of a query and a passage", axis=COUNTS)
    return {
        "sources": stacked("source:N", "Source", SOURCE_COLOURS),
        "first": stacked("first:O", "First met in episode"),
        "new": stacked("near:N", "New negative", {"near the positive before": ORANGE, "elsewhere": GREY}),
        "shares": bars(17, "label:N", share, "label:N", "source:N", tip("count:Q", ","), **by_source),
        "overlap": overlap(),
        "ranks": chart(220, "line", interpolate="step-after", strokeWidth=1.8).encode(
            x=alt.X("rank:Q", title="Rank"),
            y=alt.Y("count:Q", title=None, axis=COUNTS),
            color=by_source["color"],
            strokeDash=alt.StrokeDash("episode:O", title="Episode", legend=alt.Legend(orient="top")),
            tooltip=["episode:O", "source:N", "rank:Q", tip("count:Q", ",")],
        ),
        "gaps": gaps(),
        # Negatives that were in, out and in again, by the episode in which they were in at first.
        "swings": bars(18, "name:N", swung, "name:N", tip("count:Q", ","), tip("share:Q", ".2%"), fill=ORANGE),
    }


def overlap():
    """The share of the negatives of the episode of a line that the episode of a column has too."""
    x, y = alt.X("other:O", title="… also in episode", axis=UPRIGHT), alt.Y("episode:O", title="Of episode")
    base = chart(200).encode(x=x, y=y)
    cells = base.mark_rect().encode(
        color=alt.Color("share:Q", scale=SHADES, legend=None),
        tooltip=["episode:O", "other:O", tip("share:Q", ".1%")],
    )
    dark = alt.condition("datum.share > 0.55", alt.value("white"), alt.value("#1b1d22"))
    return cells + base.mark_text(fontSize=12).encode(text=alt.Text("share:Q", format=".0%"), color=dark)


def gaps():
    """How far negatives lie below the positive, in shares of its score."""
    lines = chart(220, "line", interpolate="monotone", strokeWidth=1.8).encode(
        x=alt.X("gap:Q", title="Gap to the positive, in shares of its score", axis=PERCENT),
        y=alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
        color=colour("episode:O", "Episode", EPISODES),
        tooltip=["episode:O", tip("gap:Q", ".0%"), tip("share:Q", ".2%")],
    )
    return lines + alt.Chart(alt.InlineData([{}])).mark_rule(strokeDash=[4, 3], color=RED).encode(x=alt.datum(0.05))


def query_charts():
    """Of single queries: the forgetting rate of every step, traces, the map of a query, two systems."""
    rate = alt.X("rate:Q", title="Share of queries whose score drops", axis=PERCENT)
    by_step = {"yOffset": alt.YOffset("step:O"), "color": colour("step:O", "Into checkpoint", EPISODES)}
    return {
        "rates": bars(15, "label:N", rate, "label:N", "step:O", tip("rate:Q", ".1%"), **by_step),
        "states": stacked("state:N", "Query", STATE_COLOURS, "step:O", "Step between checkpoints"),
        "traces": chart(alt.Step(22), "rect").encode(
            x=alt.X("checkpoint:O", title="After episode", axis=UPRIGHT),
            y=in_order("query:N", 170),
            color=alt.Color("score:Q", title=None, scale=SHADES),
            tooltip=["query:N", "checkpoint:O", tip("score:Q", ".3f")],
        ),
        "map": query_map(),
        "scatter": scatter(),
    }


def query_map():
    """A query, its positives and negatives on the plane that all episodes share."""
    colours = {"negative of this episode": BLUE, "negative of another": GREY, "positive": RED, "query": GREEN}
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    plane = {"title": None, "axis": axis, "scale": alt.Scale(domain=[-1.05, 1.05])}
    shapes = alt.Scale(domain=list(colours), range=["circle", "circle", "cross", "diamond"])
    points = chart(320, "point", filled=True).encode(
        x=alt.X("x:Q", **plane),
        y=alt.Y("y:Q", **plane),
        color=alt.Color("what:N", title=None, scale=alt.Scale(domain=list(colours), range=list(colours.values()))),
        shape=alt.Shape("what:N", scale=shapes),
        size=alt.Size("size:Q", scale=None),
        opacity=alt.Opacity("opacity:Q", scale=None),
        tooltip=["what:N", "passage:N"],
    )
    return points.configure_legend(orient="bottom", columns=2)


def scatter():
    """The scores of two systems on every query; larger: several queries lie there."""
    base, axis = chart(380), {"scale": alt.Scale(nice=False), "title": "", "axis": alt.Axis(tickCount=6)}
    points = base.mark_point(filled=True).encode(
        x=alt.X("a:Q", **axis),
        y=alt.Y("b:Q", **axis),
        size=alt.Size("count:Q", scale=alt.Scale(type="sqrt", range=[24, 900]), legend=None),
        color=colour("shown:N", None, {"top tens are here": BLUE, "score only": GREY}),
        opacity=alt.value(0.75),
        tooltip=["a:Q", "b:Q", "count:Q", "queries:N"],
    )
    diagonal = base.transform_aggregate(low="min(a)", high="max(a)").mark_rule(strokeDash=[4, 3], opacity=0.6)
    return diagonal.encode(x="low:Q", y="low:Q", x2="high:Q", y2="high:Q") + points
