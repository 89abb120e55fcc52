"""The Python API, on a finished experiment in miniature: what it gives is what the stages have, and nothing changes."""

import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from encoder_world import make_pretrained, source_folder
from experiment_world import ExperimentWorld, made, world  # noqa: F401 (fixtures)
from paths import REPOSITORY
from teleport import api
from teleport.api import compare, open_results
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact
from untouched import contents


@pytest.fixture
def own_world(stages, monkeypatch):
    """A world that a test may change."""
    monkeypatch.chdir(stages.root)
    return ExperimentWorld(stages)


def test_scores_runs_and_vectors_are_those_of_the_stages(world):  # noqa: F811
    experiments = open_results()
    assert list(experiments) == ["mine/tuned"]
    experiment = experiments["mine/tuned"]
    for episode, of in ((0, world.start), (1, world.trained), (None, world.trained)):
        scores = experiment.scores("test", episode)
        assert scores.index.tolist() == ["test0", "test1", "test2"]
        means = experiment.stage("evaluate-test", episode=episode).facts["means"]
        assert scores.mean().to_dict() == pytest.approx(means) and len(means) == 2
        with gzip.open(of["evaluate"].folder / "test.run.gz", "rt") as file:
            lines = [line.split() for line in file]
        run = experiment.run("test", episode)
        assert run[["query_id", "doc_id"]].to_numpy().tolist() == [[line[0], line[2]] for line in lines]
        assert run["rank"].tolist() == [int(line[3]) for line in lines] and len(run) == 30
        ids, array, offsets = experiment.vectors(episode=episode)
        assert ids == [f"d{i}" for i in range(30)] and offsets is None
        np.testing.assert_array_equal(array, np.load(of["encode"].folder / "passages.npy"))
        assert experiment.vectors("test", episode).ids == ["test0", "test1", "test2"]
        assert (experiment.checkpoint(episode) / "config.json").is_file()
    assert not experiment.scores("test", 0).equals(experiment.scores("test", 1)), "two checkpoints, or nothing is told"


def test_a_pool_has_ids_sources_ranks_and_scores(world):  # noqa: F811
    pool = open_results()["mine/tuned"].pool()
    assert pool["query_id"].tolist() == [f"train{i // 2}" for i in range(8)]
    assert pool["doc_id"].tolist()[:4] == ["d10", "d20", "d11", "d21"]
    assert pool["sources"].tolist()[:2] == [["query"], ["query", "bm25"]] and pool["rank"].tolist()[:2] == [1, 7]
    assert pool["score"].tolist()[:2] == [10 / 64, 20 / 64] and set(pool["first_episode"]) == {1}


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_search_finds_what_the_stage_has_found(stages, monkeypatch, chunks):
    """New queries with the texts of the split get the passages and scores of the workflow's own search."""
    monkeypatch.chdir(stages.root)
    own = ExperimentWorld(stages, chunks=chunks)
    experiment = open_results()["mine/tuned"]
    assert (experiment.vectors().offsets is None) == (chunks == 1)
    for episode in (0, 1):
        np.testing.assert_allclose(
            experiment.encode(own.queries[5:], episode), experiment.vectors("test", episode).array, atol=1e-6
        )
        found = experiment.search(own.queries[5:], 10, episode)
        run = experiment.run("test", episode)
        assert [hit.id for hits in found for hit in hits] == run["doc_id"].tolist()
        stored = np.load((own.start, own.trained)[episode]["search"].folder / "scores.npy")
        np.testing.assert_allclose([[hit.score for hit in hits] for hits in found], stored, atol=1e-5)
    for hit in found[0]:
        number = int(hit.id[1:])
        assert (hit.title, hit.text) == (f"title {number}" if number % 2 else "", own.texts[number])
    assert [hit.rank for hit in found[0]] == list(range(1, 11))
    assert len(experiment.search(["x"], 99)[0]) == 30 and experiment.search([" "], 3)[0]


def test_a_search_leaves_torchs_threads_alone(world, monkeypatch):  # noqa: F811
    experiment, before = open_results()["mine/tuned"], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = experiment.encode(world.queries[:3])
        experiment.search(world.queries[:3], 5)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        np.testing.assert_array_equal(experiment.encode(world.queries[:3]), first)
    finally:
        torch.set_num_threads(before)


