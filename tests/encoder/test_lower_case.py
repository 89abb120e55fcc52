"""The case rule of the tokens is in the checkpoint: who loads it gets the ids that it was trained with."""

import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from encoder_world import PASSAGES, QUERIES, make_collection, make_pretrained, make_tokens, source_folder
from teleport.encoder.checkpoint import sides
from teleport.encoder.tokens import load_tokenizer, save_lower_case
from training_world import World, on_cpu  # noqa: F401
from training_world import make_tokens as make_training_tokens

TEXTS = [text for _, text in PASSAGES[:3]] + [text for texts in QUERIES.values() for text in texts]


@pytest.mark.ci(4)
@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "distilbert"])
@pytest.mark.parametrize("tied", [True, False])
def test_all_who_load_the_checkpoint_get_the_ids_of_the_stage(stages, tmp_path, family, lower_case, tied):
    pretrained = make_pretrained(stages, source_folder(tmp_path / "source", family), tied=tied)
    original, copy = pretrained.folder / "checkpoint", tmp_path / "checkpoint"
    shutil.copytree(original, copy)
    expected, special = load_tokenizer(sides(original)[1], lower_case)
    other, _ = load_tokenizer(sides(original)[1], not lower_case)
    expected = [encoding.ids for encoding in expected.encode_batch(TEXTS)]
    assert expected != [encoding.ids for encoding in other.encode_batch(TEXTS)], "the rule makes no difference"
    for _ in range(2):  # the second time as a training that starts from this checkpoint
        save_lower_case(copy, lower_case)
        for folder in sides(copy):
            tokenizer = AutoTokenizer.from_pretrained(folder)
            for found in (tokenizer, SentenceTransformer(str(folder), device="cpu").tokenizer):
                assert [found(text)["input_ids"] for text in TEXTS] == expected
            assert tokenizer.pad_token_id == special["pad"]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_checkpoint_as_a_source_gives_the_same_tokens(stages, tmp_path, family):
    """As an external row, whose own `lower_case` is null, or as the start of an experiment, where it is repeated."""
    collection = make_collection(stages)
    pretrained = make_pretrained(stages, source_folder(tmp_path / "source", family))
    trained = tmp_path / "trained"
    shutil.copytree(pretrained.folder / "checkpoint", trained)
    save_lower_case(trained, family != "bert")
    jobs = [make_tokens(stages, collection, pretrained, lower_case=family != "bert")]
    again = make_pretrained(stages, trained)
    jobs += [make_tokens(stages, collection, again, lower_case=rule) for rule in (None, family != "bert")]
    ids = [np.load(job["tokens.passages"].folder / "passages.ids.npy").tolist() for job in jobs]
    assert ids[0] == ids[1] == ids[2]
    without = make_tokens(stages, collection, pretrained)["tokens.passages"]
    assert ids[0] != np.load(without.folder / "passages.ids.npy").tolist()


@pytest.mark.parametrize("lower_case", [None, False])
def test_a_training_writes_rule_and_card(stages, lower_case):
    world = World(stages)
    world.inputs["tokens"] = make_training_tokens(stages, lower_case)
    job = world.finished(world.job({"steps": 1}))
    ids = AutoTokenizer.from_pretrained(job.folder / "checkpoint")("W3 w4")["input_ids"]
    assert ids == ([2, 8, 9, 3] if lower_case is None else [2, 1, 9, 3])
    card = (job.folder / "checkpoint/README.md").read_text()
    assert ("keeps the case of letters" in card) == (lower_case is False)
    start = world.finished(world.job({"steps": 1}, inputs={"checkpoint": job}))
    assert AutoTokenizer.from_pretrained(start.folder / "checkpoint")("W3 w4")["input_ids"] == ids


def test_a_tokenizer_without_an_unknown_token_needs_none(stages, tmp_path):
    """Byte-level BPE, which has a token for every byte."""
    pretrained = make_pretrained(stages, source_folder(tmp_path / "source", "roberta"))
    for folder in sides(pretrained.folder / "checkpoint"):
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace('"<unk>"', '"a byte"'))
    copy = tmp_path / "checkpoint"
    shutil.copytree(pretrained.folder / "checkpoint", copy)
    tokenizer, special = load_tokenizer(sides(copy)[0], True)
    assert special["unk"] is None
    save_lower_case(copy, True)
    found = AutoTokenizer.from_pretrained(sides(copy)[0])(TEXTS[0])["input_ids"]
    assert found == tokenizer.encode(TEXTS[0]).ids
