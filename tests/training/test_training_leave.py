"""A process that fails among several says why and leaves, also when leaving the group of processes would hang."""

import os
import subprocess
import sys

import pytest

from teleport.running.launch import PROCESSES, RANK, RENDEZVOUS

# NCCL's destroy waits for the other processes, and its threads may hold up the end of the interpreter.
PROCESS = """
import atexit, sys, time
from teleport.training import parallel

class Hanging:
    init_process_group = staticmethod(lambda *_, **__: None)
    all_gather = staticmethod(lambda gathered, tensor: None)
    destroy_process_group = staticmethod(lambda: time.sleep(600))

parallel.distributed = Hanging
atexit.register(time.sleep, 600)
with parallel.joined() as processes:
    print("in the block")
    RAISE
"""


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        ("sys.exit(143)", 143, ""),
        ("sys.exit('error: the text')", 1, "error: the text"),
        ("raise OSError(28, 'No space left on device')", 1, "OSError: [Errno 28] No space left on device"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
    ],
)
def test_an_exception_is_printed_and_ends_the_process(error, status, message):
    ranks = {PROCESSES: "2", RANK: "0", RENDEZVOUS: "nowhere", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", PROCESS.replace("RAISE", error)]
    result = subprocess.run(command, env=os.environ | ranks, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (status, "in the block\n")
    assert message in result.stderr and bool(result.stderr) == bool(message)
