"""The private operators of torch that attention calls on CUDA: their arguments in the versions that were tried there or
are installed, and the ways out where a torch has others."""

import inspect

import numpy as np
import pytest
import torch

from teleport.encoder import attention
from teleport.encoder.attention import EFFICIENT, FLASH, Packing, takes

# {operator: {torch: its arguments in order}}. A new version's are added when attention.py was read beside them.
FLASH_ARGUMENTS = "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask scale "
FLASH_ARGUMENTS += "window_size_left window_size_right seqused_k alibi_slopes"
EFFICIENT_ARGUMENTS = "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p "
EFFICIENT_ARGUMENTS += "custom_mask_type compute_log_sumexp scale seqlen_k window_size"
KNOWN = {
    "_flash_attention_forward": {"2.11": FLASH_ARGUMENTS, "2.13": f"{FLASH_ARGUMENTS} block_table num_splits"},
    "_efficient_attention_forward": {"2.11": EFFICIENT_ARGUMENTS, "2.13": EFFICIENT_ARGUMENTS},
}
VARLEN = "query key value cu_seq_q cu_seq_k max_q max_k return_aux scale window_size"
PUBLIC = {"2.11": VARLEN, "2.13": f"{VARLEN} enable_gqa seqused_k block_table num_splits"}
INSTALLED = ".".join(torch.__version__.split(".")[:2])
CHANGED = f"torch {INSTALLED} gives {{}} other arguments: read attention.py beside them, try a GPU, and add them here"


@pytest.mark.parametrize("operator", [FLASH, EFFICIENT], ids=lambda operator: operator[0])
def test_a_private_operator_begins_with_what_it_is_given_in_every_known_torch(operator):
    name, given = operator
    for arguments in KNOWN[name].values():
        assert arguments.split()[: len(given.split())] == given.split()
    known = [argument.name for argument in getattr(torch.ops.aten, name).default._schema.arguments]
    assert known == KNOWN[name].get(INSTALLED, "").split(), CHANGED.format(name)
    assert takes(operator)


def test_the_way_out_gives_varlen_attn_what_it_takes_in_every_known_torch(monkeypatch):
    """Where the private operator is another and dropout is 0; without numbers, as it runs on CUDA alone. Heads that
    queries share are repeated: torch 2.11 has no `enable_gqa`."""
    from torch.nn.attention import varlen

    installed, given = list(inspect.signature(varlen.varlen_attn).parameters), {}
    assert installed == PUBLIC.get(INSTALLED, "").split(), CHANGED.format("varlen_attn")

    def seen(*tensors, **options):
        given.update(options, number=len(tensors), heads=[x.shape[1] for x in tensors[:3]])
        return tensors[0]

    monkeypatch.setattr(attention, "takes", lambda operator: False)
    monkeypatch.setattr(varlen, "varlen_attn", seen)
    q, lengths = torch.zeros(30, 4, 16, dtype=torch.bfloat16), np.array([12, 10, 8])
    packing = Packing.of(lengths, torch.device("cpu"))
    made = attention.varlen(q, q[:, :2], q[:, :2], packing, 0.0, True, 6, 0.25)
    assert made.shape == q.shape
    assert given == {"scale": 0.25, "window_size": (5, 0), "number": 7, "heads": [4, 4, 4]}
    for arguments in PUBLIC.values():
        assert arguments.split()[:7] == ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]
        assert {"scale", "window_size"} <= set(arguments.split())


@pytest.mark.parametrize(
    ("dtype", "dropout", "window", "without", "expected"),
    [
        (torch.bfloat16, 0.1, None, set(), True),
        (torch.bfloat16, 0.1, 6, set(), True),
        (torch.bfloat16, 0.1, None, {FLASH}, False),  # equal lengths together, as on a CPU
        (torch.bfloat16, 0.0, None, {FLASH}, True),  # varlen_attn
        (torch.bfloat16, 0.0, 6, {FLASH, EFFICIENT}, True),
        (torch.float32, 0.1, None, {FLASH}, True),
        (torch.float32, 0.0, None, {EFFICIENT}, False),
        (torch.float32, 0.0, 6, set(), False),
    ],
)
def test_which_way_attention_goes_on_cuda(monkeypatch, dtype, dropout, window, without, expected):
    monkeypatch.setattr(attention, "takes", lambda operator: operator not in without)
    assert attention.has_kernel(dtype, dropout, window) is expected


def test_an_operator_with_other_arguments_is_not_taken():
    for name, arguments in (FLASH, EFFICIENT):
        assert not takes((name, f"{arguments} and_more")) and not takes((f"{name}_of_another_torch", arguments))
    source = inspect.getsource(attention)
    assert all(f"torch.ops.aten.{name}(" in source for name, _ in (FLASH, EFFICIENT))


def test_packed_attention_takes_equal_lengths_together_where_there_is_no_kernel(monkeypatch):
    """On the device without numbers, which goes the way of CUDA: with dropout, in a torch without the operator."""
    went = []
    monkeypatch.setattr(attention, "takes", lambda operator: False)
    monkeypatch.setattr(attention, "by_equal_lengths", lambda q, *more: went.append("equal lengths") or q)
    monkeypatch.setattr(attention, "varlen", lambda q, *more: went.append("varlen_attn") or q)
    q = torch.zeros(1, 4, 30, 16, dtype=torch.bfloat16, device="meta")
    for dropout in (0.1, 0.0):
        attention.packed_attention(torch.nn.Module(), q, q, q, dropout=dropout, packing=None)
    assert went == ["equal lengths", "varlen_attn"]
