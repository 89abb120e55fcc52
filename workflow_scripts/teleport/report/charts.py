"""What the charts of page and paper share, each an Altair chart: colours, shapes, and a `Figure` with rows inside.

Text and lines take the colour of the text around them, so that one chart serves a light page, a dark one, and paper.
"""

import copy
import functools
from typing import NamedTuple

import altair as alt

# Ten colours that the colour-blind tell apart, each with a contrast of 3:1 or more on white and on the dark page.
TEN = ["#0072b2", "#c46a00", "#00875f", "#c4488c", "#7a6fd6", "#9a7400", "#d1495b", "#3a86a8", "#5c8a2c", "#7d8490"]
BLUE, ORANGE, GREEN, PINK, *_, GREY = TEN
SOURCE_COLOURS = {"query": BLUE, "lookahead": ORANGE, "momentum": GREEN, "bm25": PINK, "random": GREY, "file": TEN[4]}
STATE_COLOURS = {"kept": BLUE, "learned": GREEN, "swung back": ORANGE, "forgotten": TEN[6], "missed": GREY}
PART_COLOURS = SOURCE_COLOURS | {"positive": TEN[6], "query itself": TEN[5], "another episode's": GREY}
COUNTS = alt.Axis(labelExpr="datum.value ? format(datum.value, '~s') : '0'", tickCount=5)
PERCENT = alt.Axis(format="%", tickCount=6)
UPRIGHT = alt.Axis(labelAngle=0)
FREE = {"title": None, "scale": alt.Scale(zero=False)}  # of an axis that need not begin at 0
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

    axes: {channel: title}, where the chart has none of its own; changes: of the chart's first parameter
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
    """Those figures that have rows."""
    return [figure for figure in figures if figure and figure.rows]


@functools.cache
def charts():
    """{name: the dict of a chart} of all charts; their rows are the data set `values`."""
    from teleport.report.page.charts import negatives_charts, overview_charts, query_charts  # made of what is below
    from teleport.report.paper.charts import paper_charts

    made = overview_charts() | negatives_charts() | query_charts() | paper_charts()
    return {name: chart.to_dict() for name, chart in made.items()}


def drawn(name, rows, axes=None, **changes):
    """The chart `name` with its rows inside (dict, Vega-Lite); axes, changes: as a `Figure` has them."""
    chart = copy.deepcopy(charts()[name]) | {"config": CONFIG}
    encodings = [each["encoding"] for each in (chart, *chart.get("layer", ())) if "encoding" in each]
    if isinstance(chart["height"], dict):  # of so many pixels per line
        fields = {encodings[0][channel]["field"] for channel in ("y", "yOffset") if channel in encodings[0]}
        chart["height"] = chart["height"]["step"] * max(1, len({tuple(row[each] for each in fields) for row in rows}))
    for encoding in encodings:
        for axis in encoding.keys() & (axes or {}).keys():
            encoding[axis]["title"] = axes[axis]
        channel = encoding.get("color", {})
        if legend := channel.get("legend"):  # only of what is there
            there = {row.get(channel["field"]) for row in rows}
            legend |= {"values": [value for value in channel["scale"].get("domain", ()) if value in there]}
            channel["legend"] = {key: value for key, value in legend.items() if key != "values" or value}
    if changes:
        chart["params"][0] |= changes
    return chart | {"datasets": chart.get("datasets", {}) | {"values": rows}}


def chart(height, mark=None, **options):
    """A chart as wide as its place, of one mark with its options, or without one: what layers share."""
    whole = alt.Chart(alt.NamedData("values")).properties(width="container", height=height)
    return getattr(whole, f"mark_{mark}")(**options) if mark else whole


def tip(field, title=alt.Undefined, form=alt.Undefined):
    """A line of the tooltip."""
    return alt.Tooltip(field, title=title, format=form)


EPISODE, SYSTEM, NUMBER = tip("episode:O"), tip("label:N", "System"), tip("count:Q", "Number", ",")


def bars(step, names, values, *tooltip, **channels):
    """A lying bar per name, `step` pixels each, in the order of the rows."""
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
    """A colour per value, those of {value: colour} or the ten, with a legend."""
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
