"""A checkpoint that was trained on lower-cased texts says so: who loads it gets the ids that it was trained with."""

import json
import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from encoder_world import PASSAGES, QUERIES, make_collection, make_pretrained, make_tokens, source_folder
from teleport.encoder.checkpoint import sides, write_lower_case
from teleport.encoder.own_settings import own_settings
from teleport.encoder.tokens import load_tokenizer
from training_world import World
from training_world import make_tokens as make_training_tokens

TEXTS = [text for _, text in PASSAGES[:3]] + [text for texts in QUERIES.values() for text in texts]


@pytest.mark.ci(2)
@pytest.mark.parametrize("family", ["roberta", "xlm-roberta"])  # BERT's tokenizer lower-cases itself here
@pytest.mark.parametrize("tied", [True, False])
def test_sentence_transformers_gives_the_ids_of_the_stage(stages, tmp_path, family, tied):
    pretrained = make_pretrained(stages, source_folder(tmp_path / "source", family), tied=tied)
    checkpoint = shutil.copytree(pretrained.folder / "checkpoint", tmp_path / "checkpoint")
    lower, cased = (load_tokenizer(sides(checkpoint)[1], lower_case)[0] for lower_case in (True, False))
    expected = [encoding.ids for encoding in lower.encode_batch(TEXTS)]
    assert expected != [encoding.ids for encoding in cased.encode_batch(TEXTS)], "the rule makes no difference"
    for _ in range(2):  # the second time as a training that starts from this checkpoint
        write_lower_case(checkpoint)
        for folder in sides(checkpoint):
            found = SentenceTransformer(str(folder), device="cpu").tokenizer
            assert [found(text)["input_ids"] for text in TEXTS] == expected
            assert own_settings(folder)["lower_case"].value is True


def test_special_tokens_keep_their_case(tmp_path):
    """A title is joined with [SEP]."""
    tokenizer, special = load_tokenizer(source_folder(tmp_path), True)
    ids = tokenizer.encode("The [SEP] WORD", add_special_tokens=False).ids
    assert ids == [tokenizer.token_to_id("the"), special["sep"], tokenizer.token_to_id("word")]


def test_the_checkpoint_as_a_source_gives_the_same_tokens(stages, tmp_path):
    collection = make_collection(stages)
    pretrained = make_pretrained(stages, source_folder(tmp_path / "source", "roberta"))
    trained = shutil.copytree(pretrained.folder / "checkpoint", tmp_path / "trained")
    write_lower_case(trained)
    again = make_pretrained(stages, trained)
    assert "lower_case" in own_settings(again.folder / "checkpoint")
    jobs = [make_tokens(stages, collection, start, lower_case=True) for start in (pretrained, again)]
    ids = [np.load(job["tokens.passages"].folder / "passages.ids.npy").tolist() for job in jobs]
    assert ids[0] == ids[1]
    without = make_tokens(stages, collection, pretrained)["tokens.passages"]
    assert ids[0] != np.load(without.folder / "passages.ids.npy").tolist()


@pytest.mark.parametrize("lower_case", [True, False])
def test_a_training_writes_rule_and_card(stages, lower_case):
    world = World(stages)
    world.inputs["tokens"] = make_training_tokens(stages, lower_case)
    job = world.finished(world.job({"steps": 1}))
    start = world.finished(world.job({"steps": 1}, inputs={"checkpoint": job}))
    for folder in (each.folder / "checkpoint" for each in (job, start)):
        said = json.loads((folder / "sentence_bert_config.json").read_text())["do_lower_case"]
        assert said is lower_case
        assert ("lower-case them before" in (folder / "README.md").read_text()) == lower_case
        assert AutoTokenizer.from_pretrained(folder)("w3 w4")["input_ids"] == [2, 8, 9, 3]
