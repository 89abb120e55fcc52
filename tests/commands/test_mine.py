"""`teleport mine`: negatives alone, what they are like, and nothing that trains."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from commands.export import export, origin_file
from commands.mine import mined, summary
from experiment_world import ExperimentWorld
from manage import main, mine
from paths import REPOSITORY
from teleport.api import open_results
from teleport.refusal import Refusal
from teleport.running.artefact import Artefact

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
    files, link, pool, _ = mined("mine", "config/variants/mined.yaml")
    assert files == [Path("config/mine.yaml"), Path("config/variants/mined.yaml")]
    assert link == Path("results/experiments/mine/mined/episode-1/merge") and pool.kind == "merge"
    kinds, unread = set(), [pool]
    while unread:
        stage = unread.pop()
        kinds.add(stage.kind)
        unread += stage.inputs.values()
    assert "train" not in kinds and {"encode", "retrieve", "pretrained"} <= kinds


def test_a_published_method_is_named(here):
    files, _, pool, _ = mined("mine", "bge")
    assert files[1] == REPOSITORY / "config/methods/bge.yaml" and pool.settings.sources["query"].ranks == [(3, 200)]
    with pytest.raises(Refusal, match="--method bgee: .*bgee.yaml.*bge\\?"):
        mined("mine", "bgee")


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
        "method.yaml: experiments.a mines",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_mines_nothing_or_trains_first_is_refused(here, case):
    content, said = BAD[case]
    Path("method.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(Refusal, match=said):
        mined("mine", "method.yaml")


def test_a_configuration_that_is_not_there_is_refused(here):
    with pytest.raises(Refusal, match="config/other.yaml.*`teleport new other FROM`"):
        mined("other", "config/variants/mined.yaml")


def test_a_collection_without_training_queries_is_refused_by_its_name(here):
    """As `teleport new` writes it for a test set alone: nothing in it is about training."""
    Path("given/qrels").mkdir(parents=True)
    Path("given/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n")
    Path("given/corpus.jsonl").write_text('{"_id": "d", "text": "one"}\n')
    Path("given/queries.jsonl").write_text('{"_id": "q", "text": "one?"}\n')
    raw = {key: value for key, value in TEMPLATE.items() if key not in ("training", "experiments", "episodes")}
    raw |= {"collection": {"source": "beir", "path": "given"}, "external": {"start": {"label": "Start", "encoder": {}}}}
    Path("config/mine.yaml").write_text(yaml.safe_dump(raw | {"name": "mine"}))
    with pytest.raises(Refusal, match="config/mine.yaml.* train.*test"):
        mined("mine", "config/variants/mined.yaml")
    shutil.copy("given/qrels/test.tsv", "given/qrels/train.tsv")
    assert mined("mine", "config/variants/mined.yaml")[2].kind == "merge"


@pytest.mark.parametrize("written", [(), ("bm25",), ("training",)])
def test_no_key_of_training_is_needed(here, written):
    """And none of a configuration changes what is mined."""
    expected = mined("mine", "config/variants/mined.yaml")[2]
    raw = yaml.safe_load(Path("config/mine.yaml").read_text())
    raw = {key: raw[key] for key in ("name", "collection", "encoder", "negatives")}
    training = {"epochs": 3, "warmup_ratio": None, "warmup_steps": 30}
    Path("config/mine.yaml").write_text(
        yaml.safe_dump(raw | {key: training if key == "training" else {} for key in written})
    )
    assert mined("mine", "config/variants/mined.yaml")[2].name == expected.name


WANTED = {"output": None, "method": "config/variants/mined.yaml", "form": "tevatron", "order": "drawn", "most": None}
WANTED |= {"name": "mine", "scores": False, "cores": "1"}


@pytest.mark.parametrize("option", [{"order": "hardest"}, {"scores": True}, {"scores": True, "form": "n-tuple"}])
def test_scores_that_nobody_makes_are_refused_before_anything_runs(here, monkeypatch, option):
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(Refusal, match="^--(order hardest|scores): .* --method dpr.*bm25"):
        mine(**WANTED | {"method": "dpr"} | option)
    for method in ("config/variants/mined.yaml", "ance-tele"):
        with pytest.raises(TypeError, match="not callable"):  # the workflow starts
            mine(**WANTED | {"method": method} | option)
    assert not Path("results").exists()


def test_snakemake_runs_no_file_that_lies_here(here, monkeypatch):
    """`python -m` puts the current folder first on Python's path."""
    commands = []

    def start(command):
        commands.append(command)
        return SimpleNamespace(wait=lambda: 1)

    monkeypatch.setattr("subprocess.Popen", start)
    assert mine(**WANTED) == 1  # the workflow's status
    monkeypatch.undo()
    begin = commands[0][: commands[0].index("snakemake") + 1]
    (here / "psutil.py").write_text("raise SystemExit('run')")
    done = subprocess.run([*begin, "--version"], cwd=here, capture_output=True, text=True)
    assert done.returncode == 0 and "run" not in done.stderr, done.stderr


