"""The code digest follows imports and substance, nothing else; and the library imports in ways it can follow."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paths import REPOSITORY
from teleport.plan.kinds import KINDS, Kind
from teleport.running import code
from teleport.settings.registry import registered_modules

LIBRARY = REPOSITORY / "workflow_scripts" / "teleport"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of the library's layout: `run`, of the kind `made`, imports `used` inside a function, not `unused`."""
    folder = tmp_path / "teleport"
    (folder / "a").mkdir(parents=True)
    (folder / "running").mkdir()
    for package in (folder, folder / "a", folder / "running"):
        (package / "__init__.py").write_text("")
    (folder / "running" / "log.py").write_text("from teleport.a import unused\n\nY = 1\n")
    (folder / "a" / "run.py").write_text(
        '"""Doc."""\n\ndef run():\n    """Doc."""\n    from teleport.a import used\n    return used\n'
    )
    (folder / "a" / "used.py").write_text("from teleport.running import log\n\nX = 1\n")
    (folder / "a" / "unused.py").write_text("X = 1\n")
    runner = tmp_path / "run_stage.py"
    runner.write_text("import teleport\n")
    monkeypatch.setattr(code, "LIBRARY", folder)
    monkeypatch.setattr(code, "RUNNER", runner)
    monkeypatch.setattr(code, "RUNNING", folder / "running")
    monkeypatch.setitem(KINDS, "made", Kind("teleport.a.run"))
    yield folder
    forget()


def forget():
    code.parsed.cache_clear()
    code.import_closure.cache_clear()


def digest(loads=None):
    """The code digest of a stage of the kind `made`, from the files as they are now."""
    forget()
    return code.stage_code("made", loads or {})


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("a/run.py", "return used", "return used, 1", True),
        ("a/used.py", "X = 1", "X = 2", True),
        ("../run_stage.py", "import teleport", "import teleport\nY = 1", False),
        ("running/log.py", "Y = 1", "Y = 2", False),
        ("a/unused.py", "X = 1", "X = 2", False),
        ("a/run.py", '"""Doc."""', '"""Another text."""', False),
        ("a/used.py", "X = 1", "# why\nX = 1  # because", False),
        ("a/used.py", "X = 1", "X  =  1\n\n\n", False),
    ],
)
def test_only_substance_in_the_import_closure_changes_the_digest(library, file, old, new, changes):
    before = digest()
    edit(library / file, old, new)
    assert (digest() != before) == changes


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_another_form_of_artefacts_is_other_code(library, monkeypatch):
    before = digest()
    monkeypatch.setattr(code, "FORMAT", code.FORMAT + 1)
    assert digest() != before


SPOKEN = """from teleport.refusal import Refusal

def use(x):
    log.info("%d texts", x)
    if x < 0:
        raise Refusal(f"x is {x}. Raise it.")
    raise KeyError("x")
"""


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("%d texts", "of %d texts", False),
        ("Raise it.", "Make it larger.", False),
        ("x < 0", "x < 1", True),
        ('KeyError("x")', 'KeyError("y")', True),
        ("raise Refusal", "raise KeyError", True),
    ],
)
def test_sentences_for_a_person_are_no_substance(library, old, new, changes):
    (library / "a" / "used.py").write_text(SPOKEN)
    before = digest()
    edit(library / "a" / "used.py", old, new)
    assert (digest() != before) == changes


SENTENCES = """from teleport.refusal import Refusal, Remedy

AGAIN = Remedy("Fetch it again.")
NAME = "passages.npy"

def use(rows, x):
    remedy = f"Correct line {x}."
    kept, how = f"{x}.npy", "fast" if x else "slow"
    name = f"{x}.npy"
    if x < 0:
        raise wrong_row(NAME, x, f"no number. {remedy}")
    if x > 9:
        raise rows.wrong(x, f"too large. {AGAIN}")
    if x == 5:
        raise ValueError("five is refused")
    warn_once("odd" if x % 2 else "even")
    return name, kept, how
"""


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("Fetch it again.", "Get it again.", False),
        ("Correct line", "Mend line", True),  # text in a variable counts
        ("no number.", "not a number.", False),
        ("too large.", "too big.", False),
        ("five is refused", "5 is refused", False),
        ('"odd"', '"uneven"', False),
        ("passages.npy", "passages.bin", True),
        ('name = f"{x}.npy"', 'name = f"{x}.bin"', True),
        ('kept, how = f"{x}.npy"', 'kept, how = f"{x}.bin"', True),
        ("fast", "quick", True),
        ("x < 0", "x < 1", True),
        ("rows.wrong(", "rows.other(", True),
    ],
)
def test_sentences_of_helpers_are_no_substance(library, old, new, changes):
    (library / "a" / "used.py").write_text(SENTENCES)
    before = digest()
    edit(library / "a" / "used.py", old, new)
    assert (digest() != before) == changes


