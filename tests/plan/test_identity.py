"""What a collection or checkpoint is made of: regular files that can be read, each named where it cannot."""

import hashlib
import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import yaml
from pydantic import Field

from paths import REPOSITORY
from teleport.collection.forms.beir import Beir
from teleport.collection.forms.folder import Folder
from teleport.collection.forms.tsv import Files as Split
from teleport.collection.forms.tsv import Tsv
from teleport.plan import identity
from teleport.plan.identity import identify_checkpoint, identify_corpus, identify_split, source_digests
from teleport.plan.plan import Plan
from teleport.refusal import Refusal
from teleport.running.files import write_json
from teleport.settings.collection import Judged, SplitName
from teleport.settings.encoder import CheckpointSource
from teleport.settings.read import load_files, merged_files
from teleport.settings.section import LocalPath


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def identify(source):
    """What the stages of a source and its splits are told: [CorpusSettings, SplitSettings, ...]."""
    return [identify_corpus(source), *(identify_split(source, name) for name in source.split_names())]


SPECIAL = [pipe, device, unix_socket, lambda path: path.mkdir()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A collection in the form of the source `folder`, and the same in that of `beir`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.tsv", "queries.test.tsv", "qrels.test.tsv", "corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize("make", SPECIAL)
@pytest.mark.parametrize("name", ["corpus.tsv", "queries.test.tsv", "qrels.test.tsv", "answers.test.jsonl"])
def test_what_is_no_regular_file_of_a_folder_is_refused_unread(folder, make, name):
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    with pytest.raises(ValueError, match=f"^collection.path: {name} is"):
        identify(Folder(source="folder", path="."))


def test_a_pipe_in_other_forms_is_refused_too(folder):
    os.remove("qrels/test.tsv")
    pipe("qrels/test.tsv")
    with pytest.raises(ValueError, match="^collection.path: qrels/test.tsv is a folder, pipe"):
        identify(Beir(source="beir", path="."))
    files = yaml.safe_load("{corpus: corpus.tsv, splits: {test: {queries: queries.test.tsv, qrels: qrels/test.tsv}}}")
    with pytest.raises(ValueError, match="^collection.splits.test.qrels: qrels/test.tsv is a folder, pipe"):
        identify(Tsv(source="tsv", **files))
    (folder / "qrels/model.safetensors").touch()  # a folder without weights is refused before anything is read
    with pytest.raises(ValueError, match="^encoder.checkpoint.folder: qrels/test.tsv is a folder, pipe"):
        identify_checkpoint(CheckpointSource(folder="qrels"), "encoder.checkpoint")


def test_a_broken_link_and_a_file_that_cannot_be_read_are_named(folder, monkeypatch):
    (folder / "answers.test.jsonl").symlink_to("nowhere")
    with pytest.raises(ValueError, match="^collection.path: .*answers.test.jsonl"):
        identify(Folder(source="folder", path="."))

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("teleport.plan.identity.sha256_file", refused)  # root may read everything
    with pytest.raises(ValueError, match=r"^collection.path: corpus.tsv .*\(Permission denied\)"):
        identify(Folder(source="folder", path="."))


@pytest.mark.parametrize("name", ["corpus.tsv", "qrels.test.tsv"])
def test_a_file_plain_and_compressed_is_ambiguous(folder, name):
    (folder / f"{name}.gz").write_text("y")
    with pytest.raises(ValueError, match=f"^collection.path: {name} and {name}.gz"):
        identify(Folder(source="folder", path="."))


def test_other_files_of_the_folder_are_no_part_of_it(folder):
    before = identify(Folder(source="folder", path="."))
    (folder / "corpus.tsv~").write_text("an editor's copy")
    pipe(folder / "corpus.tsv.lock")
    assert identify(Folder(source="folder", path=".")) == before


def test_of_a_folder_with_queries_elsewhere_only_what_is_read_counts(folder):
    os.mkdir("home")
    for name in ("corpus.tsv", "queries.dev.tsv", "queries.test.tsv.gz"):
        (folder / "home" / name).write_text("x")
    corpus, test = identify(Folder(source="folder", path="home", queries="."))
    assert set(corpus.files) == {"home/corpus.tsv"} and test.split == "test"
    assert set(test.files) == {"home/corpus.tsv", "queries.test.tsv", "qrels.test.tsv"}
    identities = []
    for name in ("here", "there"):
        (folder / name).mkdir()
        for path in folder.glob("q*.tsv*"):
            shutil.copy(path, folder / name)
        identities.append([each.identity() for each in identify(Folder(source="folder", path="home", queries=name))])
    assert identities[0] == identities[1], "a path is no content"


def test_of_a_checkpoint_neither_its_card_nor_its_repository_counts(tmp_path):
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json", "README.md", ".git/index"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    files = identify_checkpoint(CheckpointSource(folder=str(tmp_path)), "encoder.checkpoint").files
    assert set(files) == {"config.json", "model.safetensors", "1_Pooling/config.json"}


def test_of_a_checkpoint_a_folder_behind_a_link_counts(tmp_path):
    for name in ("here/config.json", "here/model.safetensors", "dense/model.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "here/2_Dense").symlink_to("../dense")

    def identity():
        return identify_checkpoint(CheckpointSource(folder=str(tmp_path / "here")), "encoder.checkpoint").files

    before = identity()
    assert set(before) == {"config.json", "model.safetensors", "2_Dense/model.safetensors"}
    (tmp_path / "dense/model.safetensors").write_text("y")
    assert identity() != before


def test_a_large_file_with_its_old_time_put_back_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(identity, "REMEMBER_FROM_BYTES", 1)
    path = tmp_path / "file"
    path.write_text("one")
    before, status = identity.file_digest(path), path.stat()
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identity.file_digest(path) != before


def test_a_digest_that_cannot_be_remembered_is_returned(tmp_path, monkeypatch):
    def refuse(path, value):
        raise PermissionError(path)

    monkeypatch.setattr(identity, "REMEMBER_FROM_BYTES", 1)
    monkeypatch.setattr(identity, "write_json", refuse)
    (tmp_path / "file").write_text("one")
    assert identity.file_digest(tmp_path / "file") == hashlib.sha256(b"one").hexdigest()


class Lines(Judged):
    """A form of collection as docs/extending.md asks for it: files are settings of the type `LocalPath`."""

    source: Literal["lines"]
    corpus: LocalPath = Field(description="A passage a line.")
    splits: dict[SplitName, Split] = Field(description="Files of each split.")
    titles: LocalPath | None = Field(None, description="A title a line.")
    more: Split | None = Field(None, description="Two files.")
    note: str = "no file"


def test_files_of_a_new_form_are_pinned_by_their_content(tmp_path):
    paths = {name: str(tmp_path / name) for name in ("corpus", "queries", "qrels")}
    for path in paths.values():
        Path(path).write_text("x\n")
    split = {role: paths[role] for role in ("queries", "qrels")}
    source = Lines(source="lines", corpus=paths["corpus"], splits={"test": split})
    before = source_digests(source)
    assert list(before) == list(paths.values()) and source.split_names() == ["test"]
    Path(paths["qrels"]).write_text("y\n")
    changed = [path for path, digest in source_digests(source).items() if digest != before[path]]
    assert changed == [paths["qrels"]]
    more = {"titles": paths["corpus"], "more": split, "corpus": paths["qrels"], "splits": {}, "note": paths["qrels"]}
    assert list(source_digests(Lines(source="lines", **more))) == [
        paths[name] for name in ("qrels", "corpus", "queries")
    ]
    Path(paths["queries"]).unlink()
    with pytest.raises(Refusal, match="collection.splits.test.queries: "):
        source_digests(source)


def test_a_new_form_that_is_a_folder_names_its_corpus_as_it_likes(tmp_path):
    source = SimpleNamespace(source="mine", path=str(tmp_path), patterns=("passages.csv", "queries.*.csv"))
    with pytest.raises(Refusal, match="has no passages.csv, plain or .gz"):
        source_digests(source)
    (tmp_path / "passages.csv").write_text("x\n")
    (tmp_path / "queries.test.csv").write_text("x\n")
    assert list(source_digests(source)) == [str(tmp_path / "passages.csv")]
    assert list(source_digests(source, "test")) == [
        str(tmp_path / name) for name in ("passages.csv", "queries.test.csv")
    ]


@pytest.mark.parametrize("form", ["folder", "tsv", "beir"])
def test_one_more_split_is_in_the_key_of_no_other_part(folder, form):
    """And a split's own files are in its key alone."""

    def parts(*splits):
        if form == "tsv":
            files = {name: {role: f"{role}.{name}.tsv" for role in ("queries", "qrels")} for name in splits}
            source = Tsv(source="tsv", corpus="corpus.tsv", splits=files)
        else:
            source = {"folder": Folder, "beir": Beir}[form](source=form, path=".")
        return {getattr(each, "split", "corpus"): each.identity() for each in identify(source)}

    before = parts("test")
    added = {"folder": ["queries.dev.tsv", "qrels.dev.tsv"], "beir": ["qrels/dev.tsv"]}
    for name in added.get(form, added["folder"]):
        Path(name).write_text("y")
    after = parts("test", "dev")
    assert set(after) == {"corpus", "test", "dev"} and {name: after[name] for name in before} == before
    Path("qrels/dev.tsv" if form == "beir" else "qrels.dev.tsv").write_text("z")
    changed = parts("test", "dev")
    assert [name for name in changed if changed[name] != after[name]] == ["dev"]
    Path("corpus.jsonl" if form == "beir" else "corpus.tsv").write_text("z")
    assert all(part != changed[name] for name, part in parts("test", "dev").items())


def test_what_only_a_split_reads_is_not_in_the_key_of_the_corpus(folder):
    one, two = (
        identify(Folder(source="folder", path=".", **given))
        for given in ({}, {"positive_grade": 2, "train_queries": {"count": 5}, "drop": ["dangling"]})
    )
    assert one[0] == two[0] and one[1] != two[1]
    assert two[1].source.train_queries is None, "of train alone"
    assert identify(Folder(source="folder", path=".", drop=["empty"]))[0] != one[0]


def test_a_local_file_without_a_published_digest_is_its_content(tmp_path, monkeypatch):
    """But what was downloaded before stays the same file where it lies locally."""
    monkeypatch.chdir(tmp_path)
    config, experiments = load_files([REPOSITORY / "config/marco.yaml"])
    (tmp_path / "mine").mkdir()
    name = "qrels.train.tsv"
    file = config.collection.files[name].model_copy(update={"md5": None, "sha256": None})
    files = config.collection.files | {name: file}

    def key(content, local="mine"):
        (tmp_path / f"mine/{name}").write_text(content)
        collection = config.collection.model_copy(update={"files": files, "local": local})
        return Plan(config.model_copy(update={"collection": collection}), experiments).split("train").key

    assert len({key("old"), key("new"), key("old", None)}) == 3 and key("old") == key("old")
    assert key("old", None) == key("new", None)
    found = {"bytes": 3, "sha256": hashlib.sha256(b"old").hexdigest()}
    write_json(Path("data/downloads/digests.json"), {f"data/downloads/{name}": found})
    assert key("old") == key("old", None) != key("new")


def test_a_file_of_another_collection_with_the_same_name_is_a_warning(tmp_path, monkeypatch):
    """Only files without a digest: the others are compared. Also those of other collections."""
    monkeypatch.chdir(tmp_path)
    name, mirror = "qrels.train.tsv", "https://mirror/qrels.train.tsv"
    raw = merged_files([REPOSITORY / "config/marco.yaml"])
    raw["collection"]["files"][name] = {"mirrors": [mirror]}
    Path("own.yaml").write_text(yaml.safe_dump(raw))
    apidocs = {"source": "apidocs", "packages": ["numpy"]}
    other = {"collection": apidocs, "bm25": {}, "evaluation": {"out_of_domain": ["own.yaml"]}}
    Path("other.yaml").write_text(yaml.safe_dump(other))

    def warnings(file, mirrors):
        entry = {"bytes": 3, "sha256": "0" * 64, "mirrors": mirrors}
        write_json(Path("data/downloads/digests.json"), {f"data/downloads/{name}": entry})
        return [warning for warning in Plan.of_files([file]).warnings if name in warning]

    for file in ("own.yaml", "other.yaml"):
        (warning,) = warnings(file, ["https://elsewhere/qrels.train.tsv"])
        assert "https://elsewhere/" in warning and mirror in warning
        assert not warnings(file, []) and not warnings(file, ["https://elsewhere/qrels.train.tsv", mirror])
