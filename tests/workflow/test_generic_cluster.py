"""profiles/generic: what each scheduler is asked, and a part of the workflow on one whose commands are a script."""

import os
import re
import shlex
import subprocess
import sys
from io import StringIO

import pytest
import yaml
import yte

from commands.forecast.requests import Requests
from paths import REPOSITORY

FOLDER, PAGE = REPOSITORY / "profiles/generic", (REPOSITORY / "docs/cluster.md").read_text()
SUBMITS = {"pbs": "qsub", "lsf": "bsub", "sge": "qsub"}
ANSWERS = {"pbs": "$id.server", "lsf": "Job <$id> is submitted to queue <normal>.", "sge": "$id"}
# Text of their own (OpenPBS, IBM Spectrum LSF and Grid Engine) on a job that is over.
UNKNOWN = {
    "pbs": "qstat: Unknown Job Id $1",
    "lsf": "Job <$1> is not found",
    "sge": "Following jobs do not exist: $2",
}
VARIABLES = {"pbs": "PBS_O_WORKDIR=$PWD PBS_JOBID=$answer", "lsf": "LSB_JOBID=$id", "sge": "JOB_ID=$id"}
# Every command of a scheduler: a job is a process group in the background, its id that of its first process. PBS begins
# at home. The first job of all is lost where there is a file `lose-one`.
SCHEDULER = r"""#!/bin/sh
case ${{0##*/}} in
qsub | bsub)
    printf '%s\n' "${{0##*/}}" "$@" "" >> "$RECORD"
    for script; do :; done
    if rm lose-one 2> /dev/null; then
        setsid true &
    else
        setsid sh -c 'id=$$ answer="{answer}"; export {variables}; {home} exec "$0"' "$script" > /dev/null 2>&1 &
    fi
    id=$!
    echo "{answer}" ;;
qstat | bjobs)
    for id; do :; done
    if kill -0 "${{id%.server}}" 2> /dev/null; then echo RUN; else echo "{unknown}" >&2; exit 1; fi ;;
qdel | bkill)
    for id; do kill -- -"${{id%.server}}"; done ;;
esac
"""


class Commands:
    """The commands of a scheduler in a folder of their own; `.environment` has them on its path."""

    def __init__(self, folder, scheduler):
        (folder / "bin").mkdir(parents=True)
        self.folder, self.scheduler, self.record = folder, scheduler, folder / "submitted"
        text = SCHEDULER.format(
            answer=ANSWERS[scheduler],
            unknown=UNKNOWN[scheduler],
            variables=VARIABLES[scheduler],
            home="cd /;" if scheduler == "pbs" else "",
        )
        for name in ("qsub", "qstat", "qdel", "bsub", "bjobs", "bkill"):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "RECORD": str(self.record), "LATENCY": "0"}

    def ask(self, *arguments):
        """What scheduler.sh prints, in this folder."""
        command = [FOLDER / "scheduler.sh", arguments[0], self.scheduler, *arguments[1:]]
        options = {"capture_output": True, "text": True, "check": True}
        return subprocess.run(command, cwd=self.folder, env=self.environment, **options).stdout.strip()

    def submitted(self):
        """The commands that submitted a job: [[command, argument, …]]."""
        return [text.split("\n") for text in self.record.read_text().split("\n\n") if text]


@pytest.fixture(params=SUBMITS)
def commands(request, tmp_path):
    return Commands(tmp_path / "cluster", request.param)


def profile(scheduler, site=""):
    """profiles/generic for a scheduler, as Snakemake reads it."""
    text = (FOLDER / "config.yaml").read_text()
    text = text.replace("scheduler: pbs", f"scheduler: {scheduler}").replace('site: ""', f'site: "{site}"')
    written = StringIO()
    yte.process_yaml(StringIO(text), outfile=written)
    return yaml.safe_load(written.getvalue())


def said_by_the_page(scheduler):
    rows = re.findall(r"^\| (PBS|LSF|SGE) \| `(.*)` \|$", PAGE, re.M)
    return shlex.split(dict(rows)[scheduler.upper()])


def test_a_job_is_submitted_as_the_page_says(commands):
    commands.ask("submit", "train", "8", "32000", "2880", "1", "JOB")
    commands.ask("submit", "merge", "1", "8000", "60", "0", "-q", "long", "JOB")
    with_gpu, without = commands.submitted()
    assert with_gpu == said_by_the_page(commands.scheduler)
    assert without[-3:] == ["-q", "long", "JOB"] and "gpu" not in " ".join(without)


def test_a_job_runs_then_ends_well_or_badly_or_is_killed(commands):
    job = commands.folder / "job"
    job.write_text((FOLDER / "job.sh").read_text().format(properties="{}", exec_job="sleep 30"))
    job.chmod(0o755)
    number = commands.ask("submit", "train", "1", "8000", "60", "0", str(job))
    assert commands.ask("status", number) == "running"
    subprocess.run(["qdel", number], env=commands.environment, check=True)
    until(lambda: commands.ask("status", number) == "failed")
    logs = commands.folder / "results/logs/cluster"
    assert not list(logs.glob("*.status"))
    for work, end in (("true", "success"), ("exit 3", "failed")):
        job.write_text((FOLDER / "job.sh").read_text().format(properties="{}", exec_job=work))
        number = commands.ask("submit", "train", "1", "8000", "60", "0", str(job))
        until((logs / f"{number}.status").exists)
        assert commands.ask("status", number) == end


