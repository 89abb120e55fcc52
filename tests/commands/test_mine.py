"""`teleport mine`: negatives alone, what they are like, and nothing that trains."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from commands.mine import mined, summary
from experiment_world import ExperimentWorld
from manage import mine
from paths import REPOSITORY
from teleport.api import open_results
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact


class Stage(NamedTuple):
    """As the plan names one."""

    kind: str
    key: str

    @property
    def name(self):
        return f"{self.kind}/{self.key}"


TEMPLATE = yaml.safe_load((REPOSITORY / "config/own-data.yaml").read_text())


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with config/mine.yaml of an embedded collection, and the file that mines."""
    monkeypatch.chdir(tmp_path)
    Path("config/variants").mkdir(parents=True)
    collection = {"source": "apidocs", "packages": ["numpy"]}
    Path("config/mine.yaml").write_text(yaml.safe_dump(TEMPLATE | {"name": "mine", "collection": collection}))
    shutil.copy(REPOSITORY / "config/variants/mined.yaml", "config/variants/mined.yaml")
    return tmp_path


def test_what_is_mined_is_planned_by_the_start_alone(here):
    files, link, pool = mined("mine", "config/variants/mined.yaml")
    assert files == [Path("config/mine.yaml"), Path("config/variants/mined.yaml")]
    assert link == Path("results/experiments/mine/mined/episode-1/merge") and pool.kind == "merge"
    kinds, unread = set(), [pool]
    while unread:
        stage = unread.pop()
        kinds.add(stage.kind)
        unread += stage.inputs.values()
    assert "train" not in kinds and {"encode", "retrieve", "pretrained"} <= kinds


def test_a_published_method_is_named(here):
    files, _, pool = mined("mine", "bge", REPOSITORY)
    assert files[1] == REPOSITORY / "config/methods/bge.yaml" and pool.settings.sources["query"].ranks == [(3, 200)]
    with pytest.raises(Refusal, match="--method bgee: config/methods has no bgee.yaml. Did you mean bge?"):
        mined("mine", "bgee", REPOSITORY)


BAD = {
    "two": ({"experiments": {"a": {"label": "A"}, "b": {"label": "B"}}}, "method.yaml has 2 experiments"),
    "none": ({"experiments": {"a": {"label": "A", "episodes": []}}}, "method.yaml: experiments.a mines no negatives"),
    "trained": (
        {
            "experiments": {
                "a": {
                    "label": "A",
                    "episodes": [
                        {"training": {"negatives_per_query": 0}},
                        {"negatives": {"counts": {"query": 3}}, "training": {"negatives_per_query": 1}},
                    ],
                }
            }
        },
        "method.yaml: experiments.a mines with a checkpoint that is trained first",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_mines_nothing_or_trains_first_is_refused(here, case):
    content, said = BAD[case]
    Path("method.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(Refusal, match=said):
        mined("mine", "method.yaml")


def test_a_configuration_that_is_not_there_is_refused(here):
    with pytest.raises(Refusal, match="config/other.yaml: no such file. `teleport new other FROM` writes it"):
        mined("other", "config/variants/mined.yaml")


def test_a_collection_without_training_queries_is_refused_by_its_name(here):
    """As `teleport new` writes it for a test set alone: nothing in it is about training."""
    Path("given/qrels").mkdir(parents=True)
    Path("given/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    raw = {key: value for key, value in TEMPLATE.items() if key not in ("training", "experiments", "episodes")}
    raw |= {"collection": {"source": "beir", "path": "given"}, "external": {"start": {"label": "Start", "encoder": {}}}}
    Path("config/mine.yaml").write_text(yaml.safe_dump(raw | {"name": "mine"}))
    with pytest.raises(Refusal, match="config/mine.yaml: the collection has no split train"):
        mined("mine", "config/variants/mined.yaml")


@pytest.mark.parametrize("chunks", [1, 2])
def test_the_summary_is_that_of_the_vectors(stages, monkeypatch, chunks):
    monkeypatch.chdir(stages.root)
    world = ExperimentWorld(stages, chunks=chunks)
    said = summary(Artefact(world.pool.folder))
    experiment = open_results()["mine/tuned"]
    passages, queries = experiment.vectors(episode=0), experiment.vectors("train", episode=0)
    products = np.array(queries.array) @ np.array(passages.array).T
    starts = np.arange(len(passages.ids)) if chunks == 1 else passages.offsets[:-1]
    scores_QP = np.maximum.reduceat(products, starts, axis=1)
    positives = scores_QP[np.arange(5), np.arange(5)]
    pool = experiment.pool()
    rows = [(int(query[5:]), int(doc[1:])) for query, doc in zip(pool["query_id"], pool["doc_id"], strict=True)]
    negatives = np.array([scores_QP[row] for row in rows])
    share = np.mean([scores_QP[row] > positives[row[0]] for row in rows])
    told = [float(number) for number in re.findall(r"-?\d+\.\d{3}", said[1])]
    expected = [positives.mean(), np.median(positives), negatives.mean(), np.median(negatives)]
    np.testing.assert_allclose(told, expected, atol=6e-4)
    assert len(set(told)) > 2 and f"{share:.1%} of the negatives" in said[1]
    assert said[0].startswith("8 negatives (8 from query) of 4 training queries, 2.0 a query")
    assert said[2:] == [
        "Left out by max_score: 4 candidates of query (8.0% of what was found).",
        "Left out: 1 queries (20.0%) that no negative is left for.",
    ]


def test_what_is_written_is_the_pool_that_is_described(stages, monkeypatch, capsys):
    """Although the link leads to what other settings have mined since."""
    monkeypatch.chdir(stages.root)
    world = ExperimentWorld(stages)
    link = Path("results/experiments/mine/tuned/episode-1/merge")
    link.parent.mkdir()
    link.symlink_to(stages.root / "results/stages/merge/pruned")
    monkeypatch.setattr("commands.mine.mined", lambda *given: ([], link, Stage("merge", world.pool.key)))
    for form in ("tevatron", "labeled-pair"):
        arguments = {"name": "mine", "output": Path(form), "method": None, "form": form, "most": None}
        mine(SimpleNamespace(**arguments, order="drawn", scores=False, cores="1"))
        assert f"4 queries in {form}, {form}, in the order" in capsys.readouterr().out
    assert "score" in Path("tevatron").read_text() and "score" not in Path("labeled-pair").read_text()
