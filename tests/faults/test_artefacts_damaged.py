"""Files of every kind of artefact are damaged in five ways: `teleport verify` and readers name them and a remedy."""

import contextlib
import json
import math
import random
import re
import shutil

import pytest
from campaign import cases_of, sample

from commands.disk import check_stages
from teleport.plan.kinds import KINDS

pytestmark = pytest.mark.faults
REMEDY = re.compile(r"Run the workflow again with --forcerun (results/stages/\S+/manifest\.json): this stage and all")


def flip(path, draw, others):
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def cut(path, draw, others):
    """Two bytes at least: a manifest without the end of its last line is whole."""
    path.write_bytes(path.read_bytes()[: draw.randrange(max(1, path.stat().st_size - 1))])


def empty(path, draw, others):
    path.write_bytes(b"")


def delete(path, draw, others):
    path.unlink()


def exchange(path, draw, others):
    """Another artefact's file: of the same name where there is one."""
    content = path.read_bytes()
    named = [other for other in others if other.name == path.name and other.read_bytes() != content]
    shutil.copyfile(draw.choice(named or others), path)


WAYS = (flip, cut, empty, delete, exchange)


@contextlib.contextmanager
def damaged(path, way, draw, others):
    """Within the block a file is damaged."""
    sound = path.read_bytes()
    way(path, draw, others)
    yield
    path.write_bytes(sound)


def files_of(world, stage):
    """The files that the manifest of a stage lists, those of more than no bytes."""
    return [world.place(stage) / name for name, entry in world.manifest(stage)["files"].items() if entry["bytes"]]


def in_turn(files, seed):
    """Every (file, way to damage it), so that files and ways both come round as soon as can be (list)."""
    files, number = random.Random(seed).sample(files, len(files)), len(WAYS)
    round_trip = math.lcm(len(files), number) if files else 1
    return [(files[i % len(files)], WAYS[(i + i // round_trip) % number]) for i in range(len(files) * number)]


def said_by_verify(world):
    with contextlib.chdir(world.folder):
        return check_stages()[0]


def readers(world, stage):
    """The stages that read something which `stage` made."""
    return [other for other in world.stages.values() if stage.name in other.input_names.values()]


@pytest.mark.ci(0)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_damaged_is_named_by_verify_and_by_who_reads_it(fault_world, campaign, kind):
    world, stage = fault_world, fault_world.one_of[kind]
    others = [path for other in world.stages.values() if other is not stage for path in files_of(world, other)]
    cases = in_turn(files_of(world, stage), kind)[: cases_of(40)]
    for number, (path, way) in enumerate(cases):
        draw = random.Random(f"{path.name} {way.__name__}")
        with damaged(path, way, draw, [other for other in others if other.read_bytes() != path.read_bytes()]):
            found, case = said_by_verify(world), [way.__name__, path.name]
            wrong = not (
                len(found) == 1 and str(path.relative_to(world.folder)) in found[0] and REMEDY.search(found[0])
            )
            campaign.note("a damaged file, read by verify", kind, found or "not noticed" if wrong else None, case)
            for reader in one_in_turn(readers(world, stage), number):
                world.forget(reader)
                answer = world.run(reader)
                wrong = unnoticed(answer, path.relative_to(world.folder), stage)
                if answer["status"] == 0 and world.told(reader) != world.sound[reader.name]:
                    wrong = "read, and not noticed"
                if answer["status"] and (world.folder / "results/resume" / reader.name).exists():
                    wrong = "a resume folder is left of what was refused"
                fault = (
                    "a damaged file, read by a stage" if answer["status"] else "a damaged file, read by another stage"
                )
                campaign.note(fault, kind, wrong, [*case, reader.kind])
        world.mend(readers(world, stage))


def one_in_turn(readers, number):
    """One of the stages of different kinds or inputs, another one at every `number`; none where there are none."""
    return readers[number % len(readers) :][:1] if readers else []


def meaning(path):
    """What a manifest says; None when it is no JSON, or is not there."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def unnoticed(answer, path, stage):
    """What is wrong with how a reader ended; one that does not read the file ends well."""
    if answer["status"] == 0:
        return None
    last = answer["output"].rstrip().split("\n")[-1]
    remedy = REMEDY.search(last)
    named = last.startswith("error: ") and str(path) in last and remedy
    if "Traceback" in answer["output"] or not named or remedy[1] != f"results/stages/{stage.name}/manifest.json":
        return answer["output"][-500:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_manifest_is_named(fault_world, campaign, kind):
    world, stage = fault_world, fault_world.one_of[kind]
    path = world.place(stage) / "manifest.json"
    others = [world.place(other) / "manifest.json" for other in world.stages.values() if other is not stage]
    sound = json.loads(path.read_text())
    for way in sample(WAYS, 80, kind):
        for case in range(cases_of(100) if way is flip else 1):
            with damaged(path, way, random.Random(f"{kind} {case}"), others):
                if meaning(path) == sound:  # 2e-05 became 2E-05: nothing is damaged
                    continue
                found = said_by_verify(world)
                missed = not any(str(path.relative_to(world.folder)) in line for line in found)
                if way is delete:  # a stage that is not there is made again: only who reads it can say so
                    missed = any(found)
                campaign.note(
                    "a damaged manifest, read by verify", kind, missed and "not noticed", [way.__name__, case]
                )
                for reader in one_in_turn(readers(world, stage), case):
                    world.forget(reader)
                    answer = world.run(reader)
                    wrong = unnoticed(answer, path.relative_to(world.folder), stage)
                    wrong = wrong or (answer["status"] == 0 and "not noticed")
                    campaign.note("a damaged manifest, read by a stage", kind, wrong, way.__name__)
            world.mend(readers(world, stage))
