"""The charts of the page and of papers, made with Altair, and `Figure`: a chart with its rows inside.

Text and lines take the colour of the text around them, so that one chart serves a light page, a dark one, and paper.
"""

import copy
import functools
from typing import NamedTuple

import altair as alt

# Ten colours that the colour-blind tell apart, each with a contrast of 3:1 or more on white and on the dark page.
TEN = ["#0072b2", "#c46a00", "#00875f", "#c4488c", "#7a6fd6", "#9a7400", "#d1495b", "#3a86a8", "#5c8a2c", "#7d8490"]
BLUE, ORANGE, GREEN, PINK, *_, GREY = TEN
SOURCE_COLOURS = {"query": BLUE, "lookahead": ORANGE, "momentum": GREEN, "neighbours": TEN[7]}
SOURCE_COLOURS |= {"bm25": PINK, "random": GREY, "file": TEN[4]}
STATE_COLOURS = {"kept": BLUE, "learned": GREEN, "swung back": ORANGE, "forgotten": TEN[6], "missed": GREY}
PART_COLOURS = SOURCE_COLOURS | {"positive": TEN[6], "query itself": TEN[5], "another episode's": GREY}
COUNTS = alt.Axis(labelExpr="datum.value ? format(datum.value, '~s') : '0'", tickCount=5)
PERCENT = alt.Axis(format="%", tickCount=6)
UPRIGHT = alt.Axis(labelAngle=0)
FREE = {"title": None, "scale": alt.Scale(zero=False)}  # an axis that need not begin at 0
PLACE = {
    "axis": alt.Axis(labels=False, ticks=False, grid=False, domain=False),
    "scale": alt.Scale(domain=[-1.05, 1.05]),
}
PLANE = {"x": alt.X("x:Q", title=None, **PLACE), "y": alt.Y("y:Q", title=None, **PLACE)}
DOT = {"filled": True, "opacity": 1}
GHOST = DOT | {"shape": "diamond", "size": 80, "stroke": "white"}  # a paper's figure, which may lie on our bar
HEAT, ON_HEAT = ["#dce9f5", "#62a8d8"], "#1b1d22"  # cells, from 0 to 1, and the numbers on them
INK = "currentColor"
AXIS = {"labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": INK}
CONFIG = {
    "background": "transparent",
    "view": {"stroke": None},
    "axis": AXIS | {"gridOpacity": 0.15, "titleFontWeight": "normal", "labelSeparation": 8},
    "legend": {"labelColor": INK, "titleColor": INK, "titleFontWeight": "normal", "labelLimit": 400},
    "header": {"labelColor": INK, "titleColor": INK},
    "text": {"color": INK},
    "rule": {"color": INK},
    "range": {"category": TEN},
}


class Figure(NamedTuple):
    """A chart with its rows; title and text: its caption; paper: the figure of a paper that it repeats.

    axes: {channel: title} for channels that the chart leaves untitled; changes: to the chart's first parameter
    """

    chart: str
    rows: list
    title: str
    text: str = ""
    paper: str = ""
    axes: dict = {}
    changes: dict = {}

    @property
    def spec(self):
        """The chart in Vega-Lite, with its rows inside (dict)."""
        return drawn(self.chart, self.rows, self.axes, **self.changes)


def shown(*figures):
    """Return the figures that have rows."""
    return [figure for figure in figures if figure and figure.rows]


@functools.cache
def charts():
    """{name: the dict of a chart} of all charts; their rows are the data set `values`."""
    made = overview_charts() | negatives_charts() | query_charts() | paper_charts()
    return {name: chart.to_dict() for name, chart in made.items()}


def drawn(name, rows, axes=None, **changes):
    """The chart `name` with its rows inside (dict, Vega-Lite); axes, changes: as a `Figure` has them."""
    chart = copy.deepcopy(charts()[name]) | {"config": CONFIG}
    encodings = [each["encoding"] for each in (chart, *chart.get("layer", ())) if "encoding" in each]
    if isinstance(chart["height"], dict):  # a number of pixels per line
        fields = {encodings[0][channel]["field"] for channel in ("y", "yOffset") if channel in encodings[0]}
        chart["height"] = chart["height"]["step"] * max(1, len({tuple(row[each] for each in fields) for row in rows}))
    for encoding in encodings:
        for axis in encoding.keys() & (axes or {}).keys():
            encoding[axis]["title"] = axes[axis]
        channel = encoding.get("color", {})
        if legend := channel.get("legend"):  # only values that the rows have
            there = {row.get(channel["field"]) for row in rows}
            legend |= {"values": [value for value in channel["scale"].get("domain", ()) if value in there]}
            channel["legend"] = {key: value for key, value in legend.items() if key != "values" or value}
    if changes:
        chart["params"][0] |= changes
    return chart | {"datasets": chart.get("datasets", {}) | {"values": rows}}


