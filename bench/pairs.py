"""Three small collections of pairs from files of a machine, to try the whole way from pairs to a table.

    python bench/pairs.py functions functions.jsonl    # Python's standard library: a docstring's first paragraph → code
    python bench/pairs.py foldoc foldoc.jsonl          # a dictionary of computing: term → definition
    python bench/pairs.py cloud cloud.jsonl            # two cloud clients' documentation: first sentence → the rest

Then `teleport new functions functions.jsonl`. The dictionary is Debian's package dict-foldoc; the clients are in
requirements-cloud.txt. Which pairs are taken follows from their digests, so one version of Python, of the dictionary or
of the clients gives one file.
"""

import argparse
import ast
import gzip
import hashlib
import json
import re
import sysconfig
from pathlib import Path

LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
LEAST_WORDS = 12  # of a passage


def functions(home):
    """(question, passage) of the functions below a folder that have a docstring."""
    for path in sorted(home.rglob("*.py")):
        if LEFT_OUT.isdisjoint(path.relative_to(home).parts):
            yield from functions_of(path.read_text(encoding="utf-8", errors="replace"))


def functions_of(source):
    """The same as `functions`, of the text of one module. The passage is the code without the docstring."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (said := ast.get_docstring(node)):
            first, docstring = said.split("\n\n")[0], node.body[0]
            code = lines[node.lineno - 1 : docstring.lineno - 1] + lines[docstring.end_lineno : node.end_lineno]
            if 3 <= len(first.split()) <= 25:
                yield first, "\n".join(code)


def terms(path):
    """(term, definition) of a dictionary in dictd's form: terms begin a line, definitions are indented."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        entries = re.split(r"\n\n(?=\S)", file.read())
    for term, _, definition in (entry.partition("\n") for entry in entries):
        if not term.startswith("00-database"):  # about the dictionary itself
            yield term, definition


def documentation():
    """(question, passage) of the collection `source: cloud`, from installed packages."""
    from teleport.collection.forms.cloud import Cloud, harvest

    settings = Cloud(source="cloud")
    return ((query, text) for _, query, text in harvest(settings.versions(), settings.min_words) if query)


SOURCES = {
    "functions": (functions, Path(sysconfig.get_path("stdlib"))),
    "foldoc": (terms, Path("/usr/share/dictd/foldoc.dict.dz")),
    "cloud": (documentation, None),
}


def chosen(pairs, most):
    """At most `most` pairs whose passages have enough words, in the order of the passages' digests. White space becomes
    one blank; the last of equal passages counts."""
    of_passage = {" ".join(passage.split()): " ".join(question.split()) for question, passage in pairs}
    order = sorted(of_passage, key=lambda passage: hashlib.sha256(passage.encode()).digest())
    return [(of_passage[each], each) for each in order if len(each.split()) >= LEAST_WORDS][:most]


def main(arguments=None):
    made = argparse.ArgumentParser(description="Small collections of pairs.")
    made.add_argument("source", choices=SOURCES)
    made.add_argument("output", type=Path, help="the file of JSON lines to write; it must not exist")
    made.add_argument("--from", type=Path, dest="place", help="the folder or dictionary; default: that of this machine")
    made.add_argument("--most", type=int, default=1000, help="pairs; default: 1000")
    arguments = made.parse_args(arguments)
    read, usual = SOURCES[arguments.source]
    place = arguments.place or usual
    if place and not usual:
        made.error(f"--from {place}: {arguments.source} is read from installed packages. Leave it out.")
    if place and not place.exists():
        made.error(f"{place} does not exist: give another --from, or for foldoc install Debian's package dict-foldoc")
    pairs = chosen(read(place) if place else read(), arguments.most)
    with open(arguments.output, "x", encoding="utf-8") as file:
        for query, passage in pairs:
            file.write(json.dumps({"query": query, "passage": passage}, ensure_ascii=False) + "\n")
    print(f"{len(pairs):,} pairs in {arguments.output}")


if __name__ == "__main__":
    main()
