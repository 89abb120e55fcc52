"""The collection of two cloud clients: which texts become queries and passages, from small data files of their form."""

import gzip
import json

import pyarrow.parquet as pq
import pytest
import yaml

from paths import REPOSITORY
from teleport.collection.documented import split_of
from teleport.collection.forms import cloud
from teleport.plan.identity import identify_corpus
from teleport.refusal import Refusal

REST = " ".join(f"And this is part {number} of a text about {{what}}" for number in range(3))
VERSIONS = {"botocore": "1.2", "google-api-python-client": "3.4"}


def rest(what):
    return REST.format(what=what)


OLD = {
    "documentation": "<p>Keeps wool in a warehouse.</p>",
    "operations": {"PutWool": {"documentation": f"<p>Puts the old wool away. {rest('old times')}.</p>"}},
    "shapes": {"OldShape": {"documentation": f"<p>Describes what there was once. {rest('history')}.</p>"}},
}
NEW = {
    "documentation": "<p>Keeps wool in a warehouse.</p>",
    "operations": {
        "PutWool": {"documentation": f"<p>Puts <code>wool</code> away, e.g. A, B.</p><p>{rest('the warehouse')}</p>"},
        "GetWool": {"documentation": f"<p>Gets wool. {rest('getting')}</p>"},  # two words are no query
        "Bare": {},
    },
    "shapes": {
        "Short": {"documentation": "<p>Says a few words. No more.</p>"},
        "Wool": {
            "documentation": f"<p>{rest('one sentence')}</p>",
            "members": {
                "Colour": {"documentation": f"<p>The colour of the wool. <b>{rest('colour')}</b> &amp; more</p>"},
                "Copy": {"documentation": f"<p>The  Colour of the wool. {rest('colour')} & more!</p>"},
                "Other": {"documentation": f"<p>The colour of the WOOL. {rest('another colour')}</p>"},
            },
        },
    },
}