def test_scores_in_a_form_without_room_are_refused_before_anything_runs(here, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(Refusal, match="--scores: .* triples"):
        mine(**WANTED | {"form": "triples", "scores": True})


@pytest.mark.parametrize("chunks", [1, 2])
def test_the_summary_is_that_of_the_vectors(stages, monkeypatch, chunks):
    monkeypatch.chdir(stages.root)
    monkeypatch.setattr("experiment_world.SCORED", np.nan)  # the pool has no scores: the vectors give them
    world = ExperimentWorld(stages, chunks=chunks)
    export(world.pool.folder, Path("out.jsonl"), origin=True)
    said = summary(Artefact(world.pool.folder), origin_file(Path("out.jsonl")))
    experiment = open_results()["mine/tuned"]
    passages, queries = experiment.vectors(episode=0), experiment.vectors("train", episode=0)
    products = np.array(queries.array) @ np.array(passages.array).T
    starts = np.arange(len(passages.ids)) if chunks == 1 else passages.offsets[:-1]
    scores_QP = np.maximum.reduceat(products, starts, axis=1)
    positives = scores_QP[np.arange(4), np.arange(4)]  # the last query has no negative
    pool = experiment.pool()
    rows = [(int(query[5:]), int(doc[1:])) for query, doc in zip(pool["query_id"], pool["doc_id"], strict=True)]
    negatives = np.array([scores_QP[row] for row in rows])
    share = np.mean([scores_QP[row] > positives[row[0]] for row in rows])
    told = [float(number) for number in re.findall(r"-?\d+\.\d{3}", said[1])]
    expected = [positives.mean(), np.median(positives), negatives.mean(), np.median(negatives)]
    np.testing.assert_allclose(told, expected, atol=6e-4)
    assert len(set(told)) > 2 and f"{share:.1%} of the negatives" in said[1]
    assert said[0].startswith("8 negatives (4 from query, 4 from query+bm25) of 4 training queries, 2.0 a query")
    assert said[2:] == [
        "Left out by max_score: 4 candidates of query (8.0% of what was found).",
        "Left out: 1 query (20.0%) that no negative is left for.",
    ]


@pytest.fixture
def finished(stages, monkeypatch):
    """The world of a pool that `teleport mine mine` finds finished."""
    monkeypatch.chdir(stages.root)
    world = ExperimentWorld(stages)
    link = Path("results/experiments/mine/tuned/episode-1/merge")
    link.parent.mkdir()
    link.symlink_to(stages.root / "results/stages/merge/pruned")  # what other settings have mined since
    settings = SimpleNamespace(sources={})
    planned = SimpleNamespace(name=f"merge/{world.pool.key}", inputs={"query": None}, settings=settings)
    monkeypatch.setattr("commands.mine.mined", lambda *given: ([], link, planned, SimpleNamespace(stages={})))
    return world


def test_a_pool_of_older_code_is_mined_again(finished, monkeypatch):
    class Workflow:
        def __init__(self, command):
            started.append(command)

        def wait(self):
            return 1

    started = []
    monkeypatch.setattr("subprocess.Popen", Workflow)
    assert mine(**WANTED | {"output": Path("one.jsonl")}) is None and not started
    monkeypatch.setattr("commands.mine.edited_stages", lambda plan: {f"merge/{finished.pool.key}"})
    assert mine(**WANTED | {"output": Path("two.jsonl")}) == 1 and len(started) == 1, "the workflow's status"


def test_what_is_written_is_the_pool_that_is_described(finished, capsys):
    for form in ("tevatron", "labeled-pair"):
        mine(**WANTED | {"output": Path(form), "form": form})
        assert f"4 queries in {form}, {form}, as drawn, by source and rank" in capsys.readouterr().out
    assert "score" in Path("tevatron").read_text() and "score" not in Path("labeled-pair").read_text()


@pytest.mark.parametrize("form", ["tevatron", "triplet", "labeled-pair", "triples"])
def test_the_summary_is_that_of_the_file(finished, capsys, form):
    def said(**wanted):
        mine(**WANTED | {"form": form} | wanted)
        return capsys.readouterr().out.splitlines()

    (_, number, scores, *_), (_, fewer, others, *_) = said(), said(order="hardest", most=1)
    assert number.startswith("8 negatives (4 from query, 4 from query+bm25) of 4 training queries, 2.0 a query.")
    assert fewer.startswith("4 negatives (4 from query+bm25) of 4 training queries, 1.0 a query.")
    positives, negatives = (re.search(f"{side} mean (-?[0-9.]+)", others)[1] for side in ("positives", "negatives"))
    assert f"positives mean {positives}," in scores and f"negatives mean {negatives}," not in scores
    assert float(negatives) == pytest.approx(np.mean([20, 21, 22, 23]) / 64, abs=6e-4)


@pytest.mark.parametrize("form", ["triples", "tevatron"])
def test_no_file_of_a_persons_own_is_replaced(finished, form):
    """Of triples any file was, and of the other forms one that begins with {, such as the pairs of the collection."""
    own = Path("pairs.jsonl")
    own.write_text('{"query": "q", "passage": "p"}\n')
    with pytest.raises(Refusal, match="pairs.jsonl exists already"):
        export(finished.pool.folder, own, form=form)
    with pytest.raises(Refusal, match="pairs.jsonl exists already, and no pairs.origin.jsonl"):
        mine(**WANTED | {"form": form, "output": own})
    assert own.read_text() == '{"query": "q", "passage": "p"}\n'


def test_a_file_of_triples_ends_in_tsv_and_an_earlier_file_is_said_to_be_replaced(finished, capsys):
    for form, name in {"triples": "mine-negatives.tsv", "pos-neg": "mine-negatives.jsonl"}.items():
        mine(**WANTED | {"form": form})
        assert f"4 queries in {name}, {form}," in capsys.readouterr().out
    mine(**WANTED)
    assert "4 queries in mine-negatives.jsonl, which replaces an earlier one, tevatron," in capsys.readouterr().out
    assert "\t" in Path("mine-negatives.tsv").read_text()
    assert "positive_passages" in json.loads(Path("mine-negatives.jsonl").read_text().splitlines()[0])
    assert set(Path().glob("mine-*")) == {
        Path(f"mine-negatives.{ending}") for ending in ("tsv", "tsv.origin.jsonl", "jsonl", "origin.jsonl")
    }


@pytest.mark.parametrize("form", ["tevatron", "n-tuple", "triplet", "labeled-pair", "labeled-list", "triples"])
def test_both_commands_write_a_form(finished, monkeypatch, capsys, form):
    monkeypatch.setattr("manage.signal.signal", lambda *given: None)
    mine(**WANTED | {"form": form, "output": Path("expected")})
    for given in (["mine", "mine", "--output", "out"], ["export", str(finished.pool.folder), "exported"]):
        monkeypatch.setattr(sys, "argv", ["teleport", *given, "--form", form])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code is None and "4 queries" in capsys.readouterr().out
    assert Path("out").read_bytes() == Path("expected").read_bytes()
    with pytest.raises(SystemExit):
        monkeypatch.setattr(sys, "argv", ["teleport", "mine", "mine", "--form", "pairs"])
        main()
    assert "invalid choice: 'pair" in capsys.readouterr().err
