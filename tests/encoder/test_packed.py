"""The packed forward computes what the transformers backbone computes: vectors, gradients, and what dropout does."""

import copy
import shutil

import numpy as np
import pytest
import torch

from encoder_world import FAMILIES, make_encoder
from reference_encoder import reference_of
from teleport.cpu.kernels import CpuEncoder
from teleport.encoder import model
from teleport.encoder.model import PackedEncoder, Spans

CPU = torch.device("cpu")
LENGTHS = np.array([3, 9, 9, 9, 2, 30, 17, 17])


@pytest.fixture(params=[PackedEncoder, CpuEncoder])
def packing(request):
    """The packed encoder of every device, and that of a CPU."""
    return request.param


def batch(encoder):
    """Random texts of LENGTHS tokens, packed and padded: ids [T], and ids [B, L] with their mask."""
    pad = encoder.backbone.config.pad_token_id
    ids_T = np.random.default_rng(0).integers(4, 40, size=LENGTHS.sum())
    ids_BL = np.full((len(LENGTHS), LENGTHS.max()), pad)
    mask_BL = np.arange(LENGTHS.max()) < LENGTHS[:, None]
    ids_BL[mask_BL] = ids_T
    return ids_T, torch.from_numpy(ids_BL), torch.from_numpy(mask_BL.astype(np.int64))


