"""Resources of the workflow's own: what cannot be meant is refused, with kind and key."""

import pytest

from commands.resources import own_resources
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
