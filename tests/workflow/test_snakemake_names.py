"""What this workflow uses of Snakemake that its documentation does not promise: names, each tried in a small workflow
of its own, and texts.

Snakemake may change it in any version. After an upgrade run this file; mend what fails, then raise the versions in the
Snakefile.
"""

import os
import re
import subprocess
import sys

import pytest
import snakemake
from packaging.version import Version
from snakemake import exceptions

from commands import terminal
from paths import REPOSITORY

NAMES = {  # in the rules
    "workflow.configfiles": "the files that a configuration comes from, for line numbers in messages",
    "workflow.config_settings": "what --config sets, which stands over files that a file extends",
    "workflow.dag_settings": "what --forcerun and --force name, and --forceall: what is made although unchanged",
    "workflow.resource_settings": "the numbers of shards by the command line and every profile, before they are made",
    "workflow.dryrun": "a rehearsal writes no settings of stages",
}
TEXTS = {  # of its log records, in commands/terminal.py
    "Directory cannot be locked": "begins the text on a lock: ours says who holds it",
    "RuleException": "the exception of a job that failed: its text repeats the shell command",
    "CalledProcessError": "the same, where Snakemake knows no line of a Snakefile",
}
WORKFLOW = """
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

logger.info(f"FILES {[path.name for path in map(__import__('pathlib').Path, workflow.configfiles)]}")
logger.info(f"GIVEN {dict(workflow.config_settings.config)}")
logger.info(f"SCATTER {dict(workflow.resource_settings.overwrite_scatter)}")
if config.get("refuse"):
    raise WorkflowError("a sentence")

def untracked(wildcards, input):
    asked = workflow.dag_settings
    named = sorted(map(str, {*asked.forcerun, *(asked.targets if asked.forcetargets else ())}))
    logger.info(f"FORCED {asked.forceall} {named} DRY {bool(workflow.dryrun)}")
    return config["how"]

rule all:
    output: "made.txt"
    params: what=config["what"], how=untracked
    message: "{params.how}"
    shell: "echo {params.how} > {output}"

for word in ["a/folder"]:
    rule:
        name: word
        input: "made.txt"
"""


