"""Resources of the workflow's own: what cannot be meant is refused, with kind and key."""

import pytest

from commands.resources import gpus_of, own_resources
from teleport.refusal import Refusal


def test_they_are_read_as_snakemake_gives_them():
    own = own_resources("train", {"save_every": 5, "processes": 2, "compile": "no", "gpu": 1, "mem_mb": 100})
    assert (own.save_every, own.processes, own.compile) == (5, 2, False)
    assert own_resources("encode", {"compile": 1}).compile is True
    assert own_resources("index", {}).save_every == 60


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"save_every": "abc"}, "resources.train.save_every: input should be a valid number, .*, not 'abc'"),
        ({"save_every": -1}, "resources.train.save_every: .*0, not -1 "),
        ({"processes": "x"}, "resources.train.processes: .*integer, .*, not 'x'"),
        ({"compile": "perhaps"}, "resources.train.compile: .*boolean, .*, not 'perhaps'"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, message):
    with pytest.raises(Refusal, match=message):
        own_resources("train", given)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("gpu:1", 1),
        ("gpu:2", 2),
        ("gpu", 1),
        ("gpu:a100", 1),
        ("gpu:a100:2", 2),
        ("gpu:A100-SXM4-80GB:4", 4),
        ("gpu:nvidia_h100.80gb:8", 8),
        ("scratch:200G", 0),
        ("", 0),
    ],
)
def test_where_a_site_takes_only_gres_a_stage_reads_its_number_of_devices_from_it(gres, expected):
    assert gpus_of({"gpu": 0, "gres": gres}) == expected
    assert gpus_of({"gpu": 3, "gres": gres}) == 3, "`gpu` comes first"
    assert gpus_of({"gpu": 0}) == 0 and gpus_of({"gpu": 2}) == 2


@pytest.mark.parametrize("gres", ["gpu:two cards", "gpu:", "gpu:a100:", "gpu:a100:b:2", "gpu:1,scratch:200G"])
def test_a_gres_that_names_no_number_of_cards_is_refused_with_what_to_write(gres):
    with pytest.raises(Refusal, match=f"gres is '{gres}'.*gpu:TYPE:2"):
        gpus_of({"gpu": 0, "gres": gres})