def test_queries_are_a_list_which_may_be_empty(world):  # noqa: F811
    experiment = open_results()["mine/tuned"]
    assert experiment.encode([]).shape == (0, experiment.vectors().array.shape[1]) and experiment.search([]) == []
    for ask in (experiment.encode, experiment.search):
        with pytest.raises(Refusal, match=r"\['who is it'\]"):
            ask("who is it")
        for query in (None, float("nan"), 7, b"who"):  # as of an empty cell of a table
            with pytest.raises(Refusal, match=re.escape(repr(query))):
                ask(["who is it", query])


@pytest.mark.parametrize("depth", [0, -1])
def test_a_depth_below_one_is_refused(world, depth):  # noqa: F811
    with pytest.raises(Refusal, match=f"depth is {depth}:"):
        open_results()["mine/tuned"].search(["who is it"], depth)


def test_a_search_compares_vectors_of_one_checkpoint(stages, monkeypatch):
    """Also while the last episode has encoded its passages and not yet its queries, which another miner has."""
    monkeypatch.chdir(stages.root)
    own = ExperimentWorld(stages)
    experiment = open_results()["mine/tuned"]
    last, first = (experiment.search(own.queries[5:], 10, episode) for episode in (None, 0))
    assert last != first
    encoded = experiment.index.query("episode == 1 and stage.str.startswith('encode-queries.')")
    miner = next(row for row in own.rows if row[1:3] == [0, "encode-queries.train"])
    own.rows.append([42, 1, "encode-queries.train-miner", *miner[3:]])
    own.write_index()
    assert experiment.search(own.queries[5:], 10) == last
    for name in encoded["name"]:
        (stages.root / "results/stages" / name / "manifest.json").unlink()
    assert experiment.search(own.queries[5:], 10) == first and len(encoded), "the results are read as they are now"
    for seed, link in ((42, "encode-queries.test"), (43, "encode-passages")):  # of Episode 2 each has one of the two
        own.rows.append([seed, 2, *next(row for row in own.rows if row[1:3] == [0, link])[2:]])
    own.write_index()
    with pytest.raises(Refusal, match="no checkpoint has encoded both"):
        experiment.search(own.queries[5:], 10, episode=2)


def test_episode_0_is_the_checkpoint_that_was_encoded(stages, monkeypatch):
    """An experiment may start from a checkpoint of another one; its index names the pretrained one, too."""
    monkeypatch.chdir(stages.root)
    own = ExperimentWorld(stages)
    experiment = open_results()["mine/tuned"]
    start = experiment.checkpoint(0)
    own.row(42, 0, "pretrained", make_pretrained(stages, source_folder(stages.root / "other")))
    own.write_index()
    assert experiment.stage("pretrained", episode=0).path("checkpoint") != start
    assert experiment.checkpoint(0) == start != experiment.checkpoint()


def test_other_collections_are_read_by_their_names(stages, monkeypatch):
    monkeypatch.chdir(stages.root)
    own = ExperimentWorld(stages)
    for row in [row for row in own.rows if row[2] in ("evaluate-test", "encode-queries.test")]:
        own.rows.append([*row[:2], f"{row[2]}-of-else", *row[3:]])
    own.write_index()
    experiment = open_results()["mine/tuned"]
    assert experiment.run("test-of-else").equals(experiment.run("test"))
    assert experiment.vectors("test-of-else").ids == experiment.vectors("test").ids


def test_nothing_is_written(world):  # noqa: F811
    before = contents(world.root / "results")
    experiment = open_results("results")["mine/tuned"]
    experiment.search(["a query"]), experiment.pool(), compare(experiment, experiment, "test", episodes=(0, 1))
    assert contents(world.root / "results") == before


def test_systems_are_compared_over_all_their_seeds(stages, monkeypatch):
    monkeypatch.chdir(stages.root)
    ExperimentWorld(stages, seeds=(1, 2, 3))
    experiment = open_results()["mine/tuned"]
    found = compare(experiment, experiment, "test", "RR@10", (0, 1))
    means = [np.mean([experiment.scores("test", 1, seed)["RR@10"].mean() for seed in (1, 2, 3)])]
    means.append(experiment.scores("test", 0)["RR@10"].mean())
    assert found.difference == pytest.approx(means[0] - means[1]) and found.difference != 0
    with monkeypatch.context() as patch:
        patch.setattr("teleport.api.better", {"RR@10": -1}.get)  # as of errors
        fewer = compare(experiment, experiment, "test", "RR@10", (0, 1))
    assert fewer == found._replace(won=found.lost, lost=found.won) and found.won != found.lost
    assert found.method == "crossed" and not found.checkpoints and 0 <= found.p <= 1
    assert compare(experiment, experiment, "test").difference == 0
    assert len({tuple(experiment.scores("test", 1, seed)["RR@10"]) for seed in (1, 2, 3)}) > 1


