"""Every benchmark runs at a tiny size, prints its table and writes its figures. How fast it is decides nothing here."""

import gzip
import importlib
import json
import sys

import pytest

from paths import REPOSITORY

SIZES = {
    "encode": ["--passages", "4"],
    "train": ["--queries", "2", "--negatives", "1"],
    "step": ["--queries", "2", "--negatives", "1"],
    "search": ["--passages", "300", "--queries", "5", "--dim", "16", "--depth", "20"],
    "merge": ["--queries", "20", "--depth", "30", "--pool", "10", "--whole", "25"],
    "measures": ["--queries", "5", "--depth", "50"],
    "answers": ["--depth", "2", "--sample", "2"],
}
PEERS = {
    "encode": ["transformers, padded to 128", "sentence-transformers encode()"],
    "train": ["padded to 128, fp32"],
    "step": ["stage, plain"],
    "search": ["faiss IndexFlatIP"],
    "merge": ["loops over text ids"],
    "measures": ["ir-measures from dictionaries"],
    "answers": ["plain implementation, sample"],
}


@pytest.fixture(autouse=True)
def bench_on_path(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "bench")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:  # names such as `search` are only meant inside bench/
        if str(REPOSITORY / "bench") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run(name, folder, capsys, *arguments):
    """What a benchmark printed, and what it wrote."""
    path = folder / f"{name}.json"
    if name == "answers":
        arguments = write_questions(folder)
    importlib.import_module(name).main([*SIZES[name], "--rounds", "1", "--json", str(path), *arguments])
    return capsys.readouterr().out, json.loads(path.read_text())


def write_questions(folder):
    """Three passages and two questions for bench/answers.py: paths of their files."""
    corpus, questions = folder / "corpus.tsv", folder / "questions.jsonl"
    corpus.write_text("d0\t\tParis is in France\nd1\t\tRome is in Italy\nd2\t\tnothing here\n")
    records = {"question": "Where is Paris?", "answer": ["France"]}, {"question": "Where is Rome?", "answers": ["Oslo"]}
    questions.write_text("".join(json.dumps(record) + "\n" for record in records))
    return [str(corpus), str(questions)]


HEAVY = ("encode", "train", "step")  # they load the embedded checkpoint and every library that reads it


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in SIZES])
def test_a_benchmark_prints_and_writes_ratios_against_its_peers(name, tmp_path, capsys):
    text, written = run(name, tmp_path, capsys)
    assert written["name"] == name and "numpy" in written["versions"] and written["hardware"]["processor"]
    assert sorted(written["ratios"]) == sorted(PEERS[name])
    assert any(variant.startswith("stage") for variant in written["seconds"])
    for peer, ratios in written["ratios"].items():
        assert ratios[peer] == 1.0
        for variant, times in written["seconds"].items():
            assert len(times) == 1 and written["medians"][variant] == times[0]
            assert ratios[variant] == pytest.approx(written["seconds"][peer][0] / times[0])
            assert f"| {variant} |" in text


@pytest.mark.slow
def test_every_variant_of_encode_gives_the_same_vectors(tmp_path, capsys):
    figures = run("encode", tmp_path, capsys)[1]["figures"]
    cosines = [value for name, value in figures.items() if "cosine" in name]
    assert len(cosines) >= 3 and min(cosines) > 0.999


@pytest.mark.slow
def test_the_agreement_of_encode_is_measured_on_a_corpus(tmp_path, capsys):
    corpus = tmp_path / "corpus.tsv.gz"
    with gzip.open(corpus, "wt", encoding="utf-8") as file:
        file.writelines(
            f"d{i}\t\tpassage {i} is about {word}\n" for i, word in enumerate(["tea", "rain", "cars", "jazz"] * 3)
        )
    figures = run("encode", tmp_path, capsys, "--passages", "12", "--corpus", str(corpus), "--pooling", "cls")[1][
        "figures"
    ]
    assert figures["overlap of the nearest 10, stage, fp32"] > 0.99
    assert 0.8 < figures["overlap of the nearest 10, stage, bf16"] <= 1.0
    assert figures["smallest cosine, stage, bf16"] > 0.9995
    assert figures["products, bf16 over fp32"] > 0


def test_the_variants_of_a_benchmark_compute_the_same(tmp_path, capsys):
    figures = {name: run(name, tmp_path, capsys)[1]["figures"] for name in SIZES if name not in HEAVY}
    shares = [value for name, value in figures["search"].items() if name.startswith("same passages")]
    assert shares and set(shares) == {1.0}
    assert all(value < 1e-6 for name, value in figures["search"].items() if name.startswith("largest difference"))
    negatives = {name: value for name, value in figures["merge"].items() if "negatives" in name}
    assert negatives == {"negatives, loops over text ids": 200, "negatives, stage": 200, "whole, negatives": 250}
    assert figures["measures"]["largest_difference"] < 1e-9
    assert figures["answers"]["pairs_that_differ"] == 0 and figures["answers"]["pairs_with_an_answer"] == 0.25


def test_rounds_are_interleaved_and_every_other_one_goes_backwards(bench_on_path):
    calls = []
    rounds = importlib.import_module("rounds")
    seconds = rounds.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
    assert [len(times) for times in seconds.values()] == [3, 3]


def test_a_ratio_is_the_median_of_the_ratios_within_rounds(bench_on_path):
    rounds = importlib.import_module("rounds")
    assert rounds.ratios({"peer": [4.0, 6.0, 9.0], "ours": [1.0, 2.0, 9.0]}, "peer") == {"peer": 1.0, "ours": 3.0}


@pytest.mark.slow
def test_calibration_writes_a_complete_hardware_line(tmp_path, monkeypatch):
    from teleport.forecast.hardware import THIS, read_hardware

    calibrate = importlib.import_module("calibrate")
    for name, value in {"PASSAGES": 520, "TRAIN": 16, "TEST": 8, "STEPS": 1, "TEXTS": 500, "ROUNDS": 1}.items():
        monkeypatch.setattr(calibrate, name, value)
    monkeypatch.setattr(calibrate, "SEARCH_PASSAGES", (1_000, 20_000))
    calibrate.main(["--json", str(tmp_path / "hardware.json")])
    name, line = read_hardware(measured=tmp_path / "hardware.json")
    assert name == THIS and line.source.startswith("measured by bench/calibrate.py by the ")
    assert line.encode_flop > 1e8 and line.train_flop > 1e8
