"""commands/snakemake_internals.py with the installed Snakemake, each function in a small workflow of its own."""

import subprocess
import sys

import pytest
import snakemake
from commands.snakemake_internals import TRIED_ON

from paths import REPOSITORY

ADVICE = (
    f"Snakemake {snakemake.__version__} changed something that its documentation does not promise. Find in "
    "workflow_scripts/commands/snakemake_internals.py what it is for, use what the new version has, and set TRIED_ON."
)
SNAKEFILE = f"""
import sys
sys.path.insert(0, "{REPOSITORY}/workflow_scripts")
from commands.snakemake_internals import *
from commands.snakemake_internals import LogEvent, TerminalHandler, get_event

class Label:
    def __format__(self, name):
        return name[::-1]

class Shouting(TerminalHandler):
    def emit(self, record):
        with self.lock_of_stream:
            self.stream.write(f"SHOUT {{get_event(record)}} {{self.draws}} {{self.name}}\\n")
        super().emit(record)

CALL = how_called(workflow)
print("CALL", CALL)
name_in_messages(workflow, "LABEL", Label())
translate_targets(
    workflow, lambda targets: {{"made.txt" if t == "link" else t for t in targets}}, lambda targets: targets
)

def given(wildcards):
    print("SET", set_resources(workflow))
    print("RECORDED", recorded_params(workflow, "made.txt"), recorded_input(workflow, "made.txt"))
    return "given.txt"

if CALL.main and not CALL.dry:
    from snakemake.logging import logger
    replace_terminal_handler(logger, Shouting)

def run(wildcards, input, threads):
    print("UNFINISHED", unfinished(workflow), unfinished(workflow, {{"encode/0a1b", "train/0a1b"}}), room(workflow))
    return "cp"

rule made:
    input: given
    output: "made.txt"
    params: code="abc", run=run
    message: "{{LABEL:drawer}}"
    shell: "{{params.run}} {{input}} {{output}}"

use rule made as stage with:
    output: "stages/{{kind}}/{{key}}"

onsuccess:
    print("KNOWN", made_or_found(workflow, ["made.txt", "stages/encode/0a1b", "elsewhere.txt"]))
"""


@pytest.fixture
def call(tmp_path):
    """Calls Snakemake with arguments in a folder with that workflow; returns what it prints."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "given.txt").write_text("x\n")

    def run(*arguments):
        command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
        done = subprocess.run(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, f"{ADVICE}\n{done.stdout}"
        return done.stdout

    return run


def test_it_was_tried_on_the_version_that_is_installed():
    assert snakemake.__version__ == TRIED_ON, f"{ADVICE} If the other tests of this file pass, TRIED_ON is all."


def test_how_it_was_called(call):
    text = call("-n")
    assert "Call(main=True, dry=True, submits=False, submitted=False, conda=False, " in text, ADVICE
    assert "configfiles_given=False)" in text, ADVICE
    text = call("-n", "--jobs", "3")
    assert "submits=False" in text, ADVICE
    call("made.txt")
    text = call("--executor", "slurm", "--jobs", "3", "made.txt")  # which is there, so that nothing is submitted
    assert "dry=False, submits=True, submitted=False" in text, ADVICE
    text = call("--mode", "remote", "--attempt", "2", "made.txt")  # as in a job of a cluster
    assert "Call(main=False, dry=False, submits=False, submitted=True, conda=False, " in text, ADVICE
    text = call("-n", "made.txt", "--set-resources", "made:save_every=abc", "made:gpu=2")
    assert "SET {'made': {'save_every': 'abc', 'gpu': 2}}" in text, ADVICE


def test_targets_messages_records_and_the_terminal(call):
    text = call("link", "--resources", "gpu=3")
    assert "RECORDED None None" in text and "reward" in text, ADVICE
    assert "UNFINISHED set() set() {'cores': 1, 'gpu': 3}" in text, ADVICE
    assert "SHOUT" in text and "False DefaultStreamHandler" in text, ADVICE
    text = call("-n", "link")
    assert "RECORDED [\"'abc'\"] ['given.txt']" in text and "Nothing to be done" in text, ADVICE
    text = call("stages/encode/0a1b", "made.txt", "--forcerun", "made")
    assert "UNFINISHED set()" in text and "UNFINISHED {'encode/0a1b'} {'encode/0a1b'}" in text, ADVICE
    assert "KNOWN ['made.txt', 'stages/encode/0a1b']" in text, ADVICE
    assert "KNOWN ['stages/encode/0a1b']" in call("stages/encode/0a1b", "--forcerun", "stage"), ADVICE


SHORT = f"""
import sys
sys.path.insert(0, "{REPOSITORY}/workflow_scripts")
from commands import dry_run
from commands.snakemake_internals import plan_in_short, replace_terminal_handler
from snakemake.logging import logger

