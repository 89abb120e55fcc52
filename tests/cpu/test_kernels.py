"""What exists for a CPU's speed alone: oneDNN's layout, groups of equal texts, dropout; and that it may be deleted."""

import importlib
import sys

import numpy as np
import pytest
import torch
from transformers.activations import ACT2FN

from encoder_world import FAMILIES, make_encoder
from teleport.cpu import attention, kernels, search
from teleport.cpu.attention import dropout
from teleport.cpu.kernels import CpuEncoder, has_operators, prepack_for_onednn
from teleport.encoder.model import PackedEncoder, Spans
from teleport.encoder.precision import faster_in_bf16
from teleport.encoder.side import batches_at_once, prepare
from teleport.on_cpu import cpu_module
from teleport.running.code import import_closure, module_path
from teleport.search import engines
from teleport.search.flat_faiss import FaissFlat
from teleport.settings.registry import CPU as REGISTERED

CPU = torch.device("cpu")
LENGTHS = np.array([3, 9, 9, 9, 2, 30, 17, 17])
IDS = np.random.default_rng(0).integers(4, 40, size=LENGTHS.sum())


@pytest.fixture
def prepacking(monkeypatch):
    """Prepacks weights whatever this processor gains by it."""
    monkeypatch.setattr(kernels, "gains_by_prepacking", lambda: True)


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_prepacked_weights_give_the_plain_products(tmp_path, prepacking, family, pooling, dtype, most):
    if not has_operators(dtype) or (dtype == torch.bfloat16 and not faster_in_bf16(CPU)):
        pytest.skip("this torch has no such operators for this processor")
    encoder = make_encoder(tmp_path, family, pooling, normalize=True)
    plain = CpuEncoder(encoder, dtype)
    with torch.inference_mode():
        prepared = CpuEncoder(encoder, dtype)
        expected, found, again = (packed(IDS, LENGTHS) for packed in (plain, prepared, prepared))
    pairs = [pair for both in zip(plain.weights, prepared.weights, strict=True) for pair in zip(*both, strict=True)]
    assert all(mine is None or (theirs[0].is_mkldnn and not mine[0].is_mkldnn) for mine, theirs in pairs)
    assert torch.equal(found, again) and (found - expected).abs().max() < most


@pytest.mark.parametrize("capability, expected", [("AVX2", False), ("AVX512", True)])
def test_weights_are_prepacked_where_that_is_faster(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    with torch.inference_mode():
        assert prepack_for_onednn(torch.ones(8, 8)).is_mkldnn == (expected and has_operators(torch.float32))
    assert not prepack_for_onednn(torch.ones(8, 8)).is_mkldnn


def test_only_the_exact_gelu_is_part_of_a_product(prepacking):
    made = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=made) for shape in ((50, 32), (64, 32), (64,)))
    with torch.inference_mode():
        for name in ("gelu", "gelu_new", "relu", "silu"):
            expected = ACT2FN[name](torch.nn.functional.linear(x, weight, bias))
            torch.testing.assert_close(
                CpuEncoder.linear(x, prepack_for_onednn(weight), bias, ACT2FN[name]), expected, rtol=1e-5, atol=1e-5
            )


