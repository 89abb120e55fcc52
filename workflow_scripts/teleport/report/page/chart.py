"""What the charts of the page share: their rows are given later, as the data set `values`."""

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


def rows_chart(height=220):
    return alt.Chart(alt.NamedData("values")).properties(width="container", height=height)
