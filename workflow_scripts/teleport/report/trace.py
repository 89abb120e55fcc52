"""Where every figure of a table comes from: its stages, code and commit."""

import pandas as pd

from teleport.runtime.artefact import STAGES, Artefact

COLUMNS = ["system", "episode", "split", "seed", "stage", "folder", "run", "checkpoint", "code", "git_commit"]


def upstream(artefact, role):
    """The `Artefact` that `artefact` read in `role`; None when it has no such input, or is None itself."""
    name = artefact and artefact.manifest.get("inputs", {}).get(role)
    return Artefact(artefact.folder.parents[1] / name) if name else None


def trace_figures(rows, root):
    """One line per system, episode, split and seed of a table's rows (DataFrame with COLUMNS, text).

    `stage` is the evaluation, `folder` its folder; `run` and `checkpoint` are the folders of the search that it scored
    and of the encoder of its queries (empty for BM25); `code` and `git_commit` are those of the evaluation; `seed` is
    the seed of the encoder's training (empty when nothing was trained).
    """
    lines = []
    for row in rows:
        for split, names in row["runs"].items():
            lines += [[row["system"], row["episode"], split, *trace(name, root)] for name in names]
    return pd.DataFrame(lines, columns=COLUMNS)


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
