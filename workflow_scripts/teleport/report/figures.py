"""The figures of tables, from finished stages: a measure, hours, costs, …; and where each comes from."""

from itertools import chain

import pandas as pd

from teleport.report.costs import SECONDS, costs, seconds
from teleport.runtime.artefact import MANIFEST, STAGES, Artefact

# figure of the kind `analyses`: (the analysis, the fact of its stage)
ANALYSES = {
    "errors": ("errors", "errors"),
    "errors per positive": ("errors", "errors_per_positive"),
    "top errors": ("errors", "top_errors"),
    "queries with errors": ("errors", "queries"),  # … from 10, 100, ...: by the histogram
    "errors of queries with errors": ("errors", "errors"),
    "overlap": ("contrast", "overlap"),
    "wins": ("contrast", "wins"),
    "losses": ("contrast", "losses"),
    "ties": ("contrast", "ties"),
    "negatives": ("negatives", "overlap"),
    "forgetting": ("forgetting", "rate"),
}
SOURCES = ["system", "episode", "split", "seed", "stage", "folder", "run", "checkpoint", "code", "git_commit"]


def figures(table, row, column, runs, root):
    """One figure per finished run (seed), in the table's units: a list of floats.

    runs: [{role: [stage names]}], one per seed, of which those count whose stages are all finished.
    """
    kind, figure = table.kind_of(column), row.figure_at(column)
    runs = [{role: [root / STAGES / name for name in names] for role, names in run.items()} for run in runs]
    done = [run for run in runs if all((folder / MANIFEST).is_file() for folder in chain(*run.values()))]
    artefacts = [{role: [Artefact(folder) for folder in folders] for role, folders in run.items()} for run in done]
    scale = column.scale or table.scale
    if kind == "hours":
        return [hours(run, figure) for run in artefacts]
    if kind == "costs":
        return [costs(run, figure) * scale for run in artefacts]
    if kind == "analyses":
        return [analysis(run, figure) * scale for run in artefacts]
    return [run["evaluate"][0].facts["means"][column.measure] * scale for run in artefacts]


def hours(run, figure):
    """A figure of ANCE-Tele's Table 6 from what the stages' manifests recorded.

    "episode N", "training": of the training loop, over all attempts; "refresh": mean hours of one refresh; "refreshes":
    their number; "overall": all refreshes and trainings.
    """
    refreshes = sum(stage.manifest["kind"] == "merge" for stage in run.get("refresh", []))
    refreshing = sum(seconds(stage) for stage in run.get("refresh", [])) / SECONDS
    training = sum(stage.facts["train_seconds"] for stage in run.get("train", [])) / SECONDS
    if figure == "refreshes":
        return float(refreshes)
    return refreshing / refreshes if figure == "refresh" else refreshing + training


def analysis(run, figure):
    """A figure of the kind `analyses` from the facts of its stage."""
    name, _, lowest = figure.partition(" from ")
    analysis, fact = ANALYSES[name]
    facts = run[analysis][0].facts
    if lowest:
        return sum(decade[fact] for decade in facts["histogram"] if decade["from"] >= int(lowest))
    return float(facts[fact])


def machines(stages):
    """The GPUs or processors on which stages ran, each once, such as "A and B" (text)."""
    found = [stage.manifest["provenance"]["hardware"] for stage in stages]
    return " and ".join(sorted({hardware.get("gpu") or hardware["processor"] for hardware in found}))


def count_passages(facts):
    """How many passages a collection has, by its facts, such as "9,660 passages" (text)."""
    return f"{facts['num_passages']:,} {'judged ' if facts.get('judged_only') else ''}passages"


def upstream(artefact, role):
    """The `Artefact` that `artefact` read in `role`; None when it has no such input, or is None itself."""
    name = artefact and artefact.manifest.get("inputs", {}).get(role)
    return Artefact(artefact.folder.parents[1] / name) if name else None


def trace_figures(rows, root):
    """One line per system, episode, split and seed of a table's rows (DataFrame with SOURCES, text).

    `stage` is the evaluation, `folder` its folder; `run` and `checkpoint` are the folders of the search that it scored
    and of the encoder of its queries (empty for BM25); `code` and `git_commit` are those of the evaluation; `seed` is
    the seed of the encoder's training (empty when nothing was trained).
    """
    lines = []
    for row in rows:
        for split, names in row["runs"].items():
            lines += [[row["system"], row["episode"], split, *trace(name, root)] for name in names]
    return pd.DataFrame(lines, columns=SOURCES)


def trace(name, root):
    """The columns from `seed` on, for the evaluate stage called `name` ("evaluate/KEY")."""
    evaluate = Artefact(root / STAGES / name)
    run = upstream(evaluate, "run")
    checkpoint = upstream(upstream(run, "queries"), "checkpoint")
    seed = checkpoint.manifest["settings"].get("seed") if checkpoint else None
    provenance = evaluate.manifest.get("provenance", {})
    folders = [str(a.folder.relative_to(root)) if a else "" for a in (evaluate, run, checkpoint)]
    code, commit = provenance.get("code", ""), provenance.get("git_commit") or ""
    return ["" if seed is None else seed, name, *folders, code, commit]
