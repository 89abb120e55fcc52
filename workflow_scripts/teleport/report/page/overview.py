"""The tables of the page: measures with the stages behind each figure, verdicts, costs, pools, queries' states,
stages."""

from itertools import chain

import numpy as np
import pandas as pd
from markupsafe import Markup

from teleport.report import table as tables
from teleport.report.figures import over_seeds, seconds
from teleport.report.page.drawings import state_rows
from teleport.report.render import NONE, Printed
from teleport.report.stages import machines, relabelled_text, warnings_of
from teleport.report.verdicts import baseline_text, baselines, labels_of
from teleport.report.words import SEED_COLUMNS, by_kind, duration, of_seed, size


def page_table(reader, contents, table):
    """A table of its finished rows, as table.py makes it, with the stages behind each figure.

    {title, columns, printed: its `Printed`, rows: [{at, label, system, episode, runs, differs, cells: {column: cell}}],
    starts: {label of an experiment: cell of the first column}, verdicts: [sentence], note, matrices: {column: {(b, a):
    pair}}}; a cell is {mean, stages, measure, p: [text], queries, seeds, over_queries, over_seeds}.
    """
    done = [row for row in table["rows"] if all(map(reader.finished, chain(*row["runs"].values())))]
    test, systems = table["significance"], {row["system"] for row in done}
    if not systems.issuperset(chain(*baselines(test).values())):
        test = None  # until its baselines are finished
    table, columns = table | {"rows": done, "significance": test}, tables.columns(table)
    content = {"title": table["title"], "columns": list(columns), "rows": [], "printed": None, "matrices": {}}
    content |= {"verdicts": [], "note": "", "starts": starts_of(reader, contents, done, *next(iter(columns.values())))}
    if not done:
        return content
    made, above = tables.make_table(table, reader), {}
    for at, (row, label) in enumerate(zip(done, labels_of(done), strict=True)):
        settings = settings_of(contents, row)
        named = {name: row[name] for name in ("system", "episode", "runs")} | {"at": at, "label": label}
        named["cells"] = cells_of_row(made, at, row["runs"], columns, test)
        content["rows"].append(named | {"differs": differences(settings, above)})
        above = settings or above
    notes = tables.overlaps(table, reader) + tables.out_of_domain_notes(table, reader)
    notes += tables.legend(table, made, reader) + table.get("warnings", [])
    warnings = warnings_of(reader, chain.from_iterable(chain(*row["runs"].values()) for row in done))
    cells = tables.cells_of(table, made)
    content["printed"] = Printed(table["name"], table["title"], cells, [*notes, *warnings])
    content["verdicts"], content["note"] = tables.verdicts_with_costs(table, made, reader)
    evaluated = [column for column, (split, _) in columns.items() if split in table["splits"]]  # have pages of queries
    return content | {"matrices": matrices(made.pairs[made.pairs["column"].isin(evaluated)], columns)}


def cells_of_row(made, at, runs, columns, test):
    """{column: cell} of the row `at` of a `Table`: its figures, and the stages and tests behind each. runs: {split:
    evaluate stages}"""
    cells = {}
    for column, (split, measure) in columns.items():
        if split in runs:
            p_values = {mark: frame[column][at] for mark, frame in made.p_values.items()}
            tests = [f"{p:.6g} against {baseline_text(test, mark)}" for mark, p in p_values.items() if not np.isnan(p)]
            cell = {"mean": made.means[column][at], "stages": runs[split], "measure": measure, "p": tests}
            cells[column] = cell | made.measured[at, column]._asdict()
    return cells


def matrices(pairs, columns):
    """{column: {(b, a): pair}} of all pairs of rows, either way round."""
    cells = {}
    turned = pairs.rename(columns={"a": "b", "b": "a", "won": "lost", "lost": "won"})
    for pair in pd.concat([pairs, turned.assign(difference=-turned["difference"])]).to_dict("records"):
        split, measure = columns[pair["column"]]
        cells.setdefault(pair["column"], {})[pair["b"], pair["a"]] = pair | {"split": split, "measure": measure}
    return cells


