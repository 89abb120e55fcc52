"""Nothing that comes from data is executed or written elsewhere: canaries that sing when somebody unpickles, unpacks or
hands them to a shell."""

import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch
from campaign import sample

from teleport.plan.kinds import KINDS
from teleport.records import open_bytes
from teleport.running.artefact import file_entry, signed
from teleport.running.files import write_json

pytestmark = pytest.mark.faults


class Canary:
    """Makes a folder where it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def pickled(canary):
    return pickle.dumps(canary)


def in_array(canary):
    file = io.BytesIO()
    np.save(file, np.array([canary], object), allow_pickle=True)
    return file.getvalue()


def in_weights(canary):
    file = io.BytesIO()
    torch.save({"weight": canary}, file)
    return file.getvalue()


FORMS = (pickled, in_array, in_weights)


@pytest.mark.parametrize("kind", KINDS)
def test_no_artefact_is_unpickled(fault_world, campaign, kind):
    """Files and their manifest are forged together, so that no digest tells."""
    world, stage = fault_world, fault_world.one_of[kind]
    canary, folder, manifest = world.folder / "canary", world.place(stage), world.manifest(stage)
    readers = [other for other in world.stages.values() if stage.name in other.input_names.values()]
    cases = [(name, form) for name in manifest["files"] for form in FORMS]
    for name, form in sample(cases, 80, kind):
        path, forged = folder / name, {**manifest, "files": dict(manifest["files"])}
        sound = path.read_bytes()
        path.write_bytes(form(Canary(canary)))
        forged["files"][name] = file_entry(path)
        write_json(folder / "manifest.json", signed(forged))
        for reader in sample(readers, 40, name)[:2]:
            world.forget(reader)
            world.run(reader)
            campaign.note("a pickle in an artefact", kind, canary.exists() and "was executed", [name, form.__name__])
        path.write_bytes(sound)
        write_json(folder / "manifest.json", manifest)
        world.mend(readers)


@pytest.mark.parametrize("kind", ["encode", "retrieve", "lexical_index", "train", "download"])
def test_no_resume_state_is_unpickled(fault_world, campaign, kind):
    world, stage = fault_world, fault_world.one_of[kind]
    canary, resume = world.folder / "canary", world.folder / "results/resume" / stage.name
    for point in sample(range(1, world.number_of_calls(stage) + 1), 40, kind):
        world.forget(stage)
        world.run(stage, point=point)
        partial = [*resume.glob("**/*"), *(world.folder / "data/downloads").glob("*.part*")]
        for path in partial:
            if path.is_file() and path.name != "stamp.json":
                path.write_bytes(FORMS[point % 3](Canary(canary)))
        answer = world.run(stage)
        wrong = canary.exists() and "was executed"
        if answer["status"] == 0 and not wrong:
            wrong = world.differences(stage)
        elif answer["status"] and f"from {resume.relative_to(world.folder)}:" not in answer["output"]:
            wrong = answer["output"][-700:]
        campaign.note("a pickle in saved work", kind, wrong, point)
        for path in partial:
            path.unlink(missing_ok=True)
        world.restore(stage)


@pytest.mark.parametrize("name", ["../evil", "/outside/evil", "a/../../evil", "link/evil"])
def test_no_archive_writes_outside(tmp_path, campaign, name):
    folder, name = tmp_path / "data", f"{tmp_path}{name}" if name[0] == "/" else name
    folder.mkdir()
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        entry = tarfile.TarInfo(name)
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    with open_bytes(f"{folder}/a.tar.gz!{name}") as file:
        assert file.read() == b"evil"
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    campaign.note("an archive with a name elsewhere", "archive", found != [folder / "a.tar.gz"] and found, name)
