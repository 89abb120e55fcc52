"""The embedded collection: what is harvested from docstrings, and what is not."""

import json
import logging
import subprocess
import sys
from importlib import metadata

import pyarrow.parquet as pq
import pytest

from teleport.collection.documented import split_of
from teleport.collection.forms import apidocs

BODY = "It takes a first thing and then a second one, and what comes out is neither of the two."

MODULE = f'''"""
Tools for wool
==============

{BODY} They are for tests.
"""
raise RuntimeError("imported")

def shear(sheep):
    """Take the ``wool`` off
    a :class:`~farm.Sheep`.

    Parameters
    ----------
    sheep : Sheep
    \tThe `animal`, see the `handbook <https://example.org>`_; {BODY}
    """
    def inner():
        """This is never seen outside.

        {BODY} Inner.
        """

def again():
    """take the wool off a sheep.

    {BODY} Again.
    """

def third():
    """Take the WOOL off a sheep.

    {BODY} Third.
    """

def same_body():
    """Another summary, same body.

    Parameters sheep : Sheep The animal, see the handbook; {BODY.upper()}
    """

def short_body():
    """Spin wool into yarn.

    Too short.
    """

def short_summary():
    """Spins wool.

    {BODY} Spins.
    """

def signature():
    """signature(a, b, *, c=None)

    {BODY} Signature.
    """

def leads_over():
    """This is the same as::

    {BODY} Example.
    """

def _private():
    """Hide the wool somewhere.

    {BODY} Private.
    """

def bare():
    pass

if True:
    class Loom:
        """Weave yarn into cloth.

        {BODY} Loom.
        """

        @property
        def width(self):
            """Width of the cloth.

            {BODY} Width.
            """

        def __call__(self):
            """Weave one more row.

            {BODY} Call.
            """
'''

