"""CUDA graphs of a step: what fills a batch changes no vector, and a replay gives what the encoder gives."""

import copy

import numpy as np
import pytest
import torch

from encoder_world import make_encoder
from teleport.encoder.graphs import Graphs, fill, most_graphs
from teleport.encoder.precision import autocast

LENGTHS = np.array([3, 9, 9, 9, 2, 30, 17, 17])


def drawn_ids(lengths, seed=0):
    return np.random.default_rng(seed).integers(4, 40, size=lengths.sum())


@pytest.mark.parametrize("texts, longest", [(1, 32), (8, 32), (8, 128), (256, 128), (512, 512)])
def test_a_batch_is_filled_with_whole_texts_to_a_rounded_size(texts, longest):
    rng, sizes = np.random.default_rng(texts), set()
    for _ in range(50):
        lengths = rng.integers(1, longest + 1, texts)
        ids, filled = fill(drawn_ids(lengths), lengths, longest, 0)
        assert (filled[:texts] == lengths).all() and filled.sum() == len(ids) and filled.min() >= 1
        assert filled[texts:].max() <= longest and len(filled) % 32 == 0 and len(ids) % 128 == 0
        assert len(ids) <= 1.07 * (lengths.sum() + 32) + 128 and not ids[lengths.sum() :].any()
        sizes.add((len(ids), len(filled)))
    assert len(sizes) <= 24


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_what_fills_a_batch_changes_no_vector(tmp_path, pooling):
    encoder = make_encoder(tmp_path, pooling=pooling)
    ids = drawn_ids(LENGTHS)
    filled = encoder(*fill(ids, LENGTHS, 30, 1))
    assert len(filled) > len(LENGTHS)
    torch.testing.assert_close(filled[: len(LENGTHS)], encoder(ids, LENGTHS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("room", "expected"), [(70, 16), (24, 16), (20, 10), (15.5, 1), (15, 0), (4, 0)])
def test_as_many_graphs_as_the_gpu_has_room_for(room, expected):
    """BERT-base: 7.5 GB of activations of a step, gradients of half a GB."""
    assert most_graphs(room * 1e9, 7.5e9, 0.5e9) == expected


def test_sizes_beyond_the_most_are_encoded_without_a_graph(tmp_path, monkeypatch):
    encoder = make_encoder(tmp_path)
    graphs = Graphs(encoder, 30, None, most=0)
    monkeypatch.setattr(graphs, "capture", lambda inputs: pytest.fail("a graph"))
    with torch.no_grad():
        expected = encoder(drawn_ids(LENGTHS), LENGTHS)
        torch.testing.assert_close(graphs(drawn_ids(LENGTHS), LENGTHS), expected)


def test_a_graph_is_captured_outside_the_autocast_of_its_step(tmp_path, monkeypatch):
    """A step that encodes its sides one after the other opens one around both, in which torch refuses to capture."""
    inside = []

    def capture(made, inputs, **options):
        inside.append(torch.is_autocast_enabled("cpu"))
        return lambda *inputs: torch.zeros(64, 8)

    given = {"make_graphed_callables": capture, "get_rng_state": lambda: None, "set_rng_state": lambda state: None}
    for name, function in (given | {"graph_pool_handle": lambda: None}).items():
        monkeypatch.setattr(torch.cuda, name, function)
    graphs = Graphs(make_encoder(tmp_path), 30, torch.bfloat16)
    with autocast(torch.device("cpu"), torch.bfloat16):
        assert graphs(drawn_ids(LENGTHS), LENGTHS).shape == (len(LENGTHS), 8) and torch.is_autocast_enabled("cpu")
    assert inside == [False]


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def gradients(encoder, vectors):
    encoder.zero_grad()
    (vectors * torch.linspace(-1, 1, vectors.numel(), device=vectors.device).view_as(vectors)).sum().backward()
    return {name: p.grad.clone() for name, p in encoder.named_parameters() if p.grad is not None}


@pytest.mark.gpu
@cuda
@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_gives_vectors_and_gradients_of_the_encoder(tmp_path, compiled):
    encoder = make_encoder(tmp_path, pooling="mean").cuda().train()
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    encoder.backbone.config.attention_probs_dropout_prob = 0.0
    plain = copy.deepcopy(encoder)
    if compiled:
        from teleport.encoder.model import compile_layers

        compile_layers(encoder)
    graphs = Graphs(encoder, 30, torch.bfloat16)
    for seed, lengths in enumerate((LENGTHS, LENGTHS[:5], LENGTHS, np.repeat(LENGTHS, 9), LENGTHS)):
        ids = drawn_ids(lengths, seed)
        found = graphs(ids, lengths)
        made = gradients(encoder, found)
        with torch.autocast("cuda", torch.bfloat16):
            expected = plain(ids, lengths)
        wanted = gradients(plain, expected)
        torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)
        assert made.keys() == wanted.keys()
        for name, gradient in wanted.items():
            assert (made[name] - gradient).norm() <= 0.05 * gradient.norm() + 1e-3, name
    assert len(graphs.captured) == 2


@pytest.mark.gpu
@cuda
def test_a_step_draws_dropout_by_its_seed_whether_its_graph_is_there_or_not(tmp_path):
    found = []
    encoder = make_encoder(tmp_path, pooling="mean").cuda().train()
    graphs = Graphs(encoder, 30, torch.bfloat16)
    for seed in (1, 1, 2, 1):
        torch.manual_seed(seed)
        found.append(graphs(drawn_ids(LENGTHS), LENGTHS).detach().clone())
    first, again, other, last = found
    assert torch.equal(first, again) and torch.equal(first, last) and not torch.equal(first, other)
