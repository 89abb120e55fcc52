"""Which code a stage runs: the digest of its modules and of all library modules that they import.

Snakemake tracks it as a parameter. It is taken from the syntax tree without docstrings and without the descriptions of
settings: an edit reruns exactly the stages that depend on the module; a comment, a touch or a checkout reruns none. The
modules of a stage are that of its kind and those that the plan chose by name, such as a loss.
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
    "lexical_index": "teleport.search.lexical_index",
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
    "rerank": "teleport.search.rerank",
    "errors": "teleport.search.errors",
    "contrast": "teleport.evaluation.contrast",
    "negatives_overlap": "teleport.negatives.overlap",
    "forgetting": "teleport.evaluation.forgetting",
}


def module_path(name):
    """The file of a library module: `teleport.a.b` → …/teleport/a/b.py or …/a/b/__init__.py; None for other names."""
    parts = name.split(".")
    if parts[0] != LIBRARY.name:
        return None
    stem = LIBRARY.joinpath(*parts[1:])
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if len(parts) > 1 and p.is_file()), None)


def drop_documentation(node):
    """Remove the docstring of a parsed module, class or function, and the description of a setting, in place."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Field":
        node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]


def imported_names(node):
    """The modules that a parsed statement may import; none for others."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


@functools.cache
def parsed(path):
    """(digest of the syntax tree without documentation, files of the library modules it imports anywhere) of a file."""
    tree, names = ast.parse(path.read_text(encoding="utf-8"), str(path)), set()
    for node in ast.walk(tree):  # in one pass: every dry run waits for it
        drop_documentation(node)
        names.update(imported_names(node))
    files = {found for name in names if (found := module_path(name))}
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), files


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


def module_digest(name):
    """12 hex digits of the library module `name` and all that it can load. Raises ValueError when there is none."""
    path = module_path(name)
    if path is None:
        raise ValueError(f"there is no library module {name}: it needs a file below {LIBRARY}, or another name.")
    files = import_closure(path) | import_closure(RUNNER)  # what runs every stage belongs to each
    return digest_of(f"{path.relative_to(LIBRARY.parent)} {parsed(path)[0]}" for path in files)


def stage_code(kind, loads, digest=module_digest):
    """The code digest of a stage of `kind` and the modules it loads ({name: module}); digest: of a module by name."""
    return digest_of({digest(name) for name in (STAGE_MODULES[kind], *loads.values())})


def digest_of(lines):
    """12 hex digits of some lines, whatever their order."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]


def files_digest():
    """12 hex digits of the bytes of all files that code digests come from: while they hold, nothing need be parsed."""
    digest = hashlib.sha256()
    for path in sorted([RUNNER, *LIBRARY.rglob("[!.]*.py")]):  # editors keep hidden files
        digest.update(f"{path.relative_to(LIBRARY.parent)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]
