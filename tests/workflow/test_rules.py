"""The rules as Snakemake reads them: one per kind of stage, and the commands that a dry run shows."""

import os
import re
import subprocess
import sys

import pytest
import yaml
from toy import World

from paths import REPOSITORY
from teleport.plan.kinds import KINDS
from teleport.running.files import write_json

SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "1"]
COMMAND = re.compile(r"(\S+) \S+/run_stage\.py results/stages/((\w+)/\w+)/stage\.json .* --code (\w+) ")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world where nothing is made yet, with an experiment for each of two losses."""
    world = World.create(tmp_path_factory.mktemp("rules") / "world")
    world.config["experiments"] = {"softmax": {}, "nll": {"training": {"loss": "nll"}}}
    return world


def commands(world, *arguments):
    """(text of a dry run, [(interpreter, stage, kind, code)] of its stages)."""
    text = world.snakemake("-n", "-p", *arguments)
    return text, COMMAND.findall(text)


def codes(world, *arguments):
    """{stage: code} of the planned stages."""
    return {stage: code for _, stage, _, code in commands(world, *arguments)[1]}


def test_every_kind_of_stage_has_a_rule_of_its_own_with_a_sentence(world):
    listed = dict(re.findall(r"^(\w+) \((.*)\)$", world.snakemake("--list"), re.M))
    assert set(listed) == {*KINDS, "encode_shard", "retrieve_shard", "delete_vectors"}


def test_stages_get_what_the_table_of_kinds_says(world):
    """Threads as far as there are two cores; index and merge depend on their settings, here exact search."""
    text = commands(world)[0]
    asked = re.findall(r"results/stages/(\w+)/\w+/stage\.json --threads (\d+) --gpus (\d+) ", text)
    assert {(kind, int(threads), int(gpus)) for kind, threads, gpus in asked} == {
        (kind, min(KINDS[kind].threads, 2), KINDS[kind].gpus) for kind, _, _ in asked
    }
    assert len({kind for kind, *_ in asked}) >= 12


def test_the_links_and_the_configuration_that_they_need_come_first():
    """Snakemake gives an input no priority of the job that waits for it: the links were the 19th of 41 jobs."""
    rules = (REPOSITORY / "rules/tables.smk").read_text().split("\n\n\n")
    first = [re.search("rule (.+):\n", text)[1] for text in rules if "    priority: 1000" in text]
    assert first == ["configuration", "tables as experiments with"]


@pytest.mark.slow
def test_commands_run_under_the_interpreter_of_the_workflow(world, tmp_path, monkeypatch):
    """Also where the workflow's environment is not activated, and another Python is the first on the path; what
    --sdm conda activates comes later, and so before it."""
    found = commands(world)[1]
    assert {"corpus", "encode", "train"} <= {kind for _, _, kind, _ in found}
    assert {interpreter for interpreter, *_ in found} == {"python3"}
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    world.snakemake("results/experiments/softmax/plan.tsv")


@pytest.mark.ci(0)
def test_a_warning_of_the_plan_is_printed_once(world, monkeypatch):
    monkeypatch.setitem(world.config["training"], "negatives_per_query", 1000)
    lines = [line for line in commands(world)[0].splitlines() if "1000" in line and "softmax" in line]
    assert len(lines) == len(set(lines)) >= 1


@pytest.mark.ci(0)
def test_what_this_machine_is_too_small_for_is_said_before_it_starts(world, monkeypatch):
    lines = yaml.safe_load((REPOSITORY / "config/hardware.yaml").read_text())
    write_json(world.folder / "results/hardware.json", lines["cpu-2-cores"] | {"memory": 1e8})
    assert "memory:" not in world.snakemake("-n"), "the size of the collection is not known"
    monkeypatch.setitem(world.config, "counts", {"passages": 240, "queries": {"train": 80, "test": 20}})
    text = world.snakemake("-n")
    (world.folder / "results/hardware.json").unlink()
    assert text.count("memory: train needs about 1.2 GB, there are 0.1 GB. Set training.gradient_caching: true") == 1


@pytest.mark.ci(0)
def test_an_encoding_of_queries_alone_has_no_shards(world, monkeypatch):
    """As after a training of the query side: the passages' vectors stay those of the checkpoint it started from."""
    training = {"trains": ["query"], "start_from": {"experiment": "nll", "episode": "last"}}
    monkeypatch.setitem(world.config["experiments"], "adore", {"training": training, "episodes": [{}]})
    whole, sharded = (world.would_run(arguments=["--set-scatter", f"encode={n}"])[0] for n in (1, 2))
    of_passages = whole["index"]  # one over the passages of each encoding
    assert sharded - whole == {"encode_shard": 2 * of_passages} and whole["encode"] > of_passages > 2