OTHER = f'''
def dye():
    """Dye the wool red.

    {BODY} Dye.
    """
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs the package `wool`, which breaks when it is imported; returns its folder."""
    site = tmp_path / "site"
    files = {
        "wool/__init__.py": MODULE,
        "wool/sub/dye.py": OTHER,
        "wool/tests/test_dye.py": OTHER.replace("Dye", "Try"),
    }
    files |= {"woolgen/dye.py": OTHER.replace("Dye", "Generate")}  # another package of the same distribution
    record = {"wool-1.2+local.dist-info/METADATA": "Metadata-Version: 2.1\nName: wool\nVersion: 1.2+local\n"}
    for name, content in (files | record).items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (site / "wool-1.2+local.dist-info/RECORD").write_text("".join(f"{name},,\n" for name in [*files, *record]))
    (site / "wool/stray.py").write_text(OTHER.replace("Dye", "Stray"))
    monkeypatch.syspath_prepend(str(site))
    return site / "wool"


def test_harvest_of_a_small_package(package):
    docs = apidocs.harvest({"wool": "1.2"}, min_words=15)
    assert [tuple(doc) for doc in docs] == [
        ("wool", "Tools for wool", f"{BODY} They are for tests."),
        ("wool.Loom", "Weave yarn into cloth.", f"{BODY} Loom."),
        ("wool.Loom.width", "Width of the cloth.", f"{BODY} Width."),
        ("wool.again", "take the wool off a sheep.", f"{BODY} Again."),
        (
            "wool.same_body",
            "Another summary, same body.",
            f"Parameters sheep : Sheep The animal, see the handbook; {BODY.upper()}",
        ),
        # but for letter case, wool.shear has the body of wool.same_body and wool.third the summary of wool.again
        ("wool.sub.dye.dye", "Dye the wool red.", f"{BODY} Dye."),
    ]
    assert "wool" not in sys.modules


def test_markup_and_white_space_are_cleaned(package):
    docs = {doc.name: doc for doc in apidocs.package_docs("wool", "1.2")}
    assert docs["wool.shear"].summary == "Take the wool off a farm.Sheep."
    assert docs["wool.shear"].body == f"Parameters sheep : Sheep The animal, see the handbook; {BODY}"
    assert not {"wool._private", "wool.bare", "wool.shear.inner", "wool.Loom.__call__"} & set(docs)


def test_pins(package):
    with pytest.raises(ValueError, match=r"wool 1.2 .* 1.3 is pinned"):
        apidocs.harvest({"wool": "1.3"}, 15)
    with pytest.raises(ValueError, match="'flax'.* not installed"):
        apidocs.harvest({"flax": "1.0"}, 15)


def test_package_without_docstrings(package):
    for path in package.rglob("*.py"):
        path.write_text("x = 1\n")
    with pytest.raises(ValueError, match="wool.*docstrings"):
        apidocs.harvest({"wool": "1.2"}, 15)


def test_file_in_the_syntax_of_another_python_is_left_out(package, caplog):
    (package / "sub/dye.py").write_text("def f(:\n")
    with caplog.at_level(logging.WARNING, "teleport"):
        names = [doc.name for doc in apidocs.harvest({"wool": "1.2"}, 15)]
    assert "wool.Loom" in names and "wool.sub.dye.dye" not in names
    assert "dye.py left out" in caplog.text


def test_splits_have_their_shares_and_never_change():
    splits = [split_of(f"package.function_{number}") for number in range(20000)]
    shares = [splits.count(name) / len(splits) for name in ("train", "dev", "test")]
    assert shares == pytest.approx([0.80, 0.05, 0.15], abs=0.01)
    # The split of a name is part of the collection. The SHA-256 of these ends in 79, 80, 84 and 85 (modulo 100).
    names = ("numpy.f101", "numpy.f7", "numpy.f10", "numpy.f18")
    assert [split_of(name) for name in names] == ["train", "dev", "dev", "test"]


@pytest.mark.ci(0)
def test_collection_of_numpy(stages):
    """Real documentation: every query has its one positive, texts are clean, two harvests are equal."""
    source = {"source": "apidocs", "packages": ["numpy"]}
    versions = {"numpy": metadata.version("numpy")}
    jobs = [stages.collection(source, versions=versions) for _ in range(2)]
    assert jobs[0].facts == jobs[1].facts and jobs[0].facts["versions"] == versions
    first, second = (
        [json.loads((job.folder / "manifest.json").read_text())["files"] for job in made.values()] for made in jobs
    )
    assert first == second
    num_passages, splits = jobs[0].facts["num_passages"], jobs[0].facts["splits"]
    assert num_passages > 500 and sum(split["queries"] for split in splits.values()) == num_passages
    assert all(s["queries"] == s["judgments"] == s["positives"] and s["dropped"] == 0 for s in splits.values())

    corpus = pq.read_table(jobs[0].files["corpus.parquet"]).to_pylist()
    names = [row["doc_id"] for row in corpus]
    assert names == sorted(names) and "numpy._core.fromnumeric.sum" in names
    assert all(row["title"] == row["doc_id"] and row["text"] == " ".join(row["text"].split()) for row in corpus)
    assert len({row["text"].casefold() for row in corpus}) == num_passages
    queries = {}
    for split in splits:
        queries |= {
            row["query_id"]: row["text"] for row in pq.read_table(jobs[0].files[f"queries.{split}.parquet"]).to_pylist()
        }
        for row in pq.read_table(jobs[0].files[f"qrels.{split}.parquet"]).to_pylist():
            assert row["query_id"] == f"query:{row['doc_id']}" and row["doc_id"] == names[row["passage"]]
    assert queries["query:numpy._core.fromnumeric.sum"] == "Sum of array elements over a given axis."
    assert len({text.casefold() for text in queries.values()}) == num_passages


def test_neither_the_packages_nor_heavy_libraries_are_imported(tmp_path):
    script = (
        "import sys\n"
        "from teleport import reader\nfrom teleport.collection import corpus, split\n"
        "from teleport.collection.forms import apidocs\n"
        "assert apidocs.harvest({'sklearn': apidocs.package_version('sklearn')}, 400)\n"
        "print(sorted({'torch', 'pandas', 'scipy', 'sklearn', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