def chart(height, mark=None, **options):
    """A chart as wide as its container, with one mark and its options; without a mark, the base that layers share."""
    whole = alt.Chart(alt.NamedData("values")).properties(width="container", height=height)
    return getattr(whole, f"mark_{mark}")(**options) if mark else whole


def tip(field, title=alt.Undefined, form=alt.Undefined):
    """A line of the tooltip."""
    return alt.Tooltip(field, title=title, format=form)


EPISODE, SYSTEM, NUMBER = tip("episode:O"), tip("label:N", "System"), tip("count:Q", "Number", ",")


def bars(step, names, values, *tooltip, **channels):
    """A horizontal bar per name, `step` pixels high, in the order of the rows."""
    options = {"color": channels.pop("fill")} if "fill" in channels else {}
    return chart(alt.Step(step), "bar", **options).encode(x=values, y=in_order(names), tooltip=tooltip, **channels)


def stacked(field, title, colours=None, x="episode:O", x_title="Episode", y_title="Negatives", **channels):
    """A stacked bar per episode, by kinds of negatives or queries."""
    return chart(210, "bar", size=alt.expr("min(34, 0.8 * bandwidth('x'))")).encode(
        x=alt.X(x, title=x_title, axis=UPRIGHT),
        y=alt.Y("count:Q", title=y_title, axis=COUNTS),
        color=colour(field, title, colours, "right"),
        order=alt.Order("order:Q"),
        tooltip=[tip(x), tip(field), NUMBER, tip("share:Q", "Share", ".1%")],
        **channels,
    )


def steps(height, *tooltip, **channels):
    """A value over the steps of all episodes, a line per seed and colour."""
    return chart(height, "line", strokeWidth=1.6, point=alt.OverlayMarkDef(size=14)).encode(
        x=alt.X("step:Q", title="Step"),
        y=alt.Y("value:Q", **FREE, axis=alt.Axis(format="~g")),
        tooltip=[*tooltip, tip("seed:N"), tip("step:Q"), tip("value:Q", "Value", ".5g")],
        **channels,
    )


def beside_paper(step, **channels):
    """Bars of ours in groups, `step` pixels each, and the paper's figures as diamonds."""
    base = chart(alt.Step(step)).encode(**channels)
    ours = base.transform_filter("!datum.paper").mark_bar()
    return ours + base.transform_filter("datum.paper").mark_point(**GHOST)


def in_order(field, limit=260):
    """A line per name, in the order of the rows."""
    return alt.Y(field, sort=None, title=None, axis=alt.Axis(labelLimit=limit))


def colour(field, title, colours=None, orient="top", **legend):
    """A colour per value, from `colours` ({value: colour}) or TEN, with a legend."""
    scale = {"domain": list(colours), "range": list(colours.values())} if colours else {"range": TEN}
    return alt.Color(field, title=title, scale=alt.Scale(**scale), legend=alt.Legend(orient=orient, **legend))


def heat(title, x_title, height, form=".0%"):
    """A cell with its number per line and column; more is darker."""
    base = chart(height).encode(x=alt.X("by:O", title=x_title, axis=UPRIGHT), y=in_order("of:N", 170))
    shade = alt.Color("value:Q", scale=alt.Scale(range=HEAT, domain=[0, 1]), legend=None)
    tips = [tip("of:N", title), tip("by:O", x_title), tip("value:Q", "Value", ".3f")]
    number = alt.Text("value:Q", format=form)
    return base.mark_rect().encode(color=shade, tooltip=tips) + base.mark_text(color=ON_HEAT).encode(text=number)


def plane(colours):
    """Texts on a plane, with the rows of `map_rows`."""
    texts, tips = ["passage", "positive", "query"], [tip("what:N", "What"), tip("passage:N", "Passage")]
    shape = alt.Shape("shape:N", scale=alt.Scale(domain=texts, range=["circle", "cross", "diamond"]), legend=None)
    size = alt.Size("shape:O", scale=alt.Scale(domain=texts, range=[55, 150, 190]), legend=None)
    return chart(320, "point", **DOT).encode(**PLANE, color=colours, shape=shape, size=size, tooltip=tips)


# ---- The charts of the page

SHARE = tip("share:Q", "Share", ".2%")
WHOLE = alt.Axis(tickMinStep=1, labelExpr="datum.value % 1 ? '' : datum.value")


def curve(field, title):
    """A column of the trainings of one experiment, a colour per value of `field`."""
    colours, dashes = colour(field, title, symbolType="stroke"), alt.StrokeDash("seed:N", legend=None)
    return steps(190, EPISODE, color=colours, detail=["seed:N", "episode:O"], strokeDash=dashes)


