"""The code that computes a stage's result: the digest of its modules and of all library modules that they import.

Snakemake tracks it as a parameter. It is taken from a normal form of the source that is the same on every Python and
leaves out text that only a person reads: comments, docstrings, descriptions of settings, sentences of refusals and of
the log. So an edit reruns the stages that depend on the module; a comment, a touch or a checkout reruns none. The
modules of a stage are the module of its kind and those that the plan chose by name, such as a loss. The package
`teleport.running`, which only runs stages, is not counted. Neither is the template of the model card, which no stage
reads from a checkpoint; `Artefact.digest` leaves the card out, too.
"""

import ast
import functools
import hashlib
import sys
from contextlib import suppress
from pathlib import Path

from teleport.plan.kinds import KINDS
from teleport.refusal import Refusal
from teleport.running.files import read_saved, sha256_file, write_json
from teleport.settings.registry import registered_modules

LIBRARY = Path(__file__).parents[1]  # workflow_scripts/teleport
RUNNER = LIBRARY.parent / "run_stage.py"
RUNNING = LIBRARY / "running"
# The format of artefacts and manifests, which `teleport.running` writes. Raise it by hand when the format changes: then
# every stage reruns.
FORMAT = 1
# The modules of the rules in rules/tables.smk.
REPORTS = ("teleport.report.write", "teleport.report.links", "teleport.report.page.write", "teleport.negatives.export")


# Calls whose arguments only a person reads: they refuse, warn or log. An edited sentence in the trainer must not train
# again. Each entry is the full name of the called function, or its last part.
SPOKEN = {"Refusal", "ValueError", "Remedy", "wrong_row", "wrong", "refuse", "refusing", "warn_once"}
SPOKEN |= {"log.info", "log.warning"}


def module_path(name):
    """The file of a library module: `teleport.a.b` → …/teleport/a/b.py or …/a/b/__init__.py; None for other names."""
    library, *names = name.split(".")
    if library != LIBRARY.name or not names:
        return None
    stem = LIBRARY.joinpath(*names)
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


def drop_words(node):
    """Remove text for people from a parsed node, in place: docstrings, descriptions, sentences."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    elif isinstance(node, ast.Call):
        called = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
        if called == "Field":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]
        elif not SPOKEN.isdisjoint((called, called.rpartition(".")[2])):
            node.args, node.keywords = [], []


def normal_form(node):
    """A parsed node as text that is the same on every Python from 3.11 on. `ast.dump` and `ast.unparse` change between
    versions, and so do the tokens of f-strings.

    Empty fields are left out, because newer versions have more of them; so are empty texts within an f-string, which
    Python 3.12 adds to formats.
    """
    if isinstance(node, ast.AST):
        name, inside = type(node).__name__, []
        for field in node._fields:
            value = getattr(node, field, None)
            if name == "JoinedStr":
                value = [part for part in value if getattr(part, "value", None) != ""]
            if value is not None and value != [] and field != "ctx":
                inside.append(f"{field}={normal_form(value)}")
        return f"{name}({','.join(inside)})"
    if isinstance(node, list):
        return f"[{','.join(map(normal_form, node))}]"
    return ascii(node)


def imported_names(node):
    """The modules that a parsed statement may import (list of dotted names); none for other statements."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def substance(path):
    """(syntax tree of a file without text for people, names of the modules that it may import)."""
    tree, names = ast.parse(path.read_text(encoding="utf-8"), str(path)), set()
    for node in ast.walk(tree):  # in one pass: every dry run waits for it
        drop_words(node)
        names.update(imported_names(node))
    return tree, names


@functools.cache
def parsed(path):
    """(digest of a file's normal form without text for people, files of the library modules that it imports
    anywhere)."""
    tree, names = substance(path)
    return hashlib.sha256(normal_form(tree).encode()).hexdigest(), set(filter(None, map(module_path, names)))


@functools.cache
def import_closure(path):
    """All library files behind the results of `path`: itself and everything it can load, without `teleport.running`."""
    closure, queue = set(), [path]
    while queue:
        current = queue.pop()
        if current not in closure:
            closure.add(current)
            queue.extend(file for file in parsed(current)[1] if not file.is_relative_to(RUNNING))
    return closure


def module_digest(name):
    """12 hex digits for the library module `name` and all modules that it computes with."""
    path = module_path(name)
    if path is None:
        raise Refusal(f"there is no library module {name}: add a file in {LIBRARY}, or correct the name.")
    lines = [f"{path.relative_to(LIBRARY.parent)} {parsed(path)[0]}" for path in import_closure(path)]
    return digest_of([f"format {FORMAT}", *lines])


def digests_of_all():
    """{module: digest} of every module that a rule runs, and `files_digest` as "files".

    They are cached beside Python's bytecode while no file changes: parsing all files is a fifth of a dry run.
    """
    files, kept = files_digest(), LIBRARY.parent / f"__pycache__/digests.{sys.implementation.cache_tag}.json"
    with suppress(OSError):  # another person's, which this one may not read
        if (digests := read_saved(kept)).get("files") == files:
            return digests
    modules = {kind.module for kind in KINDS.values()} | registered_modules() | set(REPORTS)
    of_modules = {name: module_digest(name) for name in sorted(modules)}
    digests = of_modules | {"files": files}
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            write_json(kept, digests)
    return digests


def stage_code(kind, loads, digest=module_digest):
    """The code digest of a stage of `kind` and the modules it loads ({name: module}); digest: of a module by name."""
    return digest_of({digest(name) for name in (KINDS[kind].module, *loads.values())})


def digest_of(lines):
    """12 hex digits for some lines, whatever their order."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]


def files_digest():
    """12 hex digits for the bytes of all files behind code digests: while they are the same, nothing need be parsed."""
    paths = [RUNNER, *LIBRARY.rglob("[!.]*.py")]  # editors leave hidden files
    return digest_of(f"{path.relative_to(LIBRARY.parent)} {sha256_file(path)}" for path in paths)
