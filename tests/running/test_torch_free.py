"""Loading torch takes seconds and gigabytes: what computes no vectors must not do it, not even by way of a library.

What the stages of a finished workflow really loaded is tested with the workflows, by their manifests.
"""

import ast
import subprocess
import sys

import pytest

from teleport.plan.kinds import KINDS
from teleport.running.code import LIBRARY, import_closure, module_path
from teleport.settings.registry import SOURCES

ENCODERS = {"pretrained", "encode", "train", "ranker", "cross_train", "cross_score"}
ON_A_GPU = {"index", "retrieve"}  # may load torch there, inside a function
OTHERS = ["teleport.plan.plan", "teleport.settings.read", "teleport.report.table", "teleport.report.published_table"]
OTHERS += ["teleport.report.links", "commands.disk", "commands.forecast.forecast", "manage", "faiss", "tokenizers"]
OTHERS += ["teleport.negatives.export", *(source.module for source in SOURCES.values())]
HEAVY = {"torch", "transformers", "sentence_transformers"}


def imported_libraries(path):
    """Names of the modules, not ours, that a file of the library imports anywhere, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return {name for name in names if name.split(".")[0] != "teleport"}


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ENCODERS - ON_A_GPU - {"tokens"}))
def test_no_code_of_a_stage_that_needs_no_torch_imports_it(kind):
    files = import_closure(module_path(KINDS[kind].module))
    assert {str(path.relative_to(LIBRARY)) for path in files if HEAVY & imported_libraries(path)} == set()


def test_the_rule_finds_the_torch_of_stages_that_have_it():
    for kind in sorted(ENCODERS | {"retrieve"}):
        files = import_closure(module_path(KINDS[kind].module))
        assert any("torch" in imported_libraries(path) for path in files), kind


def test_importing_them_with_all_their_libraries_loads_no_torch():
    """In one process: whichever loads it, the message names the first."""
    modules = [row.module for kind, row in KINDS.items() if kind not in ENCODERS] + OTHERS
    free = [row.module for kind, row in KINDS.items() if kind not in ENCODERS | ON_A_GPU | {"tokens"}]
    files = {path for name in free for path in import_closure(module_path(name))}
    libraries = sorted({name for path in files for name in imported_libraries(path)})
    code = (
        f"import importlib, sys\nfor name in {[*libraries, *modules]}:\n    importlib.import_module(name)\n"
        f"    assert not {HEAVY} & set(sys.modules), name"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=LIBRARY.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"numpy", "pyarrow", "bm25s.tokenization", "ir_measures"} <= set(libraries)


@pytest.mark.parametrize(
    ("module", "others"), [("evaluation.evaluate", {"scipy.stats"}), ("negatives.merge", {"pandas", "scipy"})]
)
def test_these_stages_load_no_statistics_and_no_tables_either(module, others):
    code = f"import sys, teleport.{module}; print({HEAVY | others} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=LIBRARY.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("arguments", [[], ["run_stage.py"], ["manage.py", "link", "--output", "folder"]])
def test_the_commands_of_every_job_load_no_library_of_others(arguments, tmp_path):
    """Every job of the workflow waits for what these load."""
    script = LIBRARY.parent / (arguments[0] if arguments else "manage.py")
    code = (
        f"import runpy, sys\nsys.argv = {[str(script), *arguments[1:]]}\n"
        f"try:\n    runpy.run_path({str(script)!r}, run_name='__main__')\nexcept SystemExit:\n    pass\n"
        f"print({HEAVY | {'numpy', 'pandas', 'pyarrow', 'yaml'}} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input='{"rows": []}', cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