dry_run.MOST_JOBS = 3
replace_terminal_handler(logger, lambda usual: dry_run.DryRun(usual, lambda stages: f"STAGES {{len(stages)}}"))
plan_in_short(workflow, logger, dry_run.MOST_JOBS)

def asked(wildcards):
    print("PARAMS", wildcards.key)
    return "x"

def room_for(rule):
    def some(wildcards):
        print("RESOURCES", rule)
        return 1
    return some

rule all:
    input: expand("results/stages/evaluate/{{key}}/manifest.json", key=range(2))

rule merge:
    output: "results/stages/merge/{{key}}/manifest.json"
    params: asked=asked
    resources: room=room_for("merge")
    message: "merge {{wildcards.key}}"
    shell: "echo {{params.asked}} > {{output}}"

rule evaluate:
    input: expand("results/stages/merge/{{key}}/manifest.json", key=range(30))
    output: "results/stages/evaluate/{{run}}/manifest.json"
    resources: room=room_for("evaluate")
    message: "evaluate {{wildcards.run}}"
    shell: "echo {{input}} > {{output}}"
"""


def test_a_dry_run_works_out_no_more_jobs_than_it_lists(call, tmp_path):
    """All of them where their commands are asked for, and those that are there already, whose params may differ; of
    every rule one job is asked what it takes."""
    (tmp_path / "Snakefile").write_text(SHORT)
    text = call("-n", "-q", "host")
    assert (text.count("PARAMS"), text.count("Job ")) == (3, 4), f"{ADVICE}\n{text}"  # one of them: "Job stats"
    assert (text.count("RESOURCES merge"), text.count("RESOURCES evaluate")) == (3, 1), f"{ADVICE}\n{text}"
    assert "and 29 more jobs" in text and "STAGES 32" in text, f"{ADVICE}\n{text}"
    assert call("-n", "-p").count("PARAMS") == 30, ADVICE
    call("results/stages/merge/7/manifest.json")
    text = call("-n")
    assert "STAGES 31" in text and 4 <= text.count("PARAMS") <= 5 and "PARAMS 7" in text, f"{ADVICE}\n{text}"


LATE = f"""
import sys
sys.path.insert(0, "{REPOSITORY}/workflow_scripts")
from commands.snakemake_internals import end_on_sigterm

end_on_sigterm(workflow)

rule all:
    input: "b"

rule a:
    output: "a"
    shell: "(sleep 4; touch a) > /dev/null 2>&1 &"

rule b:
    input: "a"
    output: "b"
    shell: "touch b"
"""


def test_sigterm_ends_a_run_that_waits_for_the_files_of_a_job(tmp_path):
    (tmp_path / "Snakefile").write_text(LATE)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--latency-wait", "60"]
    run = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said = next((line for line in run.stdout if "Waiting at most" in line), "")
        assert said, ADVICE
        run.terminate()
        assert run.wait(40) == 1, ADVICE
    finally:
        run.kill()
        run.communicate()
    assert (tmp_path / "a").exists() and not (tmp_path / "b").exists(), "it ended by itself, before the next job"
