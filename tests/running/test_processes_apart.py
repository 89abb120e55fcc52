"""Processes that share tasks: results in order, an end with the one that started them, and a sentence for a kill."""

import os
import signal
import subprocess
import sys
import time

import pytest

from alive import is_alive
from paths import REPOSITORY
from teleport.running.launch import processes_apart


def answer(shared, task):
    return shared * task, os.getpid()


def die(shared, task):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("number", [1, 2])
def test_results_are_in_the_order_of_the_tasks(number):
    with processes_apart(number, 10) as each:
        found, made_by = zip(*each(answer, range(20)), strict=True)
    assert found == tuple(range(0, 200, 10))
    assert (os.getpid() in made_by) == (number == 1) and len(set(made_by)) <= number


def test_one_that_is_killed_is_a_sentence():
    sentence = r"^one of 2 processes died\. If there is no error above, it was killed\. .*\(--set-threads\).* helps\.$"
    with pytest.raises(ValueError, match=sentence), processes_apart(2, None) as each:
        list(each(die, range(4)))


MEMORY = """
import sys
from teleport.running.launch import processes_apart
from teleport.running.provenance import peak_memory

def take(shared, task):
    return len(b"x" * shared)

if __name__ == "__main__":
    with processes_apart(int(sys.argv[1]), 10**8) as each:
        assert sum(each(take, range(4))) == 4 * 10**8
    print(peak_memory())
"""


def test_the_memory_of_a_stage_has_the_processes_that_worked_for_it(tmp_path):
    (tmp_path / "memory.py").write_text(MEMORY)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts")}
    alone, shared = (
        int(subprocess.check_output([sys.executable, tmp_path / "memory.py", number], env=environment))
        for number in ("1", "3")
    )
    # On a busy machine one of the three may find no task left.
    assert 1.0e8 < alone < 1.6e8 and 2.2e8 < shared < 5.2e8


LONG = """
import sys, time
from pathlib import Path
from teleport.running.launch import processes_apart

def wait(folder, number):
    import os
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    with processes_apart(2, sys.argv[1]) as each:
        list(each(wait, range(9)))
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_none_outlives_the_one_that_started_it(tmp_path, end):
    (tmp_path / "long.py").write_text(LONG)
    (tmp_path / "begun").mkdir()
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts")}
    command = [sys.executable, tmp_path / "long.py", tmp_path / "begun"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as parent:
        while len(begun := list((tmp_path / "begun").iterdir())) < 2:
            time.sleep(0.05)
            assert parent.poll() is None
        started = time.monotonic()
        parent.send_signal(end)
    while any(is_alive(path.name) for path in begun):
        assert time.monotonic() < started + 10
        time.sleep(0.05)
