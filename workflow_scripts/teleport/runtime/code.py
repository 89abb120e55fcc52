"""Which code a stage runs: the digest of its module and of all library modules that it imports.

Snakemake tracks this digest as a parameter. It is taken from the syntax tree without docstrings, so an edit reruns
exactly the stages that depend on the edited module, and a comment, a touch or a checkout reruns nothing.
"""

import ast
import functools
import hashlib
from pathlib import Path

LIBRARY = Path(__file__).parents[1]  # workflow_scripts/teleport
RUNNER = LIBRARY.parent / "run_stage.py"

STAGE_MODULES = {
    "download": "teleport.collection.download",
    "collection": "teleport.collection.build",
    "check": "teleport.evaluation.check",
    "pretrained": "teleport.encoder.pretrained",
    "tokens": "teleport.encoder.tokens",
    "bm25": "teleport.search.bm25",
    "encode": "teleport.encoder.encode",
    "index": "teleport.search.index",
    "retrieve": "teleport.search.retrieve",
    "positives": "teleport.negatives.positives",
    "negatives_file": "teleport.negatives.file",
    "merge": "teleport.negatives.merge",
    "train": "teleport.training.train",
    "evaluate": "teleport.evaluation.evaluate",
    "external": "teleport.evaluation.external",
}


def module_path(name):
    """The file of a library module: `teleport.a.b` → …/teleport/a/b.py or …/a/b/__init__.py; None for other names."""
    parts = name.split(".")
    if parts[0] != LIBRARY.name:
        return None
    stem = LIBRARY.joinpath(*parts[1:])
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if len(parts) > 1 and p.is_file()), None)


def without_docstrings(tree):
    """Remove the docstrings of a parsed module, in place; returns the tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
    return tree


def imported_modules(tree):
    """Files of the library modules that a parsed module imports anywhere, also inside functions."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {path for name in names if (path := module_path(name))}


@functools.cache
def parsed(path):
    """(digest of the syntax tree, files of imported library modules) of one file."""
    tree = without_docstrings(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imported_modules(tree)


@functools.cache
def import_closure(path):
    """All library files that running `path` can load, itself included."""
    found, queue = set(), [path]
    while queue:
        current = queue.pop()
        if current not in found:
            found.add(current)
            queue.extend(parsed(current)[1])
    return found


def code_digest(start):
    """12 hex digits that change when the file `start` or a library module that it can load changes in substance."""
    files = import_closure(Path(start)) | import_closure(RUNNER)
    lines = sorted(f"{path.relative_to(LIBRARY.parent)} {parsed(path)[0]}" for path in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def stage_code_digest(kind):
    """The code digest of the stage module of `kind`."""
    return code_digest(module_path(STAGE_MODULES[kind]))


def files_digest():
    """12 hex digits of the bytes of all files that code digests are taken from.

    Where it is what it was, so are they: a job compares it and need not parse files that nobody has edited.
    """
    digest = hashlib.sha256()
    for path in sorted([RUNNER, *LIBRARY.rglob("[!.]*.py")]):  # editors keep hidden files
        digest.update(f"{path.relative_to(LIBRARY.parent)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]
