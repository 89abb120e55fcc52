"""What a dry run of thousands of stages costs, beside Snakemake itself with as many jobs and nothing else."""

import json
import resource
import subprocess
import sys

import pytest

from paths import REPOSITORY
from teleport.plan.plan import Plan

FILES = [str(REPOSITORY / f"config/{name}.yaml") for name in ("marco", "ablations/alpha-beta")]
SEEDS = {"seeds": list(range(1, 11))}
MOST = 3  # times as much processor time as Snakemake itself, our start of some seconds included
PLAIN = """
import json
READ = json.load(open("read.json"))
def made(names):
    return [f"results/{name}/manifest.json" for name in names]
rule all:
    input: made(READ)
rule stage:
    input: lambda wildcards: made(READ[f"{wildcards.kind}/{wildcards.key}"])
    output: "results/{kind}/{key}/manifest.json"
    message: "{wildcards.kind}"
    shell: "touch {output}"
"""


def seconds_of(folder, *arguments):
    """(processor seconds, text) of a dry run."""

    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", *arguments]
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return used() - before, done.stdout


@pytest.mark.slow
def test_a_dry_run_of_two_thousand_stages_takes_under_three_times_what_snakemake_takes(tmp_path):
    """The shorter of two runs each, in turn."""
    seeds = tmp_path / "seeds.yaml"
    seeds.write_text(json.dumps(SEEDS))
    plan = Plan.of_files([*FILES, seeds])
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    for folder in (plain, ours):
        folder.mkdir()
    (plain / "Snakefile").write_text(PLAIN)
    read = {stage.name: [other.name for other in stage.inputs.values()] for stage in plan.stages.values()}
    (plain / "read.json").write_text(json.dumps(read))
    arguments = ["-s", str(REPOSITORY / "Snakefile"), "--configfile", *FILES, str(seeds)]
    pairs = [(seconds_of(plain), seconds_of(ours, *arguments)) for _ in range(2)]
    text = pairs[0][1][1]
    assert len(read) > 2000 and f"finished already: 0 of {len(read):,} stages" in text and len(text.splitlines()) < 300
    least, took = (min(seconds for seconds, _ in runs) for runs in zip(*pairs, strict=True))
    assert took < MOST * least, f"{took:.1f} s, and Snakemake {least:.1f} s"
