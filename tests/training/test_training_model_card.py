"""The model card: what it says is true, and its code runs and gives the vectors of the trained encoder."""

import re

import numpy as np
import pytest
import torch
from transformers import AutoModel

from teleport.arrays import Ragged
from teleport.encoder.load import load_encoders
from teleport.encoder.side import Side
from teleport.training.model_card import model_card
from training_world import SPECIAL, World, make_tokens

TEXT = "w3 w14 w15 w92"
IDS = [2, 8, 19, 20, 97, 3]


def card_of(job, side="."):
    return (job.folder / "checkpoint" / side / "README.md").read_text()


def run_code(card, folder):
    """The vectors of TEXT that the card's code blocks compute (numpy, one line per text)."""
    found = []
    for code in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
        code = code.replace("PATH OF THIS FOLDER", str(folder)).replace("a query", TEXT).replace("a passage", TEXT)
        names = {}
        exec(code, names)
        found.append(torch.as_tensor(names["vectors"]))
    return found


@pytest.mark.parametrize("tied", [True, False])
def test_code_of_the_card_gives_the_encoders_vectors(stages, tied):
    world = World(stages, tied=tied)
    job = world.finished(world.job({"steps": 2}))
    folder = job.folder / "checkpoint"
    encoders = load_encoders(folder)
    ids = np.array(IDS)
    for side, encoder in zip(["."] if tied else ["query", "passage"], encoders[tied:], strict=True):
        with torch.no_grad():
            expected = encoder(ids, np.array([len(ids)]))
        vectors = run_code(card_of(job, side), folder / side)
        assert len(vectors) == 2  # sentence-transformers and transformers
        for vector in vectors:
            torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_code_of_the_card_pools_as_the_encoder_does(stages, pooling):
    job = World(stages).job(pooling=pooling)
    folder = World(stages).finished(World(stages).job({"steps": 1})).folder / "checkpoint"
    model = AutoModel.from_pretrained(folder).eval()
    vectors = run_code(model_card(job, "queries and passages"), folder)[-1]
    tokens = model(torch.tensor([IDS])).last_hidden_state[0]
    expected = {"cls": tokens[0], "mean": tokens.mean(0), "last": tokens[-1]}[pooling]
    torch.testing.assert_close(vectors[0], expected.detach(), rtol=1e-4, atol=1e-5)


def test_code_of_the_card_makes_the_vectors_of_all_chunks(stages, monkeypatch):
    """28 tokens in chunks of 8, at most 3: of the last 4 none is read, and the last one read is [SEP]."""
    monkeypatch.setattr(f"{__name__}.TEXT", " ".join(f"w{number}" for number in range(26)))
    world = World(stages)
    job = world.finished(world.job({"steps": 2}, max_passage_tokens=8, chunks=3))
    *_, vectors = run_code(card_of(job), job.folder / "checkpoint")
    tokens = Ragged(np.array([0, 26]), np.arange(5, 31))
    side = Side(load_encoders(job.folder / "checkpoint")[1], tokens, 8, SPECIAL, most_chunks=3)
    with torch.no_grad():
        expected = side.vectors(np.arange(3), 1000)
    assert side.count_tokens(np.arange(3)) == 24
    torch.testing.assert_close(vectors, expected, rtol=1e-4, atol=1e-5)
    assert "several vectors" not in card_of(world.finished(world.job({"steps": 2})))


@pytest.mark.parametrize("tied", [True, False])
def test_code_of_the_card_puts_the_prefix_before_the_text_once(stages, tied):
    world = World(stages, tied=tied)
    world.inputs["tokens"] = make_tokens(stages, query_prefix="w1 ", passage_prefix="w7 ")
    job = world.finished(world.job({"steps": 1}))
    folder = job.folder / "checkpoint"
    encoders = load_encoders(folder)
    prefixes = {".": 12} if tied else {"query": 6, "passage": 12}  # ids of w7 and w1
    for (side, prefix), encoder in zip(prefixes.items(), encoders[tied:], strict=True):
        with torch.no_grad():
            ids = np.array([IDS[0], prefix, *IDS[1:]])
            expected = encoder(ids, np.array([len(ids)]))
        for vector in run_code(card_of(job, side), folder / side):
            torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-5)


def test_card_says_how_the_checkpoint_was_made(stages):
    world = World(stages)
    job = world.finished(world.job({"steps": 2}, episode=3))
    card = card_of(job)
    for part in (
        "library_name: sentence-transformers",
        "episode 3",
        f"`train/{job.key}`",
        "a folder; weights SHA-256 `beef`",
        f"from: stage `pretrained/{world.inputs['pretrained'].key}`",
        "tsv, 60 passages, corpus digest `c0ffee`",
        f"`merge/{world.inputs['negatives'].key}`",
        "Root seed: 42",
        "Pooling: mean.",
        "queries 8 tokens and passages 24 tokens",
        "title [SEP] text",
        '"learning_rate": 0.003',
        "Trained: the encoder of queries and passages, with the loss `softmax`",
    ):
        assert part in card


def test_cards_of_untied_encoders_speak_of_their_side(stages):
    world = World(stages, tied=False)
    job = world.finished(world.job({"steps": 1}))
    query, passage = card_of(job, "query"), card_of(job, "passage")
    assert "Encodes queries as" in query and "max_seq_length = 8" in query and "passages 24" not in query
    assert "Encodes passages as" in passage and "max_seq_length = 24" in passage and "queries 8" not in passage


def test_card_of_a_frozen_side_says_that_it_was_not_trained(stages):
    world = World(stages)
    training = {"steps": 2, "trains": ["query"], "loss": "nll"}
    job = world.finished(world.job(training, inputs=world.frozen("passage")))
    query, passage = card_of(job, "query"), card_of(job, "passage")
    trained = "Trained: the encoder of queries, with the loss `nll`"
    assert f"{trained}\n" in query
    assert f"{trained}; this encoder of passages is the one that training started from\n" in passage


def test_card_of_a_continued_training_says_where_it_began(stages):
    world = World(stages)
    first = world.finished(world.job({"continues": True, "stop_after_steps": 5}, episode=2))
    inputs = {"checkpoint": first, "continued": first}
    second = world.finished(world.job({"continues": True}, inputs=inputs, episode=3, run_episode=2))
    begun = "One training since Episode 2: went on with the optimiser and the schedule of stage"
    assert f"{begun} `train/{first.key}` after 5 steps\n" in card_of(second)
    assert "One training since" not in card_of(first)


def test_card_without_own_negatives(stages):
    world = World(stages)
    card = model_card(world.job({"negatives_per_query": 0}, inputs={"negatives": None}), "queries and passages")
    assert "Negatives: other passages of the batch alone" in card


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pooling": "cls"}, ["Pooling: cls.", "tokens[:, 0]"]),
        ({"pooling": "last"}, ["Pooling: last.", "tokens[torch.arange(len(last)), last]"]),
        ({"normalize": True}, ["Pooling: mean, length 1.", "functional.normalize(vectors)"]),
        ({"projection": 16}, ["projection to 16 dimensions", "`transformers` alone"]),
    ],
)
def test_card_follows_the_settings(stages, change, words):
    card = model_card(World(stages).job(**change), "queries and passages")
    assert all(word in card for word in words)


def test_equal_jobs_write_equal_cards(stages):
    """No time, date or machine in them: the checkpoint folder of two runs must have one digest."""
    job = World(stages).job()
    card = model_card(job, "queries")
    assert card == model_card(job, "queries")
    assert not re.search(r"\d\d:\d\d|\d{4}-\d\d-\d\d", card) and str(stages.root) not in card
