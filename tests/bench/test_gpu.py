"""bench/gpu.py runs at a small size on a processor: each section writes its lines, and none is an error."""

import json
import re
import time
from types import SimpleNamespace

import pytest
import torch
from bench_world import bench_on_path  # noqa: F401

PEER = "peer, transformers sdpa padded, autocast"
LINES = {  # of each section on a processor; `tests` needs a GPU
    "ceilings": ["product 64 x 64 x 64", "copy"],
    "search": ["search, opened", "search, stage", "search, opened", "search, stage, lognormal lengths"],
    "step-8": [f"step 8 x (1 + 31), {name}" for name in ("stage", "kernels", PEER, f"{PEER}, sorted in 4")],
    "encode": ["encode, stage, bf16", "encode, peer, transformers sdpa, bf16, padded, sorted", "encode, kernels"],
    "step-1": [f"step 1 x (1 + 31), {name}" for name in ("stage", "kernels", PEER, f"{PEER}, sorted in 4")],
    "cached": [f"step 64 x (1 + 31), cached, {name}" for name in ("stage", "kernels", PEER)],
    "live": ["live 32, encoding", "live 32, stage, lists"],
    "compare": ["compare, warm-up", "compare, same-passages", "compare, mined"],
}


ON_A_GPU = {f"{name}, peer, product of float16 and topk" for name in ("search", "live 32")}


@pytest.mark.parametrize(
    "sections",
    [
        ("ceilings", "search", "step-8", "encode", "cached"),
        pytest.param(("step-1", "live", "compare"), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_its_sections_write_their_lines(tmp_path, capsys, monkeypatch, sections):
    import gpu

    monkeypatch.setattr(gpu, "CUDA", False)
    monkeypatch.setattr(gpu, "DEVICE", torch.device("cpu"))
    threads = torch.get_num_threads()
    try:
        gpu.main([str(tmp_path), "--small", *sections])
    finally:
        torch.set_num_threads(threads)
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["what"] for line in lines] == ["machine", *(what for section in sections for what in LINES[section])]
    assert not [line for line in lines if "error" in line]
    assert all(line["ms"] > 0 for line in lines if "ms" in line)
    traced = [line["kernels"] for line in lines if "kernels" in line]
    assert all(len(found) == 10 and min(found.values()) >= 0 < max(found.values()) for found in traced)
    for line in lines[1:]:
        assert line.keys() & {"passages", "queries", "gb"} or line["what"].startswith("product 64 x"), line
    assert len(list(tmp_path.iterdir())) <= 8


@pytest.fixture
def gpu(monkeypatch):
    import gpu

    monkeypatch.setattr(gpu, "CUDA", False)
    return gpu


def test_a_section_that_exceeds_its_limit_ends_there_and_the_next_one_follows(tmp_path, capsys, gpu, monkeypatch):
    """Also inside a figure, whose errors are lines of their own."""

    def endless(lines, small, folder, out):
        lines.attempt("a figure", lambda: time.sleep(60))
        lines.say("after it")

    def short(lines, small, folder, out):
        lines.say("short", seconds=1)

    def wrong(lines, small, folder, out):
        raise ValueError("no such kernel")

    sections = {"endless": (endless, 0.2), "wrong": (wrong, 5), "short": (short, 5)}
    monkeypatch.setattr(gpu, "SECTIONS", sections)
    started = time.monotonic()
    gpu.main([str(tmp_path), "--small"])
    assert time.monotonic() - started < 30
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["what"] for line in lines] == ["machine", "endless", "wrong", "short"]
    assert [line.get("error") for line in lines[1:]] == [
        "ended at its limit of 0.2 s", "ValueError: no such kernel", None
    ]  # fmt: skip


def test_a_search_without_room_for_all_passages_takes_fewer(gpu, monkeypatch, tmp_path):
    def room(gb):
        monkeypatch.setattr(gpu.shutil, "disk_usage", lambda folder: SimpleNamespace(free=gb * 10**9))

    room(100)
    assert gpu.that_fit(tmp_path, 768) == 8_841_823
    room(10)
    assert gpu.that_fit(tmp_path, 768) == 9 * 10**9 // (4 * 768)


def test_all_sections_together_keep_within_the_ten_minutes_of_a_command(gpu):
    """But `compare`, which a machine without Snakemake cannot run."""
    limits = {name: seconds for name, (_, seconds) in gpu.SECTIONS.items()}
    assert list(limits)[:2] == ["ceilings", "tests"] and sum(limits.values()) - limits["compare"] <= 570


@pytest.mark.parametrize("section", ["step-8", "step-1", "cached"])
def test_a_step_of_full_size_has_a_batch(section):
    import train

    queries = int(re.match(r"step (\d+) x", LINES[section][0])[1])
    batch = train.training_set(SimpleNamespace(queries=queries, negatives=31, passages=4096)).batch(0)
    assert len(batch.queries_Q) == queries == len(set(batch.positive_columns_Q))


def test_predictions_stand_in_the_lines_that_they_are_of(gpu, tmp_path, monkeypatch):
    """Those of the card at hand, as it was before it ran there."""
    monkeypatch.setattr(gpu, "CUDA", True)
    written = {name for names in LINES.values() for name in names} | ON_A_GPU
    for card, small in (("NVIDIA H200", False), ("NVIDIA H200", True), ("NVIDIA H100 80GB HBM3", False), ("A9", False)):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, card=card: card)
        made = gpu.Lines(tmp_path, small)
        made.say("live 32, stage, lists", ms=3.0)
        assert len(made.predictions) == (12 if "NVIDIA" in card and not small else 0)
        for name in made.predictions:
            base = name.removesuffix(", compiled")
            assert {base, base.removesuffix(", bf16")} & written, name
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line.get("predicted_ms") for line in lines] == [10, None, 12, None] and lines[1]["ms"] == 3.0
