"""bench/gpu.py runs at a small size on a processor: each section writes its lines, and none is an error."""

import json

import pytest
import torch
from bench_world import bench_on_path  # noqa: F401

LINES = {  # of each section on a processor; `tests` needs a GPU
    "ceilings": ["product 64 x 64 x 64", "copy"],
    "search": ["search, vectors made", "search, opened", "search, stage"],
    "step-8": ["step 8 x (1 + 31), stage", "step 8 x (1 + 31), peer, transformers sdpa padded, autocast"],
    "encode": ["encode, stage, bf16", "encode, peer, transformers sdpa, bf16, padded, sorted"],
    "step-1": ["step 1 x (1 + 31), stage", "step 1 x (1 + 31), peer, transformers sdpa padded, autocast"],
    "cached": [
        "step 128 x (1 + 31), cached, stage",
        "step 128 x (1 + 31), cached, peer, transformers sdpa padded, autocast",
    ],
    "live": ["live 32, encoding", "live 32, stage, lists"],
}


@pytest.mark.parametrize(
    "sections",
    [("ceilings", "search", "cached"), pytest.param(("step-8", "encode", "step-1", "live"), marks=pytest.mark.slow)],
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
