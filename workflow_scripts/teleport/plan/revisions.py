"""Warns of checkpoints on the hub whose revision is no commit, such as `main`: it may lead to other weights later, and
the same configuration then gives other results."""

import re

from teleport.encoder.source import in_hub_cache
from teleport.running.artefact import MANIFEST, STAGES
from teleport.running.files import read_saved

COMMIT = re.compile("[0-9a-f]{40}")
FACTS = {"checkpoint": "commit", "query_checkpoint": "query_commit"}  # {setting of a stage: fact of its manifest}


def revision_warnings(config, stages):
    """One sentence (list of str) on the checkpoints of planned `stages` that have no commit, with their keys in the
    `Config` and the commits that are known here; [] if there are none."""
    commits = {}
    for stage in stages:
        for name, fact in FACTS.items() if stage.kind in ("pretrained", "ranker") else ():
            source = getattr(stage.settings, name, None)
            if source and source.hub and not COMMIT.fullmatch(source.revision):
                named = source.hub, source.revision
                commits[named] = commits.get(named) or commit_of(stage, fact, source)
    if not commits:
        return []
    keys = revision_keys(config.model_dump(mode="json", exclude_unset=True))
    keys = [(key, revision, hub) for hub, revision, key in keys if (hub, revision) in commits]
    here = {named: f", here {commit}" if commit else "" for named, commit in commits.items()}
    places = ", ".join(f"{key} ({revision} of {hub}{here[hub, revision]})" for key, revision, hub in keys)
    why = "not the 40 hex digits of a commit, so the same configuration may give other results later"
    pages = "" if all(commits.values()) else ": https://huggingface.co/MODEL/commits/REVISION lists those of a model"
    return [f"{places}: {why}. Write the commit instead{pages}."]


def commit_of(stage, fact, source):
    """The commit (text) of a source by its finished stage, else by the hub's cache; "" if neither knows it."""
    finished = read_saved(STAGES / stage.name / MANIFEST).get("facts", {}).get(fact)
    cached = in_hub_cache(source, "config.json")
    return finished or (cached.parent.name if cached else "")


def revision_keys(value, key=""):
    """Yield (hub, revision, key) of every checkpoint on the hub in a part of the configuration (JSON)."""
    if isinstance(value, dict) and value.get("hub"):
        yield value["hub"], value.get("revision"), f"{key}.revision"
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in entries:
        yield from revision_keys(each, f"{key}.{name}" if key else name)
