"""A published table in the paper's own shape: one row per system, one column per figure, for LaTeX."""

from itertools import groupby

import pandas as pd

from teleport.report.render import NONE

HERE = "Here"  # the column that says what repeats a system, or that it is only cited
LEGEND = "Cells: published / ours, where something here repeats the system; otherwise published alone."


def paper_shape(lines, texts):
    """The lines of a published table (`published_table.make_line`, in order) as one row of cells per system.

    texts: of each line {"published", "ours", "released"}, as the other forms print them. A system as its makers gave it
    has a row of its own below, where it was evaluated here. The column Group is there when a row has one.
    """
    rows = []
    for _, of_row in groupby(zip(lines, texts, strict=True), key=lambda pair: pair[0]["row"]):
        pairs = list(of_row)
        first = pairs[0][0]
        named = {"Group": first["group"] or "", "System": first["system"]}
        cells = {line["figure"]: cell(line, text) for line, text in pairs}
        rows.append(named | cells | {HERE: repeated_by([line for line, _ in pairs])})
        if any(line["released"] is not None for line, _ in pairs):
            released = {line["figure"]: text["released"] for line, text in pairs}
            named = named | {"System": f"{first['system']} (released checkpoint)"}
            rows.append(named | released | {HERE: "evaluated"})
    frame = pd.DataFrame(rows).fillna(NONE)
    figures = list(dict.fromkeys(line["figure"] for line in lines))
    groups = ["Group"] if frame["Group"].any() else []
    frame["Group"] = frame["Group"].where(frame["Group"] != frame["Group"].shift(), "")  # said once
    return frame[[*groups, "System", *figures, HERE]]


def cell(line, text):
    """One figure: as published, and ours where something here repeats it."""
    published = NONE if line["published"] is None else text["published"]
    return published if line["verdict"] == "cited" else f"{published} / {text['ours']}"


def repeated_by(lines):
    """What the figures of a system were measured with here (text)."""
    own = [line for line in lines if line["verdict"] != "cited"]
    if not own:
        return "cited"
    if all(line["ours"] is None for line in own):
        return "not run"
    return "; ".join(dict.fromkeys(line["experiment"] for line in own))
