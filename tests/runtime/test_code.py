"""The code digest follows imports and substance, nothing else; and the library imports in ways it can follow."""

import ast

import pytest

from paths import REPOSITORY
from teleport.runtime import code

LIBRARY = REPOSITORY / "workflow_scripts" / "teleport"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of the library's layout with three modules: `run` imports `used` inside a function, not `unused`."""
    folder = tmp_path / "teleport"
    (folder / "a").mkdir(parents=True)
    for package in (folder, folder / "a"):
        (package / "__init__.py").write_text("")
    (folder / "a" / "run.py").write_text(
        '"""Doc."""\n\ndef run():\n    """Doc."""\n    from teleport.a import used\n    return used\n'
    )
    (folder / "a" / "used.py").write_text("X = 1\n")
    (folder / "a" / "unused.py").write_text("X = 1\n")
    runner = tmp_path / "run_stage.py"
    runner.write_text("import teleport\n")
    monkeypatch.setattr(code, "LIBRARY", folder)
    monkeypatch.setattr(code, "RUNNER", runner)
    return folder


def digest(folder):
    code.parsed.cache_clear()
    code.import_closure.cache_clear()
    return code.code_digest(folder / "a" / "run.py")


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("a/run.py", "return used", "return used, 1", True),
        ("a/used.py", "X = 1", "X = 2", True),
        ("../run_stage.py", "import teleport", "import teleport\nY = 1", True),
        ("a/unused.py", "X = 1", "X = 2", False),
        ("a/run.py", '"""Doc."""', '"""Another text."""', False),
        ("a/used.py", "X = 1", "# why\nX = 1  # because", False),
        ("a/used.py", "X = 1", "X  =  1\n\n\n", False),
    ],
)
def test_only_substance_in_the_import_closure_changes_the_digest(library, file, old, new, changes):
    before = digest(library)
    text = (library / file).read_text()
    assert old in text
    (library / file).write_text(text.replace(old, new))
    assert (digest(library) != before) == changes


@pytest.mark.parametrize("file", ["a/run.py", "a/unused.py", "../run_stage.py"])
def test_the_digest_of_the_files_changes_with_every_byte(library, file):
    before = code.files_digest()
    assert code.files_digest() == before
    (library / file).write_text((library / file).read_text() + "# why\n")
    assert code.files_digest() != before


def test_the_digest_of_the_files_changes_with_their_names(library):
    before = code.files_digest()
    (library / "a" / "unused.py").rename(library / "a" / "gone.py")
    assert code.files_digest() != before


def test_a_docstring_only_function_has_a_digest(library):
    (library / "a" / "used.py").write_text('class X:\n    """Doc."""\n')
    assert len(digest(library)) == 12


def test_every_stage_module_exists_and_merge_does_not_depend_on_training():
    code.parsed.cache_clear()
    code.import_closure.cache_clear()
    for kind, module in code.STAGE_MODULES.items():
        assert code.module_path(module) is not None, f"{kind}: {module}"
    merge = code.import_closure(code.module_path(code.STAGE_MODULES["merge"]))
    assert LIBRARY / "negatives" / "pool.py" in merge
    assert not any("training" in path.parts or "encoder" in path.parts for path in merge)


def test_stages_do_not_depend_on_the_configuration():
    """A new default or a reworded description would otherwise rerun everything."""
    for kind, module in code.STAGE_MODULES.items():
        files = code.import_closure(code.module_path(module)) - {code.RUNNER}
        names = {path.relative_to(LIBRARY).parts[0].removesuffix(".py") for path in files}
        assert not names & {"config", "settings", "plan", "planned", "trajectory", "places", "yaml_mapping"}, kind


def test_the_library_imports_in_ways_the_digest_follows():
    """No relative, dynamic or star imports below the library."""
    for path in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0 and node.names[0].name != "*", path
            if isinstance(node, ast.Attribute | ast.Name):
                assert getattr(node, "attr", getattr(node, "id", "")) not in {"import_module", "__import__"}, path