def overview_charts():
    """Return the charts of systems, their stages and their trainings."""
    seconds = alt.X("seconds:Q", title="Seconds, all stages of a kind one after another")
    kinds = [tip("kind:N", "Kind"), tip("stages:Q", "Stages"), tip("seconds:Q", "Seconds", ",.1f")]
    return {
        "systems": systems(),
        "episodes": episodes(),
        "kinds": bars(18, "kind:N", seconds, *kinds, fill=BLUE),
        "curve": curve("episode:O", "Episode"),
        "layers": curve("layer:N", "Layers"),
    }


def systems():
    """A dot per row of a table, with 95 % intervals over queries (thin) and seeds (thick)."""
    free, mean = FREE, tip("mean:Q", "Mean", ".4f")
    base = chart(alt.Step(17)).encode(alt.X("mean:Q", **free), in_order("label:N"))
    seeds = base.mark_rule(strokeWidth=4, color=GREY).encode(alt.X("seed_low:Q", **free), x2="seed_high:Q")
    dots = base.transform_filter("!datum.paper").mark_point(size=55, color=BLUE, **DOT)
    ghosts = base.transform_filter("datum.paper").mark_point(color=ORANGE, **GHOST)
    return (
        base.mark_rule().encode(alt.X("low:Q", **free), x2="high:Q")
        + seeds
        + dots.encode(tooltip=[SYSTEM, mean, tip("low:Q", "from", ".4f"), tip("high:Q", "to", ".4f")])
        + ghosts.encode(tooltip=[SYSTEM, mean, tip("what:N", "By")])
    )


def episodes():
    """A line per system over its episodes, from the checkpoint that it starts with; its name is at the edge."""
    free = {"title": None, "scale": alt.Scale(zero=False, nice=False)}
    base = chart(250).encode(color=alt.Color("system:N", scale=alt.Scale(range=TEN), legend=None))
    scale = alt.Scale(zero=False, nice=False, padding=14)  # points that lie far apart stay so
    lines = base.encode(x=alt.X("episode:Q", title="Episode", scale=scale, axis=WHOLE))
    names = base.transform_filter("isValid(datum.at)").encode(x=alt.value("width"), y=alt.Y("at:Q", **free))
    tips = [tip("system:N"), EPISODE, tip("mean:Q", "Mean", ".4f")]
    return (
        lines.mark_rule().encode(y=alt.Y("low:Q", **free), y2="high:Q")
        + lines.mark_line(point=alt.OverlayMarkDef(size=55)).encode(y=alt.Y("mean:Q", **free), tooltip=tips)
        + names.mark_point(shape="square", size=60, xOffset=6, **DOT)
        + names.mark_text(align="left", dx=14, limit=150).encode(text="system:N", color=alt.value(INK))
    )


def negatives_charts():
    """Return the charts of pools and of mined negatives. Swings: negatives that were in, out and in again, by the first
    of these three episodes.

    Gaps: how far negatives score below the positive, in shares of its score.
    """
    sources, percent = SOURCE_COLOURS, alt.Axis(format="%")
    near = {"near the positive before": ORANGE, "elsewhere": GREY}
    shares = [alt.X("count:Q", stack="normalize", title=None, axis=percent), SYSTEM, tip("source:N")]
    parts = {"color": colour("source:N", None, sources), "order": alt.Order("order:Q")}
    swung = alt.X("count:Q", title="Pairs of a query and a passage", axis=COUNTS)
    ranks = chart(220, "line", interpolate="step-after", strokeWidth=1.8).encode(
        x=alt.X("rank:Q", title="Rank"),
        y=alt.Y("count:Q", title="Negatives", axis=COUNTS),
        color=colour("source:N", "Source", sources),
        strokeDash=alt.StrokeDash("episode:O", title="Episode", legend=alt.Legend(orient="top")),
        tooltip=[EPISODE, tip("source:N"), tip("rank:Q"), NUMBER],
    )
    base = chart(220)
    gaps = base.mark_line(interpolate="monotone", strokeWidth=1.8).encode(
        x=alt.X("gap:Q", title="Gap to the positive, in shares of its score", axis=PERCENT),
        y=alt.Y("share:Q", title="Share of the negatives", axis=percent),
        color=colour("episode:O", "Episode"),
        tooltip=[EPISODE, tip("gap:Q", "Gap", ".0%"), SHARE],
    )
    suspect = base.transform_aggregate(n="count()").mark_rule(strokeDash=[4, 3], color=TEN[6])
    return {
        "sources": stacked("source:N", "Source", sources),
        "first": stacked("first:O", "First met in episode"),
        "new": stacked("near:N", "New negative", near),
        "shares": bars(17, "label:N", *shares, NUMBER, **parts),
        "overlap": heat("Of", "… also in episode", 200),
        "ranks": ranks,
        "gaps": gaps + suspect.encode(x=alt.datum(0.05)),
        "swings": bars(18, "name:N", swung, tip("name:N"), NUMBER, SHARE, fill=ORANGE),
    }


