"""A process that has loaded what stages load, and runs each stage or command in a child of its own, as it is told.

    python stage_server.py FOLDER

A request is a line of JSON on standard input, an answer one on standard output with the request's `id`:

    arguments  of run_stage.py, or of `script` below workflow_scripts
    input      what a script reads from standard input (text)
    folder     where it runs, instead of FOLDER
    point      number of the call that changes a file in whose place the child is killed, or sent `signal`
    caller     true: not the child is killed but the process whose call it is, one that the child has started
    error      error number with which calls from `point` on fail, instead of the kill
    fails      "room": those calls that take room on the disk; "all"
    signal     what is sent after `after` seconds, where there is no `point`
    back       seconds that the clock is set back every time it is read

    status     of the child: an exit status, or minus the signal that ended it
    calls      how many calls changed a file below the folder
    last       name and path of the last one that `point` met
    output     what it wrote
"""

import contextlib
import fcntl
import io
import itertools
import json
import os
import runpy
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import calls

from paths import REPOSITORY


def load():
    """Import what takes long to import; nothing is computed, so that no thread is there that a fork would lose."""
    from importlib import import_module

    from teleport.plan.kinds import KINDS

    for name in (kind.module for kind in KINDS.values()):
        import_module(name)
    late = ("torch._dynamo", "torch.distributed.fsdp", "transformers.models.bert.modeling_bert", "pandas", "faiss")
    commands = ("commands.export", "commands.new", "teleport.report.paper.write", "teleport.report.page.write")
    for name in (*late, *commands, "teleport.training.step", "pydantic", "bm25s", "scipy.stats"):
        import_module(name)


def run_script(request, output, begins=None):
    """In the child: be run_stage.py, or another script, to its end; what it writes goes to `output`. The pipe `begins`
    is told when that begins."""
    script = str(REPOSITORY / "workflow_scripts" / request.get("script", "run_stage.py"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        sys.stdin = io.StringIO(request.get("input", ""))
        if back := request.get("back"):
            clock, readings = time.time, itertools.count()
            time.time = lambda: clock() - back * next(readings)
        sys.argv = [script, *request["arguments"]]
        if begins:
            os.write(begins, b"x")
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        print(end.code or "", file=sys.stderr)
        status = end.code or 0 if isinstance(end.code, int | None) else 1
    except BaseException:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # its own handler is not there yet
            os.kill(os.getpid(), signal.SIGKILL)
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def watched(request, folder, output):
    """Run a stage under the eyes of `calls`; returns (wait status, {calls, last})."""
    seen = {"calls": 0, "last": None}

    def decide(number, name, path):
        seen["calls"] = number
        fails = "error" in request and (request["fails"] == "all" or name in calls.TAKE_ROOM)
        late = "signal" in request and number > request["point"]  # one signal, not another one to what it is met by
        if number < request["point"] or late or ("error" in request and not fails):
            return None
        seen["last"] = [name, str(path)]
        return request["error"] if fails else -request.get("signal", signal.SIGKILL)

    return calls.start(lambda: run_script(request, output), decide, folder, request.get("caller")), seen


def signalled(request, output):
    """Run a stage, and send it a signal after a while; returns its wait status."""
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:
        run_script(request, output, begins)
    os.read(begun, 1)
    if "signal" in request:
        ended = select.poll()
        ended.register(os.pidfd_open(child))
        if not ended.poll(1000 * request["after"]):
            os.kill(child, request["signal"])
    return os.waitpid(child, 0)[1]


def serve(request, folder):
    """In a process of its own: run a script to its end and answer."""
    folder = Path(request.get("folder", folder))
    os.chdir(folder)
    with tempfile.TemporaryFile("w+") as output:
        seen = {"calls": None, "last": None}
        if "point" in request:
            status, seen = watched(request, folder, output)
        else:
            status = signalled(request, output)
        output.seek(0)
        answer = {"id": request["id"], "status": os.waitstatus_to_exitcode(status), "output": output.read()} | seen
    with open(__file__) as lock:  # a long line is not written at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(json.dumps(answer), flush=True)


def sees_calls():
    """Whether this system hands the calls of a process to another one."""
    if (child := os.fork()) == 0:
        with contextlib.suppress(OSError):
            calls.listen()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def main():
    folder = Path(sys.argv[1]).resolve()
    load()
    print(json.dumps({"id": "ready", "sees_calls": sees_calls()}), flush=True)
    for line in sys.stdin:
        with contextlib.suppress(ChildProcessError):  # there is none
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            serve(json.loads(line), folder)
            os._exit(0)


if __name__ == "__main__":
    main()
