"""Tables of single queries that a system wins and loses, and where its list parts from the reference's."""

import pandas as pd
import pyarrow.parquet as pq

from teleport.collection.reader import lines_of_ids
from teleport.refusal import Refusal
from teleport.report.render import NONE, Printed

SNIPPET = 90  # characters of a title, or of a text without one


def cases(reader, name, figure):
    """{suffix: (Printed, DataFrame of its values)} of each system."""
    finished = [behind for behind in figure["behind"] if reader.finished(behind[1])]
    return {behind[0]: case_table(reader, name, figure, *behind) for behind in finished}


def case_table(reader, name, figure, label, stage, against):
    """(the `Printed` table, its DataFrame) of the queries that a system wins and loses against another."""
    frame, facts = pq.read_table(reader.artefact(stage).path("contrast.parquet")).to_pandas(), reader.facts(stage)
    frame = chosen(frame.assign(difference=frame["value"] - frame["reference_value"]), name, figure)
    split = reader.artefact(stage).manifest["settings"]["split"]
    frame.insert(1, "query", texts_by_id(reader, f"queries.{split}.parquet", "query_id", frame["query_id"]))
    for side in ("", "reference_"):
        at = frame.columns.get_loc(f"{side}doc_id") + 1
        frame.insert(at, f"{side}text", texts_by_id(reader, "corpus.parquet", "doc_id", frame[f"{side}doc_id"]))
    measure, cells = facts["measure"], pd.DataFrame({"Query": frame["query_id"] + ": " + frame["query"]})
    cells[f"{measure}, {label}"] = frame["value"].map("{:.2f}".format)
    cells[f"{measure}, {against}"] = frame["reference_value"].map("{:.2f}".format)
    cells["Rank"] = frame["rank"].map(lambda rank: str(rank) if rank else NONE)
    for side, of in (("", label), ("reference_", against)):
        cells[of] = [passage(*line) for line in frame[[f"{side}doc_id", f"{side}text", f"{side}grade"]].to_numpy()]
    notes = [
        f"{facts['num_queries']:,} {split} queries: {label} wins {facts['wins']}, loses {facts['losses']} against "
        f"{against}, and {facts['ties']} are ties.",
        "Rank: the first at which the two lists have different passages; these with the beginning of their titles, or "
        "texts, and their grades.",
    ]
    return Printed(name, f"Queries that {label} wins and loses against {against}", cells, notes, wide=True), frame


def chosen(frame, name, figure):
    """The lines of the queries that a figure names, or of the largest differences: won first, then lost."""
    if figure["queries"]:
        by_id = frame.set_index("query_id", drop=False)
        if missing := [each for each in figure["queries"] if each not in by_id.index]:
            raise Refusal(f"figures.{name}.queries: {missing[0]!r} is no judged query of the split that is compared.")
        return by_id.loc[figure["queries"]].reset_index(drop=True)
    order = frame.sort_values(["difference", "query_id"], ascending=[False, True], kind="stable")
    won, lost = order[order["difference"] > 0], order[order["difference"] < 0][::-1]
    return pd.concat([won[: figure["won"]], lost[: figure["lost"]]]).reset_index(drop=True)


def texts_by_id(reader, file, key, ids):
    """The title, or else the text, of some queries or passages by their ids (list); empty for one that is not there."""
    lines = lines_of_ids(reader.artefact(reader.collection).path(file), key, ids.dropna().unique())
    texts = {each: " ".join((line.get("title") or line["text"]).split()) for each, line in lines.items()}
    return [texts.get(each, "") for each in ids]


def passage(doc_id, text, grade):
    """A passage in a cell: its id, how it begins, and its grade (text)."""
    if pd.isna(doc_id):
        return NONE
    short = text if len(text) <= SNIPPET else text[:SNIPPET].rstrip() + "…"
    return f"{doc_id}: {short} ({'unjudged' if pd.isna(grade) else int(grade)})"