def test_groups_are_texts_of_equal_length_and_bounded(monkeypatch):
    spans = Spans(np.array([5, 5, 5, 7, 5, 5]), CPU, 2)

    def found(one_query, scores):
        monkeypatch.setattr(attention, "SCORES", 2 * scores)  # of one head
        groups = list(attention.groups(spans, one_query))
        assert [rows.stop for _, rows, _ in groups][:-1] == [rows.start for _, rows, _ in groups][1:]
        return [(texts, (rows.stop - rows.start) // texts) for _, rows, texts in groups]

    assert found(False, 2 * 25) == found(True, 2 * 5) == [(2, 5), (1, 5), (1, 7), (2, 5)]
    assert found(False, 100 * 25) == [(3, 5), (1, 7), (2, 5)] and len(found(False, 1)) == 6


@pytest.mark.parametrize("one_query", [False, True])
def test_the_gradient_of_the_attention_is_that_of_its_values(monkeypatch, one_query):
    """By differences in float64, with dropout too; several texts a group, and a group of equal texts cut in two."""
    monkeypatch.setattr(attention, "SCORES", 2 * 4 * (1 if one_query else 4) * 2)
    spans, made = Spans(np.array([2, 4, 4, 4, 1]), CPU, 2), torch.Generator().manual_seed(0)
    inputs = torch.randn(15, 8 if one_query else 12, generator=made, dtype=torch.float64, requires_grad=True)
    queries = torch.randn(5, 4, generator=made, dtype=torch.float64, requires_grad=True) if one_query else None

    def values(queries, inputs):
        torch.manual_seed(3)
        return CpuEncoder.attention(queries, inputs, spans, 0.4)

    assert torch.autograd.gradcheck(values, (queries, inputs))


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_drops_at_its_rate_and_keeps_the_mean(rate, dtype):
    torch.manual_seed(0)
    x = torch.ones(501, 999, dtype=dtype, requires_grad=True)
    y = dropout(x, rate)
    zeros = (y == 0).float()
    assert abs(zeros.mean() - rate) < 5 * (rate * (1 - rate) / x.numel()) ** 0.5
    assert abs((zeros[:, 1:] * zeros[:, :-1]).mean() - rate**2) < 0.003  # neighbours share a word of random bits
    assert (y[y != 0] - 1 / (1 - rate)).abs().max() < 0.005
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())  # the same elements, the same scale
    assert y.dtype == dtype and not torch.equal(dropout(x, rate), y) and dropout(x, 0.0) is x


@pytest.fixture
def deleted(monkeypatch):
    """Hides the package, as if its folder were deleted."""

    def hide():
        for name in [name for name in sys.modules if name.startswith("teleport.cpu")]:
            monkeypatch.setitem(sys.modules, name, None)
        cpu_module.cache_clear()

    yield hide
    cpu_module.cache_clear()


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_without_the_package_vectors_and_gradients_are_the_same(tmp_path, deleted, family, pooling):
    encoder = make_encoder(tmp_path, family, pooling, normalize=True)

    def computed():
        encoder.zero_grad()
        packed = prepare(encoder)
        vectors = packed(IDS, LENGTHS)
        (vectors * torch.linspace(-1, 1, vectors.numel()).view_as(vectors)).sum().backward()
        return type(packed), vectors.detach(), {name: p.grad.clone() for name, p in encoder.named_parameters()}

    with_package, expected, by_package = computed()
    deleted()
    without, found, alone = computed()
    assert (with_package, without) == (CpuEncoder, PackedEncoder) and cpu_module("encoder") is None
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for name, gradient in by_package.items():
        assert (alone[name] - gradient).abs().max() < 1e-5 * max(1, gradient.abs().max()), name
    with batches_at_once(2) as each:
        assert list(each(len, ["a", "bc"])) == [1, 2]


def test_without_the_package_faiss_searches_and_finds_the_same(deleted, monkeypatch):
    monkeypatch.setattr(engines, "visible_devices", list)
    monkeypatch.setattr(search, "PROBE_SCORES", 0)
    monkeypatch.setattr(search, "computes_in_int8", lambda: True)
    monkeypatch.setattr(search, "probe", lambda vectors, kind, *_: isinstance(kind(0, vectors, 0), FaissFlat))
    vectors = np.random.default_rng(1).standard_normal((300, 16)).astype(np.float32)
    opened = [engines.open_exact(vectors, 1, vectors[:9], 9, 5)]
    deleted()
    opened.append(engines.open_exact(vectors, 1, vectors[:9], 9, 5))
    assert [index.kind for index in opened] == ["Int8Flat", "FaissFlat"]
    found, expected = (index.search(vectors[:9], 5) for index in opened)
    assert all(map(np.array_equal, found, expected))


def test_an_import_that_fails_inside_the_package_is_no_deletion(monkeypatch):
    monkeypatch.delitem(sys.modules, REGISTERED["encoder"])
    monkeypatch.setitem(sys.modules, "teleport.cpu.attention", None)
    cpu_module.cache_clear()
    with pytest.raises(ModuleNotFoundError):
        cpu_module("encoder")
    monkeypatch.undo()
    assert cpu_module("encoder") is importlib.import_module(REGISTERED["encoder"])


@pytest.mark.parametrize("stage", ["teleport.encoder.encode", "teleport.training.train"])
def test_no_stage_imports_the_package_or_the_registry(stage):
    """So an edit of the package changes the code of the stages alone that computed with it."""
    files = {str(path) for path in import_closure(module_path(stage))}
    assert not any("/teleport/cpu/" in file or file.endswith("settings/registry.py") for file in files)
    assert any(file.endswith("encoder/model.py") for file in files)
