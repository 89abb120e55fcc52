"""Several processes of one stage on this machine, started and ended together, and a pool of Python processes.

Unlike torchrun, `launch` loads no torch, lets processes end in their own time after SIGTERM, and keeps their messages
as they are. Its variables have names of their own: RANK or WORLD_SIZE may be left over from any launcher around the
workflow (torchrun, MPI, a Slurm script), and a stage that runs alone must not take itself for a helper process.
"""

import ctypes
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from teleport.refusal import Refusal

RANK, PROCESSES = "TELEPORT_RANK", "TELEPORT_PROCESSES"  # this process, and how many there are; only `launch` sets them
RENDEZVOUS = "TELEPORT_RENDEZVOUS"  # a file: unlike a port, nothing else can take it
apart = 0  # peak bytes of the processes that worked for this one, for its provenance
STOPPED = 143  # status of a process that saved its state after SIGTERM
GRACE_SECONDS = 5.0  # for the other processes to end with their own message when one has failed
STOP_SECONDS = 600.0  # after SIGTERM, for a step to end and its state to be saved


def launch(size, command):
    """Run `command` as processes 0 to `size` - 1, distinguished by `RANK`; returns 0, or 143 if SIGTERM stopped them.
    If one fails, the others are ended and Refusal is raised."""
    with TemporaryDirectory() as folder:
        shared = {PROCESSES: str(size), RENDEZVOUS: f"file://{folder}/store"}
        if "lo" in (name for _, name in socket.if_nameindex()):
            shared["GLOO_SOCKET_IFNAME"] = "lo"  # else it looks for the host's name, which may not resolve
        processes = []
        try:
            with forwarded_sigterm(processes) as forwarded:
                for rank in range(size):
                    given, die = os.environ | shared | {RANK: str(rank)}, partial(end_with_parent, os.getpid())
                    processes.append(subprocess.Popen(command, env=given, preexec_fn=die))
                    if forwarded:  # it may have come before this process was in the list
                        processes[-1].terminate()
                return wait(processes, forwarded)
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextmanager
def forwarded_sigterm(processes):
    """Within the block, SIGTERM goes to the processes instead of this one; yields the list of times when it came."""
    forwarded = []

    def forward(*_):
        forwarded.append(time.monotonic())
        for process in processes:
            process.terminate()

    previous = signal.signal(signal.SIGTERM, forward)
    try:
        yield forwarded
    finally:
        signal.signal(signal.SIGTERM, previous)


def wait(processes, forwarded):
    """Wait for all processes; returns 0 or 143. Raises Refusal once one has failed and the others had time to end.

    forwarded: the times when SIGTERM was sent on. A process that dies of it has not failed; another may save for
    `STOP_SECONDS`.
    """
    failed = failed_at = None
    while None in [process.poll() for process in processes]:  # a list: every process must be looked at
        if failed is None and (failed := first_failed(processes, forwarded)) is not None:
            failed_at = time.monotonic()
        since, limit = (forwarded[0], STOP_SECONDS) if forwarded else (failed_at, GRACE_SECONDS)
        if since is not None and time.monotonic() > since + limit:
            break
        time.sleep(0.05)
    last = first_failed(processes, forwarded)
    if failed is None or processes[last].returncode < 0:  # a kill may be seen later than the failures it caused
        failed = last
    hanging = [rank for rank, process in enumerate(processes) if process.returncode is None]
    if failed is None and hanging:
        raise Refusal(
            f"process {hanging[0]} of 0 to {len(processes) - 1} did not end within {STOP_SECONDS:.0f} s of SIGTERM; "
            "it was killed. The next attempt continues from the last saved state."
        )
    if failed is not None:
        status = processes[failed].returncode
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        why = f" {memory_remedy('train')}" if status == -signal.SIGKILL else ""
        raise Refusal(f"process {failed} of 0 to {len(processes) - 1} {how}; the others were stopped too.{why}")
    return STOPPED if any(process.returncode for process in processes) else 0


