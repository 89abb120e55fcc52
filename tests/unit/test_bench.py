"""Every benchmark runs at a tiny size, prints its table and writes its figures. How fast it is decides nothing here."""

import importlib
import json
import sys

import pytest

from paths import REPOSITORY

SIZES = {
    "encode": ["--passages", "4"],
    "train": ["--queries", "2", "--negatives", "1"],
    "search": ["--passages", "300", "--queries", "5", "--dim", "16", "--depth", "20"],
    "merge": ["--queries", "20", "--depth", "30", "--pool", "10"],
    "measures": ["--queries", "5", "--depth", "50"],
}
PEERS = {
    "encode": ["transformers, padded to 128", "sentence-transformers encode()"],
    "train": ["padded to 128, fp32"],
    "search": ["faiss IndexFlatIP"],
    "merge": ["loops over text ids"],
    "measures": ["ir-measures from dictionaries"],
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
    importlib.import_module(name).main([*SIZES[name], "--rounds", "1", "--output", str(folder), *arguments])
    return capsys.readouterr().out, json.loads((folder / f"{name}.json").read_text())


HEAVY = ("encode", "train")  # they load the embedded checkpoint and every library that reads it


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in SIZES])
def test_a_benchmark_prints_and_writes_ratios_against_its_peers(name, tmp_path, capsys):
    text, written = run(name, tmp_path, capsys)
    assert sorted(written["ratios"]) == sorted(PEERS[name])
    assert any(variant.startswith("stage") for variant in written["seconds"])
    for peer, ratios in written["ratios"].items():
        assert ratios[peer] == 1.0
        for variant, times in written["seconds"].items():
            assert len(times) == 1 and ratios[variant] == pytest.approx(written["seconds"][peer][0] / times[0])
            assert f"| {variant} |" in text


@pytest.mark.slow
def test_every_variant_of_encode_gives_the_same_vectors(tmp_path, capsys):
    figures = run("encode", tmp_path, capsys)[1]["figures"]
    cosines = [value for name, value in figures.items() if "cosine" in name]
    assert len(cosines) >= 3 and min(cosines) > 0.999


def test_the_variants_of_a_benchmark_compute_the_same(tmp_path, capsys):
    figures = {name: run(name, tmp_path, capsys)[1]["figures"] for name in ("search", "merge", "measures")}
    assert set(figures["search"].values()) == {1.0} and len(figures["search"]) == 3
    assert figures["merge"] == {"negatives, loops over text ids": 200, "negatives, stage": 200}
    assert figures["measures"]["largest_difference"] < 1e-9


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
    calibrate.main(["--output", str(tmp_path / "hardware.json")])
    name, line = read_hardware(measured=tmp_path / "hardware.json")
    assert name == THIS and line.source.startswith("measured by bench/calibrate.py on ")
    assert line.encode_flop > 1e8 and line.train_flop > 1e8
