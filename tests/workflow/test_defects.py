"""What a person sees when the plan or a command fails: of a defect its traceback, of a refusal one sentence."""

import os
import subprocess
import sys

import pytest
from toy import World

SNAKEMAKE, MANAGE = [sys.executable, "-m", "snakemake"], [sys.executable, "workflow_scripts/manage.py"]
CONFIG = ["config/config.yaml"]
COMMANDS = {  # of those that run, `published` takes least
    "dry run": [*SNAKEMAKE, "-n", "--cores", "1", "--configfile", *CONFIG],
    "run": [*SNAKEMAKE, "published", "--cores", "1", "--configfile", *CONFIG],
    "forecast": [*MANAGE, "forecast", *CONFIG],
    "forecast with GPUs": [*MANAGE, "forecast", *CONFIG, "--set-resources", "train:gpu=2"],
    "status": [*MANAGE, "status", *CONFIG],
    "prune": [*MANAGE, "prune", *CONFIG],
    "verify": [*MANAGE, "verify"],
    "export": [*MANAGE, "export", "results/nowhere", "exported"],
    "compare": [*MANAGE, "compare", "results/nowhere", "results/nowhere"],
}


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the repository in which a stage has begun."""
    folder = tmp_path_factory.mktemp("repository")
    World.copy_repository(folder)
    begun = folder / "results/resume/train/0123456789ab"
    begun.mkdir(parents=True)
    (begun / "progress.json").write_text("{}")
    return folder


def failure(repository, command):
    """What a command says that must fail. Bytecode has whole seconds: an edit within the last one would be missed."""
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, env=environment)
    assert done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.ci(2)
@pytest.mark.parametrize(
    ("command", "module", "line"),
    [
        slow("dry run", "teleport/settings/negatives.py", "def resolve_draws("),
        ("forecast", "teleport/settings/negatives.py", "def resolve_draws("),
        ("dry run", "commands/edited.py", "def code_of("),  # in a function that Snakemake calls for a job
        slow("dry run", "teleport/plan/plan.py", "def label("),  # in a message
        slow("status", "teleport/plan/experiment.py", "def build("),
        ("status", "teleport/plan/identity.py", "def identify_checkpoint("),
        slow("forecast", "teleport/plan/kinds.py", "def needs("),
        slow("status", "teleport/plan/mining.py", "def train("),
        ("forecast with GPUs", "teleport/plan/kinds.py", "class Kind("),  # while it is loaded
        slow("dry run", "teleport/settings/training.py", "def schedule_is_possible("),  # whose errors pydantic catches
        ("status", "teleport/settings/measures.py", "def parse_measures("),
        slow("dry run", "commands/forecast/printed.py", "def cost_sentence("),  # at the end, of all
        slow("dry run", "commands/forecast/requests.py", "def of("),
        slow("run", "commands/terminal.py", "def begin("),
        slow("run", "commands/terminal.py", "def say_the_end("),  # where Snakemake drops errors
        slow("status", "commands/status.py", "report = json.loads("),
        ("verify", "commands/disk.py", "def check_stages("),
        ("prune", "commands/disk.py", "def orphans("),
        ("export", "commands/stages.py", "def stage_at("),
        ("compare", "commands/compare.py", "def compare("),
    ],
)
def test_a_defect_shows_its_traceback_and_ends_with_another_status(repository, command, module, line):
    """A ValueError inserted after a function's first line, or before another line, in the plan and in the commands."""
    path = repository / "workflow_scripts" / module
    text = path.read_text()
    lines = text.splitlines()
    at = next(number for number, each in enumerate(lines) if each.strip().startswith(line))
    indent = len(lines[at]) - len(lines[at].lstrip())
    if line.startswith("def "):  # else before it
        at, indent = at + 1, indent + 4
    path.write_text("\n".join([*lines[:at], f"{' ' * indent}int('bug')", *lines[at:], ""]))
    try:
        said = failure(repository, COMMANDS[command])
    finally:
        path.write_text(text)
    assert "ValueError" in said and "invalid literal for int() with base 10: 'bug'" in said
    assert f'{module}", line {at + 1}, in ' in said


@pytest.mark.ci(1)
@pytest.mark.parametrize("command", ["dry run", "forecast"])
def test_a_refusal_of_the_plan_is_one_sentence(repository, command):
    (repository / "start.yaml").write_text("experiments: {lost: {training: {start_from: {experiment: nowhere}}}}\n")
    text = failure(repository, [*COMMANDS[command], "start.yaml"])
    assert "experiments.lost: training.start_from: no experiment is called 'nowhere'." in text
    assert "Traceback" not in text and ".py" not in text
