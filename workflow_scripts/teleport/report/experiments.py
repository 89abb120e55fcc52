"""The life of an experiment as folders a person can walk: links to its stages, and an index of them."""

import os
from pathlib import Path

from teleport.refusal import Refusal
from teleport.running.artefact import STAGES
from teleport.running.files import part_of, write_text

INDEX = "plan.tsv"
COLUMNS = ["seed", "episode", "stage", "kind", "key", "folder"]


def link_experiment(rows, folder):
    """Make `folder` show exactly the stages in `rows`: relative symlinks, and plan.tsv with a line per row.

    A row is {"link": path below folder, for example "episode-1/encode", "stage": "kind/key", "seed", "episode"}; in
    plan.tsv a stage has the name of its link. Links of an earlier plan are removed; other links, real files and
    folders, and experiments in folders below never are.
    """
    folder = Path(folder)
    targets = {folder / row["link"]: STAGES / row["stage"] for row in rows}
    for link in targets:
        if link.exists() and not link.is_symlink():
            raise Refusal(f"{link} is no link but must become one. Move it away and run again.")
    # The experiment `marco` of a configuration without a name has the folder in which the configuration `marco` has its
    # experiments. Snakemake has deleted the earlier plan.tsv of `folder` itself by now, so that cannot be asked.
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
        kind, key = row["stage"].split("/")
        lines.append([row["seed"], row["episode"], Path(row["link"]).name, kind, key, STAGES / row["stage"]])
    write_text(folder / INDEX, "".join("\t".join(map(str, line)) + "\n" for line in lines))


def stage_links(folder):
    """{symlink below a folder: "kind/key" of the stage that it leads to}; other links are left out."""
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    names = {link: os.path.relpath(link.parent / link.readlink(), STAGES) for link in links}
    return {link: name for link, name in names.items() if name.count("/") == 1 and not name.startswith("..")}
