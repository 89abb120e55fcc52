"""The embedded collection: the API documentation of installed packages.

The summary of a docstring is the query, its body the passage, the qualified name the title. Every query has one
positive; siblings in the same module and class make it hard. Sources are parsed with `ast`, never imported, and the
packages' versions are pinned, so that everybody gets the same texts.
"""

import ast
import re
import warnings
from importlib import metadata
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from teleport.collection.documented import SPLIT_BELOW, documented_passages, documented_split
from teleport.refusal import Refusal
from teleport.running.log import log
from teleport.settings.collection import Judged
from teleport.settings.section import Natural, Text

# Folders and files that do not document the package itself: tests, copies of other packages, and numpy.distutils, which
# exists below Python 3.12 only.
SKIPPED = {"tests", "test", "conftest", "benchmarks", "_testing", "distutils"}
SKIPPED |= {"_lib", "_vendor", "vendor", "_external", "externals"}
# First paragraphs of other lengths are headings or prose, not short descriptions that someone would type.
SUMMARY_WORDS = range(3, 26)
# Neither are call signatures, directives, and sentences that lead over to an example.
NOT_A_SUMMARY = re.compile(r"[\w.]+\(.*|\.\. .*|.*:")

DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # imported name → installed name, if they differ
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
UNDERLINE = re.compile(r"^\s*([=\-~^*#+])\1{2,}\s*$", re.MULTILINE)
# `x`, ``x``, :func:`~x`, `text <target>`_: the rendered page shows x or text.
MARKUP = re.compile(r"(?::[\w:+-]+:)?(`+)[~!]?([^`]+?)(?:\s*<[^`<>]*>)?\1_{0,2}")


class ApiDocs(Judged):
    """The embedded collection: API documentation of installed packages, read from their sources with `ast`."""

    parsed: ClassVar = True

    source: Literal["apidocs"]
    packages: list[Text] = Field(
        min_length=1, description="Installed packages whose docstrings are read; their versions enter the key."
    )
    min_words: Natural = Field(20, description="Docstring bodies with fewer words are left out.")

    def split_names(self):
        return list(SPLIT_BELOW)

    def versions(self):
        return {name: package_version(name) for name in self.packages}


Settings = ApiDocs


class Doc(NamedTuple):
    """A public name of a package: its dotted name, the first paragraph of its docstring in one line, and the rest."""

    name: str
    summary: str
    body: str


def corpus(settings, job):
    """The passages of an `ApiDocs`, of the versions that the plan has pinned."""
    return documented_passages("API documentation", harvest(job.settings.versions, settings.min_words), job)


def split(settings, name, job):
    """A split of an `ApiDocs`."""
    return documented_split(name, job)


def harvest(versions, min_words):
    """The documented objects of the packages `versions` ({package: version}) as Docs sorted by name.

    Left out: bodies of fewer than `min_words` words; first paragraphs that are no summary (SUMMARY_WORDS,
    NOT_A_SUMMARY); objects with the name, summary or body of an earlier one (summary and body ignoring case).
    """
    docs, seen = [], set()
    for doc in sorted(doc for package, version in versions.items() for doc in package_docs(package, version)):
        texts = {("name", doc.name), ("summary", doc.summary.casefold()), ("body", doc.body.casefold())}
        fits = len(doc.body.split()) >= min_words and len(doc.summary.split()) in SUMMARY_WORDS
        if fits and not NOT_A_SUMMARY.fullmatch(doc.summary) and not texts & seen:
            seen |= texts
            docs.append(doc)
    return docs


def package_docs(package, version):
    """The Docs of all public objects in the .py files of an installed package, unfiltered. Only files in its
    distribution's record are read: stray files in its folder change nothing."""
    if (installed := package_version(package)) != version:
        pinned = f"{package} {installed} is installed, but {version} is pinned, and other versions have other texts"
        raise Refusal(f"collection.packages: {pinned}. Install the pinned version.")
    listed = metadata.distribution(DISTRIBUTIONS.get(package, package)).files or []
    files = [file for file in sorted(listed) if file.suffix == ".py" and file.parts[0] == package]
    docs = [doc for file in files if not SKIPPED & {*file.with_suffix("").parts} for doc in file_docs(file)]
    if not docs:
        raise Refusal(f"collection.packages: {package} has no docstrings in its .py files. Remove it from the list.")
    return docs


def package_version(name):
    """The installed public version of the distribution of package `name`, for example sklearn → 1.9.1. The local part
    is dropped: torch 2.13.0+cpu and 2.13.0+cu130 are built from the same sources."""
    try:
        return metadata.version(DISTRIBUTIONS.get(name, name)).split("+")[0]
    except metadata.PackageNotFoundError:
        remedy = "install it, or take it out of the list."
        raise Refusal(f"the package {name!r} of the configuration is not installed: {remedy}") from None


def file_docs(file):
    """The Docs of an importlib.metadata.PackagePath; a file in the syntax of a newer Python has none and is logged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # invalid escapes in other people's strings
        try:
            tree = ast.parse(file.locate().read_bytes())
        except SyntaxError as error:
            log.warning("%s left out: %s", file, error)
            return []
    module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    objects = [(module, tree), *documented(tree, module)]
    return [parse(name, text) for name, node in objects if (text := ast.get_docstring(node))]


def documented(node, name):
    """(qualified name, node) of all public functions and classes in a module or class, also below an `if` or `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.Try):
            yield from documented(child, name)
        elif isinstance(child, DEFINITIONS) and not child.name.startswith("_"):
            yield f"{name}.{child.name}", child
            if isinstance(child, ast.ClassDef):  # definitions inside a function are not API
                yield from documented(child, f"{name}.{child.name}")


def parse(name, docstring):
    """The Doc of a docstring: its first paragraph and the rest, each on one line and without inline markup."""
    summary, _, body = UNDERLINE.sub("", docstring).strip().partition("\n\n")
    return Doc(name, *(" ".join(MARKUP.sub(r"\2", text).split()) for text in (summary, body)))