PINNED = """from teleport.refusal import Refusal

class Pair(dict, total=False):
    \"\"\"Doc.\"\"\"
    x: int = 1

def use(x, /, *rest, width=3, **more):
    # why
    with open(x) as file, open(f"{x!r:>{width}} {{y}} {x:%Y}†" "a" rf"\\d{x}" f"{x=}{x:}") as other:
        match file:
            case {"a": None, **left} if left:
                return None
            case [1, *_] | Pair(x=-0.0):
                return b"\\0", 1e-5, ..., [*rest], lambda: {**more, "b": not x}
    raise Refusal("x")
"""


def test_the_digest_of_a_source_is_this_one_on_every_python(library):
    (library / "a" / "used.py").write_text(PINNED, encoding="utf-8")
    forget()
    assert code.parsed(library / "a" / "used.py")[0][:12] == "e9e7358258c2"


def other_pythons():
    """The programs of the Pythons from 3.11 on that can run here, one a version, besides this one."""
    found = {}
    programs = [shutil.which(f"python3.{minor}") for minor in range(11, 15)]
    for program in filter(None, [*programs, *Path.home().glob(".pyenv/versions/3.1[1-4].*/bin/python")]):
        asked = [program, "-c", "import sys; print(*sys.version_info[:2])"]
        told = subprocess.run(asked, capture_output=True, text=True)
        if not told.returncode:  # a shim of pyenv is there also for what cannot be run
            found[told.stdout.split()[1]] = program
    found.pop(str(sys.version_info[1]), None)
    return list(found.values())


DIGESTS = """
import sys, types

for name, holds in {names!r}.items():  # what needs compiled libraries, which another Python does not have
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(dict.fromkeys(holds))
sys.path.insert(0, {path!r})
from teleport.running import code

for module in {modules!r}:
    print(module, code.module_digest(module))
"""


def test_two_pythons_have_equal_digests_of_all_code():
    if not (others := other_pythons()):
        pytest.skip("one Python is installed")
    names = {"teleport.plan.kinds": ["KINDS"], "teleport.settings.registry": ["registered_modules"]}
    names["teleport.running.files"] = ["read_saved", "sha256_file", "write_json"]
    digests = {name: value for name, value in code.digests_of_all().items() if name != "files"}
    asked = DIGESTS.format(names=names, path=str(LIBRARY.parent), modules=list(digests))
    for program in others:
        told = subprocess.run([program, "-B", "-c", asked], capture_output=True, text=True, check=True).stdout
        assert dict(map(str.split, told.splitlines())) == digests, program
    assert len(digests) > 80


DESCRIBED = 'from pydantic import Field\n\nX = Field(1, ge=0, description="Text.")\n'


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ('description="Text."', 'description="Another text."', False),
        (', description="Text."', "", False),
        ("ge=0", "ge=1", True),
        ("Field(1", "Field(2", True),
    ],
)
def test_descriptions_of_settings_are_documentation(library, old, new, changes):
    (library / "a" / "used.py").write_text(DESCRIBED)
    before = digest()
    edit(library / "a" / "used.py", old, new)
    assert (digest() != before) == changes


LOSS = {"loss": "teleport.a.loss"}


@pytest.fixture
def with_losses(library):
    """The library with two modules that no other imports, one of which a plan may name."""
    for name in ("loss", "other"):
        (library / "a" / f"{name}.py").write_text("from teleport.a import unused\n\nY = unused.X\n")
    return library


def test_a_stage_that_loads_a_module_has_its_code(with_losses):
    assert len({digest(), digest(LOSS), digest({"loss": "teleport.a.other"})}) == 3
    assert digest(LOSS) == digest({"another name": "teleport.a.loss"})
    assert digest(LOSS) == digest(LOSS | {"twice": "teleport.a.loss"})


@pytest.mark.parametrize("file", ["a/loss.py", "a/unused.py"])
def test_an_edit_of_a_loaded_module_or_its_imports_concerns_only_who_loads_it(with_losses, file):
    without, loading = digest(), digest(LOSS)
    with open(with_losses / file, "a") as text:
        text.write("\nZ = 1\n")
    assert digest() == without and digest(LOSS) != loading


def test_a_new_module_changes_no_code(with_losses):
    before = digest(LOSS)
    (with_losses / "a" / "new.py").write_text("X = 1\n")
    assert digest(LOSS) == before


def test_digests_that_are_known_are_combined_to_the_same_code(with_losses):
    known = {name: code.module_digest(name) for name in ("teleport.a.run", "teleport.a.loss")}
    assert code.stage_code("made", LOSS, known.__getitem__) == digest(LOSS)


def test_a_module_that_is_not_there_is_named(library):
    with pytest.raises(ValueError, match=r"teleport\.a\.gone: "):
        digest({"loss": "teleport.a.gone"})


@pytest.mark.parametrize("file", ["a/run.py", "a/unused.py", "../run_stage.py"])
def test_the_digest_of_the_files_changes_with_every_byte(library, file):
    before = code.files_digest()
    assert code.files_digest() == before
    (library / file).write_text((library / file).read_text() + "# why\n")
    assert code.files_digest() != before


