"""The tables of bench/speed.py: from the figures of each benchmark, by processor."""

import importlib

import pytest
from bench_world import bench_on_path  # noqa: F401

ENCODE = {
    "command": "bench/encode.py",
    "ratios": {
        "plain": {"plain": 1.0, "stage, fp32": 1.25, "stage, bf16": 3.0},
        "plain, bf16": {"plain": 0.4, "stage, fp32": 0.5, "stage, bf16": 1.5},
    },
    "figures": {
        "products, bf16 over fp32": 2.5,
        "share of the products' rate, stage, fp32": 0.81,
        "share of the products' rate, stage, bf16": 0.62,
        "share of the products' rate, plain": 0.6,
        "share of the products' rate, plain, bf16": 0.4,
    },
}
SEARCH = {"command": "bench/search.py", "ratios": {"faiss": {"faiss": 1.0, "stage, cpu": 1.9}}, "figures": {}}


@pytest.fixture
def speed():
    return importlib.import_module("speed")


def test_bfloat16_is_compared_with_the_peer_in_bfloat16(speed):
    assert speed.encoder_rows("encode", ENCODE) == [
        ["encode", "plain", "1.25 ×", "1.50 ×", "0.81, 0.62", "0.60, 0.40", "`bench/encode.py`"]
    ]


def test_a_peer_in_float32_alone_is_compared_with_both(speed):
    step = ENCODE | {"ratios": {"padded": {"padded": 1.0, "stage, fp32": 2.0}}}
    assert speed.encoder_rows("step", step)[0][:4] == ["step", "padded", "2.00 ×", "–"]
    step["ratios"]["padded"]["stage, bf16"] = 4.0
    assert speed.encoder_rows("step", step)[0][:4] == ["step", "padded", "2.00 ×", "4.00 ×"]


def test_variants_of_the_stage_alone_are_rows_of_other_benchmarks(speed):
    assert speed.other_rows("search", SEARCH) == [["search", "stage, cpu", "faiss", "1.90 ×", "`bench/search.py`"]]


def test_what_the_row_above_says_is_said_once(speed):
    rows = [["encode", "a", "1", "x"], ["encode", "b", "2", "x"], ["encode", "b", "2", "y"]]
    assert speed.once(rows) == [rows[0], ["", "b", "2", ""], rows[2]]
    assert speed.markdown(["what", "against", "fp32", "command"], []).splitlines()[1] == "| :-- | :-- | --: | :-- |"


def test_a_page_has_the_tables_of_each_processor(speed):
    part = {"cores": 2, "commit": "abc1234", "encoder": {"encode": ENCODE}, "others": {"search": SEARCH}}
    text = speed.page({"one processor": part, "another": part})
    assert text.startswith("# ") and text.count("| encode | plain | 1.25 × | 1.50 × |") == 2
    assert (
        text.index("## one processor") < text.index("| search | stage, cpu | faiss | 1.90 ×") < text.index("## another")
    )


def test_every_benchmark_of_the_page_is_there(speed):
    for command in [*speed.ENCODER.values(), *speed.OTHERS.values()]:
        (script,) = [word for word in command if word.endswith(".py")]
        assert (speed.REPOSITORY / script).is_file()