def test_systems_of_two_rules_are_not_compared(own_world, monkeypatch):
    experiment, found = open_results()["mine/tuned"], api.evaluations

    def evaluations(experiment, episode, split):
        stages = found(experiment, episode, split)
        for stage in stages:
            stage.manifest["settings"]["ignore_own_text"] = episode == 1
        return stages

    monkeypatch.setattr(api, "evaluations", evaluations)
    assert compare(experiment, experiment, "test", episodes=(1, 1)).difference == 0
    with pytest.raises(Refusal, match="evaluation.ignore_own_text"):
        compare(experiment, experiment, "test", episodes=(0, 1))


def test_only_the_experiments_of_a_configuration(own_world):
    other = own_world.root / "results/experiments/mine/other"
    other.mkdir()
    (other / "plan.tsv").write_text((other.parent / "tuned/plan.tsv").read_text())
    Path("mine.yaml").write_text(yaml.safe_dump(minimal("tuned")))
    assert list(open_results()) == ["mine/other", "mine/tuned"]
    assert list(open_results("results", "mine.yaml")) == ["mine/tuned"]


def minimal(name):
    template = yaml.safe_load((REPOSITORY / "config/own-data.yaml").read_text())
    return template | {"name": "mine", "experiments": {name: {"label": name}}}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda own: own.scores("dev"), ["mine/tuned", "evaluate-dev", "plan.tsv"]),
        (lambda own: own.scores("test", 2), ["evaluate-test of episode 2"]),
        (lambda own: own.vectors("dev"), ["encode-queries.dev", "plan.tsv"]),
        (lambda own: compare(own, own, "test", "nDCG@3"), ["'nDCG@3'", "RR@10"]),
    ],
)
def test_what_is_not_there_is_refused_by_name(world, ask, said):  # noqa: F811
    with pytest.raises(Refusal) as caught:
        ask(open_results()["mine/tuned"])
    assert all(part in str(caught.value) for part in said)


def test_vectors_that_were_deleted_and_stages_that_are_not_finished_are_told(own_world):
    experiment = open_results()["mine/tuned"]
    Artefact(own_world.trained["encode"].folder).delete_files()
    with pytest.raises(Refusal, match=r"passages.npy .*\(keep_vectors\).*--forcerun"):
        experiment.search(["a"])
    assert experiment.search(["a"], episode=0)[0]
    (own_world.trained["evaluate"].folder / "manifest.json").unlink()
    assert open_results()["mine/tuned"].scores("test").equals(experiment.scores("test", 0))
    with pytest.raises(Refusal, match="evaluate-test of episode 1 .*run"):
        open_results()["mine/tuned"].scores("test", 1)


@pytest.mark.ci(1)
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"\tepisode\t", b"\t\t"), (b"\nseed\t", b"\n"), (b"42", b"x"), (b"\tencode\t", b"\t..\t"), (b"t", b"\xe9")],
)
def test_an_index_that_is_torn_is_named(own_world, old, new):
    path = Path("results/experiments/mine/tuned/plan.tsv")
    content = b"\n" + path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new)[1:])
    with pytest.raises(Refusal, match="mine/tuned/plan.tsv .*: torn"):
        open_results()["mine/tuned"].search(["a"])


def test_a_folder_that_has_no_results_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refusal, match="no experiments"):
        open_results()
    Path("results/experiments").mkdir(parents=True)
    assert open_results() == {}


def test_the_example_of_the_page_runs(world):  # noqa: F811
    """docs/own-data.md, as it stands, and it is about all that the API has."""
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/own-data.md").read_text(), re.DOTALL)
    names = {}
    exec(example, names)  # the repository's own page
    assert isinstance(names["run"], pd.DataFrame) and names["hits"][0].text and 0 <= names["found"].p <= 1
    methods = [
        name for name in vars(api.Experiment) if not name.startswith("_") and callable(getattr(api.Experiment, name))
    ]
    told = [name for name in methods if f".{name}(" in example]
    assert set(methods) - set(told) <= {"input", "stage", "artefact", "encode"}
