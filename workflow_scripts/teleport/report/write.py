"""Every table of a configuration: which files there are, and how they are written from finished stages."""

from pathlib import Path

from teleport.report.published import published_tables, untrained
from teleport.report.rows import analysis_tables, in_folder, measured_tables, other_tables

# The files of a table besides NAME.csv, by the kind of table.
FORMS = {
    "measured": ("md", "tex", "sources.csv", "pairs.csv"),
    "analyses": ("md", "tex", "sources.csv"),
    "published": ("md", "tex"),
}


def planned_tables(plan):
    """{kind of FORMS: {path of its files without their suffix: table}} of all tables of a plan. Raises Refusal for
    settings that a table cannot show."""
    folders = {"measured": "tables", "analyses": "tables", "published": "published"}
    tables = {
        "measured": measured_tables(plan) | other_tables(plan),
        "analyses": analysis_tables(plan),
        "published": published_tables(plan),
    }
    return {
        kind: {f"{in_folder(folders[kind], plan.config)}/{name}": table for name, table in of.items()}
        for kind, of in tables.items()
    }


def write_tables(plan, kinds=tuple(FORMS)):
    """Write the tables of some kinds, by default all; returns their paths without an ending. A published table shows
    the finished stages."""
    from teleport.report.analyses import write_analyses  # here: planning needs no pandas
    from teleport.report.published_table import write_published
    from teleport.report.table import write_table

    writers = {"measured": write_table, "analyses": write_analyses, "published": write_published}
    written = []
    for kind, tables in planned_tables(plan).items():
        for path, table in tables.items() if kind in kinds else ():
            writers[kind](table, Path("."), Path(path).parent)
            written.append(path)
    return written


def untrained_tables(plan):
    """{path: table} of the published tables with figures for which nothing is trained."""
    return untrained(plan, planned_tables(plan)["published"])
