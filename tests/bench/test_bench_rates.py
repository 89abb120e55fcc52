"""The search of bench/ at any size, and the rates that bench/calibrate.py makes of times."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from bench_world import bench_on_path, run  # noqa: F401


def test_made_vectors_do_not_depend_on_threads(tmp_path, monkeypatch):
    vectors, torch = importlib.import_module("vectors"), importlib.import_module("torch")
    monkeypatch.setattr(vectors, "BLOCK", 64)
    before = torch.get_num_threads()
    one, two, other = (
        vectors.make_vectors(tmp_path / f"{number}.npy", 200, 16, seed, threads)
        for number, (seed, threads) in enumerate([(1, 1), (1, 2), (2, 2)])
    )
    assert torch.get_num_threads() == before
    assert one.shape == (200, 16) and one.dtype == np.float32 and isinstance(one, np.memmap)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, rtol=1e-6)
    assert len(np.unique(np.vstack([one, other]), axis=0)) == 400  # no block repeats another


def test_the_nearest_are_sorted_in_full_and_ties_go_by_number(monkeypatch):
    vectors = importlib.import_module("vectors")
    monkeypatch.setattr(vectors, "BLOCK", 2)
    passages = np.array([[1, 0], [0, 2], [2, 0], [1, 1], [2, 0]], np.float32)
    found = vectors.nearest(passages, np.array([[1, 0], [0, -1]], np.float32), 3, 2)
    assert found.tolist() == [[2, 4, 0], [0, 2, 4]]


def test_the_search_is_compared_with_a_full_sort_where_it_is_measured_alone(tmp_path, capsys):
    _, written = run("search", tmp_path, capsys, "--alone")
    assert [name.partition(",")[0] for name in written["seconds"]] == ["stage"] and written["ratios"] == {}
    figures = written["figures"]
    assert figures["same passages as a full sort"] == figures["same ranks as a full sort"] == 1.0
    assert figures["seconds to open"] >= 0


def test_without_faiss_the_search_has_one_peer(tmp_path, monkeypatch, capsys):
    search = importlib.import_module("search")
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    assert list(run("search", tmp_path, capsys)[1]["ratios"]) == [search.TOPK]


def test_rates_that_were_not_measured_are_those_of_the_first_line():
    calibrate = importlib.import_module("calibrate")
    first = calibrate.read_hardware("cpu-2-cores")[1]
    measured = {name: 1.0 for name in ("encode_flop", "train_flop", "search_flop", "texts", "tokens", "rows")}
    measured |= {name: 1.0 for name in ("disk", "startup", "load")}
    assert calibrate.taken_over(measured) == {"bm25_tokens": first.bm25_tokens, "bm25_scores": first.bm25_scores}


@pytest.mark.parametrize(("mean", "most"), [(76, 128), (152, 256), (500, 512)])
def test_passages_of_a_calibration_are_as_long_as_is_asked_for(mean, most, tmp_path):
    calibrate = importlib.import_module("calibrate")
    calibrate.write_collection(tmp_path / "collection", 1, mean)
    lines = (tmp_path / "collection" / "corpus.tsv").read_text().splitlines()
    assert np.mean([len(line.split("\t")[2].split()) for line in lines]) == pytest.approx(mean, rel=0.05)
    assert calibrate.configuration(1, None, mean)["encoder"]["max_passage_tokens"] == most
    train, test = ((tmp_path / "collection" / f"queries.{split}.tsv").read_text() for split in ("train", "test"))
    texts = [{line.split("\t")[1] for line in queries.splitlines()} for queries in (train, test)]
    assert texts[0].isdisjoint(texts[1]) and min(map(len, texts)) > 50, "the stage `check` would warn"


@pytest.mark.parametrize(("seconds", "times"), [((8.0, 6.0), [(1, 1)]), ((0.9, 7.0), [(1, 1), (6, 1)])])
def test_what_computes_for_too_short_runs_again_on_more(seconds, times, tmp_path, monkeypatch):
    """The time of the first batches is no rate; the figures are those of the last run."""
    calibrate, asked = importlib.import_module("calibrate"), []
    encode, train = seconds

    def configuration(steps, checkpoint, tokens, collection):
        asked[-1] += (steps // 10,)
        return asked[-1]

    def run_stages(plan, threads):
        more, steps = plan
        return {"encode": ("encode", encode * more), "train": ("train", train * steps), "evaluate": ("evaluate", 1.0)}

    monkeypatch.setattr(calibrate, "write_collection", lambda folder, scale, mean: asked.append((scale // 10,)))
    monkeypatch.setattr(calibrate, "configuration", configuration)
    monkeypatch.setattr(calibrate, "run_stages", run_stages)
    for name in ("load", "Plan", "Counts"):
        monkeypatch.setattr(calibrate, name, lambda given, name=name: [given] if name == "load" else given)
    work = SimpleNamespace(work={"encode_flop": 1.0, "train_flop": 2.0, "rows": 3.0})
    monkeypatch.setattr(calibrate, "stage_cost", lambda stage, counts: work)
    rates = calibrate.stage_rates(10, None, 76, 1)
    assert asked == times
    assert rates == {"encode_flop": 1 / (encode * asked[-1][0]), "train_flop": 2 / train, "rows": 3.0}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--bert-base"]])
def test_calibration_writes_a_complete_hardware_line(flags, tmp_path, monkeypatch):
    from commands.forecast.hardware import THIS, read_hardware

    calibrate = importlib.import_module("calibrate")
    small = {"PASSAGES": 520, "TRAIN": 60, "TEST": 8, "STEPS": 1, "MOST_TIMES": 1}
    for name, value in small.items():
        monkeypatch.setattr(calibrate, name, value)
    if flags == ["--bert-base"]:  # whose weights would take minutes here
        small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        bert = calibrate.texts.BertConfig
        monkeypatch.setattr(calibrate.texts, "BertConfig", lambda **given: bert(**given | small))
    calibrate.main([*flags, "--json", str(tmp_path / "hardware.json")])
    monkeypatch.setattr("commands.forecast.hardware.MEASURED", tmp_path / "hardware.json")
    name, line = read_hardware()
    assert name == THIS and line.source.startswith("measured by bench/calibrate.py on ")
    assert ("BERT-base" if flags else "MiniLM") in line.source
    assert line.encode_flop > 1e7 and line.train_flop > 1e7 and line.bm25_scores > 1e4
