"""Every row of every paper configuration at a small scale, from an empty folder to tables, figures and page.

Long trajectories are cut to their first three segments, and trainings to one epoch. This shows what a row needs beyond
its plan (a random head, another architecture, a tokenizer of its own) before a GPU is paid for it. A paper's
configurations share their stages, as in the results folder of somebody who runs one after another. With `--here` the
stages run in one process, which imports libraries once instead of once a job; Snakemake then makes their tables,
figures and pages.
"""

import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

from here import make
from rounds import REPOSITORY
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.running.artefact import is_finished

SEGMENTS = 3
NEGATIVES = ["ablations/negatives", "ablations/continue-training"]
# {paper: [configurations after config/PAPER.yaml]}, together every file of config/ that names one of their rows.
CONFIGURATIONS = {
    "marco": [
        [],
        ["ablations/duplicates"],
        ["ablations/titles"],
        ["ablations/negatives", "ablations/checkpoints", "ablations/bm25", "variants/marco-table-3"],
        [*NEGATIVES, "variants/marco-episode-3"],
        ["variants/marco-analysis"],
        ["variants/marco-ance", "variants/marco-star-adore", "variants/marco-adore-star"],
        ["variants/marco-rank-segments"],
        ["variants/marco-same-n", "variants/without-released", "variants/fewer-vectors"],  # last: deletes vectors
    ],
    "nq": [[], ["variants/nq-ance"], ["variants/qa-cocondenser"]],
    "triviaqa": [[], ["variants/triviaqa-ance"], ["variants/qa-cocondenser"]],
    "marco-doc": [[], ["variants/marco-doc-dynamic"], ["variants/marco-doc-systems"]],
}


def rehearse_all(arguments, passed_on):
    """Run all configurations, print which ran to their end, and return 0 if all did.

    arguments: those of bench/rehearse.py; `--configs marco-ance nq` runs only those with one of these words in their
    names
    """
    wanted, lines, status = [str(word) for word in arguments.configs], [], 0
    work = arguments.folder.resolve() / f"all-{arguments.scale:g}"
    for paper, sets in CONFIGURATIONS.items():
        for names in sets:
            name = " + ".join([paper, *(Path(name).stem for name in names)])
            if wanted and not any(word in name.split(" + ") for word in wanted):
                continue
            started, wrong = time.monotonic(), None
            try:
                wrong = rehearse_one(paper, names, work / paper, arguments, passed_on)
            except Refusal as error:
                wrong = f"refused: {error}"
            status = status or int(wrong is not None)
            lines.append(
                f"{time.monotonic() - started:6.0f} s  {name}: {wrong or 'every row, its tables and the page'}"
            )
            print(lines[-1], flush=True)
    if not lines:
        raise Refusal(f"--configs {' '.join(wanted)}: no configuration has such a word in its name. Leave it out: all.")
    print("\n".join(["", *lines]))
    return status


def rehearse_one(paper, names, work, arguments, passed_on):
    """Run one configuration below `work`; returns what did not finish (text), or None."""
    from rehearse import prepare, run

    more = [REPOSITORY / "config" / f"{name}.yaml" for name in names]
    segments = arguments.segments or SEGMENTS
    written = prepare(paper, arguments.scale, arguments.questions, work, more, segments)
    own = work / f"{'+'.join([paper, *(Path(name).stem for name in names)])}.yaml"
    shutil.copyfile(written, own)
    snakefile, failed = ["--snakefile", str(REPOSITORY / "Snakefile")], {}
    if arguments.here:
        with contextlib.chdir(work):
            make(Plan.of_files([own]).stages.values(), failed)
    if failed:
        return "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())
    status, _ = run([own], arguments.cores, [*snakefile, *passed_on], work)
    with contextlib.chdir(work):
        plan = Plan.of_files([own])
        left = [name for name in plan.stages if not is_finished(name)]
        rows = sorted({row for name in left for row in plan.users[name]})
        page = Path("results/report", plan.config.name or "", "index.html")
        tables = list(Path("results/tables", plan.config.name or "").glob("*.md"))
    if left:
        return f"status {status}, {len(left)} of {len(plan.stages)} stages left; rows: {', '.join(rows)}"
    if status or not tables or not (work / page).is_file():
        return f"status {status}, {len(tables)} tables, page {'there' if (work / page).is_file() else 'missing'}"
    figures = subprocess.run([sys.executable, "-P", "-m", "manage", "figures", own.name], cwd=work, capture_output=True)
    drawn = [f"{Path(line).name}-" for line in figures.stdout.decode().splitlines()]
    undrawn = [name for name in plan.config.figures if not any(file.startswith(f"{name}-") for file in drawn)]
    if figures.returncode or undrawn:
        return f"figures not drawn: {', '.join(undrawn)}. {figures.stderr.decode().strip()}"
    return None
