"""What a GPU has to do, counted on a processor: bytes and launches of BERT-base, and what a search compares.

    python bench/work.py [encode step search] [--passages 8841823] [--dim 768] [--queries 16]

encode: a bucket of 65,536 tokens; step: 8 x (1 + 31), forward and backward, by autocast as `train` computes it, and
with weights and residual in bfloat16, which is no more than a comparison. Each first operator by operator, as torch
launches them, then with each layer compiled, by the kernels that Inductor makes of it (its scheduler for a CPU, which
fuses as that for CUDA does, but reads a weight's gradient in other parts). Bytes are those that kernels read and write
besides matrix products and attention. search: the vectors of bench/vectors.py, in both kinds of lengths, made block by
block and searched as on a GPU: the share of tiles (1,024 products of a query) that reaching.py skips because none
reaches the last rank so far, and the bytes of selection, if every tile were compared and as it is. A quarter of an hour
at MS MARCO's 8,841,823 x 768; --dim 32, which skips as many, takes seconds.
"""

import argparse
from collections import Counter
from contextlib import nullcontext

import numpy as np
import torch
from functorch.compile import aot_module, make_boxed_func, min_cut_rematerialization_partition
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.fx_passes.replace_random import replace_random_passes
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import ExternKernelSchedulerNode
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import BertConfig, BertModel

import texts
from teleport.encoder import attention
from teleport.encoder.model import Encoder, layers_of, prepare
from teleport.search import candidates as kept
from teleport.search import exact, reaching
from vectors import BLOCK, LENGTHS, fill_block

