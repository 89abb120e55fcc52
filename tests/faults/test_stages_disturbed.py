"""Every kind of stage is killed, stopped, left without room, run twice at a time, and then ends in the same bits."""

import errno
import random
import signal
import subprocess

import pytest
from campaign import cases_of, sample
from fault_world import DISTURBED

pytestmark = pytest.mark.faults
SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT}
NO_ROOM = "error: no room left on the disk ("


@pytest.fixture(params=DISTURBED)
def stage(request, fault_world):
    """The stage of a kind, or a variant of one, that is disturbed; afterwards it is there again."""
    stage = fault_world.one_of[request.param]
    yield stage
    if fault_world.differences(stage):
        fault_world.restore(stage)


def finish(world, stage):
    """What is wrong after a disturbed stage is run again, as Snakemake does, which deletes its manifest."""
    manifest = world.place(stage) / "manifest.json"
    published = manifest.exists() and world.told(stage) != world.sound[stage.name]
    manifest.unlink(missing_ok=True)
    answer = world.run(stage)
    wrong = answer["output"][-500:] if answer["status"] else world.differences(stage)
    if wrong:
        world.restore(stage)
    return "published something else" if published else wrong


def test_killed_in_the_place_of_any_call_that_changes_a_file(fault_world, stage, campaign):
    calls = fault_world.number_of_calls(stage)
    for point in sample(range(1, calls + 1), 28, stage.kind):
        fault_world.forget(stage, keep_files=point % 2 == 0)
        answer = fault_world.run(stage, point=point)
        wrong = finish(fault_world, stage)
        if answer["status"] != -signal.SIGKILL:  # each point is one that the stage comes to
            wrong = f"status {answer['status']}: {answer['output'][-500:]}"
        campaign.note("killed in the place of a call", stage.kind, wrong, [point, answer["last"]])


def test_ended_by_a_signal_at_any_moment(fault_world, stage, campaign):
    draw, interrupted, longest = random.Random(stage.name), 0, 0.3
    for case in range(10 * cases_of(40)):  # until so many have really been interrupted
        name = draw.choice(sorted(SIGNALS))
        fault_world.forget(stage, keep_files=case % 2 == 0)
        after = draw.uniform(0, longest)
        answer = fault_world.run(stage, signal=SIGNALS[name], after=after)
        wrong = finish(fault_world, stage)
        if answer["status"] == 0 and not wrong:  # the stage had ended before
            longest = min(longest, after)
            continue
        if "Traceback" in answer["output"] or answer["status"] not in (0, 143, -9, -15):
            wrong = f"status {answer['status']}: {answer['output'][-500:]}"
        campaign.note(f"ended by SIG{name} at a random moment", stage.kind, wrong, f"{after:.3f} s")
        interrupted += 1
        if interrupted == cases_of(40):
            return
    assert interrupted, "no signal came while the stage was at work"


def test_without_room_from_any_call_on(fault_world, stage, campaign):
    calls = fault_world.number_of_calls(stage)
    draw = random.Random(stage.kind)
    for point in sample(range(1, calls + 1), 60, f"room {stage.kind}"):
        number = draw.choice([errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
        fault_world.forget(stage, keep_files=point % 2 == 0)
        answer = fault_world.run(stage, point=point, error=number, fails="room")
        wrong = said(answer, NO_ROOM) or finish(fault_world, stage)
        campaign.note("no room from a call on", stage.kind, wrong, [point, errno.errorcode[number]])


def test_read_only_from_any_call_on(fault_world, stage, campaign):
    """As a disk becomes when the kernel finds it failing, and as a folder is for who may not write in it."""
    calls = fault_world.number_of_calls(stage)
    draw = random.Random(stage.kind)
    for point in sample([1] * 9 + [*range(2, calls + 1)], 80, f"read-only {stage.kind}"):
        number = draw.choice([errno.EROFS, errno.EACCES])
        fault_world.forget(stage, keep_files=point % 2 == 0)
        answer = fault_world.run(stage, point=point, error=number, fails="all")
        wrong = said(answer, "error: access is refused (") or finish(fault_world, stage)
        campaign.note("read-only from a call on", stage.kind, wrong, [point, errno.errorcode[number]])


def said(answer, *sentences):
    """What is wrong with how a stage ended that was refused a call; it may have done without."""
    if answer["status"] == 0:
        return None
    last = answer["output"].rstrip().split("\n")[-1]
    if answer["status"] != 1 or "Traceback" in answer["output"] or not last.startswith(sentences):
        return f"{answer['last']} status {answer['status']}: {answer['output'][-700:]}"


@pytest.mark.parametrize("number", [2, 3])
def test_several_processes_of_one_stage(fault_world, stage, campaign, number):
    draw = random.Random(f"{stage.kind} {number}")
    for case in range(cases_of(200)):
        fault_world.forget(stage)
        dies = {"signal": signal.SIGKILL, "after": draw.uniform(0, 0.3)} if case else {}
        first = fault_world.start(stage, **dies)
        others = [fault_world.start(stage) for _ in range(number - 1)]
        statuses = [fault_world.answer(started)["status"] for started in (first, *others)]
        wrong = fault_world.differences(stage)
        if any(statuses[1:]) or statuses[0] not in (0, -signal.SIGKILL):
            wrong = f"statuses {statuses}"
        campaign.note(f"{number} processes of one stage", stage.kind, wrong, dies)


def test_clocks_set_back(fault_world, stage, campaign):
    """Every reading of the clock is before the one before it."""
    for back in sample([1, 3600, 10**6], 80, stage.kind):
        fault_world.forget(stage)
        answer = fault_world.run(stage, back=back)
        wrong = answer["output"][-500:] if answer["status"] else fault_world.differences(stage)
        campaign.note("a clock that is set back", stage.kind, wrong, f"{back} s")


@pytest.fixture
def small_disk(fault_world):
    """Results on a file system whose size a function sets; skips where none may be mounted."""
    results, aside = fault_world.folder / "results", fault_world.folder / "aside"
    results.rename(aside)
    results.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", results], capture_output=True)
    if mounted.returncode == 0:
        subprocess.run(["cp", "-a", f"{aside}/.", results], check=True)
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", results], check=True)
        subprocess.run(["umount", results], check=True)
    results.rmdir()
    aside.rename(results)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISTURBED)
def test_disks_that_become_full(fault_world, small_disk, campaign, kind):
    stage, draw = fault_world.one_of[kind], random.Random(kind)
    for _ in range(cases_of(200)):
        fault_world.forget(stage)
        used = int(
            subprocess.check_output(["df", "-B1", "--output=used", "results"], cwd=fault_world.folder).split()[1]
        )
        room = draw.randrange(0, 25) * 4096
        small_disk(used + room)
        answer = fault_world.run(stage)
        small_disk("64m")
        foreseen = [f"error: results/{folder}/{stage.name} needs " for folder in ("stages", "resume")]
        foreseen.append(f"error: cross_encoder.checkpoint: results/stages/{stage.name} needs ")
        wrong = said(answer, NO_ROOM, *foreseen) or finish(fault_world, stage)
        campaign.note("a disk that is full", kind, wrong, f"{room} bytes")
