"""A larger collection that anybody can install: the documentation of two cloud clients, from their data files.

botocore describes Amazon's services (service-2.json), google-api-python-client Google's (discovery documents); both are
Apache-2.0 and none of their code is run. The first sentence of a documented operation, shape, member, method or
property is the query, the rest of its text the passage. A text without such a rest is a passage without a query. Such
passages make the search hard: most document a sibling or another service with the same words.
"""

import gzip
import html
import json
import re
from importlib import metadata
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from teleport.collection.documented import SPLIT_BELOW, documented_passages, documented_split
from teleport.refusal import Refusal
from teleport.settings.collection import Judged
from teleport.settings.section import Natural

REQUIREMENTS = "requirements-cloud.txt"
QUERY_WORDS = range(4, 31)  # a shorter first sentence is a label ("Output only."), a longer one is no question
# The files of a distribution that are read.
DATA = {
    "botocore": re.compile(r"botocore/data/[^/]+/[^/]+/service-2\.json\.gz"),
    "google-api-python-client": re.compile(
        r"googleapiclient/discovery_cache/documents/[^/.]+\.[^/]+\.json"
    ),  # not index.json
}
NESTED = ("parameters", "properties", "schemas", "methods", "resources")  # of a discovery document: {name: node}

BLOCK = re.compile(r"</?(?:p|div|ul|ol|li|dl|dt|dd|note|important|table|tr|td|th|h\d|br|pre|section)\b[^>]*>", re.I)
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)")  # Markdown
SENTENCE_END = re.compile(r"[.!?](?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)\s+(?=[A-Z0-9\"'(])|\n+")
# Labels before the first sentence of many properties. They belong to no question.
LABELS = re.compile(
    r"(?:(?:output only|input only|required|optional|immutable|identifier|deprecated|read-only|write-only|\[required\]|"
    r"\[output only\]|\[optional\])[.:,]?\s+)+",
    re.I,
)
VERSION_OF_NAME = re.compile(r"(?<!IP)(?<!Ip)(?<!ip)[Vv]\d+(?:p\d+)?(?:(?:alpha|beta|eap|main)\d*)?(?![a-z])")
VERSION_OF_TEXT = re.compile(r"\bv\d+\w*")
WORD = re.compile(r"\w+")


class Cloud(Judged):
    """The documentation of two cloud clients, from their installed data files (requirements-cloud.txt)."""

    packages: ClassVar = tuple(DATA)
    parsed: ClassVar = True

    source: Literal["cloud"]
    min_words: Natural = Field(20, description="Texts with fewer words are left out.")

    def split_names(self):
        return list(SPLIT_BELOW)

    def versions(self):
        return {package: installed_version(package) for package in self.packages}


Settings = Cloud


class Doc(NamedTuple):
    """A passage: its name without a version, its query ("" without one), and its text."""

    name: str
    query: str
    text: str


def corpus(settings, job):
    """The passages of a `Cloud`, of the versions that the plan has pinned."""
    return documented_passages("documentation", harvest(job.settings.versions, settings.min_words), job)


def split(settings, name, job):
    """A split of a `Cloud`. Names have no version, so all versions of an API are in one split. A service with another
    name is another API: waf and wafv2, for example. 3 of 6,447 test queries have such a twin in `train`."""
    return documented_split(name, job)


