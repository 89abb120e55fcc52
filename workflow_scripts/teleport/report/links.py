"""The folders of experiments: links to their stages, and an index of these (plan.tsv)."""

import os
from pathlib import Path

from teleport.refusal import Refusal
from teleport.report.rows import in_folder
from teleport.running.artefact import STAGES
from teleport.running.files import part_of, write_text

INDEX = "plan.tsv"
COLUMNS = ["seed", "episode", "stage", "kind", "key", "folder"]


def experiment_folders(plan):
    """{folder below results/experiments: [Trajectory per seed]} of the experiments of a plan."""
    return {f"{in_folder('experiments', plan.config)}/{name}": of for name, of in plan.trajectories.items()}


def link_experiments(plan):
    """Make the folder of every experiment of a plan."""
    for folder, trajectories in experiment_folders(plan).items():
        link_experiment([row for trajectory in trajectories for row in trajectory.rows], folder)


def link_experiment(rows, folder):
    """Make `folder` show exactly the stages in `rows`: relative symlinks, and plan.tsv with a line per row.

    A row has a `link` (path below folder, for example "episode-1/train"), its `stage`, `seed` and `episode`; in
    plan.tsv a stage has the name of its link. Links of an earlier plan are removed; other links, real files, and
    experiments in folders below never are.
    """
    folder = Path(folder)
    targets = {folder / row.link: STAGES / row.stage.name for row in rows}
    for link in targets:
        if link.exists() and not link.is_symlink():
            raise Refusal(f"{link} is not a link, but a link is needed there. Move it away and run again.")
    # The experiment `marco` of an unnamed configuration has the folder in which the configuration `marco` keeps its
    # experiments. Snakemake has deleted the earlier plan.tsv of `folder` itself by now, so it cannot be read.
    others = {index.parent for index in folder.rglob(INDEX)} - {folder}
    for link in stage_links(folder).keys() - targets.keys():
        if not others.intersection(link.parents):
            link.unlink()
    for link, target in targets.items():
        with part_of(link) as part:
            part.symlink_to(os.path.relpath(target, link.parent))
            os.replace(part, link)
    lines = [COLUMNS]
    for row in rows:
        kind, key = row.stage.name.split("/")
        lines.append([row.seed, row.episode, Path(row.link).name, kind, key, STAGES / row.stage.name])
    write_text(folder / INDEX, "".join("\t".join(map(str, line)) + "\n" for line in lines))


def stage_links(folder):
    """{symlink below a folder: "kind/key" of the stage that it leads to}; other links are left out."""
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    names = {link: os.path.relpath(link.parent / link.readlink(), STAGES) for link in links}
    return {link: name for link, name in names.items() if name.count("/") == 1 and not name.startswith("..")}


def linked_stages(plan):
    """{path below results/experiments: [Stage]} of every link of the experiments of a plan, and of each folder."""
    linked = {}
    for folder, trajectories in experiment_folders(plan).items():
        for row in (row for trajectory in trajectories for row in trajectory.rows):
            link = Path(folder, row.link)
            for path in [path for path in (link, *link.parents) if path.is_relative_to(folder)]:
                linked.setdefault(str(path), []).append(row.stage)
    return linked


def nearest(path, linked):
    """A sentence for a path that is not in `linked_stages`: the content of its deepest folder that is."""
    folder = next((parent for parent in Path(path).parents if str(parent) in linked), Path("results/experiments"))
    names = {Path(other).relative_to(folder).parts[0] for other in linked if folder in Path(other).parents}
    return f"{folder} has {', '.join(sorted(names))}."