def starts_of(reader, contents, rows, split, measure):
    """{label of an experiment of the rows: cell of the checkpoint that its training starts from}, if that is
    evaluated."""
    starts, shown = {}, set(chain.from_iterable(chain(*row["runs"].values()) for row in rows))
    for experiment in (each for each in contents["experiments"] if has_evaluated(each, shown)):
        names = list(dict.fromkeys(seed["runs"][0].get(split) for seed in experiment["seeds"]))
        if all(map(reader.finished, names)):
            of_queries, means = (of(reader, names, measure) for of in (tables.scores_of, tables.means_of))
            measured = tables.measure_of(of_queries, means)
            starts[experiment["system"]] = {"mean": over_seeds(measured.seeds)[0]} | measured._asdict()
    return starts


def settings_of(contents, row):
    """The settings of the experiment whose checkpoint a row scores; {} for BM25 and runs from elsewhere."""
    names = set(chain(*row["runs"].values()))
    for experiment in contents["experiments"]:
        if experiment["system"] == row["system"] and has_evaluated(experiment, names):
            return experiment["settings"]
    return {}


def has_evaluated(experiment, names):
    """Whether one of the evaluate stages `names` (set) is of a checkpoint of an experiment."""
    return any(names & set(run.values()) for seed in experiment["seeds"] for run in seed["runs"])


def differences(mine, other):
    """[[key, value, value of the other]] in which the settings of two experiments differ (None: not set); None if one
    of the two has no settings."""
    if not (mine and other):
        return None
    return [[key, mine.get(key), other.get(key)] for key in sorted({*mine, *other}) if mine.get(key) != other.get(key)]


def costs_table(reader, contents, note):
    """Return the table (`Printed`) of the costs of each system with finished trainings, counted as in the tables."""
    last = {(table["name"], row["system"]): row for table in contents["tables"] for row in table["rows"]}
    costs = [(system, cost) for (_, system), row in last.items() if (cost := tables.cost_of(row, reader))]
    lines = [(system, *map(tables.seconds_text, (*cost, sum(cost)))) for system, cost in dict.fromkeys(costs)]
    frame = pd.DataFrame(lines, columns=["System", *(work.capitalize() for work in tables.WORK), "Together"])
    if not any(cost[tables.WORK.index("teaching")] for _, cost in costs):
        frame = frame.drop(columns="Teaching")
    return Printed("costs", "What it cost", frame, [note])


def finished_stages(reader, contents):
    """{name: content of a finished stage}: its entry in the specification, its manifest and provenance."""
    stages = {}
    for name in filter(reader.finished, contents["stages"]):
        artefact, manifest = reader.artefact(name), reader.artefact(name).manifest
        counted = {"seconds": seconds(artefact), "bytes": artefact.bytes, "machine": machines([artefact])}
        stages[name] = contents["stages"][name] | manifest | manifest["provenance"] | counted
    return stages


def states_table(forgetting, experiment, listed):
    """How many queries each step left in each state, as links to their lists where these are listed."""
    lines = {}
    for row in state_rows(forgetting, experiment, listed):
        count, line = f"{row['count']:,}", lines.setdefault(row["step"], {"From → to": row["step"]})
        if row["url"] and row["count"]:
            count = Markup('<a href="{}">{}</a>').format(row["url"].replace(" ", "%20"), count)
        line[row["state"].capitalize()] = count
    return Printed("states", "Queries by state", pd.DataFrame(lines.values(), dtype=object), [])


def pools_table(negatives):
    """Return the table of the negatives that each pool of an experiment and seed has drawn and dropped. negatives: of
    `negatives_of`"""
    rows = []
    for episode, pool in negatives["pools"].items():
        facts = pool["facts"]
        row = {"Episode": str(episode)}
        row["Drawn"] = numbers(facts.get("drawn", {}))
        row["Queries short"] = numbers({name: n for name, n in facts.get("short_queries", {}).items() if n}) or "0"
        row |= {"Queries empty": f"{facts.get('empty_queries', 0):,}", "Repeated": f"{facts.get('overlap', 0):.1%}"}
        row["Suspects"] = f"{pool['suspects']:.1%}" if "suspects" in pool else NONE
        dropped = facts.get("filters", {}).get("dropped", {})
        row["Dropped by filters"] = "; ".join(f"{name}: {numbers(of)}" for name, of in dropped.items()) or NONE
        if any("relabelled" in each for each in negatives["pools"].values()):
            row["Relabelled"] = relabelled_text([pool["relabelled"]]) if "relabelled" in pool else NONE
        rows.append(row | {"Stage": pool["stage"]})
    note = (
        "Short: queries with fewer candidates than a source wanted. Repeated: slots with a passage that the query "
        "already has. Suspects: negatives with at least 95 % of the positive's score under the model that mined them."
    )
    return Printed("pools", "Pools", pd.DataFrame(rows, dtype=object), [note])