def test_a_scheduler_that_does_not_answer_ends_no_job(commands):
    for name in ("qstat", "bjobs"):
        (commands.folder / "bin" / name).write_text("#!/bin/sh\necho cannot connect to server >&2\nexit 111\n")
    assert commands.ask("status", "12") == "running"


def test_the_end_of_an_earlier_job_of_the_same_id_is_none_of_this_one(commands):
    """Ids begin anew, or a folder comes from another cluster. What the job itself has ended with meanwhile stays."""
    logs, answer = commands.folder / "results/logs/cluster", ANSWERS[commands.scheduler].replace("$id", "7")
    logs.mkdir(parents=True)
    end = logs / ("7.server.status" if commands.scheduler == "pbs" else "7.status")
    for at_once in ("", f"sleep 0.1; echo 0 > {end};"):  # file systems have coarse clocks
        end.write_text("0\n")
        os.utime(end, (0, 0))
        for name in ("qsub", "bsub", "qstat", "bjobs"):
            said = f"{at_once} echo '{answer}'" if name in ("qsub", "bsub") else "echo RUN"
            (commands.folder / "bin" / name).write_text(f"#!/bin/sh\n{said}\n")
        number = commands.ask("submit", "train", "1", "8000", "60", "0", "JOB")
        assert commands.ask("status", number) == ("success" if at_once else "running")
        assert [path.name for path in logs.iterdir()] == [end.name] * bool(at_once)


@pytest.mark.parametrize("do", ["submit", "status"])
def test_a_scheduler_that_is_not_known_is_named(commands, do):
    commands.scheduler = "cron"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        commands.ask(do, "1")
    assert caught.value.stderr == "scheduler.sh knows pbs, lsf and sge, not cron\n"


def until(condition):
    subprocess.run(["true"], check=True)
    for _ in range(500):
        if condition():
            return
        subprocess.run(["sleep", "0.02"], check=True)
    raise AssertionError("it did not come true in 10 s")


@pytest.mark.parametrize("scheduler", SUBMITS)
def test_the_profile_names_the_scheduler_and_is_else_that_of_slurm(scheduler):
    read, slurm = profile(scheduler, "-q gpu"), yaml.safe_load((REPOSITORY / "profiles/slurm/config.yaml").read_text())
    script = "profiles/generic/scheduler.sh"
    asked = "{rule} {threads} {resources.mem_mb} {resources.runtime} {resources.gpu} -q gpu"
    assert read["cluster-generic-submit-cmd"] == f"{script} submit {scheduler} {asked}"
    assert read["cluster-generic-status-cmd"] == f"{script} status {scheduler}"
    assert read["cluster-generic-cancel-cmd"] == ("bkill" if scheduler == "lsf" else "qdel")
    own = {"executor", "default-resources", "slurm-init-seconds-before-status-checks"}
    shared = slurm.keys() - own - {"__use_yte__", "__definitions__"}
    assert {key: read[key] for key in shared} == {key: slurm[key] for key in shared}
    # PBS and LSF are asked for one node by scheduler.sh; SGE's parallel environment is of one.
    assert read["default-resources"] | {"nodes": 1} == slurm["default-resources"] | {"gpu": 0}


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["pbs", "lsf", "sge"])
def test_stages_are_jobs_of_the_cluster_and_have_the_same_bits(world, finished, tmp_path, scheduler):
    """The index, searches and measures of the last episode; the first job is lost, and submitted again."""
    commands = Commands(tmp_path / "cluster", scheduler)
    for link in (world.folder / "results/experiments/tele/episode-3").iterdir():
        if link.resolve().parent.name in ("index", "retrieve", "evaluate"):
            (link.resolve() / "manifest.json").unlink()
    lost = finished.manifests().keys() - world.manifests().keys()
    assert {name.split("/")[0] for name in lost} == {"index", "retrieve", "evaluate"}
    config = world.folder / "profiles/generic/config.yaml"
    config.write_text(config.read_text().replace("scheduler: pbs", f"scheduler: {scheduler}"))
    (world.folder / "lose-one").touch()
    looking = ["--seconds-between-status-checks", "1", "--latency-wait", "5"]
    options, variables = ["--set-threads", "retrieve=2"], {"TELEPORT_CPU": "1"}
    if scheduler == "sge":  # as docs/cluster.md says of a cluster without GPUs
        options, variables = [*options, "--set-resources", *re.search(r"`--set-resources (.*?)`", PAGE)[1].split()], {}
    command = [sys.executable, "-m", "snakemake", "--workflow-profile", "profiles/generic", *looking, *options]
    environment = commands.environment | {"HF_HUB_OFFLINE": "1"} | variables
    result = subprocess.run(
        [*command, "--configfile", "toy.yaml"], cwd=world.folder, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert world.digests() == finished.digests()
    jobs = commands.submitted()
    assert len(jobs) > 2 and {job[0] for job in jobs} == {SUBMITS[scheduler]}
    assert len({job[-1] for job in jobs}) == len(jobs) - 1  # the lost one went by the same script
    ends = sorted((world.folder / "results/logs/cluster").glob("*.status"))
    assert [path.read_text() for path in ends] == ["0\n"] * (len(jobs) - 1)
    assert result.stderr.count("Trying to restart job") == 1


def test_the_limits_of_the_queue_bound_what_is_asked():
    from teleport.plan.plan import Plan
    from teleport.settings.read import load_files

    plan = Plan(*load_files([REPOSITORY / "config/marco.yaml"]))
    requests = Requests(plan, profile("lsf")["config"]["cluster"])
    asked = [requests.of(stage, 4) for stage in plan.stages.values()]
    assert max(job.minutes for job in asked) == 1440 and max(job.mem_mb for job in asked) <= 250000
