"""What a collection or checkpoint is made of: regular files that can be read, each named where it cannot."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import yaml
from pydantic import Field

from teleport.collection.forms.beir import Beir
from teleport.collection.forms.folder import Folder
from teleport.collection.forms.tsv import Files as Split
from teleport.collection.forms.tsv import Tsv
from teleport.plan import identity
from teleport.plan.identity import identify_checkpoint, identify_source, source_digests
from teleport.refusal import Refusal
from teleport.settings.collection import Judged, SplitName
from teleport.settings.encoder import CheckpointSource
from teleport.settings.section import LocalPath


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


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
    with pytest.raises(ValueError, match=f"^collection.path: {name} is a folder, pipe, device or socket. Give the"):
        identify_source(Folder(source="folder", path="."))


def test_a_pipe_in_other_forms_is_refused_too(folder):
    os.remove("qrels/test.tsv")
    pipe("qrels/test.tsv")
    with pytest.raises(ValueError, match="^collection.path: qrels/test.tsv is a folder, pipe"):
        identify_source(Beir(source="beir", path="."))
    files = yaml.safe_load("{corpus: corpus.tsv, splits: {test: {queries: queries.test.tsv, qrels: qrels/test.tsv}}}")
    with pytest.raises(ValueError, match="^collection.splits.test.qrels: qrels/test.tsv is a folder, pipe"):
        identify_source(Tsv(source="tsv", **files))
    open("qrels/model.safetensors", "w").close()  # a folder without weights is not looked into
    with pytest.raises(ValueError, match="^encoder.checkpoint.folder: qrels/test.tsv is a folder, pipe"):
        identify_checkpoint(CheckpointSource(folder="qrels"), "encoder.checkpoint")


def test_a_broken_link_and_a_file_that_cannot_be_read_are_named(folder, monkeypatch):
    (folder / "answers.test.jsonl").symlink_to("nowhere")
    with pytest.raises(ValueError, match="^collection.path: there is no file answers.test.jsonl. Give the path"):
        identify_source(Folder(source="folder", path="."))

    def refused(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("teleport.plan.identity.sha256_file", refused)  # root may read everything
    with pytest.raises(ValueError, match=r"^collection.path: corpus.tsv cannot be read \(Permission denied\). Correct"):
        identify_source(Folder(source="folder", path="."))


@pytest.mark.parametrize("name", ["corpus.tsv", "qrels.test.tsv"])
def test_a_file_plain_and_compressed_is_ambiguous(folder, name):
    (folder / f"{name}.gz").write_text("y")
    with pytest.raises(ValueError, match=f"^collection.path: {name} and {name}.gz are both there. Remove the one that"):
        identify_source(Folder(source="folder", path="."))


def test_other_files_of_the_folder_are_no_part_of_it(folder):
    before = identify_source(Folder(source="folder", path="."))
    (folder / "corpus.tsv~").write_text("an editor's copy")
    pipe(folder / "corpus.tsv.lock")
    assert identify_source(Folder(source="folder", path=".")) == before


def test_of_a_folder_with_queries_elsewhere_only_what_is_read_counts(folder):
    os.mkdir("home")
    for name in ("corpus.tsv", "queries.dev.tsv", "queries.test.tsv.gz"):
        (folder / "home" / name).write_text("x")
    files = identify_source(Folder(source="folder", path="home", queries=".")).files
    assert set(files) == {"home/corpus.tsv", "queries.test.tsv", "qrels.test.tsv"}


def test_of_a_checkpoint_neither_its_card_nor_its_repository_counts(tmp_path):
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json", "README.md", ".git/index"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    files = identify_checkpoint(CheckpointSource(folder=str(tmp_path)), "encoder.checkpoint").files
    assert set(files) == {"config.json", "model.safetensors", "1_Pooling/config.json"}


def test_a_large_file_with_its_old_time_put_back_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(identity, "REMEMBER_FROM_BYTES", 1)
    path = tmp_path / "file"
    path.write_text("one")
    before, status = identity.file_digest(path), path.stat()
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identity.file_digest(path) != before


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
    with pytest.raises(Refusal, match="collection.splits.test.queries: there is no file"):
        source_digests(source)


def test_a_new_form_that_is_a_folder_names_its_corpus_as_it_likes(tmp_path):
    source = SimpleNamespace(source="mine", path=str(tmp_path), patterns=("passages.csv", "queries.*.csv"))
    with pytest.raises(Refusal, match="has no passages.csv, plain or .gz"):
        source_digests(source)
    (tmp_path / "passages.csv").write_text("x\n")
    (tmp_path / "queries.test.csv").write_text("x\n")
    assert list(source_digests(source)) == [str(tmp_path / name) for name in ("passages.csv", "queries.test.csv")]
