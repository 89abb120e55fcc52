"""README's table, from the finished stages of `make demo` (results.py)."""

from results import made_by, made_text, markdown, number
from rounds import REPOSITORY
from teleport.plan.plan import Plan
from teleport.report.rows import measured_tables
from teleport.report.stages import Stages
from teleport.report.table import columns, make_table, marks_of
from teleport.running.artefact import is_finished
from teleport.settings.read import load_files
from teleport.settings.section import MAIN_TABLE

CONFIG = REPOSITORY / "config/config.yaml"


def measured():
    """{"demo": a row for each system and episode, means over queries and marks} once all is finished, else {}."""
    plan = Plan(*load_files([str(CONFIG)]))
    if not all(map(is_finished, plan.stages)):
        return {}
    content = measured_tables(plan)[MAIN_TABLE]
    table, names = make_table(content, Stages(".")), columns(content)
    marks = {name: marks_of(table, name, content["significance"], split) for name, (split, _) in names.items()}
    rows = [
        {"row": f"{row['system']} {row['episode']}", "system": row["system"], "episode": row["episode"], "seeds": 1}
        | {"mean": {name: float(table.means[name][i]) for name in names}}
        | {"mark": {name: of_rows[i] for name, of_rows in marks.items()}}
        for i, row in enumerate(content["rows"])
    ]
    (trajectory,) = plan.trajectories["ance-tele"]
    trainings = [train.settings.training for train in trajectory.trains]
    steps = [str(min(training.stop_after_steps or training.steps, training.steps)) for training in trainings]
    budget = f"{trainings[-1].steps} steps in-batch; ANCE-Tele: {' and '.join(steps)} steps"
    return {
        "demo": {
            "columns": list(names),
            "rows": rows,
            "made": made_by(plan.stages, seeds=[trajectory.seed], budget=budget),
        }
    }


def section(data):
    """The text between the marks: the table, the best of each column in bold, and how it came about."""
    parts = []
    for part in data.values():
        names = part["columns"]
        best = {name: max(round(row["mean"][name], 3) for row in part["rows"]) for name in names}
        rows = [
            [row["system"], str(row["episode"])]
            + [cell(row["mean"][name], row["mark"][name], best[name]) for name in names]
            for row in part["rows"]
        ]
        parts.append(markdown(["System", "Episode", *names], rows) + "\n" + made_text(part["made"]))
    return "\n".join(parts)


def cell(mean, mark, best):
    """A mean over queries as text, bold if it is the best of its column, with its mark."""
    text = number(mean)
    return (f"**{text}**" if round(mean, 3) == best else text) + mark
