"""Every benchmark runs at a tiny size, prints its table and writes its figures. How fast it is decides nothing here."""

import gzip
import importlib

import numpy as np
import pytest
from bench_world import SIZES, bench_on_path, run  # noqa: F401

PEERS = {
    "encode": ["plain torch, sorted by length", "sentence-transformers, sorted by length"],
    "cross": ["CrossEncoder.predict, BERT", "CrossEncoder.predict, ModernBERT"],
    "train": ["padded to the longest", "sorted by length, padded in four batches"],
    "live": ["encoding the queries"],
    "search": ["faiss IndexFlatIP", "a product with torch.topk"],
    "bm25": ["bm25s retrieve"],
    "answers": ["stage, one process"],
}
HEAVY = ("encode", "cross", "train", "live", "bm25")  # they load the embedded checkpoint, or compile searches


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in SIZES])
def test_a_benchmark_prints_and_writes_ratios_against_its_peers(name, tmp_path, capsys):
    text, written = run(name, tmp_path, capsys)
    assert written["name"] == name and "numpy" in written["versions"] and written["hardware"]["processor"]
    peers = PEERS[name]
    if "OpenVINO, sorted by length" in written["seconds"]:  # on a CPU, where it is installed
        peers = [*peers, "OpenVINO, sorted by length"]
    if "stage, bf16" in written["seconds"] and name in ("encode", "train"):  # beside peers of the same format
        peers = [*peers, *(f"{peer}, bf16" for peer in peers)]
    assert sorted(written["ratios"]) == sorted(peers)
    assert any(variant.startswith("stage") for variant in written["seconds"])
    for peer, ratios in written["ratios"].items():
        assert ratios[peer] == 1.0
        for variant, times in written["seconds"].items():
            assert len(times) == 1 and written["medians"][variant] == times[0]
            assert ratios[variant] == pytest.approx(written["seconds"][peer][0] / times[0])
            assert f"| {variant} |" in text


@pytest.mark.slow
def test_every_variant_of_encode_gives_the_same_vectors(tmp_path, capsys):
    figures = run("encode", tmp_path, capsys)[1]["figures"]
    cosines = [value for name, value in figures.items() if "cosine" in name]
    assert len(cosines) >= 3 and min(cosines) > 0.999


@pytest.mark.slow
def test_every_variant_of_cross_gives_the_same_scores(tmp_path, capsys):
    figures = run("cross", tmp_path, capsys)[1]["figures"]
    for name in ("BERT", "ModernBERT"):
        assert figures[f"largest difference, {name}"] < 1e-5 < figures[f"standard deviation, {name}"]


@pytest.mark.slow
def test_the_agreement_of_encode_is_measured_on_a_corpus(tmp_path, capsys):
    corpus = tmp_path / "corpus.tsv.gz"
    with gzip.open(corpus, "wt", encoding="utf-8") as file:
        file.writelines(
            f"d{i}\t\tpassage {i} is about {word}\n" for i, word in enumerate(["tea", "rain", "cars", "jazz"] * 3)
        )
    figures = run("encode", tmp_path, capsys, "--passages", "12", "--corpus", str(corpus), "--pooling", "cls")[1][
        "figures"
    ]
    assert figures["overlap of the nearest 10, stage, fp32"] > 0.99
    assert 0.8 < figures["overlap of the nearest 10, stage, bf16"] <= 1.0
    assert figures["smallest cosine, stage, bf16"] > 0.9995
    assert figures["products, bf16 over fp32"] > 0


def test_the_variants_of_a_benchmark_compute_the_same(tmp_path, capsys):
    figures = {name: run(name, tmp_path, capsys)[1]["figures"] for name in SIZES if name not in HEAVY}
    shares = [value for name, value in figures["search"].items() if name.startswith("same passages")]
    assert shares and set(shares) == {1.0}
    assert all(value < 1e-6 for name, value in figures["search"].items() if name.startswith("largest difference"))
    assert figures["answers"]["pairs_with_an_answer"] == 0.25


def test_the_peer_of_a_search_merges_the_lists_of_its_blocks():
    torch = importlib.import_module("torch")
    passages_PD, queries_QD = torch.randn(103, 8), torch.randn(5, 8)
    scores, ids = importlib.import_module("peers").product_and_topk(passages_PD, queries_QD, 20, 25)
    expected = (queries_QD @ passages_PD.T).topk(20)
    assert torch.equal(ids, expected.indices)
    torch.testing.assert_close(scores, expected.values)


@pytest.mark.slow
def test_the_tuned_peers_compute_what_the_stage_does(tmp_path):
    """Encoding in batches of a budget, and a step whose gradient caching changes nothing but rounding."""
    peers, texts, torch = (importlib.import_module(name) for name in ("peers", "texts", "torch"))
    encode, train, transformers = (importlib.import_module(name) for name in ("encode", "train", "transformers"))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    world = texts.RandomTexts(transformers.BertConfig(vocab_size=500, **sizes, **dropout), 70, 64)
    device, limit = torch.device("cpu"), encode.smallest_cosine
    assert limit(peers.encode(world, device)(), encode.stage_encode(world, device, "fp32")()) > 0.99999
    given = importlib.import_module("types").SimpleNamespace(queries=4, negatives=3, passages=70)
    data, made = train.training_set(given), []
    adamw = torch.optim.AdamW
    for chunk in (None, 3):
        kept = []
        torch.optim.AdamW = lambda weights, kept=kept, **options: kept.append(adamw(weights, **options)) or kept[0]
        try:
            step = peers.step(world, data, device, chunk=chunk)
        finally:
            torch.optim.AdamW = adamw
        step(0)
        made.append([weight.detach().clone() for group in kept[0].param_groups for weight in group["params"]])
    before = list(world.reference.parameters())
    for whole, chunked, start in zip(*made, before, strict=True):
        torch.testing.assert_close(whole, chunked, rtol=1e-3, atol=1e-6)
        assert whole.shape == start.shape
    assert any(not torch.equal(whole, start) for whole, start in zip(made[0], before, strict=True))