def installed_version(package):
    """The version of an installed package of `DATA`. Raises Refusal with the command that installs it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        remedy = f"Install both packages: .venv/bin/python -m pip install --no-deps -r {REQUIREMENTS}"
        raise Refusal(f"collection.source cloud: {package} is not installed. {remedy}") from None


def harvest(versions, min_words):
    """The documentation in the packages `versions` ({package: version}) as Docs sorted by name.

    The newest stable version of an API comes first, and each name and each text is taken once. Texts are the same if
    their words without versions are. A query of an earlier passage is left out; its passage stays. Raises Refusal if
    another version is installed.
    """
    docs, raw, seen, queries = {}, set(), set(), set()
    for package, version in versions.items():
        if (installed := installed_version(package)) != version:
            other = f"{package} {installed} is installed, but {version} is pinned, and other versions have other texts"
            raise Refusal(f"collection.source cloud: {other}. Install the pinned version.")
        for name, text in package_texts(package):
            too_short = text.count(" ") + text.count("\n") + text.count("<") + 1 < min_words  # fast, and finds 4 in 5
            if name in docs or too_short or text in raw:
                continue
            raw.add(text)
            doc = parse(name, text, min_words)
            same = normal_form(doc.text)
            if len(doc.text.split()) < min_words or same in seen:
                continue
            seen.add(same)
            query = normal_form(doc.query)
            docs[name] = doc._replace(query="") if query in queries else doc
            queries.add(query)
    return [docs[name] for name in sorted(docs)]


def package_texts(package):
    """(name without a version, text) of all that an installed package documents, newest stable versions first."""
    files = [file for file in metadata.distribution(package).files or [] if DATA[package].fullmatch(file.as_posix())]
    if not files:
        raise Refusal(f"collection.source cloud: {package} has no data files. Install it from a wheel.")
    for file in sorted(files, key=order):
        content = file.locate().read_bytes()
        content = json.loads(gzip.decompress(content) if file.suffix == ".gz" else content)
        if package == "botocore":
            yield from service_texts(f"aws.{file.parts[-3]}", content)
        else:
            yield from described(f"google.{content['name']}", content)


def order(file):
    """Return the sort key of a data file: by service, then stable before alpha, beta and preview, then the newest
    version."""
    service, version = file.parts[-3:-1] if file.suffix == ".gz" else file.stem.split(".", 1)
    unstable = re.search("alpha|beta|preview|eap", version) is not None
    return service, unstable, [-int(number) for number in re.findall(r"\d+", version)], version


def service_texts(service, content):
    """(name, text) of each entry of a service-2.json: the service, its operations, shapes and their members."""
    yield service, content.get("documentation", "")
    for name, operation in content["operations"].items():
        yield f"{service}.{unversioned(name)}", operation.get("documentation", "")
    for name, shape in content["shapes"].items():
        place = f"{service}.{unversioned(name)}"
        yield place, shape.get("documentation", "")
        for member, value in shape.get("members", {}).items():
            yield f"{place}.{unversioned(member)}", value.get("documentation", "")


def described(name, node):
    """(name, text) of a node of a discovery document and of all below it."""
    if isinstance(text := node.get("description"), str):
        yield name, text
    for key in NESTED:
        for child, below in node.get(key, {}).items():
            yield from described(f"{name}.{unversioned(child)}", below)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from described(f"{name}.{key}", node[key])


def unversioned(name):
    """A part of a name without a version and white space: GoogleCloudAiplatformV1beta1Model → …AiplatformModel."""
    return "_".join(VERSION_OF_NAME.sub("", name).split()) or "version"


def parse(name, text, min_words):
    """The Doc of a text: its first sentence and the rest if both fit, else all of it without a query."""
    plain = html.unescape(TAG.sub("", BLOCK.sub("\n", text)))
    plain = LABELS.sub("", LINK.sub(r"\1", plain).replace("`", "").strip(), count=1) if plain else plain
    plain = plain.strip()
    end = match.end() if (match := SENTENCE_END.search(plain)) else len(plain)
    query, passage = (" ".join(part.split()) for part in (plain[:end], plain[end:]))
    if len(query.split()) in QUERY_WORDS and len(passage.split()) >= min_words:
        return Doc(name, query, passage)
    return Doc(name, "", " ".join(plain.split()))


def normal_form(text):
    """Return the normal form of a text, which equal texts share: its words in lower case, without versions."""
    return " ".join(WORD.findall(VERSION_OF_TEXT.sub("", text.casefold())))
