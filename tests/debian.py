"""Programs that tests need and a bare machine lacks, from Debian's packages."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / "debian-packages-of-tests.lock"  # several test processes install at a time


def install(name, packages, commands):
    """Install packages where one of the commands is missing; name: what a person calls them.

    Raises RuntimeError that says what stands in the way.
    """
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(map(shutil.which, commands)):
            return
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise RuntimeError(f"{name} is not installed, and installing it needs root and apt-get")
        # A package may start its service: invoke-rc.d does not in runlevel 1.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
            result = subprocess.run(
                ["apt-get", *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            if result.returncode:
                raise RuntimeError(f"apt-get {command[0]} failed:\n{result.stdout[-2000:]}")