def test_rounds_are_interleaved_and_every_other_one_goes_backwards():
    calls = []
    rounds = importlib.import_module("rounds")
    seconds = rounds.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
    assert [len(times) for times in seconds.values()] == [3, 3]


def test_a_ratio_is_the_median_of_the_ratios_within_rounds():
    rounds = importlib.import_module("rounds")
    assert rounds.ratios({"peer": [4.0, 6.0, 9.0], "ours": [1.0, 2.0, 9.0]}, "peer") == {"peer": 1.0, "ours": 3.0}


def test_the_time_of_a_variant_ends_when_its_device_is_done(monkeypatch):
    rounds, torch = importlib.import_module("rounds"), importlib.import_module("torch")
    done, now = [], [0]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: now.__setitem__(0, now[0] + 5) or done.append("device"))
    assert rounds.interleaved({"a": lambda: done.append("a")}, 2, lambda: now[0]) == {"a": [5, 5]}
    assert done == ["a", "device"] * 3


def test_a_table_without_peers_has_no_column_for_them(tmp_path, capsys):
    rounds = importlib.import_module("rounds")
    arguments = rounds.parser("").parse_args(["--json", str(tmp_path / "figures.json")])
    assert rounds.report("search", {"stage": [2.0, 4.0, 3.0]}, (), 6, "queries", arguments)["ratios"] == {}
    table = capsys.readouterr().out.splitlines()[:3]
    assert table == ["| variant | median s | queries/s |", "| --- | --- | --- |", "| stage | 3.0000 | 2.0 |"]


def test_the_share_of_the_products_rate_is_that_of_real_tokens():
    from teleport.encoder.costs import forward_flop

    peers, torch = importlib.import_module("peers"), importlib.import_module("torch")
    sizes = {"num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2}
    sizes |= {"vocab_size": 100, "max_position_embeddings": 16, "type_vocab_size": 2}
    encoder = type("Encoder", (), {"backbone": type("Backbone", (), {"config": type("Config", (), sizes)})})
    shape = peers.shape_of(encoder)
    flop = 3 * (forward_flop(shape, 3) + forward_flop(shape, 5))
    seconds = {"stage, bf16": [1.0, 2.0, 4.0], "stage, bf16, compiled": [1.0], "padded": [9.0]}
    rates = {"fp32": 1e12, "bf16": float(flop)}
    figures = peers.shares(encoder, np.array([3, 5]), 3, seconds, rates)
    assert figures == {
        "products in fp32, TFLOP/s": 1.0,
        "products in bf16, TFLOP/s": float(f"{flop / 1e12:.3g}"),
        "real tokens/s, padded": 1,
        "share of the products' rate, padded": float(f"{flop / 9e12:.3g}"),
        "real tokens/s, stage, bf16": 4,
        "share of the products' rate, stage, bf16": 0.5,
        "real tokens/s, stage, bf16, compiled": 8,
        "share of the products' rate, stage, bf16, compiled": 1.0,
    }
    run, amount = peers.product(shape, torch.device("cpu"), torch.bfloat16)
    assert run().shape == (4096, 16) and amount == 2 * 4096 * 8 * 16
    assert sorted(peers.product_rates(shape, torch.device("cpu"), 1)) == ["bf16", "fp32"]


def test_steps_that_do_not_fit_in_a_gpu_are_left_out(capsys):
    train, torch = importlib.import_module("train"), importlib.import_module("torch")

    def too_large(number):
        raise torch.OutOfMemoryError("CUDA out of memory")

    steps = train.that_fit({"padded": too_large, "stage": lambda number: 7 + number}, "GPU")
    assert {name: step() for name, step in steps.items()} == {"stage": 7}
    assert capsys.readouterr().out.startswith("padded: left out, the GPU has too little memory for it.")


@pytest.mark.slow
def test_a_training_step_is_told_in_milliseconds_and_shares(tmp_path, capsys, monkeypatch):
    train, torch = importlib.import_module("train"), importlib.import_module("torch")

    def too_large(number):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(train.peers, "step", lambda *arguments, **options: too_large)
    written = run("train", tmp_path, capsys)[1]
    assert written["ratios"] == {} and not [name for name in written["seconds"] if name.startswith(train.PEER)]
    figures, medians = written["figures"], written["medians"]
    for variant, seconds in medians.items():
        assert figures[f"milliseconds a step, {variant}"] == pytest.approx(1e3 * seconds, abs=0.01)
        assert figures[f"share of the products' rate, {variant}"] > 0  # above 1 where others use the machine
        assert figures[f"real tokens/s, {variant}"] > 0
    assert figures["milliseconds a step, 2 back to back, stage, fp32"] > 0


def test_steps_back_to_back_are_each_read_when_the_next_one_was_handed_out():
    train, calls = importlib.import_module("train"), []

    class Trainer:
        step = staticmethod(lambda number: calls.append(("step", number)) or number)
        finish = staticmethod(lambda number: calls.append(("read", number)))

    assert train.back_to_back(Trainer, 3) > 0
    assert calls == [("step", 0), ("step", 1), ("read", 0), ("step", 2), ("read", 1), ("read", 2)]
