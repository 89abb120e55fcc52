"""Exchange of finished stages: `share` writes them for others, `fetch` takes those of others."""

import io
import json
import os
import re
import shlex
import shutil
import tarfile
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from commands.disk import EXPERIMENTS, TABLES, rows, with_upstream
from commands.stages import KEY
from teleport.plan.kinds import KINDS
from teleport.refusal import Refusal
from teleport.report.links import INDEX, stage_links
from teleport.report.words import number
from teleport.running.artefact import DELETED, MANIFEST, SPEC, STAGE, STAGES, Artefact, deletion, is_finished, signed
from teleport.running.code import digests_of_all, stage_code
from teleport.running.files import gigabytes, part_of, read_saved, require_output, write_json
from teleport.running.hub import HUB_NAME, uploaded
from teleport.running.job import Job
from teleport.running.locks import read_finished, sole_process
from teleport.running.places import FOLDER, REMEDY, place_at, receive, restore, signed_at
from teleport.running.run import publish_manifest

OF_SPEC = ("kind", "key", "settings", "inputs", "loads")  # without `origins`, where files are fetched from


def share(names, to, vectors):
    """Write finished stages, with all that they were made from, to a place; returns a sentence.

    names: set of "kind/key"; to: a folder, a file NAME.tar, or hub:OWNER/NAME; vectors: whether those of passages and
    queries go along, and the indexes over them. Every file is compared with its manifest first.
    """
    hub, archive = re.fullmatch(HUB_NAME, to), to.endswith(".tar")
    if to.startswith("hub:") and not hub:
        raise Refusal(f"--to {to}: a repository has an owner, a name and here no revision. Give hub:OWNER/NAME.")
    if to.endswith((".gz", ".tgz", ".zst", ".zip")):
        raise Refusal(f"--to {to}: archives are not compressed. Give a path that ends with .tar.")
    if not hub:
        require_output(to, folder=not archive)
        if archive and os.path.lexists(to):
            raise Refusal(f"{to} exists already. Remove it, or give another path.")
    names = with_upstream(names)
    if lacking := sorted(name for name in names if not is_finished(name)):
        what = f"{len(lacking)} of {number(len(names), 'stage')}, such as {link_to(lacking[0])}"
        raise Refusal(f"not finished: {what}. Run the workflow first, or name fewer.")
    stages = {name: Artefact(STAGES / name) for name in sorted(names)}
    for stage in stages.values():
        stage.verify()
    members = [member for name, stage in stages.items() for member in members_of(name, stage, vectors)]
    if hub:
        to = send(hub[1], members)
    else:
        with part_of(to) as part:
            (write_archive if archive else write_folder)(part, members)
            os.replace(part, to)
    size = sum(os.path.getsize(content) for _, content in members if isinstance(content, Path))
    return f"{number(len(stages), 'stage')}, {gigabytes(size)}. To take them: teleport fetch {shlex.quote(str(to))}"


def link_to(name):
    """The first link below results/experiments to a stage, which names its experiment and episode; else its name."""
    return min((str(link) for link, stage in stage_links(EXPERIMENTS).items() if stage == name), default=name)


def members_of(name, stage, vectors):
    """Yield (its name in the place, its path or its bytes) of every file of a stage that is shared."""
    home, manifest = f"{FOLDER}/{name}", stage.manifest
    stays = not vectors and (manifest["kind"] == "encode" or "index.faiss" in manifest["files"])
    files = [file for file in manifest["files"] if not (stays or stage.is_deleted(file))]
    notes = {MANIFEST: signed(manifest)}
    if len(files) < len(manifest["files"]):
        notes[DELETED] = deletion(manifest)
    if spec := read_saved(STAGES / name / SPEC):
        notes[SPEC] = signed({key: spec[key] for key in OF_SPEC if key in spec})
    for file, content in notes.items():
        yield f"{home}/{file}", json.dumps(content, indent=1, sort_keys=True).encode()
    for file in files:
        yield f"{home}/{file}", STAGES / name / file


def write_folder(folder, members):
    """Write members, as `members_of` gives them, as files."""
    for name, content in members:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, folder / name)
        else:
            (folder / name).write_bytes(content)


def write_archive(path, members):
    """Write members as a tar archive, which is the same for the same stages."""
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            with open(content, "rb") if isinstance(content, Path) else io.BytesIO(content) as file:
                member.size = file.seek(0, os.SEEK_END)
                file.seek(0)
                archive.addfile(member, file)


def send(repository, members):
    """Upload members to a repository of the hub, private where it is new; returns "hub:OWNER/NAME@COMMIT"."""
    with part_of(Path("results/shared")) as folder:
        write_folder(folder, members)
        return f"hub:{repository}@{uploaded(repository, folder).oid}"


