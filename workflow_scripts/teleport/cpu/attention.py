"""Attention on a CPU: batched products over groups of texts of equal length, and their gradient; and its dropout."""

from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby

import torch

# Scores of one batched product, so that they stay in a core's cache (1 MB in float32) until they are used.
SCORES = 2**18
GENERATOR = ContextVar("the generator of the masks", default=None)  # None: torch's global one


class GroupedAttention(torch.autograd.Function):
    """`PackedEncoder.attention` on a CPU. The gradient is written out: a recorded one copies the groups' gradients into
    the batch's and keeps the dropout's factors. To pad texts of nearly equal length to fewer groups saved nothing
    more."""

    @staticmethod
    def forward(context, queries, inputs, spans, rate):
        """queries: [B, H] where one token of each text asks, None where all do; inputs: [T, 2H or 3H]."""
        one_query, heads = queries is not None, spans.heads
        mixed = torch.empty_like(queries) if one_query else inputs.new_empty(len(inputs), inputs.shape[1] // 3)
        saved = []
        for asking, rows, texts in groups(spans, one_query):
            q, k, v = operands(queries, inputs, asking, rows, texts, heads)
            scores = torch.baddbmm(q.new_zeros(()), q, k.transpose(1, 2), beta=0, alpha=q.shape[2] ** -0.5)
            weights = torch.softmax(scores, -1, out=scores)
            dropped = dropout(weights, rate)
            by_head(mixed[asking], texts, heads)[0].copy_(torch.bmm(dropped, v).view(texts, heads, *q.shape[1:]))
            saved += [weights, dropped] if any(context.needs_input_grad) else []
        context.save_for_backward(queries, inputs, mixed, *saved)
        context.spans = spans
        return mixed

    @staticmethod
    def backward(context, by_mixed):
        """With scores S, weights W, dropped ones D and outputs O = D V: dS = D * (dO V') - W * sum(dO * O)."""
        queries, inputs, mixed, *saved = context.saved_tensors
        one_query, heads = queries is not None, context.spans.heads
        by_queries, by_inputs = torch.empty_like(queries) if one_query else None, torch.empty_like(inputs)
        pairs = zip(saved[::2], saved[1::2], strict=True)
        for (asking, rows, texts), (weights, dropped) in zip(groups(context.spans, one_query), pairs, strict=True):
            q, k, v = operands(queries, inputs, asking, rows, texts, heads)
            o, do = (merged(by_head(x[asking], texts, heads), q.dtype)[0] for x in (mixed, by_mixed))
            ds = torch.bmm(do, v.transpose(1, 2)).mul_(dropped)
            ds.addcmul_(weights, (do * o).sum(2, keepdim=True), value=-1).mul_(q.shape[2] ** -0.5)
            made = [torch.bmm(ds, k), torch.bmm(ds.transpose(1, 2), q), torch.bmm(dropped.transpose(1, 2), do)]
            if one_query:
                by_head(by_queries[asking], texts, heads)[0].copy_(made.pop(0).view(texts, heads, 1, -1))
            for target, gradient in zip(by_head(by_inputs[rows], texts, heads, len(made)), made, strict=True):
                target.copy_(gradient.view_as(target))
        return by_queries, by_inputs, None, None


def groups(spans, one_query):
    """(slice of the rows that ask, slice of the rows of inputs, how many texts) of each group: consecutive texts of
    equal length, of at most SCORES scores together, but at least one."""
    asked = start = 0
    for length, equal in groupby(spans.lengths_B.tolist()):
        left, most = len(list(equal)), max(1, SCORES // spans.heads // (length if one_query else length**2))
        while left:
            texts = min(most, left)
            rows = slice(start, start + texts * length)
            yield (slice(asked, asked + texts) if one_query else rows), rows, texts
            asked, start, left = asked + texts, rows.stop, left - texts


def operands(queries, inputs, asking, rows, texts, heads):
    """Queries, keys and values of a group, each [texts * heads, rows, width of a head]. In float32 even when these are
    bfloat16: the softmax is faster, the products and copies are slower."""
    dtype = torch.promote_types(inputs.dtype, torch.float32)
    if queries is None:
        return merged(by_head(inputs[rows], texts, heads, 3), dtype)
    return merged(by_head(queries[asking], texts, heads), dtype) + merged(by_head(inputs[rows], texts, heads, 2), dtype)


def by_head(x, texts, heads, tensors=1):
    """[texts * rows, tensors * H] as [tensors, texts, heads, rows, width of a head], without a copy."""
    return x.view(texts, len(x) // texts, tensors, heads, -1).permute(2, 0, 3, 1, 4)


def merged(x, dtype):
    """A copy of [tensors, texts, heads, rows, width] in `dtype`, as so many tensors [texts * heads, rows, width]."""
    return x.to(dtype, memory_format=torch.contiguous_format).flatten(1, 2).unbind(0)


@contextmanager
def drawing_from(generator):
    """Have `dropout` draw from a torch.Generator in this thread: several draw at once, each its own."""
    token = GENERATOR.set(generator)
    try:
        yield
    finally:
        GENERATOR.reset(token)


def dropout(x, rate):
    """`PackedEncoder.dropout`, whose elements take 16 bits each of torch's global generator, or of that of
    `drawing_from`, where `functional.dropout` takes 64; so `rate` is rounded to a 65,536th."""
    dropped = round(rate * 2**16)
    if dropped == 0:
        return x
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=GENERATOR.get())
    drawn = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform on -2^15 .. 2^15 - 1
    # Compared into the type of x: by way of a bool tensor this took six times as long.
    kept = torch.ge(drawn, dropped - 2**15, out=torch.empty(x.shape, dtype=x.dtype))
    return x * kept.mul_(2**16 / (2**16 - dropped))
