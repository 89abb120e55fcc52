"""Several processes of one stage on this machine: started as torchrun does it, and ended together.

Unlike torchrun it loads no torch, lets the processes end in their own time after SIGTERM, and keeps their messages as
they are. A stage can as well be started by torchrun: the variables are the same.
"""

import ctypes
import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory

RENDEZVOUS = "TELEPORT_RENDEZVOUS"  # a file: unlike a port, nothing else can take it
STOPPED = 143  # of a process that saved its state after SIGTERM
GRACE_SECONDS = 5.0  # for the others to end with a message of their own when one has failed


def launch(number, command):
    """Run `command` as processes 0 to `number` - 1, told apart by RANK; returns 0, or 143 when SIGTERM stopped them.

    Raises ValueError when one fails, after ending the others.
    """
    with TemporaryDirectory() as folder:
        shared = {"WORLD_SIZE": str(number), "LOCAL_WORLD_SIZE": str(number), RENDEZVOUS: f"file://{folder}/store"}
        if "lo" in (name for _, name in socket.if_nameindex()):
            shared["GLOO_SOCKET_IFNAME"] = "lo"  # else it looks for the host's name, which may not resolve
        processes = []
        try:
            with forwarded_sigterm(processes):
                for rank in range(number):
                    own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                    processes.append(subprocess.Popen(command, env=os.environ | shared | own))
                return wait(processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextmanager
def forwarded_sigterm(processes):
    """Within the block, SIGTERM goes to the processes instead of this one."""
    previous = signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in processes])
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def wait(processes):
    """Wait for all processes; returns 0 or 143. Raises ValueError as soon as one has failed and the others had time."""
    failed = deadline = None
    while None in [process.poll() for process in processes]:  # a list: every process must be looked at
        if failed is None:
            failed = first_failed(processes)
            deadline = time.monotonic() + GRACE_SECONDS
        elif time.monotonic() > deadline:
            break
        time.sleep(0.05)
    failed = first_failed(processes) if failed is None else failed
    if failed is not None:
        status = processes[failed].returncode
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise ValueError(f"process {failed} of 0 to {len(processes) - 1} {how}; the others were ended too.")
    return max(process.returncode for process in processes)


def first_failed(processes):
    """The number of the first process that has ended otherwise than well or by SIGTERM; None if there is none."""
    statuses = [process.returncode for process in processes]
    return next((rank for rank, status in enumerate(statuses) if status not in (None, 0, STOPPED)), None)


def end_with_parent():
    """Have the kernel kill this process when the one that started it dies, even by SIGKILL (Linux)."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    with suppress(OSError, AttributeError):  # another system does without
        ctypes.CDLL("libc.so.6").prctl(set_parent_death_signal, signal.SIGKILL)
