"""The tables of an experiment's page."""

import pandas as pd
from markupsafe import Markup

from teleport.report.page.drawings import state_rows
from teleport.report.page.site import stage_link, stage_page
from teleport.report.render import NONE, Printed
from teleport.report.units import duration


def states_table(said, experiment, listed):
    """How many queries each step left in each state, as links to their lists where these are listed."""
    lines = {}
    for row in state_rows(said, experiment, listed):
        count, line = f"{row['count']:,}", lines.setdefault(row["step"], {"From → to": row["step"]})
        if row["url"] and row["count"]:
            count = Markup('<a href="{}">{}</a>').format(row["url"].replace(" ", "%20"), count)
        line[row["state"].capitalize()] = count
    return Printed("states", "Queries by state", pd.DataFrame(lines.values(), dtype=object), [])


def pools_table(said):
    """What each pool of an experiment and seed has drawn and dropped; said: as `negatives_of` gives it."""
    rows = []
    for episode, pool in said["pools"].items():
        facts, filters = pool["facts"], pool["facts"].get("filters") or {}
        row = {"Episode": str(episode)}
        row["Drawn"] = ", ".join(f"{name} {n:,}" for name, n in facts.get("drawn", {}).items())
        row["Queries short"] = f"{sum(facts.get('short_queries', {}).values()):,}"
        row |= {"Queries empty": f"{facts.get('empty_queries', 0):,}", "Repeated": f"{facts.get('overlap', 0):.1%}"}
        row["Suspects"] = f"{pool['suspects']:.1%}" if "suspects" in pool else NONE
        dropped = "; ".join(f"{name.replace('_', ' ')} {n}" for name, n in filters.items())
        rows.append(row | {"Dropped by filters": dropped or NONE, "Stage": stage_link(pool["stage"])})
    note = (
        "Short: queries with fewer candidates than a source wanted. Repeated: slots with a passage that the query "
        "already has. Suspects: negatives with at least 95 % of the positive's score under the model that mined them."
    )
    return Printed("pools", "Pools", pd.DataFrame(rows, dtype=object), [note])


def rate_table(split, measure, figure):
    """The forgetting rates of one set of queries, a line per system."""
    ours = pd.DataFrame([row for row in figure.rows if not row["paper"]], columns=["label", "step", "rate"])
    table = ours.pivot(index="label", columns="step", values="rate").reindex(ours["label"].unique())
    table = table.map("{:.1%}".format, na_action="ignore").fillna(NONE).add_prefix("Episode ")
    frame = table.rename_axis("System").reset_index().rename_axis(columns=None)
    return Printed("rates", f"Forgetting rate, {split} queries, {measure}", frame, [])


def stages_table(rows, stages):
    """The stages of a seed by link and episode, each with its time; stages: {name: what `finished_stages` says}."""
    episodes = sorted({row["episode"] for row in rows})
    names = {episode: f"Episode {episode}" if episode else "Start" for episode in episodes}
    most = max([1e-9, *(stages[row["stage"]]["seconds"] for row in rows if row["stage"] in stages)])
    lines = {}
    for row in rows:
        stage, text = stages.get(row["stage"]), Markup('<span class="todo">not run</span>')
        if stage:
            shared = Markup(' <span class="shared">shared</span>') if len(stage["users"]) > 1 else ""
            link = Markup('<a class="heat" style="--heat: {:.3f}" href="{}">{}{}</a>')
            took = stage["seconds"]
            text = link.format(took / most, stage_page(row["stage"]), duration(took, 1), shared)
        name = row["link"].rpartition("/")[2]
        line = lines.setdefault(name, {"Stage": name} | dict.fromkeys(names.values(), Markup("")))
        line[names[row["episode"]]] += text
    note = "Every cell is a stage and its time; darker took longer. Shared ones were made once for several experiments."
    return Printed("dag", "Stages by episode", pd.DataFrame(lines.values(), dtype=object), [note])