def gradients(encoder, vectors):
    """Of a weighted sum of the vectors, by parameter name."""
    encoder.zero_grad()
    weights = torch.linspace(-1, 1, vectors.numel(), device=vectors.device)
    (vectors * weights.view_as(vectors)).sum().backward()
    return {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize(
    "pooling, projection, normalize", [("cls", None, False), ("mean", None, True), ("cls", 8, True)]
)
def test_vectors_and_gradients_are_those_of_transformers(tmp_path, packing, family, pooling, projection, normalize):
    encoder = make_encoder(tmp_path, family, pooling, projection=projection, normalize=normalize)
    ids_T, ids_BL, mask_BL = batch(encoder)
    expected, found = reference_of(encoder)(ids_BL, mask_BL), packing(encoder)(ids_T, LENGTHS)
    assert found.dtype == torch.float32 and found.shape == (len(LENGTHS), encoder.dim)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    by_padding, by_packing = gradients(encoder, expected), gradients(encoder, found)
    assert by_packing.keys() == by_padding.keys() and len(by_packing) > 30
    for name, gradient in by_padding.items():
        largest = gradient.abs().max()
        if not name.endswith("key.bias"):  # it adds the same to all scores of a query: rounding alone
            assert largest > 1e-4, f"{name} has no gradient: this test would show nothing"
        assert (by_packing[name] - gradient).abs().max() < 1e-4 * largest + 1e-6, name


def test_a_padding_token_inside_a_text_has_the_padding_position(tmp_path, packing):
    """RoBERTa's positions pass over it; a tokenizer makes it of a literal "<pad>"."""
    encoder = make_encoder(tmp_path, "roberta")
    ids = np.array([0, 7, 1, 1, 9, 2, 0, 1, 2])
    lengths = np.array([6, 3])
    alone = [
        reference_of(encoder)(torch.tensor([text]), torch.ones(1, len(text)))
        for text in ([0, 7, 1, 1, 9, 2], [0, 1, 2])
    ]
    torch.testing.assert_close(packing(encoder)(ids, lengths), torch.cat(alone), rtol=1e-5, atol=1e-5)


def test_bfloat16_is_as_close_as_autocast(tmp_path, packing):
    encoder = make_encoder(tmp_path, normalize=True)
    for parameter in encoder.parameters():  # as large as trained weights, whose vectors are no noise in bfloat16
        parameter.data *= 0.2
    ids_T, ids_BL, mask_BL = batch(encoder)
    exact = reference_of(encoder)(ids_BL, mask_BL)
    with torch.autocast("cpu", torch.bfloat16):
        by_autocast = reference_of(encoder)(ids_BL, mask_BL)
    found = packing(encoder, torch.bfloat16)(ids_T, LENGTHS)
    errors = [1 - (vectors * exact).sum(1).min() for vectors in (found, by_autocast)]
    assert found.dtype == torch.float32 and 0 < errors[0] < max(2 * errors[1], 1e-5)
    gradient = gradients(encoder, found)["backbone.encoder.layer.0.attention.self.query.weight"]
    assert gradient.dtype == torch.float32 and gradient.abs().max() > 0


def test_texts_do_not_see_each_other(tmp_path, packing):
    encoder = make_encoder(tmp_path)
    ids_T, _, _ = batch(encoder)
    together, ends = packing(encoder)(ids_T, LENGTHS), np.cumsum(LENGTHS)
    for vector, start, end in zip(together, ends - LENGTHS, ends, strict=True):
        alone = packing(encoder)(ids_T[start:end], np.array([end - start]))
        torch.testing.assert_close(alone[0], vector, rtol=1e-5, atol=1e-5)


def plain_kernel(q, k, v, offsets_q, offsets_k, longest_q, longest_k, rate):
    """What the kernels of CUDA compute, text by text."""
    assert offsets_q.dtype == offsets_k.dtype == torch.int32 and rate == 0.0
    assert [int(o.diff().max()) for o in (offsets_q, offsets_k)] == [longest_q, longest_k]
    rows = [[slice(*pair) for pair in zip(o[:-1], o[1:], strict=True)] for o in (offsets_q, offsets_k)]
    texts = [[x.transpose(0, 1) for x in (q[asking], k[own], v[own])] for asking, own in zip(*rows, strict=True)]
    return torch.cat([torch.nn.functional.scaled_dot_product_attention(*text).transpose(0, 1) for text in texts])


@pytest.mark.parametrize("one_query", [False, True])
def test_the_attention_of_cuda_hands_its_kernels_the_operands_of_the_grouped_one(monkeypatch, one_query):
    monkeypatch.setattr(model, "varlen", plain_kernel)
    spans, made = Spans(LENGTHS, CPU, 2), torch.Generator().manual_seed(0)
    queries = torch.randn(len(LENGTHS), 32, generator=made, requires_grad=True) if one_query else None
    inputs = torch.randn(LENGTHS.sum(), 64 if one_query else 96, generator=made, requires_grad=True)
    given = [queries, inputs] if one_query else [inputs]
    found = []
    for function in (CpuEncoder.attention, PackedEncoder.attention):
        values = function(queries, inputs, spans, 0.0)
        weights = torch.linspace(-1, 1, values.numel()).view_as(values)
        found.append([values, *torch.autograd.grad((values * weights).sum(), given)])
    for by_groups, by_kernel in zip(*found, strict=True):
        torch.testing.assert_close(by_kernel, by_groups, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [16, 13])
def test_the_kernels_of_cuda_take_heads_of_any_width(dtype, width):
    """On torch's device without numbers: that its kernels exist, how they are called, and the shapes."""
    offsets = torch.zeros(4, dtype=torch.int32, device="meta")
    inputs = torch.empty(30, 3, 2, width, dtype=dtype, device="meta", requires_grad=True)
    with torch.set_grad_enabled(dtype == torch.bfloat16):  # torch 2.13 has no such backward of the float32 kernel
        found = model.varlen(*inputs.unbind(1), offsets, offsets, 12, 12, 0.1)
    assert found.shape == (30, 2, width) and found.dtype == dtype and found.requires_grad == (dtype == torch.bfloat16)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_whole_step_takes_the_path_of_cuda(tmp_path, pooling):
    """On torch's device without numbers: types and shapes, a gradient for every parameter, and no wait for a number."""
    encoder = make_encoder(tmp_path, pooling=pooling)
    ids_T, _, _ = batch(encoder)
    expected = gradients(encoder, PackedEncoder(encoder)(ids_T, LENGTHS))
    encoder.train().to("meta")
    vectors = PackedEncoder(encoder, torch.bfloat16)(ids_T, LENGTHS)
    assert vectors.dtype == torch.float32 and vectors.shape == (len(LENGTHS), encoder.dim)
    found = gradients(encoder, vectors)
    assert {name: g.shape for name, g in found.items()} == {name: g.shape for name, g in expected.items()}


def with_rates(encoder, hidden, attention):
    """A copy in training mode whose dropout has these rates."""
    made = copy.deepcopy(encoder).train()
    for name, module in made.named_modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = attention if name.endswith("self.dropout") else hidden
    return made


@pytest.mark.parametrize("hidden, attention", [(0.3, 0.0), (0.0, 0.3)])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_dropout_has_the_distribution_of_transformers(tmp_path, packing, pooling, hidden, attention):
    """Mean and standard deviation of every coordinate over many draws, for each kind of dropout alone."""
    plain = make_encoder(tmp_path, pooling=pooling)
    for layer in plain.backbone.encoder.layer:  # attention to many tokens, so that 400 draws tell its spread well
        layer.attention.self.query.weight.data *= 0.1
    encoder, reference = (with_rates(made, hidden, attention) for made in (plain, reference_of(plain)))
    ids_T, ids_BL, mask_BL = batch(encoder)
    torch.manual_seed(0)
    draws = 400  # of every text, by copies in one batch
    with torch.no_grad():
        packed = packing(encoder)(np.tile(ids_T, draws), np.tile(LENGTHS, draws))
        padded = reference(ids_BL.repeat(draws, 1), mask_BL.repeat(draws, 1))
    packed, padded = (x.view(draws, len(LENGTHS), -1) for x in (packed, padded))
    spread = padded.std(0)
    assert spread.mean() > 0.005, "dropout does nothing here: this test would show nothing"
    assert packed.std(0).mean() == pytest.approx(float(spread.mean()), rel=0.06)
    off = (packed.mean(0) - padded.mean(0)) / (spread * (2 / draws) ** 0.5)  # in standard errors
    assert 0.6 < off.square().mean().sqrt() < 1.5


def test_dropout_is_off_in_evaluation_mode(tmp_path, packing):
    encoder = make_encoder(tmp_path)
    ids_T, _, _ = batch(encoder)
    torch.testing.assert_close(
        packing(with_rates(encoder, 0.3, 0.3).eval())(ids_T, LENGTHS), packing(encoder)(ids_T, LENGTHS)
    )


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler for a CPU: apt-get install g++")
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_compiled_layers_compute_the_same_and_are_compiled_once_for_all_shapes(tmp_path, pooling):
    encoder = make_encoder(tmp_path, pooling=pooling)
    plain, compiled = PackedEncoder(encoder), PackedEncoder(encoder, compiled=True)
    assert plain.feed_forward is not compiled.feed_forward
    from torch._dynamo.utils import counters

    compilations = []
    for lengths in (LENGTHS, np.array([4, 4, 5]), np.array([7]), LENGTHS[3:]):
        ids_T = np.random.default_rng(0).integers(4, 40, size=lengths.sum())
        (expected, by_plain), (found, by_compiled) = (
            (vectors.detach(), gradients(encoder, vectors))
            for vectors in (packed(ids_T, lengths) for packed in (plain, compiled))
        )
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        for name, gradient in by_plain.items():
            torch.testing.assert_close(by_compiled[name], gradient, rtol=1e-4, atol=1e-4)
        compilations.append(counters["stats"]["unique_graphs"])
    assert compilations[0] > 0 and compilations[-1] <= compilations[0] + 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_cuda_equals_the_cpu(tmp_path, pooling, compiled):
    encoder = make_encoder(tmp_path, pooling=pooling)
    ids_T, _, _ = batch(encoder)
    expected = PackedEncoder(encoder)(ids_T, LENGTHS)
    wanted = gradients(encoder, expected)
    encoder.cuda()
    for dtype, tolerance in ((None, 1e-2), (torch.bfloat16, 1e-1)):
        found = PackedEncoder(encoder, dtype, compiled)(ids_T, LENGTHS)
        torch.testing.assert_close(found.cpu(), expected, rtol=tolerance, atol=tolerance)
        if dtype is None:
            for name, gradient in gradients(encoder, found.cpu()).items():
                torch.testing.assert_close(gradient.cpu(), wanted[name], rtol=tolerance, atol=tolerance)
    dropped = PackedEncoder(with_rates(encoder, 0.3, 0.3), torch.bfloat16, compiled)(ids_T, LENGTHS)
    assert (dropped.cpu() - expected).abs().max() > 0.1