@pytest.mark.ci(0)
def test_digests_that_were_kept_hold_until_a_file_changes(tmp_path):
    """In a copy of the library; a kept file that is torn is made again."""
    shutil.copytree(LIBRARY.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    told = """
import json
from teleport.running import code
print(json.dumps([code.digests_of_all(), code.parsed.cache_info().misses]))
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "copy")}

    def digests(*options):
        command = [sys.executable, *options, "-c", told]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    without, parsed = digests("-B")  # without bytecode nothing is kept
    assert parsed and digests() == [without, parsed] and digests() == [without, 0]
    (kept,) = (tmp_path / "copy/__pycache__").glob("digests.*.json")
    kept.write_text(kept.read_text()[:100])
    assert digests() == [without, parsed] and digests() == [without, 0]
    kept.unlink()
    kept.symlink_to(kept)  # no more readable than the file of another person
    assert digests() == [without, parsed] and digests() == [without, 0]
    with open(tmp_path / "copy/teleport/training/losses/nll.py", "a") as file:
        file.write("\nZ = 1\n")
    changed, parsed_again = digests()
    assert parsed_again == parsed and {name for name in without if changed[name] != without[name]} == {
        "teleport.training.losses.nll",
        "files",
    }


def test_the_digest_of_the_files_changes_with_their_names(library):
    before = code.files_digest()
    (library / "a" / "unused.py").rename(library / "a" / "gone.py")
    assert code.files_digest() != before


def test_a_docstring_only_function_has_a_digest(library):
    (library / "a" / "used.py").write_text('class X:\n    """Doc."""\n')
    assert len(digest()) == 12


@pytest.mark.parametrize("module", sorted({*(kind.module for kind in KINDS.values()), *registered_modules()}))
def test_every_module_exists_and_none_knows_the_registry_or_the_configuration(module):
    """A new source or loss is a line there, a new default or key of a configuration is there: both rerun nothing."""
    path = code.module_path(module)
    assert path is not None
    files = {str(path.relative_to(LIBRARY)) for path in code.import_closure(path)}
    assert not {name for name in files if name.startswith(("plan/", "report/"))}
    assert not files & {f"settings/{name}.py" for name in ("registry", "configuration", "read", "negatives")}


@pytest.mark.parametrize("module", sorted(registered_modules()))
def test_what_is_chosen_by_name_is_in_no_other_code(module):
    """A setting added to one loss, mask, draw, filter or source reruns the stages that load it, and no others."""
    path = code.module_path(module)
    modules = registered_modules() | {kind.module for kind in KINDS.values()}
    holders = {name for name in modules if path in code.import_closure(code.module_path(name))}
    assert holders == {module}


def test_an_edit_of_the_forecast_reruns_no_stage():
    paths = {path for row in KINDS.values() for path in code.import_closure(code.module_path(row.module))}
    assert {path.name for path in paths} >= {"budget.py", "shape.py"}, "not vacuous: they serve stages and the forecast"
    assert "costs.py" not in {path.name for path in paths}


def test_merge_does_not_depend_on_training():
    merge = code.import_closure(code.module_path(KINDS["merge"].module))
    assert LIBRARY / "negatives" / "pool.py" in merge
    assert not any({"training", "encoder"} & set(path.parts) for path in merge)


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("train", "settings/search.py"),
        ("cross_train", "training/train.py"),
        ("cross_train", "settings/search.py"),
        ("cross_score", "settings/training.py"),
        ("ranker", "settings/training.py"),
        ("scores_file", "settings/training.py"),
        ("negatives_file", "negatives/scores_file.py"),
    ],
)
def test_what_two_stages_share_stands_in_a_file_of_its_own(kind, other):
    """An edit of what the other one has alone reruns only that one."""
    assert (LIBRARY / other).is_file()
    assert LIBRARY / other not in code.import_closure(code.module_path(KINDS[kind].module))


def test_the_library_imports_in_ways_the_digest_follows():
    """No relative, dynamic or star imports below the library. A job alone loads its stage and what the plan chose; the
    registry, which no stage imports, the modules that it names."""
    loading = {LIBRARY / name for name in ("running/job.py", "settings/registry.py")}
    for path in set(LIBRARY.rglob("*.py")) - loading:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0 and node.names[0].name != "*", path
            if isinstance(node, ast.Attribute | ast.Name):
                assert getattr(node, "attr", getattr(node, "id", "")) not in {"import_module", "__import__"}, path


MAKES_THE_COLLECTION = {"download", "corpus", "split"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_of_the_package_collection_changes_no_code_of_stages_after_it(kind):
    files = code.import_closure(code.module_path(KINDS[kind].module))
    assert any(path.is_relative_to(LIBRARY / "collection") for path in files) == (kind in MAKES_THE_COLLECTION)
