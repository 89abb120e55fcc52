"""README's table, from the finished stages of `make demo` (results.py).

docs/measured/demo.json says how they came about; demo.parquet has the scores of every query. Means and marks are
computed from these scores, by the functions of the workflow's own table, when README is written.
"""

from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet as pq

from results import DATA, lines_of, made_by, made_text, markdown, number, write_scores
from rounds import REPOSITORY
from teleport.plan.plan import Plan
from teleport.report.rows import measured_tables
from teleport.report.stages import Stages
from teleport.report.table import columns, make_table, marks_of
from teleport.running.artefact import is_finished
from teleport.settings.section import MAIN_TABLE

CONFIG, NAME = REPOSITORY / "config/config.yaml", "demo"
SCORES = DATA / f"{NAME}.parquet"


def planned():
    """(`Plan` of the demo, specification of its table)."""
    plan = Plan.of_files([str(CONFIG)])
    return plan, measured_tables(plan)[MAIN_TABLE]


def measured():
    """{"demo": how a row for each system and episode came about} once all is finished, else {}. Writes SCORES."""
    plan, content = planned()
    if not all(map(is_finished, plan.stages)):
        return {}
    stages, rows, scores = Stages("."), [], []
    for row in content["rows"]:
        rows.append({"row": f"{row['system']} {row['episode']}", "seeds": 1})
        for split, measure in columns(content).values():
            evaluated, own = row["runs"][split][0], {"part": NAME, "row": rows[-1]["row"], "seed": None}
            scores.append(lines_of(stages, evaluated, measure, **own))
    write_scores(SCORES, pd.concat(scores))
    (trajectory,) = plan.trajectories["ance-tele"]
    trainings = [train.settings.training for train in trajectory.trains]
    steps = [str(min(training.stop_after_steps or training.steps, training.steps)) for training in trainings]
    budget = f"{trainings[-1].steps} steps in-batch; ANCE-Tele: {' and '.join(steps)} steps"
    return {NAME: {"rows": rows, "made": made_by(plan.stages, seeds=[trajectory.seed], budget=budget)}}


def section(data):
    """The text between the marks: the table, the best of each column in bold, and how it came about."""
    if not data:
        return ""
    _, content = planned()
    table, names = table_of(content, pq.read_table(SCORES).to_pandas()), columns(content)
    marks = {name: marks_of(table, name, content["significance"], split) for name, (split, _) in names.items()}
    best = {name: table.means[name].round(3).max() for name in names}
    rows = [
        [row["system"], str(row["episode"])]
        + [cell(table.means[name][i], marks[name][i], best[name]) for name in names]
        for i, row in enumerate(content["rows"])
    ]
    return markdown(["System", "Episode", *names], rows) + "\n" + made_text(data[NAME]["made"])


def table_of(content, scores):
    """The `Table` of a specification, as the workflow makes it, from saved scores (DataFrame)."""
    rows = {name: f"{row['system']} {row['episode']}" for row in content["rows"] for (name,) in row["runs"].values()}

    def query_scores(name):
        own = scores[scores["row"] == rows[name]]
        return {measure: each.set_index("query")["value"] for measure, each in own.groupby("measure", sort=False)}

    def facts(name):
        return {"means": {measure: each.mean() for measure, each in query_scores(name).items()}}

    return make_table(content, SimpleNamespace(query_scores=query_scores, facts=facts))


def cell(mean, mark, best):
    """A mean over queries as text, bold if it is the best of its column, with its mark."""
    text = number(mean)
    return (f"**{text}**" if round(mean, 3) == best else text) + mark
