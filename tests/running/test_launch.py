"""Processes that are started together end together: well, on SIGTERM, and when one fails or its parent dies."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from alive import is_alive
from paths import REPOSITORY
from teleport.running import launch as launching
from teleport.running.launch import PROCESSES, RANK, RENDEZVOUS, launch

LIBRARY = str(REPOSITORY / "workflow_scripts")
SAVE_ON_SIGTERM = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: (Path(f"{sys.argv[1]}/saved-{RANK}").write_text(""), sys.exit(143)))
Path(f"{sys.argv[1]}/ready-{RANK}").write_text("")
time.sleep(60)
"""


def command(code, *arguments):
    return [
        sys.executable,
        "-S",
        "-c",
        f"import os\nRANK = int(os.environ['TELEPORT_RANK'])\n{code}",
        *map(str, arguments),
    ]


def wait_for(*paths):
    for _ in range(1000):
        if all(path.exists() for path in paths):
            return
        time.sleep(0.02)
    raise AssertionError(f"{paths} did not appear")


def test_every_process_gets_its_rank_and_one_place_to_meet(tmp_path):
    names = (RANK, PROCESSES, RENDEZVOUS)
    code = f"import sys\nopen(f'{{sys.argv[1]}}/{{RANK}}', 'w').write(' '.join(os.environ[n] for n in {names}))"
    assert launch(3, command(code, tmp_path)) == 0
    words = [(tmp_path / str(rank)).read_text().split() for rank in range(3)]
    assert [line[:2] for line in words] == [[str(rank), "3"] for rank in range(3)]
    assert len({line[2] for line in words}) == 1 and words[0][2].startswith("file:///")
    assert not os.path.exists(os.path.dirname(words[0][2].removeprefix("file://"))), "the place is left behind"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys, time\nif RANK == 1: sys.exit(7)\ntime.sleep(60)", "process 1 of 0 to 1 ended with status 7"),
        ("import time\nif RANK == 0: os.kill(os.getpid(), 9)\ntime.sleep(60)", "process 0 .* killed by signal 9"),
    ],
)
def test_a_process_that_fails_ends_the_others_soon(monkeypatch, code, message):
    monkeypatch.setattr(launching, "GRACE_SECONDS", 0.2)
    started = time.monotonic()
    with pytest.raises(ValueError, match=f"{message}; .*stopped") as caught:
        launch(2, command(code))
    assert time.monotonic() - started < 20
    assert ("the kernel did because memory ran out" in str(caught.value)) == ("signal 9" in message)


def test_the_others_have_time_for_their_own_message(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "GRACE_SECONDS", 30)
    code = "import sys, time\nif RANK == 1: sys.exit(7)\ntime.sleep(0.3)\nopen(sys.argv[1], 'w').close()\nsys.exit(8)"
    with pytest.raises(ValueError, match="process 1 "):
        launch(2, command(code, tmp_path / "said"))
    assert (tmp_path / "said").exists()


def test_one_that_was_killed_is_named_where_another_had_ended_before(monkeypatch):
    """The kernel says of a killed process of several threads that it has ended when the last of them has."""
    code = "import sys, time\nif RANK == 1: sys.exit(7)\ntime.sleep(0.5)\nos.kill(os.getpid(), 9)"
    with pytest.raises(ValueError, match="process 0 .* killed by signal 9.* memory ran out"):
        launch(2, command(code))


def test_sigterm_goes_to_all_and_all_may_save(tmp_path):
    """One that takes longer than the grace of failures is waited for."""
    code = SAVE_ON_SIGTERM.replace("(Path(", "(time.sleep(RANK), Path(")

    def stop():
        wait_for(tmp_path / "ready-0", tmp_path / "ready-1")
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "GRACE_SECONDS", 0.1)
        threading.Thread(target=stop).start()
        assert launch(2, command(code, tmp_path)) == 143
    assert (tmp_path / "saved-0").exists() and (tmp_path / "saved-1").exists()
    assert signal.getsignal(signal.SIGTERM) is before


def launch_and_stop(tmp_path, code, after=0.0):
    """What `launch` of two processes returns when SIGTERM comes once both are ready."""

    def stop():
        wait_for(tmp_path / "ready-0", tmp_path / "ready-1")
        time.sleep(after)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    return launch(2, command(code, tmp_path))


def test_one_that_dies_of_the_forwarded_sigterm_costs_the_others_nothing(tmp_path, monkeypatch):
    """It came before the process could catch it; the other needs longer for its state than a failure would leave it."""
    monkeypatch.setattr(launching, "GRACE_SECONDS", 0.1)
    code = SAVE_ON_SIGTERM.replace("(Path(", "(time.sleep(1), Path(").replace(
        "signal.signal(", "RANK or signal.signal("
    )
    assert launch_and_stop(tmp_path, code) == 143
    assert (tmp_path / "saved-0").exists()
    for path in tmp_path.iterdir():
        path.unlink()
    code = code.replace("RANK or", "RANK == 0 or")  # the other one dies
    assert launch_and_stop(tmp_path, code) == 143 and (tmp_path / "saved-1").exists()


def test_a_sigterm_that_nobody_forwarded_is_a_failure(monkeypatch):
    monkeypatch.setattr(launching, "GRACE_SECONDS", 0.2)
    code = "import time\nif RANK == 1: os.kill(os.getpid(), 15)\ntime.sleep(60)"
    with pytest.raises(ValueError, match="process 1 of 0 to 1 .*signal 15"):
        launch(2, command(code))


def test_a_process_that_hangs_after_sigterm_is_killed_some_time(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "STOP_SECONDS", 0.5)
    code = SAVE_ON_SIGTERM.replace("lambda *_: (", "lambda *_: RANK == 0 and (")
    started = time.monotonic()
    with pytest.raises(ValueError, match="process 1 of 0 to 1 .* 0 s .*SIGTERM.*killed"):
        launch_and_stop(tmp_path, code)
    assert time.monotonic() - started < 20 and (tmp_path / "saved-0").exists()


def test_a_process_whose_parent_died_before_it_began_does_not_run(tmp_path, monkeypatch):
    """It would compute without the lock and the devices, which its parent held."""
    with pytest.raises(ValueError, match="ended with status 1"), monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 0)  # of the parent: no child has this one
        launch(2, command("import sys\nopen(f'{sys.argv[1]}/{RANK}', 'w')", tmp_path))
    assert not list(tmp_path.iterdir())


def test_processes_die_with_the_one_that_started_them(tmp_path):
    child = f"""
import time
open(f"{tmp_path}/{{RANK}}.part", "w").write(str(os.getpid()))
os.replace(f"{tmp_path}/{{RANK}}.part", f"{tmp_path}/{{RANK}}")
time.sleep(60)
"""
    parent = f"from teleport.running.launch import launch\nlaunch(2, {command(child)!r})"
    process = subprocess.Popen([sys.executable, "-c", parent])
    wait_for(tmp_path / "0", tmp_path / "1")
    children = [int((tmp_path / str(rank)).read_text()) for rank in range(2)]
    assert all(map(is_alive, children))
    process.kill()
    process.wait()
    for _ in range(250):
        if not any(map(is_alive, children)):
            return
        time.sleep(0.02)
    raise AssertionError("the processes outlive their parent")
