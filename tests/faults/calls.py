"""The system calls by which a process changes files, seen one by one from outside, before they happen.

A seccomp filter (Linux 5.5 or later, x86-64) hands these calls to a supervisor, who lets each one happen, has it fail
with an error, or kills the process in its place. It sees what Python, C++ and Rust do, in all threads and
children, and the code under test knows nothing of it.
"""

import array
import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
from contextlib import suppress
from pathlib import Path

# Number, name, and what is changed: a path (which argument it is) or an open file (its number is argument 0).
CALLS = {
    1: ("write", None), 18: ("pwrite64", None), 20: ("writev", None), 296: ("pwritev", None), 40: ("sendfile", None),
    326: ("copy_file_range", None), 285: ("fallocate", None), 77: ("ftruncate", None), 74: ("fsync", None),
    75: ("fdatasync", None), 2: ("open", 0), 257: ("openat", 1), 82: ("rename", 1), 264: ("renameat", 3),
    316: ("renameat2", 3), 86: ("link", 1), 265: ("linkat", 3), 87: ("unlink", 0), 263: ("unlinkat", 1),
    88: ("symlink", 1), 266: ("symlinkat", 2), 83: ("mkdir", 0), 258: ("mkdirat", 1), 84: ("rmdir", 0),
    76: ("truncate", 0),
}  # fmt: skip
TAKE_ROOM = ("write", "pwrite64", "writev", "pwritev", "sendfile", "copy_file_range", "fallocate")
CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
ALLOW, NOTIFY = 0x7FFF0000, 0x7FC00000  # SECCOMP_RET_ALLOW, SECCOMP_RET_USER_NOTIF
NO_NEW_PRIVILEGES, SECCOMP, SET_FILTER, NEW_LISTENER = 38, 317, 1, 8
RECEIVE, SEND, CONTINUE = 0xC0502100, 0xC0182101, 1  # SECCOMP_IOCTL_NOTIF_RECV, …_SEND, USER_NOTIF_FLAG_CONTINUE
LIBC = ctypes.CDLL(None, use_errno=True)


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("first", ctypes.POINTER(Instruction))]


def listen():
    """From now on the calls of this process and its children wait for who holds the returned file descriptor."""
    if platform.machine() != "x86_64":
        raise OSError(f"the numbers of system calls are those of x86-64, this is {platform.machine()}")
    number, jump_if_equal, end = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    steps = [Instruction(number, 0, 0, 0)]
    steps += [Instruction(jump_if_equal, len(CALLS) - i, 0, call) for i, call in enumerate(CALLS)]
    steps += [Instruction(end, 0, 0, ALLOW), Instruction(end, 0, 0, NOTIFY)]
    program = Program(len(steps), (Instruction * len(steps))(*steps))
    LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener = LIBC.syscall(SECCOMP, SET_FILTER, NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "the kernel hands no system calls to another process (seccomp)")
    return listener


def start(function, decide, folder, caller=False):
    """Fork a child for `function`, which never returns; ask `decide` before each call that changes a file in `folder`.

    decide(number from 1, name of the call, path): None lets it happen, a positive number is the error it fails with,
    and a negative one the signal that the child gets in its place, or with `caller` the process whose call it is, one
    that the child has started, too. Returns the wait status of the child.
    """
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        listener = listen()
        theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
        os.close(listener)
        function()  # which ends the child
    theirs.close()
    _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
    number, waiting = 0, select.poll()
    waiting.register(listener, select.POLLIN)
    while not waiting.poll()[0][1] & select.POLLHUP:  # until no process with the filter is left
        if not (asked := receive(listener)):
            continue
        answer, (identity, process, name, path) = None, asked
        if path is not None and path.is_relative_to(folder):
            number += 1
            answer = decide(number, name, path)
        if answer is not None and answer < 0:
            os.kill(process if caller else child, -answer)
            if answer == -signal.SIGKILL:  # an answer could let the call happen first
                continue
        respond(listener, identity, answer)
    os.close(listener)
    return os.waitpid(child, 0)[1]


def receive(listener):
    """(identity, process, name, path that it changes or None) of the next call; None when that is gone meanwhile."""
    message = bytearray(80)  # struct seccomp_notif
    try:
        fcntl.ioctl(listener, RECEIVE, message)
    except OSError:
        return None
    identity, process, _, call = struct.unpack_from("QIIi", message)
    arguments = struct.unpack_from("6Q", message, 32)
    name, place = CALLS[call]
    try:
        return identity, process, name, changed(process, name, place, arguments)
    except OSError:  # it has ended meanwhile
        return identity, process, name, None


def changed(process, name, place, arguments):
    """The path (Path) that a call changes, or None."""
    proc = f"/proc/{process}"
    if place is None:
        return Path(os.readlink(f"{proc}/fd/{arguments[0] & 0xFFFFFFFF}"))
    if name in ("open", "openat") and not arguments[place + 1] & CHANGES:
        return None
    with open(f"{proc}/mem", "rb", buffering=0) as memory:
        memory.seek(arguments[place])
        text = memory.read(4096).split(b"\0")[0].decode(errors="surrogateescape")
    base = f"{proc}/cwd"
    if name.endswith(("at", "at2")) and arguments[place - 1] & 0xFFFFFFFF != 2**32 - 100:  # AT_FDCWD
        base = f"{proc}/fd/{arguments[place - 1] & 0xFFFFFFFF}"
    return Path(os.readlink(base), text)


def respond(listener, identity, answer):
    """Let a call happen (None), or have it fail with an error number."""
    error, flags = (-answer, 0) if answer and answer > 0 else (0, CONTINUE)
    with suppress(OSError):  # it was killed
        fcntl.ioctl(listener, SEND, struct.pack("QqiI", identity, 0, error, flags))
