"""Precision by hardware."""

import pytest
import torch

from teleport.encoder import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("GenuineIntel", "fpu avx512_bf16 amx_bf16 amx_tile", torch.bfloat16),
        ("AuthenticAMD", "fpu avx512_bf16 sse", torch.bfloat16),
        ("GenuineIntel", "fpu avx512_bf16 sse", None),
        ("AuthenticAMD", "fpu avx512f avx512_bf16_is_not_this", None),
    ],
)
def test_auto_is_bf16_where_the_cpu_is_faster_in_it(tmp_path, monkeypatch, vendor, flags, expected):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n")
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "cpuinfo")
    assert precision.resolve_precision("auto", CPU) is expected


def test_auto_is_fp32_on_a_system_that_says_nothing_of_its_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "CPU_INFO", tmp_path / "not a Linux system")
    assert precision.resolve_precision("auto", CPU) is None


def test_explicit_precision_wins():
    assert precision.resolve_precision("bf16", CPU) is torch.bfloat16
    assert precision.resolve_precision("fp32", CPU) is None


def test_bf16_on_a_gpu_without_it_is_refused_with_the_remedy(monkeypatch):
    """FlashAttention, which bf16 takes there, has no kernels for such a one; auto computes in float32."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(ValueError, match="Tesla T4 .* training.precision"):
        precision.resolve_precision("bf16", torch.device("cuda"))
    assert precision.resolve_precision("auto", torch.device("cuda")) is None


@pytest.mark.parametrize(
    "asked, device, expected", [(True, "cuda", True), (True, "cpu", False), (False, "cuda", False)]
)
def test_layers_are_compiled_on_cuda_where_it_is_asked_for(monkeypatch, asked, device, expected):
    monkeypatch.setattr("teleport.running.devices.shutil.which", lambda name: f"/usr/bin/{name}")
    assert precision.compiles(asked, torch.device(device)) is expected


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_layers_are_compiled_by_themselves_from_two_hundred_million_tokens_on(monkeypatch, device, compiler):
    """On CUDA, if there is a compiler. Compiling is not worth its time for fewer."""
    monkeypatch.setattr("teleport.running.devices.shutil.which", lambda name: f"/usr/bin/{name}" if compiler else None)
    few, enough = (precision.compiles(False, torch.device(device), tokens) for tokens in (199_999_999, 200_000_000))
    assert few is False and enough is (device == "cuda" and compiler)


def test_compiling_without_a_compiler_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr("teleport.running.devices.shutil.which", lambda name: None)
    with pytest.raises(ValueError, match="no C compiler.*Debian: gcc"):
        precision.compiles(True, torch.device("cuda"))
    assert precision.compiles(True, CPU) is False


def test_what_is_copied_to_a_gpu_is_pinned_in_one_piece(monkeypatch):
    """The first columns of an array, for one: pin_memory() keeps strides, and of these torch makes a pageable copy."""
    copied = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: copied.append(tensor) or tensor)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device, non_blocking: tensor)
    part = torch.arange(12).view(3, 4)[:, :2]
    assert precision.to_device(part, torch.device("cuda")).tolist() == part.tolist()
    assert [tensor.is_contiguous() for tensor in copied] == [True]