def stages_at(what):
    """The stages (set of "kind/key") that a person names: a stage by its link, folder or key, an experiment, or a
    folder of several. All stages of a table that has one of an experiment are added."""
    path = EXPERIMENTS / what if (EXPERIMENTS / what).exists() else Path(what)
    if KEY.fullmatch(what):
        path = next(STAGES.glob(f"*/{what}"), path)
    for name in (what, "/".join(path.resolve().parts[-2:]) if os.path.lexists(path) else ""):
        if STAGE.fullmatch(name):
            return {name}
    stages = set()
    for index in path.rglob(INDEX) if what else ():
        listed = rows([index], "\t", "kind", "key")
        folder = TABLES / os.path.relpath(index.parent.parent, EXPERIMENTS)
        shown = [rows([table], ",", "stage") for table in folder.glob("*.sources.csv")]
        stages |= listed.union(*(table for table in shown if table & listed))
    if not stages:
        links = (str(link.relative_to(EXPERIMENTS)) for link in stage_links(EXPERIMENTS))
        within = sorted(link for link in links if what and f"/{what}/" in f"/{link}/")
        look = f"Name its experiment, too, such as {within[0]}" if within else f"Look below {EXPERIMENTS}"
        raise Refusal(f"{what or repr(what)} is not a stage, experiment or configuration file. {look}.")
    return stages


def fetch(where, plan=None):
    """Take the finished stages of a place, only those of a plan (None: all); returns sentences (list of str).

    A stage is taken if the code here would make it from the inputs here; else the workflow makes it. It is compared
    with its manifest while it is copied, and the first that differs is refused.
    """
    digests, came, size, place = digests_of_all(), defaultdict(list), 0, place_at(where)
    names = place.names()
    wanted = [name for name in names if plan is None or name in plan.stages]
    if not wanted:
        what = f"{number(len(names), 'stage')}, but none of this configuration" if names else "no stages"
        raise Refusal(f"{where} has {what}. Give another place, or another configuration.")
    manifests = {name: signed_at(place, name) for name in wanted}
    for name in in_order(manifests, where):
        manifest = manifests[name]
        came[outcome := arrive(place, manifest, loads_of(place, name, plan), digests)].append(name)
        size += Artefact(STAGES / name).bytes if outcome == "arrived" else 0
    sentences = [f"Arrived from {where}: {number(len(came['arrived']), 'stage')}, {gigabytes(size)}; "
                 f"here already: {len(came['here'])}."]  # fmt: skip
    if other := came["code"]:
        commit = manifests[other[0]].get("provenance", {}).get("git_commit")
        sentences.append(f"Left out, made by other code: {len(other)}, such as {other[0]} (commit {commit}). "
                         "Check that out to take them, or let the workflow make them.")  # fmt: skip
    if other := came["inputs"]:
        sentences.append(f"Left out, made from what is not here, or differs: {len(other)}, such as {other[0]}.")
    if plan:
        done = sum(map(is_finished, plan.stages))
        sentences.append(f"Finished: {done} of {number(len(plan.stages), 'stage')} of the configuration.")
    return sentences


def in_order(manifests, where):
    """The stages of {name: manifest}, each after those that it was made from."""
    inputs = {name: manifest["inputs"].values() for name, manifest in manifests.items()}
    try:
        return [name for name in TopologicalSorter(inputs).static_order() if name in manifests]
    except CycleError as error:
        raise Refusal(f"{where}: stages depend on each other in a circle ({error.args[1]}). {REMEDY}") from None


def loads_of(place, name, plan):
    """{name: module} of the modules that a stage loads, by the plan or by the stage.json of the place."""
    if plan:
        return plan.stages[name].loads
    if "loads" not in (spec := signed_at(place, name, SPEC) or {}):
        raise Refusal(f"{place.path} has no {SPEC} of {name}. Name the configuration: teleport fetch PLACE FILE")
    return spec["loads"]


def arrive(place, manifest, loads, digests):
    """Take one stage; returns "arrived", "here" if it is finished already, or why it stays out: "code", "inputs"."""
    kind, code = manifest["kind"], None
    if kind in KINDS and digests.keys() >= set(loads.values()):
        code = stage_code(kind, loads, digests.__getitem__)
    why = "inputs" if manifest["stamp"]["code"] == code else "code"
    if not all(map(is_finished, manifest["inputs"].values())):
        return why
    spec = {key: manifest[key] for key in ("kind", "key", "settings", "inputs")} | {"loads": loads, "origins": {}}
    job = Job(spec | {"code": code})
    with sole_process(job):
        if here := read_finished(job, job.folder / MANIFEST):
            goes_on = here["files"] == manifest["files"]  # else those of another machine, in other bits
            return "arrived" if goes_on and restore(place, job, here["files"]) else "here"
        if manifest["stamp"] != job.stamp():
            return why
        receive(place, job, manifest)
        if not (job.folder / SPEC).exists():
            write_json(job.folder / SPEC, spec)
        publish_manifest(job, manifest)
        return "arrived"