BASE = {"vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
PRODUCTS = {"mm", "addmm", "bmm", "linear"}
MARCO, DIM, DEPTH = 8_841_823, 768, 200
ERRORS, KEPT = 8, 12  # bytes of the bounds of a passage, and of a candidate: two bounds and its number


class Traffic(TorchDispatchMode):
    """Counts what is launched on the meta device, views aside, and the bytes read and written besides products and
    attention; casts: the shapes of matrices that are converted."""

    def __init__(self):
        super().__init__()
        self.launches, self.bytes, self.casts = Counter(), 0, set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        made, name = operator(*args, **(kwargs or {})), operator.overloadpacket.__name__
        given, out = ([t for t in tree_leaves(x) if isinstance(t, torch.Tensor)] for x in ((args, kwargs), made))
        of_device = [t for t in given + out if t.device.type == "meta"]
        if of_device and out and storage_of(out[0]) not in {storage_of(t) for t in given} or name.endswith("_"):
            self.launches[name] += 1
            if name not in PRODUCTS and "attention" not in name and not name.startswith(("empty", "new_empty")):
                self.bytes += sum(t.numel() * t.element_size() for t in of_device)
            if name == "_to_copy" and given[0].ndim >= 2 and given[0].is_floating_point():
                self.casts.add(tuple(given[0].shape))
        return made


def storage_of(tensor):
    return tensor.untyped_storage()._cdata


class CudaAutocast(TorchFunctionMode):
    """What autocast to bfloat16 does on CUDA in BERT, for devices on which it does nothing: products convert what they
    are given, LayerNorm and what is added to it stay in float32."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is functional.linear:
            args = tuple(x.to(torch.bfloat16) for x in args)
        if function is functional.layer_norm:
            args = (args[0].float(), *args[1:])
        return function(*args, **(kwargs or {}))


def bert(device, layers=12, **config):
    """An `Encoder` of BERT-base's shape with so many layers."""
    with torch.device(device):
        return Encoder(
            BertModel(BertConfig(**BASE | {"num_hidden_layers": layers} | config), add_pooling_layer=False), "cls"
        )


def bucket():
    """Tokens of each passage of a bucket of 65,536 tokens, int64, shortest first."""
    lengths = np.minimum(texts.lengths(2000, 1) + 2, texts.MAX_PASSAGE_TOKENS)
    return np.sort(lengths[: np.searchsorted(np.cumsum(lengths), 65_536)])


def batch():
    """Tokens of each text of a step 8 x (1 + 31), int64."""
    queries = np.minimum(texts.lengths(8, 3, mean=8) + 2, texts.MAX_QUERY_TOKENS)
    return np.concatenate([queries, np.minimum(texts.lengths(256, 1) + 2, texts.MAX_PASSAGE_TOKENS)])


def by_operators(lengths, training, autocast=False, layers=12):
    """The `Traffic` of encoding texts of `lengths` tokens operator by operator, with the backward pass if `training`.
    Weights and residual are in bfloat16, as `encode` has them, unless `autocast` converts, as `train` does. A training
    in bfloat16 would convert weights of float32 once a step, and their gradients back, which is counted here."""
    encoder = bert("meta", layers)
    if not training:
        encoder = prepare(encoder.eval(), torch.bfloat16)
    elif not autocast:
        encoder.train().backbone.to(torch.bfloat16)
    with torch.set_grad_enabled(training), CudaAutocast() if autocast else nullcontext(), Traffic() as traffic:
        vectors = encoder(np.ones(lengths.sum(), np.int64), lengths)
        if training:
            vectors.sum().backward()
    if training and not autocast:
        converted = conversions(encoder.parameters())
        traffic.bytes += sum(converted)
        traffic.launches["conversions"] = 1 + len(converted)
    return traffic


def compiled(lengths, training, autocast=False):
    """(bytes, kernels) of the same with each of the twelve layers compiled."""
    outside = by_operators(lengths, training, autocast, layers=0)
    found = layer_kernels(int(lengths.sum()), training, autocast)
    if training and not autocast:
        found += conversions(layers_of(bert("meta", 1).backbone)[1].parameters())
    return outside.bytes + 12 * sum(found), outside.launches.total() + 12 * len(found)


def conversions(weights):
    """Bytes read and written to convert each weight from float32 to 16 bits, all by one launch, and its gradient
    back (list)."""
    return [2 * (4 + 2) * weight.numel() for weight in weights]


def layer_kernels(tokens, training, autocast=False):
    """Bytes of each kernel, besides products and attention, that Inductor makes of one compiled layer (list): forward
    and, if `training`, backward. No kernel is built: its scheduler says what it fuses."""
    mode, found = FakeTensorMode(allow_non_fake_inputs=True), []

    def schedule(module, given):
        replace_random_passes(module)
        graph = GraphLowering(module)
        with V.set_fake_mode(mode), V.set_graph_handler(graph), V.set_debug_handler(DebugContext()):
            graph.run(*given)
            graph.init_wrapper_code()
            graph._update_scheduler()
            kernels = [node for node in graph.scheduler.nodes if not isinstance(node, ExternKernelSchedulerNode)]
            found.extend(node.get_read_write_buffers_sizes() for node in kernels)
        return make_boxed_func(module.forward)

    def partition(joint, given, **options):
        with V.set_fake_mode(mode):
            joint_graph_passes(joint)
        return min_cut_rematerialization_partition(joint, given, compiler="inductor", **options)

    encoder = bert("cpu", 1, vocab_size=8)
    encoder = encoder.train() if training else prepare(encoder.eval(), torch.bfloat16)
    layer = layers_of(encoder.backbone)[1][0]
    if training and not autocast:
        layer.to(torch.bfloat16)
    layer = aot_module(layer, schedule, schedule, partition, select_decomp_table())
    before, attention.by_equal_lengths = attention.by_equal_lengths, as_on_cuda
    try:
        with mode, torch.set_grad_enabled(training), CudaAutocast() if autocast else nullcontext():
            packing = attention.Packing(None, torch.empty(2, dtype=torch.int32), texts.MAX_PASSAGE_TOKENS)
            hidden = torch.empty(1, tokens, BASE["hidden_size"], dtype=torch.float32 if autocast else torch.bfloat16)
            made = layer(hidden.requires_grad_(training), packing=packing)
            if training:
                made.sum().backward()
    finally:
        attention.by_equal_lengths = before
    return found


def as_on_cuda(q, k, v, packing, *options):
    """The attention of CUDA in the place of a CPU's."""
    return attention.varlen(*(x.transpose(0, 1) for x in (q, k, v)), packing, *options)


class Made:
    """Vectors of `vectors.make_vectors` that exist only while they are read, as `Exact` reads them."""

    dtype, ndim = np.dtype(np.float32), 2

    def __init__(self, count, dim, spread):
        self.shape, self.spread = (count, dim), spread

    def __len__(self):
        return self.shape[0]

    def block(self, number):
        block = torch.empty(min(BLOCK, len(self) - number * BLOCK), self.shape[1])
        fill_block(block, number * BLOCK, 0, self.spread)
        return block.numpy()

    def __getitem__(self, part):
        start, stop, step = part.indices(len(self))
        if step > 1:  # the sample of mean and scale: the first vectors are as good
            return self.block(0)
        blocks = range(start // BLOCK, -(-stop // BLOCK))
        return np.concatenate([self.block(number) for number in blocks])[start % BLOCK :][: stop - start]


class Selection:
    """Counts what `Candidates.add` does with each block: `tiles` of products, those `compared` one by one, because
    their largest one may reach the last rank, and the passages `reaching` it."""

    def __init__(self):
        self.tiles = self.compared = self.reaching = self.products = 0

    def add(self, candidates, first, passages_PD, errors_P2):
        """Count a block, as `reaching.append_reaching` would process it. The first block has no last rank yet."""
        scores_QP = kept.products(candidates.queries_QD, passages_PD).float()
        extra = -scores_QP.shape[1] % reaching.COLUMNS
        scores_QP = functional.pad(scores_QP, (0, extra), value=-torch.inf)
        errors_P2 = functional.pad(errors_P2, (0, 0, 0, extra))
        tiles = len(errors_P2) // reaching.COLUMNS
        largest_T2 = errors_P2.unflatten(0, (tiles, reaching.COLUMNS)).amax(1)
        most_QT = scores_QP.unflatten(1, (tiles, reaching.COLUMNS)).amax(2) + candidates.lengths_Q2 @ largest_T2.T
        upper_QP = scores_QP + candidates.lengths_Q2 @ errors_P2.T
        self.tiles += most_QT.numel()
        self.products += len(scores_QP) * (scores_QP.shape[1] - extra)
        self.compared += int((most_QT >= candidates.floor_Q[:, None]).sum())
        self.reaching += int((upper_QP >= candidates.floor_Q[:, None]).sum()) if first else 0

    def bytes(self, compared):
        """Bytes that the selection reads and writes if it compares so many tiles: each product is read, the bounds of a
        tile's passages if it is compared, else the largest one, and candidates are written."""
        bounds = ERRORS * (compared * reaching.COLUMNS + self.tiles - compared)
        return 2 * self.products + bounds + KEPT * self.reaching


def search(passages, queries, spread, dim=DIM, depth=DEPTH):
    """The `Selection` of an exact search of made vectors for as many queries, in float16 and in the blocks of a GPU; it
    ends before the exact scores."""
    vectors, asked, selection = Made(passages, dim, spread), torch.empty(BLOCK, dim), Selection()
    fill_block(asked, 0, 1)
    index = exact.Exact(vectors, "cpu", torch.get_num_threads(), room=0, dtype=torch.float16)
    room = min(passages, exact.ROOM * depth + exact.LEAST_ROOM)
    candidates = kept.Candidates(asked[:queries].numpy(), depth, room, torch.float16, index.on, index.usual)
    with torch.inference_mode():
        for block in index.blocks(torch.float16, exact.BLOCK):
            selection.add(candidates, *block)
            candidates.add(*block)
    return selection


def expected_compared(passages, depth=DEPTH):
    """How many tiles of a query are compared by arithmetic, if passages come in any order and products had no errors.
    The last rank is that of the passages before, at the last power of two of blocks: of `seen` passages, a later one
    reaches it with probability depth / seen."""
    tiles = 0.0
    for number in range(-(-passages // exact.BLOCK)):
        size = min(exact.BLOCK, passages - number * exact.BLOCK)
        seen = exact.BLOCK * 2 ** (number.bit_length() - 1) if number else 0
        share = 1 - (1 - depth / seen) ** reaching.COLUMNS if number else 1
        tiles += share * -(-size // reaching.COLUMNS)
    return tiles


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="of encode, step, search; default: all")
    parser.add_argument("--passages", type=int, default=MARCO)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--queries", type=int, default=16)
    asked = parser.parse_args(arguments)
    kinds = {
        "encode": [("bfloat16", bucket(), False, False)],
        "step": [("bfloat16", batch(), True, False), ("autocast", batch(), True, True)],
    }
    for part in [each for each in kinds if each in (asked.parts or kinds)]:
        for name, lengths, training, autocast in kinds[part]:
            before, after = by_operators(lengths, training, autocast), compiled(lengths, training, autocast)
            print(f"{part}, {name}, {lengths.sum()} tokens: {before.bytes / 1e9:.1f} GB in {before.launches.total()} "
                  f"launches; compiled {after[0] / 1e9:.1f} GB in {after[1]} kernels besides products")  # fmt: skip
    if not asked.parts or "search" in asked.parts:
        for name, spread in LENGTHS.items():
            found = search(asked.passages, asked.queries, spread, asked.dim)
            tiles, skipped = found.tiles // asked.queries, 1 - found.compared / found.tiles
            by_arithmetic = 1 - expected_compared(asked.passages) / tiles
            before, after = (found.bytes(compared) / asked.queries / 1e6 for compared in (found.tiles, found.compared))
            print(f"search, {asked.passages} x {asked.dim}, {name} lengths: {skipped:.1%} of {tiles} tiles skipped (by "
                  f"arithmetic {by_arithmetic:.1%}), {found.reaching / asked.queries:.0f} passages kept; selection "
                  f"{before:.1f} MB a query if all were compared, {after:.1f} as it is")  # fmt: skip


if __name__ == "__main__":
    main()
