"""What a person sees when the plan fails: a defect of ours with file, line and traceback, a refusal as one sentence."""

import subprocess
import sys

import pytest
from toy import World

COMMANDS = {
    "snakemake": [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--configfile"],
    "forecast": [sys.executable, "workflow_scripts/manage.py", "forecast"],
}
CONFIG = ["config/config.yaml"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    World.copy_repository(folder)
    return folder


def failure(repository, command, files=CONFIG):
    """What a command says that must fail."""
    done = subprocess.run([*COMMANDS[command], *files], cwd=repository, capture_output=True, text=True)
    assert done.returncode, done.stdout
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "module", "function"),
    [
        ("snakemake", "plan/counts.py", "resolve_draws"),
        ("forecast", "plan/counts.py", "resolve_draws"),
        ("snakemake", "plan/stage.py", "spec"),  # in a function that Snakemake calls for a job
        ("snakemake", "plan/plan.py", "label"),  # in a message
    ],
)
def test_a_defect_in_the_plan_keeps_its_traceback(repository, command, module, function):
    path = repository / "workflow_scripts/teleport" / module
    before = path.read_text()
    signature = next(line for line in before.splitlines() if line.strip().startswith(f"def {function}("))
    indent = signature[: len(signature) - len(signature.lstrip())]
    path.write_text(before.replace(signature, f'{signature}\n{indent}    int("bug")', 1))
    line = before[: before.index(signature)].count("\n") + 2
    try:
        text = failure(repository, command)
    finally:
        path.write_text(before)
    assert "ValueError" in text and "invalid literal for int() with base 10: 'bug'" in text
    assert f'{module}", line {line}, in {function}' in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refusal_of_the_plan_is_one_sentence(repository, command):
    (repository / "start.yaml").write_text("experiments: {lost: {training: {start_from: {experiment: nowhere}}}}\n")
    text = failure(repository, command, [*CONFIG, "start.yaml"])
    assert "experiments.lost: training.start_from: no experiment is called 'nowhere'." in text
    assert "Traceback" not in text and ".py" not in text
