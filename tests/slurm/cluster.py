"""A Slurm of one node in a temporary folder: installed when missing, started without systemd, stopped by its processes.

The node pretends to have more cores and memory than the machine, and three GPUs, so that
the workflow's resources and profiles/slurm are tested as they are. All sockets are bound to the loopback device, and
/etc/slurm is neither read nor written.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

PACKAGES = ["slurmctld", "slurmd", "slurm-client", "munge"]
NODE = socket.gethostname().split(".")[0]
COMMANDS = ["slurmctld", "slurmd", "sbatch", "squeue", "munged", "setpriv"]
DEVICES = ["/dev/null", "/dev/zero", "/dev/random"]  # files that stand for GPUs
KILL_WAIT = 5  # seconds from SIGTERM at the time limit to SIGKILL
REQUEUE_WAIT = 20  # seconds until a job that was put back into the queue begins again: a credential is valid so long
CONFIGURATION = """
ClusterName=toy
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={requeue_wait}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1
MinJobAge=7200
KillWait={kill_wait}
MailProg=/bin/true
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000 Gres=gpu:{gpus}
PartitionName=toy Nodes={host} Default=YES MaxTime=UNLIMITED DefaultTime=10
"""


def free_ports(number):
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    """A running cluster in `folder`; `environment` is what its users have set. Needs root."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        self.environment = self.configure()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def configure(self):
        """Write configuration and key; returns the variables with which Slurm's commands find this cluster."""
        for name in ("state", "spool", "bin"):
            (self.folder / name).mkdir(parents=True)
        settings = {"host": NODE, "folder": self.folder, "kill_wait": KILL_WAIT, "requeue_wait": REQUEUE_WAIT}
        settings["gpus"] = len(DEVICES)
        configuration = self.folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(ports=free_ports(2), **settings))
        devices = [f"NodeName={NODE} Name=gpu File={file}\n" for file in DEVICES]
        (self.folder / "gres.conf").write_text("".join(devices))
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        key = os.open(self.folder / "munge.key", os.O_WRONLY | os.O_CREAT, 0o400)
        os.write(key, secrets.token_bytes(1024))
        os.close(key)
        # The executor takes SLURM_CONF away from the `srun` inside a job, which would then look into /etc/slurm.
        srun = self.folder / "bin/srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        return {"SLURM_CONF": str(configuration), "PATH": f"{srun.parent}:{os.environ['PATH']}"}

    def start(self):
        """Start munged, slurmctld and slurmd in the foreground and wait until the node takes jobs."""
        names = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munge.seed"}
        # --force: only root looks for the socket, in a folder that nobody else may enter.
        self.daemon(
            "munged", "--foreground", "--force", *(f"--{option}={self.folder / file}" for option, file in names.items())
        )
        self.wait("munge", "--no-input", f"--socket={self.folder / 'munge.socket'}")
        self.daemon("slurmctld", "-D", "-c")
        self.daemon("slurmd", "-D", "-c")
        self.wait("sh", "-c", "sinfo --noheader --format=%T | grep -qx idle")

    def daemon(self, name, *arguments):
        """Start one daemon that ends with this process, however this process ends."""
        with open(self.folder / f"{name}.log", "a") as log:
            command = ["setpriv", "--pdeathsig", "TERM", name, *arguments]
            process = subprocess.Popen(command, env=self.variables, stdout=log, stderr=subprocess.STDOUT)
        self.daemons.append((name, process))

    @property
    def variables(self):
        return os.environ | self.environment

    def wait(self, *command, seconds=20):
        """Try a command until it succeeds. Raises RuntimeError with the daemons' last words when it does not."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if subprocess.run(command, env=self.variables, capture_output=True, timeout=10).returncode == 0:
                return
            time.sleep(0.1)
        logs = [f"{name}: {(self.folder / f'{name}.log').read_text()[-1500:]}" for name, _ in self.daemons]
        raise RuntimeError(f"the cluster did not start: {' '.join(command)}\n" + "\n".join(logs))

    def stop(self):
        """Cancel all jobs and stop the daemons, the last one first."""
        if len(self.daemons) == 3:
            subprocess.run(["scancel", "--user=root"], env=self.variables, capture_output=True, timeout=10)
            self.wait("sh", "-c", 'test -z "$(squeue --noheader --states=running,completing)"')
        for _, process in reversed(self.daemons):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextmanager
    def without_controller(self):
        """Within the block there is no slurmctld; the one after it takes up what the one before it has saved."""
        place = [name for name, _ in self.daemons].index("slurmctld")
        _, process = self.daemons[place]
        process.terminate()
        process.wait(20)
        try:
            yield
        finally:
            self.daemon("slurmctld", "-D")
            self.daemons[place] = self.daemons.pop()
            self.wait("scontrol", "ping")

    def command(self, *command):
        """What one of Slurm's commands prints. Raises CalledProcessError when it fails."""
        return subprocess.run(command, env=self.variables, capture_output=True, text=True, check=True).stdout

    def node(self, state):
        """Have the node in a state, as an administrator does: DRAIN, DOWN, or RESUME from either."""
        self.command("scontrol", "update", f"NodeName={NODE}", f"State={state}", "Reason=test")

    def jobs(self):
        """What the controller knows of every job so far: {job id: {field: value}}, in order of submission."""
        text = self.command("scontrol", "show", "job", "--oneliner")
        jobs = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in text.splitlines()]
        return {int(job["JobId"]): job for job in jobs if "JobId" in job}
