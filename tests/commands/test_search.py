"""`teleport search`, and vectors for services elsewhere."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import manage
from commands.export import export
from commands.search import search
from experiment_world import ExperimentWorld, made, world  # noqa: F401 (fixtures)
from paths import REPOSITORY
from teleport.api import open_results
from teleport.encoder.new_queries import encode_queries
from teleport.refusal import Refusal
from untouched import untouched

TRAINED = ("experiments", "episodes", "training", "negatives", "mining")  # what a configuration of BM25 alone lacks


@pytest.mark.parametrize(
    ("what", "episode"),
    [
        ("mine/tuned", 1),
        ("results/experiments/mine/tuned", 1),
        ("results/experiments/mine/tuned/episode-1", 1),
        ("results/experiments/mine/tuned/episode-0/encode", 0),
        ("mine/tuned/episode-0", 0),
        ("mine.yaml", 1),
        ("mine", 1),
    ],
)
def test_an_experiment_is_searched_however_it_is_named(world, tmp_path, what, episode):  # noqa: F811
    template = yaml.safe_load((REPOSITORY / "config/own-data.yaml").read_text())
    Path("config").mkdir(exist_ok=True)
    for path in ("mine.yaml", "config/mine.yaml"):
        Path(path).write_text(yaml.safe_dump(template | {"name": "mine"}))
    (tmp_path / "more.txt").write_text(f"{world.queries[6]}\n\n{world.queries[7]}\n")
    with untouched(Path("results")):
        lines = list(search(what, [world.queries[5]], tmp_path / "more.txt", 4, as_json=True))
    run = open_results()["mine/tuned"].run("test", episode)
    for line, text, (_, own) in zip(lines, world.queries[5:], run.groupby("query_id"), strict=True):
        found = json.loads(line)
        assert found["query"] == text and [hit["id"] for hit in found["hits"]] == own["doc_id"].tolist()[:4]
        assert found["hits"][0].keys() == {"rank", "id", "title", "text", "score"}


def test_the_folder_of_a_seed_means_its_checkpoint(stages, monkeypatch):
    monkeypatch.chdir(stages.root)
    own = ExperimentWorld(stages, seeds=(42, 43))
    found = {
        what: [json.loads(line)["hits"][0]["score"] for line in search(what, own.queries[5:], None, 1, as_json=True)]
        for what in ("mine/tuned", *(f"results/experiments/mine/tuned/seed-{seed}" for seed in (42, 43)),
                     "results/experiments/mine/tuned/seed-43/episode-0/encode-passages")
    }  # fmt: skip
    first, of_42, of_43, start = found.values()
    assert first == of_42 != of_43 and start not in (of_42, of_43)


def test_a_person_reads_ids_titles_and_texts(world, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr("sys.argv", ["teleport", "search", "mine/tuned", world.queries[5], "--depth", "2"])
    with pytest.raises(SystemExit) as ended:
        manage.main()
    assert not ended.value.code
    query, first, second, _ = capsys.readouterr().out.split("\n", 3)
    (hits,) = open_results()["mine/tuned"].search([world.queries[5]], 2)
    assert query == world.queries[5] and [first.split()[0], second.split()[0]] == ["1", "2"]
    for line, hit in zip((first, second), hits, strict=True):
        assert f"{hit.score:.4f}  {hit.id}  {f'{hit.title}: ' if hit.title else ''}{hit.text[:40]}" in line


@pytest.mark.parametrize(("what", "said"), [("mine/tunde", "mine/tunde .*: mine/tuned"), ("many.yaml", "name")])
def test_an_experiment_that_is_not_there_is_refused(world, what, said):  # noqa: F811
    template = yaml.safe_load((REPOSITORY / "config/own-data.yaml").read_text())
    Path("many.yaml").write_text(yaml.safe_dump(template | {"name": "many"}))
    with pytest.raises(Refusal, match=said if what == "mine/tunde" else "many.yaml .*: run"):
        list(search(what, ["a"], None, 3, False))
    alone = {key: value for key, value in template.items() if key not in TRAINED} | {"bm25": {}}
    Path("none.yaml").write_text(yaml.safe_dump(alone))
    with pytest.raises(Refusal, match="none.yaml has no experiment"):
        list(search("none.yaml", ["a"], None, 3, False))
    for queries in ([], ["", " "]):
        with pytest.raises(Refusal, match="no query"):
            list(search("mine/tuned", queries, None, 3, False))
    # The last episode would be searched.
    for below in ("epsode-0", "seed-42/epsode-0", "seed-42episode-0", "episode-x"):
        with pytest.raises(Refusal, match=f"mine/tuned/{below}: .*'{below}'"):
            list(search(f"mine/tuned/{below}", ["a"], None, 3, False))
    with pytest.raises(Refusal, match="nor an experiment"):  # such as an empty variable of a shell
        list(search("", ["a"], None, 3, False))


def test_new_queries_have_as_many_components_as_those_of_the_stage(world):  # noqa: F811
    experiment = open_results()["mine/tuned"]
    stage = experiment.stage("encode-queries.test")
    tokens, whole = stage.input("tokens.queries.test"), experiment.encode(world.queries[:3])
    cut = SimpleNamespace(manifest={"settings": stage.manifest["settings"] | {"truncate_dim": 8}})
    read = stage.input("checkpoint"), tokens, tokens.input("pretrained")
    vectors = encode_queries(world.queries[:3], cut, *read)
    directions = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, whole[:, :8])]
    assert vectors.shape == (3, 8) and whole.shape == (3, 32)
    np.testing.assert_allclose(*directions, rtol=0, atol=1e-6)


def test_a_killed_export_to_faiss_can_be_run_again(world, monkeypatch):  # noqa: F811
    link, replace, calls = world.trained["encode"].folder, os.replace, []

    def killed_at_the_second(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "replace", killed_at_the_second)
        export(link, Path("killed.faiss"))
    export(link, Path("killed.faiss"))
    assert faiss.read_index("killed.faiss").ntotal == len(Path("killed.faiss.ids.txt").read_text().split()) == 30


@pytest.mark.parametrize("chunks", [1, 2])
def test_vectors_become_parquet_and_an_index_of_faiss(stages, monkeypatch, chunks):
    monkeypatch.chdir(stages.root)
    own = ExperimentWorld(stages, chunks=chunks)
    link, experiment = own.trained["encode"].folder, open_results()["mine/tuned"]
    vectors = experiment.vectors()
    owners = vectors.ids if chunks == 1 else np.repeat(vectors.ids, np.diff(vectors.offsets)).tolist()
    assert f"{len(owners)} vectors of 32 numbers in out.parquet" in export(link, Path("out.parquet"))
    table = pq.read_table("out.parquet")
    assert table["id"].to_pylist() == owners
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), vectors.array)
    export(link, Path("out.faiss"))
    index, ids = faiss.read_index("out.faiss"), Path("out.faiss.ids.txt").read_text().split()
    assert ids == owners and index.metric_type == faiss.METRIC_INNER_PRODUCT
    query = experiment.encode([own.queries[5]])
    _, ((first, *_),) = index.search(query, 3)
    assert ids[first] == experiment.search([own.queries[5]])[0][0].id
    with pytest.raises(Refusal, match="out.faiss.ids.txt exists already"):
        export(link, Path("out.faiss"))
    with pytest.raises(Refusal, match=r"out.npz: vectors become .parquet or .faiss"):
        export(link, Path("out.npz"))
    assert sorted(path.name for path in Path(".").glob("*out*")) == ["out.faiss", "out.faiss.ids.txt", "out.parquet"]
