"""`teleport new` of a dataset repository of the hub, on the loopback interface: one commit, digests, and no code."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collection_world import random_passages
from commands.new import new
from hub import Hub
from teleport.refusal import Refusal
from teleport.settings.read import load_files

NAME = "some/questions"


def parquet(rows):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    words = [" ".join(each) for each in random_passages(np.random.default_rng(5), 120, 5, 12)]
    rows = [{"query": one, "positive": other} for one, other in zip(words[:60], words[60:], strict=True)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files = {
        "README.md": b"# Questions",
        "questions.py": b"raise SystemExit('a script of the repository was run')",
        "dataset_infos.json": b"{}",
        "data/train-00000-of-00001.parquet": parquet(rows),
        "lists/train.jsonl": lines,
    }
    served = Hub({NAME: files, "some/scripts": {"scripts.py": files["questions.py"], "a.bin": b"x"}})
    served.take_over(monkeypatch, tmp_path / "cache")
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    yield served
    served.close()


@pytest.mark.parametrize("revision", ["@main", "", "@COMMIT"])
def test_a_revision_becomes_the_hash_of_its_commit(hub, revision):
    commit = hub.commit(NAME)
    path, notes = new("mine", Path(f"hub:{NAME}{revision.replace('COMMIT', commit)}"))
    assert f"# The collection is of hub:{NAME}@{commit}\n" in path.read_text()
    assert commit in notes[0] and "60 passages" in notes[1]
    load_files([path])
    name = "data/train-00000-of-00001.parquet"
    content = hub.repositories[NAME][name]
    assert Path("data/mine-hub/SHA256SUMS").read_text() == f"{hashlib.sha256(content).hexdigest()}  {name}\n"
    assert [str(file.relative_to("data/mine-hub")) for file in sorted(Path("data/mine-hub").rglob("*.*"))] == [name]
    assert not any(asked.endswith((".py", ".md")) for asked in hub.asked), "what is no table was downloaded"


def test_the_same_data_are_the_same_collection_from_the_hub_and_from_a_folder(hub):
    new("mine", Path(f"hub:{NAME}/lists"))
    Path("lists").mkdir()
    Path("lists/train.jsonl").write_bytes(hub.repositories[NAME]["lists/train.jsonl"])
    new("own", Path("lists"))
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv"):
        one, other = (Path(f"data/{name}-divided", file).read_bytes() for name in ("mine", "own"))
        assert one == other and one


def test_what_is_wrong_is_one_sentence_and_leaves_nothing(hub):
    hub.lfs["lists/train.jsonl"] = {"lfs": {"size": 1, "sha256": "0" * 64, "pointerSize": 1}}
    for where, said in (
        ("hub:some", "give hub:OWNER/NAME@REVISION"),
        (f"hub:{NAME}@main/../x", "give hub:OWNER/NAME@REVISION"),
        ("hub:some/other@main", "hub:some/other@main.*RepositoryNotFound"),
        (f"hub:{NAME}@v9", f"hub:{NAME}@v9.*RevisionNotFound"),
        ("hub:some/scripts", "Give a repository that has tables"),
        (f"hub:{NAME}@main/none", "Name one of its folders.*: data, lists"),
        (f"hub:{NAME}/lists", "train.jsonl does not have"),
    ):
        with pytest.raises(Refusal, match=said) as caught:
            new("mine", Path(where))
        assert "\n" not in str(caught.value)
        assert list(Path.cwd().iterdir()) == []


def test_a_table_that_is_compressed_otherwise_is_refused(hub):
    hub.repositories[NAME]["lists/test.jsonl.zst"] = b"packed"
    with pytest.raises(Refusal, match=r"lists/test.jsonl.zst: .*gzip"):
        new("mine", Path(f"hub:{NAME}/lists"))


def test_a_test_set_with_another_ending_is_refused(hub):
    hub.repositories[NAME]["lists/test.txt"] = b"q0 0 d0 1"
    with pytest.raises(Refusal, match=r"lists/test.txt: .*\.tsv"):
        new("mine", Path(f"hub:{NAME}/lists"))


def test_a_wrong_line_is_told_and_nothing_is_left(hub):
    hub.repositories[NAME]["lists/train.jsonl"] += b"[]\n"
    with pytest.raises(Refusal, match=r"lists/train.jsonl.*line 61"):
        new("mine", Path(f"hub:{NAME}/lists"))
    assert list(Path.cwd().iterdir()) == []


def test_a_killed_command_is_run_again_and_other_files_are_refused(hub):
    path, _ = new("mine", Path(f"hub:{NAME}/lists"))
    text = path.read_text()
    path.unlink()  # as a kill leaves it while the collection is checked, before the configuration is written
    new("mine", Path(f"hub:{NAME}/lists"))
    assert path.read_text() == text
    path.unlink()
    Path("data/mine-hub/lists/train.jsonl").write_text("other")
    with pytest.raises(Refusal, match="data/mine-hub exists already"):
        new("mine", Path(f"hub:{NAME}/lists"))
    assert Path("data/mine-hub/lists/train.jsonl").read_text() == "other"
