"""Precision by hardware."""

import pytest
import torch

from teleport.encoder import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize("flags, expected", [("fpu avx512_bf16 sse", torch.bfloat16), ("fpu amx_bf16", torch.bfloat16)])
def test_auto_is_bf16_where_the_cpu_multiplies_in_it(tmp_path, monkeypatch, flags, expected):
    (tmp_path / "cpuinfo").write_text(f"processor: 0\nflags: {flags}\n")
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "cpuinfo")
    assert precision.resolve_precision("auto", CPU) is expected


def test_auto_is_fp32_on_other_cpus(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("flags: fpu avx512f avx512_bf16_is_not_this\n")
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "cpuinfo")
    assert precision.resolve_precision("auto", CPU) is None
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "not a Linux system")
    assert precision.resolve_precision("auto", CPU) is None


def test_explicit_precision_wins():
    assert precision.resolve_precision("bf16", CPU) is torch.bfloat16
    assert precision.resolve_precision("fp32", CPU) is None