@pytest.fixture
def call(tmp_path):
    """Calls Snakemake with arguments in a folder with that workflow; returns (status, what it prints)."""
    (tmp_path / "Snakefile").write_text(WORKFLOW)
    (tmp_path / "one.yaml").write_text("what: 1\nhow: first\n")
    (tmp_path / "two.yaml").write_text("how: second\n")

    def run(*arguments):
        command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
        done = subprocess.run(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    return run


def test_the_installed_version_is_one_of_those_that_the_snakefile_takes():
    least, most = re.search(
        r'Version\("([\d.]+)"\) <= .* < Version\("([\d.]+)"\)', (REPOSITORY / "Snakefile").read_text()
    ).groups()
    assert Version(least) <= Version(snakemake.__version__) < Version(most)


def test_nothing_else_of_snakemake_is_used_that_it_does_not_promise():
    """The modules `snakemake.exceptions`, `.logging` and `.utils`, and the interface of logger plugins, are public."""
    files = [REPOSITORY / "Snakefile", *(REPOSITORY / "rules").glob("*.smk")]
    files += (REPOSITORY / "workflow_scripts").rglob("*.py")
    text = "\n".join(path.read_text() for path in files)
    rules = "\n".join(re.sub(r"#.*|\"\"\".*?\"\"\"", "", path.read_text()) for path in files if path.suffix != ".py")
    assert {f"workflow.{name}" for name in re.findall(r"\bworkflow\.([a-z_]+)\b", rules)} == set(NAMES)
    assert {terminal.LOCKED, *terminal.OF_A_FAILED_JOB} == set(TEXTS) and len(NAMES) + len(TEXTS) == 8
    modules = set(re.findall(r"^\s*(?:from|import) (snakemake[\w.]*)", text, re.M))
    plugin = {"snakemake_interface_logger_plugins.base", "snakemake_interface_logger_plugins.common"}
    assert modules == {"snakemake", "snakemake.exceptions", "snakemake.logging", "snakemake.utils", *plugin}


def test_the_texts_are_those_of_the_installed_version():
    """`CalledProcessError` is Python's own."""
    assert terminal.LOCKED in str(exceptions.LockException()) and exceptions.RuleException.__name__ in TEXTS


def test_files_settings_and_shards_of_the_command_line_are_known(call):
    given = ["--config", "what=1", "more={'a': 'b'}", "--set-scatter", "encode=3"]
    text = call("-n", "--configfile", "one.yaml", "two.yaml", *given)[1]
    assert "FILES ['one.yaml', 'two.yaml']" in text and "GIVEN {'what': 1, 'more': {'a': 'b'}}" in text
    assert "SCATTER {'encode': 3}" in text


@pytest.mark.slow
def test_what_is_forced_is_known_to_the_params_of_jobs(call):
    call("--configfile", "one.yaml")
    assert "FORCED False [] DRY True" in call("-n", "--configfile", "one.yaml")[1]
    assert "FORCED False ['all'] DRY True" in call("-n", "--configfile", "one.yaml", "--forcerun", "all")[1]
    assert "FORCED False ['made.txt'] DRY True" in call("-n", "made.txt", "--configfile", "one.yaml", "--force")[1]
    text = call("--configfile", "one.yaml", "--forceall")[1]
    assert "FORCED True [] DRY False" in text


def test_what_is_refused_is_one_sentence(call):
    status, text = call("-n", "--configfile", "one.yaml", "--config", "refuse=1")
    assert status == 1 and "a sentence" in text and "Traceback" not in text


@pytest.mark.slow
def test_params_that_ask_for_input_are_in_messages_and_rerun_nothing(call):
    assert "first" in call("--configfile", "one.yaml")[1]
    assert "Nothing to be done" in call("-n", "--configfile", "one.yaml", "two.yaml")[1]
    status, text = call("-n", "--configfile", "one.yaml", "two.yaml", "--config", "what=2")
    assert status == 0 and "second" in text


@pytest.mark.ci(0)
def test_a_rule_may_have_the_name_of_a_folder(call):
    status, text = call("-n", "--configfile", "one.yaml", "--", "a/folder")
    assert status == 0 and re.search(r"^all +1$", text, re.M), text


LATE = """
from commands.terminal import end_as_asked

rule all:
    input: "c"

rule a:
    output: "a"
    shell: "(sleep 4; touch a) > /dev/null 2>&1 &"

rule b:
    input: "a"
    output: "b"
    shell: "sleep 4; touch b"

rule c:
    input: "b"
    output: "c"
    shell: "touch c"

onstart:
    end_as_asked()
"""


@pytest.mark.ci(0)
def test_sigterm_ends_a_run_that_waits_for_the_files_of_a_job(tmp_path):
    """Snakemake holds its lock while it waits, so one more job may begin."""
    (tmp_path / "Snakefile").write_text(LATE)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--latency-wait", "60"]
    run = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said = next((line for line in run.stdout if "Waiting at most" in line), "")
        assert said
        run.terminate()
        assert run.wait(40) == 1
    finally:
        run.kill()
        run.communicate()
    assert (tmp_path / "a").exists() and not (tmp_path / "c").exists(), "it ended by itself, before all jobs"


@pytest.mark.ci(0)
def test_a_library_that_does_not_lie_beside_the_rules_is_refused(tmp_path):
    """As from another checkout, which is the one installed: its code would run under these rules."""
    for name in ("Snakefile", "rules", "config", "profiles", "environment.yml"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    (tmp_path / "workflow_scripts/teleport").mkdir(parents=True)
    (tmp_path / "workflow_scripts/teleport/__init__.py").touch()
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "workflow_scripts")}
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and f"pip install --no-deps -e {tmp_path}" in said, said
