"""The matrix products of the packed forward; for encoding on a CPU with weights that oneDNN has laid out beforehand."""

import torch
from torch import nn
from torch.nn import functional

TOKENS = 4096  # rows that the layout of the weights is chosen for: a batch of encoding; others are right too


def linear(x, weight, bias, activation=None):
    """x @ weight.T + bias, then the activation (a module), which is part of the product where that can be."""
    fused = weight.is_mkldnn and isinstance(activation, nn.GELU) and activation.approximate == "none"
    if weight.is_mkldnn:
        y = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "gelu" if fused else "none", [], "none")
    else:
        y = functional.linear(x, weight, bias)
    return activation(y) if activation and not fused else y


def laid_out(weight):
    """The weight as oneDNN wants it: 1.1 to 1.2 times as fast as laying it out in every product (384 and 768 wide).

    torch.compile makes these operators of `linear` when it freezes weights. They are private: where torch or the
    processor lacks them, a gradient may be wanted, or plain products are faster, the weight stays what it is.
    """
    wanted = torch.is_inference_mode_enabled() and weight.device.type == "cpu" and gains_by_layout()
    if not (wanted and has_operators(weight.dtype)):
        return weight
    return torch.ops.mkldnn._reorder_linear_weight(weight, TOKENS)


def gains_by_layout():
    """Whether oneDNN's products are the faster ones on this processor.

    Without AVX-512 they are not, least of all with GELU in them: on an EPYC of that kind, in float32, encoding took
    1.13 times as long as with plain products (MiniLM), with BERT-base 1.17.
    """
    return torch.backends.cpu.get_cpu_capability() != "AVX2"


def has_operators(dtype):
    """Whether this torch has them for a type on this processor."""
    names = "_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported"
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in names):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