@pytest.mark.slow
def test_an_edited_loss_concerns_its_trainings_and_a_new_one_nothing(world):
    library = world.folder / "workflow_scripts/teleport"
    before = codes(world)
    trained = {name for name in before if name.startswith("train/")}
    by_nll = trained & set(codes(world, "results/experiments/nll"))
    assert len(by_nll) == 3 and len(trained) == 6
    with open(library / "training/losses/nll.py", "a") as file:
        file.write("\n\nADDED = 1\n")
    after = codes(world)
    assert {name for name in before if before[name] != after[name]} == by_nll
    (library / "training/losses/own.py").write_text("X = 1\n")
    registry = library / "settings/registry.py"
    line = '    "own": Loss("teleport.training.losses.own"),\n'
    registry.write_text(registry.read_text().replace("LOSSES = {\n", "LOSSES = {\n" + line))
    assert codes(world) == after


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("results/tables/other.md", ["no rule makes results/tables/other.md"]),
        ("results/experiments/other/plan.tsv", ["results/experiments/other is not", "experiments has nll, softmax."]),
    ],
)
def test_a_table_or_experiment_that_is_not_planned_is_named(world, target, said):
    text = world.snakemake("-n", target, check=False)
    assert all(part in text for part in said) and "KeyError" not in text


HOST = """
configfile: "{folder}/toy.yaml"
module tele:
    snakefile: "{folder}/Snakefile"
    config: config
use rule * from tele as tele_*
rule of_the_host:
    default_target: True
    input: rules.tele_all.input
    output: 'host.txt'
    shell: 'touch {{output}}'
rule made:
    output: 'made.txt'
    shell: 'touch {{output}}'
rule failing:
    output: 'never.txt'
    run: raise ValueError('of the host')
"""


@pytest.fixture
def host(world, tmp_path):
    """Calls Snakemake with arguments in another workflow, which has this one as a module; returns (status, text)."""
    world.command()  # writes toy.yaml
    (tmp_path / "Snakefile").write_text(HOST.format(folder=world.folder))
    (tmp_path / "data").symlink_to(world.folder / "data")
    environment = os.environ | {"PYTHONPATH": str(world.folder / "workflow_scripts")}

    def run(*arguments):
        command = [*SNAKEMAKE, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_another_workflow_may_have_this_one_as_a_module(world, host):
    status, text = host("-n", "-p", "--forcerun", "tele_corpus")
    assert status == 0, text
    anew = {line.split("results/stages/")[1].split("/")[0] for line in text.splitlines() if "--anew" in line}
    assert anew == {"corpus"}, "a forced rule has the name that the other workflow gives it"
    assert re.search(r"^rule of_the_host:$", text, re.M) and "This was a dry-run (flag -n)" in text
    assert "train, episode 1 · softmax" in text and f"{world.folder}/workflow_scripts/run_stage.py" in text


@pytest.mark.slow
def test_the_jobs_of_that_workflow_look_as_snakemake_shows_them(host):
    """With the plugin, as by our profile."""
    status, text = host("--logger", "teleport", "--keep-going", "made.txt", "never.txt")
    assert status == 1 and re.search(r"^Finished jobid: \d+ \(Rule: made\)$", text, re.M), text
    assert "ValueError in file" in text and re.search(r"^Error in rule failing:$", text, re.M), text
    assert "1 failed after 1 of 2 jobs" in text and "failed: " not in text


@pytest.mark.ci(0)
def test_the_snakefile_may_be_named_from_elsewhere(world, tmp_path):
    """Results and paths of the configuration are then of the folder where it was started, and none of its code runs."""
    world.command()  # writes toy.yaml
    (tmp_path / "data").symlink_to(world.folder / "data")
    for module in ("teleport", "commands", "yaml", "psutil", "numpy"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('code of the current folder')")
    environment = os.environ | {"PYTHONPATH": str(world.folder / "workflow_scripts")}
    # -P, as for the program `snakemake`: with -m alone Python itself would look into the current folder.
    command = [sys.executable, "-P", *SNAKEMAKE[1:], "-n", "-s", world.folder / "Snakefile"]
    for configfile in ([], ["--configfile", world.folder / "toy.yaml"]):
        result = subprocess.run([*command, *configfile], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert result.returncode == 0 and "Job stats:" in result.stdout + result.stderr, result.stderr


@pytest.mark.ci(0)
@pytest.mark.parametrize("counted", [True, False])
def test_a_stage_that_was_killed_says_what_helps(world, tmp_path, monkeypatch, counted):
    """A killed process says nothing; the shell that waits for it does, and blames the kernel only where it may have."""
    kill = "import os\nb'run_stage.py' in open('/proc/self/cmdline', 'rb').read() and os.kill(os.getpid(), 9)\n"
    (tmp_path / "sitecustomize.py").write_text(kill)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}workflow_scripts")
    launch = world.folder / "workflow_scripts/teleport/running/launch.py"
    text = launch.read_text()
    assert 'Path("/proc/vmstat")' in text
    launch.write_text(text if counted else text.replace('Path("/proc/vmstat")', 'Path("/proc/of another system")'))
    said = world.snakemake("--until", "corpus", check=False)
    launch.write_text(text)
    log = next((world.folder / "results/logs/corpus").iterdir()).read_text()
    assert "error: the process was killed by signal 9" in log and "killed by signal 9" in said
    assert ("SIGKILL: by you, a scheduler or another program, not by the kernel." in log) == counted
    assert ("(--set-resources corpus:mem_mb=N); `teleport forecast` shows" in log) == (not counted)
