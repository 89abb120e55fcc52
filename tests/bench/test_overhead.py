"""bench/overhead.py: where the time of a run went, on spans and files written by hand."""

import importlib
import json
import os

import pytest

from paths import REPOSITORY


@pytest.fixture
def overhead(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "bench")
    return importlib.import_module("overhead")


def test_every_moment_counts_once_for_the_phase_nearest_to_work(overhead):
    span = overhead.Span
    spans = [
        span("interpreter", 2, 3), span("load", 3, 5), span("work", 5, 10), span("publish", 10, 11),
        span("interpreter", 4, 6), span("load", 6, 7), span("work", 7, 14), span("publish", 14, 16),
    ]  # fmt: skip
    found = overhead.shares(spans, 0, 20)
    assert found == {"start": 2, "interpreter": 1, "load": 2, "work": 9, "publish": 2, "between": 4}
    assert sum(found.values()) == 20


def test_a_run_without_stages_is_all_start(overhead):
    assert overhead.shares([], 5, 8) == dict.fromkeys(overhead.PHASES, 0.0) | {"start": 3.0}


def write_stage(root, key, end, **seconds):
    folder = root / f"results/stages/train/{key}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"provenance": {"seconds": seconds}}))
    os.utime(folder / "manifest.json", (end, end))


def test_a_stage_is_dated_back_from_its_manifest(overhead, tmp_path):
    write_stage(tmp_path, "a", 1000, load=2, work=5, publish=1)
    write_stage(tmp_path, "b", 900, load=2, work=5, publish=1)
    (tmp_path / "results/benchmarks/train").mkdir(parents=True)
    (tmp_path / "results/benchmarks/train/a.tsv").write_text("s\th:m:s\n8.5\t0:00:08\n")
    spans = overhead.run_spans(tmp_path, 950, 1050)
    found = {span.phase: (span.start, span.end) for span in spans}
    assert found == {"publish": (999, 1000), "work": (994, 999), "load": (992, 994), "interpreter": (991.5, 992)}


def test_the_last_run_is_dated_by_its_log(overhead, tmp_path):
    with pytest.raises(ValueError, match="has no log of a run"):
        overhead.last_run(tmp_path)
    (tmp_path / ".snakemake/log").mkdir(parents=True)
    for name in ("2026-01-02T030405.500000", "2026-01-02T030400.000000"):
        (tmp_path / f".snakemake/log/{name}.snakemake.log").write_text("")
    newest = tmp_path / ".snakemake/log/2026-01-02T030405.500000.snakemake.log"
    os.utime(newest, (2_000_000_000, 2_000_000_000))
    start, end = overhead.last_run(tmp_path)
    assert start % 60 == 5.5 and end == 2_000_000_000


def test_a_failed_run_gives_no_share(overhead, tmp_path):
    with pytest.raises(SystemExit, match="snakemake ended with 1"):
        overhead.main(["--directory", str(tmp_path), "--", "--cores", "1"])
