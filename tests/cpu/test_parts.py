"""A batch in parts, each computed by threads of its own, is the whole batch: vectors, gradients, and dropout."""

import copy

import numpy as np
import pytest
import torch

from encoder_world import make_encoder
from teleport.cpu import kernels
from teleport.cpu.kernels import CpuEncoder
from teleport.encoder.model import PackedEncoder, Spans

CPU = torch.device("cpu")
LENGTHS = np.array([3, 9, 9, 9, 2, 30, 17, 17])
IDS = np.random.default_rng(0).integers(4, 40, size=LENGTHS.sum())


@pytest.fixture(autouse=True)
def threads():
    """Sets how many threads torch has; as many as before after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def counted(monkeypatch):
    """How many parts each batch was divided into; at most 12 tokens each."""
    found, divide = [], kernels.divide

    def counting(spans):
        made = divide(spans)
        found.append(len(made))
        return made

    monkeypatch.setattr(kernels, "SHARE_TOKENS", 12)
    monkeypatch.setattr(kernels, "divide", counting)
    return found


def gradients(encoder, dtype=None, seed=0):
    """(vectors, {name: gradient} of a weighted sum of them) of the batch."""
    torch.manual_seed(seed)
    encoder.zero_grad()
    vectors = CpuEncoder(encoder, dtype)(IDS, LENGTHS)
    (vectors * torch.linspace(-1, 1, vectors.numel()).view_as(vectors)).sum().backward()
    return vectors.detach(), {name: p.grad.clone() for name, p in encoder.named_parameters()}


def largest_error(found, expected):
    """The largest difference of a gradient, in parts of the largest number that it has."""
    return max((found[name] - g).abs().max() / g.abs().max() for name, g in expected.items() if "key.bias" not in name)


@pytest.mark.parametrize(
    "lengths, tokens",
    [
        ([700, 836], [1536]),
        ([700, 837], [700, 837]),
        ([10] * 490, [1220, 1230, 1220, 1230]),
        ([5000], [5000]),
        ([1, 5000, 1], [1, 5000, 1]),
    ],
)
def test_parts_have_about_equally_many_tokens(lengths, tokens):
    lengths, starts = np.array(lengths), np.concatenate([[0], np.cumsum(lengths)])
    made = kernels.divide(Spans(lengths, CPU, 2))
    assert [int(part.spans.lengths_B.sum()) for part in made] == tokens
    assert np.array_equal(np.concatenate([part.spans.lengths_B for part in made]), lengths)
    assert [part.rows.start for part in made] + [starts[-1]] == [0] + [part.rows.stop for part in made]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("options", [{"pooling": "cls"}, {"pooling": "mean", "projection": 8, "normalize": True}])
def test_vectors_and_gradients_are_those_of_the_whole_batch(tmp_path, monkeypatch, counted, threads, options, number):
    encoder = make_encoder(tmp_path, **options).double()
    threads(number)
    found, by_parts = gradients(encoder)
    assert counted == [6] and torch.get_num_threads() == number
    monkeypatch.setattr(kernels, "SHARE_TOKENS", 1000)
    expected, by_whole = gradients(encoder)
    assert counted == [6, 1] and not torch.equal(found, 0 * found)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert largest_error(by_parts, by_whole) < 1e-5


def test_neither_draws_nor_bits_of_the_layers_depend_on_the_threads(tmp_path, counted, threads):
    encoder, found = with_dropout(tmp_path), []
    for number in (1, 2, 3):
        threads(number)
        found.append(gradients(encoder))
    for vectors, by_name in found[1:]:
        assert torch.equal(vectors, found[0][0])
        of_layers = [name for name in by_name if ".layer." in name]
        assert len(of_layers) > 30 and all(torch.equal(by_name[name], found[0][1][name]) for name in of_layers)
    assert not torch.equal(gradients(encoder, seed=1)[0], found[0][0])
    assert counted == [6] * 4


def with_dropout(tmp_path, rate=0.3):
    made = make_encoder(tmp_path).train()
    for module in made.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = rate
    return made


def test_every_part_draws_its_own_dropout(tmp_path, counted):
    encoder = with_dropout(tmp_path)
    with torch.no_grad():
        vectors = CpuEncoder(encoder)(np.tile(IDS[:12], 4), np.full(4, 12))
        again = CpuEncoder(encoder)(np.tile(IDS[:12], 4), np.full(4, 12))
    assert counted == [4, 4] and len(torch.unique(torch.cat([vectors, again]), dim=0)) == 8


def test_gradients_of_bfloat16_are_as_exact_as_those_of_the_whole_batch(tmp_path, monkeypatch, counted):
    encoder = make_encoder(tmp_path, normalize=True)
    for parameter in encoder.parameters():  # as large as trained weights, whose vectors are no noise in bfloat16
        parameter.data *= 0.2
    exact = gradients(copy.deepcopy(encoder))[1]
    by_parts = largest_error(gradients(encoder, torch.bfloat16)[1], exact)
    monkeypatch.setattr(kernels, "SHARE_TOKENS", 1000)
    by_whole = largest_error(gradients(encoder, torch.bfloat16)[1], exact)
    assert 0 < by_parts < 1.5 * by_whole


def test_a_batch_that_is_encoded_stays_whole(tmp_path, counted):
    with torch.inference_mode():
        CpuEncoder(make_encoder(tmp_path))(IDS, LENGTHS)
    assert counted == []


@pytest.mark.parametrize("number", [1, 2])
def test_what_fails_in_a_part_is_raised(tmp_path, monkeypatch, counted, threads, number):
    threads(number)
    packed, whole = CpuEncoder(make_encoder(tmp_path)), PackedEncoder.pooled

    def failing(self, hidden_TH, spans):
        if spans.lengths_B[0] == 30:
            raise MemoryError("no room")
        return whole(self, hidden_TH, spans)

    monkeypatch.setattr(PackedEncoder, "pooled", failing)
    with pytest.raises(MemoryError, match="no room"):
        packed(IDS, LENGTHS)
    assert torch.get_num_threads() == number