def query_charts():
    """Return the charts of single queries: forgetting by step, the life of a query's negatives, its map, two systems on
    all queries."""
    rate = alt.X("rate:Q", title=None, axis=PERCENT)
    by_step = {"yOffset": alt.YOffset("step:O"), "color": colour("step:O", "In episode")}
    by_step["tooltip"] = [SYSTEM, tip("step:O", "Episode"), tip("rate:Q", "Rate", ".2%"), tip("what:N", "By")]
    river = {"x": "step:O", "x_title": "From checkpoint to checkpoint", "y_title": "Queries", "href": "url:N"}
    # A query, its positives and negatives on the plane that all episodes share, an episode at a time.
    episode = alt.param(name="shown", value=1, bind=alt.binding_range(min=1, max=9, step=1, name="Episode "))
    texts = plane(colour("what:N", None, PART_COLOURS, columns=4))
    return {
        "rates": beside_paper(16, x=rate, y=in_order("label:N"), **by_step),
        "river": stacked("state:N", "Query", STATE_COLOURS, **river),
        "traces": heat("Query", "After episode", alt.Step(22), ".2f"),
        "life": life(),
        "map": texts.transform_filter("datum.episode == shown").add_params(episode),
        "scatter": scatter(),
    }


def life():
    """The negatives of a query by episode: colour is the source, position the rank; the positive is a line."""
    y = alt.Y("rank:Q", title="Rank, by the model that mined", scale=alt.Scale(type="log", reverse=True, nice=False))
    x = alt.X("episode:O", title="Episode", axis=UPRIGHT)
    tips = [tip("passage:N", "Passage"), tip("what:N", "Source"), EPISODE, tip("rank:Q")]
    lines = chart(300).encode(x=x, y=y, detail="passage:N")
    named = lines.encode(color=colour("what:N", None, PART_COLOURS), tooltip=tips)
    negatives, positive = "datum.what != 'positive'", "datum.what == 'positive'"
    return (
        lines.transform_filter(negatives).mark_line(color=GREY, strokeWidth=0.7)
        + named.transform_filter(negatives)
        .mark_point(size=50, stroke="white", strokeWidth=0.7, **DOT)
        .encode(href="url:N")
        + named.transform_filter(positive).mark_line(strokeWidth=3, point=True)
    )


def scatter():
    """The scores of two systems on every query. A larger dot is several queries; it names the first of them and
    links to it."""
    base, axis = chart(320), {"scale": alt.Scale(nice=False, padding=14), "axis": alt.Axis(tickCount=6)}
    places = base.transform_aggregate(count="count()", first="argmin(at)", groupby=["a", "b"])
    places = places.transform_calculate(url="datum.first.url", queries="datum.first.id")
    scores = [tip("a:Q", "From", ".4f"), tip("b:Q", "To", ".4f")]
    points = places.mark_point(color=BLUE, stroke="white", strokeWidth=0.7, **DOT).encode(
        x=alt.X("a:Q", title="From", **axis),
        y=alt.Y("b:Q", title="To", **axis),
        size=alt.Size("count:Q", scale=alt.Scale(type="sqrt", range=[24, 900]), legend=None),
        order=alt.Order("count:Q", sort="descending"),
        href="url:N",
        tooltip=[*scores, tip("count:Q", "Queries", ","), tip("queries:N", "such as")],
    )
    diagonal = base.transform_aggregate(low="min(a)", high="max(a)").mark_rule(strokeDash=[4, 3])
    return diagonal.encode(x="low:Q", y="low:Q", x2="high:Q", y2="high:Q") + points


# ---- The charts of a paper's figures: without tooltips, because they are printed


def paper_charts():
    """{name: chart} of the kinds of `figures`."""
    by_system = colour("label:N", None, columns=2, symbolType="stroke")
    in_group = {"yOffset": alt.YOffset("system:N", sort=None), "color": colour("system:N", None)}
    return {
        # A query, its relevant passages, and those that systems gave it.
        "plane": plane(colour("what:N", None, columns=2)),
        "scores": sorted_scores(),
        # A value by step, a line per system and seed.
        "lines": steps(220, color=by_system, detail=["seed:N", "part:N"]),
        "bars": beside_paper(13, x=alt.X("value:Q", title=None), y=in_order("group:N"), **in_group),
        "histogram": histogram(),
    }


def sorted_scores():
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