def document(version, what):
    method = {"description": f"Output only. Lists all of the sheep. See the `{rest(what)}` of [it](https://x.y/z)."}
    sheep = {
        "description": f"What a sheep of the farm is. {rest(what)}",
        "properties": {"age": {"description": "Old."}},
    }
    suffix = version.capitalize()
    return {
        "name": "farm",
        "version": version,
        "resources": {"sheep": {"methods": {"list": method}}},
        "schemas": {f"GoogleFarm{suffix}Sheep": sheep},
    }


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Installs both packages; returns the folder that they are in."""
    site = tmp_path / "site"
    files = {
        "botocore/data/wool/2019-01-01/service-2.json.gz": OLD,
        "botocore/data/wool/2024-05-06/service-2.json.gz": NEW,
        "botocore/data/wool/2024-05-06/paginators-1.json": {"operations": "not read"},
        "googleapiclient/discovery_cache/documents/farm.v2beta1.json": document("v2beta1", "a trial in v2beta1"),
        "googleapiclient/discovery_cache/documents/farm.v1.json": document("v1", "a trial in v1"),
        "googleapiclient/discovery_cache/documents/index.json": {"items": "not read"},
    }
    for name, content in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = json.dumps(content).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    for package, version in VERSIONS.items():
        info = site / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        own = [name for name in files if name.startswith("botocore") == (package == "botocore")]
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in own))
    monkeypatch.syspath_prepend(str(site))
    return site


def test_the_first_sentence_is_the_query_and_the_rest_the_passage(packages):
    docs = {doc.name: doc for doc in cloud.harvest(VERSIONS, 20)}
    assert list(docs) == sorted(docs)
    assert docs["aws.wool.PutWool"] == ("aws.wool.PutWool", "Puts wool away, e.g. A, B.", f"{rest('the warehouse')}")
    assert docs["aws.wool.Wool.Colour"].text == f"{rest('colour')} & more"
    assert docs["google.farm.sheep.list"] == (
        "google.farm.sheep.list",
        "Lists all of the sheep.",
        f"See the {rest('a trial in v1')} of it.",
    )


def test_other_texts_are_passages_without_a_query_and_short_ones_are_none(packages):
    docs = {doc.name: doc for doc in cloud.harvest(VERSIONS, 20)}
    assert docs["aws.wool.GetWool"].query == "" and docs["aws.wool.GetWool"].text.startswith("Gets wool. And")
    assert docs["aws.wool.Wool"] == ("aws.wool.Wool", "", rest("one sentence"))
    assert not {"aws.wool", "aws.wool.Bare", "aws.wool.Short", "google.farm.Sheep.age"} & docs.keys()
    assert {doc.name for doc in cloud.harvest(VERSIONS, 10_000)} == set()


def test_a_text_and_a_query_are_taken_once(packages):
    docs = {doc.name: doc for doc in cloud.harvest(VERSIONS, 20)}
    assert "aws.wool.Wool.Copy" not in docs, "the words of Colour"
    assert docs["aws.wool.Wool.Colour"].query == "The colour of the wool."
    assert docs["aws.wool.Wool.Other"].query == "", "its query is that of Colour, its passage another"


def test_versions_of_an_api_are_one_passage_the_newest_stable_one(packages):
    docs = {doc.name: doc for doc in cloud.harvest(VERSIONS, 20)}
    assert "old times" not in docs["aws.wool.PutWool"].text and "aws.wool.OldShape" in docs
    assert docs["google.farm.GoogleFarmSheep"].text == rest("a trial in v1")
    assert sum(name.startswith("google.farm.") for name in docs) == 2
    assert cloud.unversioned("GoogleCloudAiplatformV1beta1ModelV2") == "GoogleCloudAiplatformModel"
    assert cloud.unversioned("IPv4Address of it") == "IPv4Address_of_it"


def test_the_collection(packages, stages):
    """The stages: splits by names, one positive a query, versions in the key."""
    settings = identify_corpus(cloud.Settings(source="cloud"))
    assert settings.versions == VERSIONS and settings.identity()["versions"] == VERSIONS
    made = stages.collection({"source": "cloud"}, versions=VERSIONS)
    facts, files = made.facts, made.files
    names = pq.read_table(files["corpus.parquet"])["doc_id"].to_pylist()
    assert facts["num_passages"] == len(names) == 8
    judged = {}
    for split in facts["splits"]:
        for row in pq.read_table(files[f"qrels.{split}.parquet"]).to_pylist():
            assert row["query_id"] == f"query:{row['doc_id']}" and split_of(row["doc_id"]) == split
            judged[row["doc_id"]] = split
    assert len(judged) == 5 and "train" in judged.values()


def test_what_is_not_installed_is_said_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(
        cloud.metadata, "version", lambda name: (_ for _ in ()).throw(cloud.metadata.PackageNotFoundError)
    )
    with pytest.raises(Refusal, match="botocore.*--no-deps -r requirements-cloud.txt"):
        cloud.Settings(source="cloud").versions()


def test_another_version_is_refused(packages):
    with pytest.raises(Refusal, match="botocore 1.2 is installed, but 1.3 is pinned"):
        cloud.harvest(VERSIONS | {"botocore": "1.3"}, 20)


def test_a_package_without_data_files_is_refused(packages):
    for record in packages.glob("botocore-*/RECORD"):
        record.write_text("")
    with pytest.raises(Refusal, match="botocore.*data files"):
        cloud.harvest(VERSIONS, 20)


def test_the_card_has_the_pinned_versions_and_the_counts_of_the_comparison():
    card = (REPOSITORY / "config/README.md").read_text().partition("**`cloud`**")[2].partition("\n\n")[0]
    card, counts = " ".join(card.split()), yaml.safe_load((REPOSITORY / "config/arms.yaml").read_text())["counts"]
    pinned = [line for line in (REPOSITORY / cloud.REQUIREMENTS).read_text().splitlines() if line[:1] != "#"]
    assert len(pinned) == 2 and all(line.replace("==", " ") in card for line in pinned)
    assert f"{counts['passages']:,} passages, {sum(counts['queries'].values()):,} queries" in card
    assert "Apache-2.0" in card and "No user asked" in card