def numbers(counts):
    """Return counts ({name: number}) as text: "query 900, lookahead 30"."""
    return ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in counts.items())


def rate_table(split, measure, figure):
    """The forgetting rates of one set of queries, a line per system."""
    ours = pd.DataFrame([row for row in figure.rows if not row["paper"]], columns=["label", "step", "rate"])
    table = ours.pivot(index="label", columns="step", values="rate").reindex(ours["label"].unique())
    table = table.map("{:.1%}".format, na_action="ignore").fillna(NONE).add_prefix("Episode ")
    frame = table.rename_axis("System").reset_index().rename_axis(columns=None)
    return Printed("rates", f"Forgetting rate, {split} queries, {measure}", frame, [])


def stages_table(rows, stages):
    """The stages of a seed by link and episode, each with its time; stages: of `finished_stages`."""
    episodes = sorted({row["episode"] for row in rows})
    names = {episode: f"Episode {episode}" if episode else "Start" for episode in episodes}
    most = max([1e-9, *(stages[row["stage"]]["seconds"] for row in rows if row["stage"] in stages)])
    lines = {}
    for row in rows:
        stage, text = stages.get(row["stage"]), Markup('<span class="todo">not run</span>')
        if stage:
            shared = Markup(' <span class="shared">shared</span>') if len(stage["users"]) > 1 else ""
            span = Markup('<span class="heat" style="--heat: {:.3f}" title="{}">{}{}</span>')
            took = stage["seconds"]
            text = span.format(took / most, row["stage"], duration(took, 1), shared)
        name = row["link"].rpartition("/")[2]
        line = lines.setdefault(name, {"Stage": name} | dict.fromkeys(names.values(), Markup("")))
        line[names[row["episode"]]] += text
    note = "Every cell is a stage and its time; darker took longer. Experiments share some stages."
    return Printed("dag", "Stages by episode", pd.DataFrame(lines.values(), dtype=object), [note])


def every_stage(stages):
    """All finished stages with their times (`Printed`); stages: of `finished_stages`."""
    lines = [
        {
            "Stage": name,
            "What": f"{each['label']} · {', '.join(each['users'])}",
            "Took": duration(each["seconds"], 1),
            "Attempts": str(each["attempt"]),
            "Memory": size(each["peak_memory_bytes"]),
            "On disk": size(each["bytes"]),
            "Started": each["started"].replace("T", " "),
            "Machine": each["machine"],
        }
        for name, each in stages.items()
    ]
    note = "Each stage is a folder in results/stages; its manifest.json has settings, facts and provenance."
    return Printed("every", "Finished stages", pd.DataFrame(lines, dtype=object), [note])


def seeds_table(reader, contents):
    """How much of every experiment and seed is finished (`Printed`)."""
    lines = []
    for experiment in contents["experiments"]:
        for seed in experiment["seeds"]:
            by_episode = zip(seed["episodes"], seed["runs"][1:], strict=True)
            episodes = [[episode["train"], *runs.values()] for episode, runs in by_episode]
            stages = {row["stage"] for row in seed["rows"]}
            lines.append(of_seed(experiment["label"], seed["seed"], episodes, stages, reader.finished))
    frame = pd.DataFrame(lines, columns=[name.capitalize() for name in SEED_COLUMNS])
    kinds = ", ".join(f"{kind} {d} of {n}" for kind, (d, n) in by_kind(contents["stages"], reader.finished).items())
    return Printed("seeds", "Experiments and seeds", frame, [f"Finished stages by kind: {kinds}."])
