"""The texts about a job, from the log, report and manifest of its stage; and about a run, at its end."""

import re
from itertools import chain, pairwise
from pathlib import Path

from commands.status import done_of, read_text
from teleport.report.words import duration
from teleport.running.artefact import MANIFEST, STAGES
from teleport.running.files import read_saved
from teleport.running.job import RESUME

LAST_LINES = 60  # of a log, among which its errors are


def reason(log):
    """(why a job has failed, whether that is a defect) by the end of its log (path). The first error there is the
    cause: one that follows says only that one of several processes has died."""
    lines = read_text(Path(log)).splitlines() if log else []
    errors = [line.removeprefix("error: ") for line in lines[-LAST_LINES:] if line.startswith("error: ")]
    defect = any(line.startswith("Traceback (most recent call last)") for line in lines[-LAST_LINES:])
    if errors and not defect:
        return errors[0], False
    if lines[-1:] == ["KeyboardInterrupt"]:  # Python's own, from before run_stage.py could say how it takes Ctrl-C
        return "it was interrupted (SIGINT) before it began", False
    last = (lines or [""])[-1].removeprefix("error: ").strip()
    if defect or not last:
        return last or "its log is empty", defect
    return f"it ended without an error message; the last line of its log is: {last}", False


def report_folder(output):
    """Return the folder to which the stage of a job reports, by its first output; a shard reports beside its
    manifest."""
    folder = Path(output).parent
    return RESUME / folder.relative_to(STAGES) if folder.is_relative_to(STAGES) else folder


def how_far(report):
    """A stage's report as text: "120/300 steps, 2.1 steps/s, 85 s left"; "120 steps" if the total is unknown."""
    text = done_of(report["done"], report["total"], report["unit"])
    if not report["rate"]:
        return text
    left = duration((report["total"] - report["done"]) / report["rate"])
    return f"{text}, {report['rate']:.3g} {report['unit']}/s, {left} left"


def episode_scores(plan):
    """The `scores` of `terminal.Planned`: after each episode, by the first measure of the first split."""
    splits, scores = plan.config.evaluation.splits, {}
    for split in splits[:1]:
        measure = plan.config.evaluation.measures_of(split)[0]
        for trajectory in chain(*plan.trajectories.values()):
            for before, after in pairwise(trajectory.episodes):
                name = after.runs[split].name
                label = plan.label(name).removeprefix(f"evaluate-{split}, ")
                scores.setdefault(name, (label, measure, before.runs[split].name))
    return scores


def warnings_of(outputs):
    """The warnings (list of str) of the stage that a job has made, by its outputs (paths); none of another job."""
    manifest = read_saved(Path(outputs[0])) if outputs and Path(outputs[0]).name == MANIFEST else {}
    return manifest.get("provenance", {}).get("warnings", [])


def is_check(outputs):
    """Whether a job has made a stage `check`, by its outputs (paths)."""
    return bool(outputs) and Path(outputs[0]).parent.parent == STAGES / "check"


def score_line(scores, outputs):
    """ "episode 1: RR@10 0.529 (+0.053) · ance-tele" for the outputs of an episode's evaluation; None for another."""
    output = Path(outputs[0]) if outputs else Path()
    if (name := "/".join(output.parts[-3:-1])) not in scores:
        return None
    label, measure, before = scores[name]
    manifests = (read_saved(path) for path in (output, STAGES / before / MANIFEST))
    score, earlier = (manifest.get("facts", {}).get("means", {}).get(measure) for manifest in manifests)
    if score is None:
        return None
    episode, dot, users = label.partition(" · ")
    change = "" if earlier is None else f" ({score - earlier:+z.3f})"
    return f"{episode}: {measure} {score:.3f}{change}{dot}{users}"


def outcome(made):
    """Return the lines that a run ends with (list of str): the verdicts above the tables that it has made, and which of
    these, and of its pages, to look at. made: its outputs (paths)"""
    tables = [path for path in made if path.startswith("results/tables/") and path.endswith(".md")]
    pages = [path for path in made if path.startswith("results/report/") and path.endswith("/index.html")]
    lines = [line for table in tables for line in verdicts_in(Path(table).read_text(encoding="utf-8"))]
    return lines + [f"to look at: {path}" for path in tables + pages]


def verdicts_in(table):
    """The verdicts above a table in Markdown, and the sentence on how they were tested (list of str); [] without."""
    title, *lines = [line for line in table.partition("\n|")[0].splitlines() if line]
    shown = (re.sub(r"\\(_|[^\w\s])", r"\1", line.removeprefix("* ")) for line in lines)  # without Markdown's escapes
    return [f"{title}:", *shown] if lines else []