def first_failed(processes, forwarded):
    """The rank of a process that failed, neither ended well nor by SIGTERM; one that was killed before others."""
    well = (None, 0, STOPPED, *([-signal.SIGTERM] if forwarded else []))
    failed = {rank: process.returncode for rank, process in enumerate(processes) if process.returncode not in well}
    return min(failed, key=lambda rank: failed[rank] > 0, default=None)  # its death may have made the others fail


def end_with_parent(parent=None):
    """Have the kernel kill this process when the one that started it dies, even by SIGKILL (Linux). parent: its id; if
    it is dead already, this process ends now"""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
    with suppress(OSError, AttributeError):  # other systems have no such call
        ctypes.CDLL("libc.so.6").prctl(set_parent_death_signal, signal.SIGKILL)
    if parent not in (None, os.getppid()):
        os._exit(1)


@contextmanager
def processes_apart(processes, shared):
    """Yields a function that returns `function(shared, task)` for all tasks, in order, computed by `processes`
    processes.

    With 1, this process computes them. Others are started as new processes and not forked, because numpy and pyarrow
    have threads here; each gets `shared` once, and none outlives this one. Raises Refusal if one dies.
    """
    global apart
    if processes == 1:
        yield lambda function, tasks: map(partial(function, shared), tasks)
        return
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor  # each job loads this module
    from multiprocessing import active_children, get_context

    with ProcessPoolExecutor(processes, get_context("spawn"), begin, (os.getpid(), shared)) as pool:
        try:
            yield lambda function, tasks: pool.map(partial(of_shared, function), tasks)
            apart = max(apart, sum(peak_resident(process.pid) for process in active_children()))
        except BrokenProcessPool:
            raise Refusal(
                f"one of {processes} processes died. If there is no error above, it was killed. {memory_remedy()}"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def peak_resident(process="self"):
    """Return a process's peak of resident bytes, mapped files included, as Linux reports it; 0 if it does not.
    (`ru_maxrss` starts with the value of the parent process.)"""
    with suppress(OSError):
        match = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
        return 1024 * int(match[1]) if match else 0
    return 0


def begin(parent, given):
    """Initialise a process of the pool: keep the shared value, and leave Ctrl-C to the parent."""
    global shared
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shared = given


def of_shared(function, task):
    """`function` applied to the shared value and a task, in a process of the pool."""
    return function(shared, task)


def memory_remedy(rule="RULE"):
    """Return a sentence with the remedy after a process was killed. rule: the Snakemake rule to give more memory on a
    cluster"""
    return (
        "If neither you nor the scheduler did that, the kernel did because memory ran out (see dmesg): run fewer jobs "
        "at once (--cores), give this one fewer threads (--set-threads), or, on a cluster, more memory "
        f"(--set-resources {rule}:mem_mb=N); `teleport forecast` shows the memory it needs and what helps."
    )


def if_killed(kind="RULE"):
    """Shell code after `||` behind the command of a stage, so that a killed process still prints a remedy.

    If the kernel has counted no out-of-memory kill since this command was made, the message does not blame the kernel.
    """
    kernel = Path("/proc/vmstat")
    counts = kernel.read_text() if kernel.exists() else ""
    count = next((line for line in counts.splitlines() if line.startswith("oom_kill ")), "unknown")
    by_hand, by_kernel, ended = (
        shlex.quote(f"error: the process was {how}")
        for how in (
            "killed by signal 9, SIGKILL: by you, a scheduler or another program, not by the kernel.",
            f"killed by signal 9. {memory_remedy(kind)}",
            "ended by signal 15, SIGTERM: by you, a scheduler or another program.",
        )
    )
    killed = f"[ \"$(grep '^oom_kill ' /proc/vmstat)\" = '{count}' ] && echo {by_hand} || echo {by_kernel}"
    return f"{{ status=$?; case $status in 137) {killed};; 143) echo {ended};; esac; exit $status; }}"
