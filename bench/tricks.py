"""What each trick of `cpu/` gains: the stage with all of them against the stage with all but one.

    python bench/tricks.py [--passages 512] [--queries 8] [--checkpoint FOLDER | --bert-base] [--precision bf16]

In encoding: attention over texts of equal length together, weights laid out for oneDNN (and GELU in their product), a
batch for each thread. In a training step: attention and its written gradient, dropout of 16 bits, a share of the batch
for each thread. The last line leaves the whole folder out. What takes less than 1.1 times as long without a trick, on
every kind of processor, does not need it. (`bench/search.py` has the search with int8 products.)
"""

import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
from torch.nn import functional

import texts
from encode import stage_encode
from rounds import interleaved, ratios, report
from teleport.cpu import attention, kernels
from teleport.encoder import side
from teleport.encoder.model import PackedEncoder
from teleport.encoder.precision import pick_device, resolve_precision
from train import QUERIES, make_trainer, stage_step, training_set

ALL, NONE = "nothing", "the whole folder"
ENCODER = kernels.CpuEncoder
# What stands in the place of each trick: [(object, name, value)].
GROUPS = [(ENCODER, "attention", staticmethod(PackedEncoder.attention))]
LAYOUT = [(ENCODER, "product", PackedEncoder.product)]
DROPOUT = [(ENCODER, "dropout", staticmethod(functional.dropout)), (attention, "dropout", functional.dropout)]
SHARES = [(kernels, "SHARE_TOKENS", sys.maxsize)]
FOLDER = [(side, "cpu_module", lambda name: None)]
ENCODING = {ALL: [], "attention in groups": GROUPS, "weights laid out for oneDNN": LAYOUT, NONE: FOLDER}
TRAINING = {ALL: [], "attention in groups": GROUPS, "dropout of 16 bits": DROPOUT, "shares of the batch": SHARES}
TRAINING |= {NONE: FOLDER}
BATCHES = "a batch for each thread"
STEP_ROUNDS = 4  # a step takes a fraction of the time of an encoding


@contextmanager
def without(replaced):
    """The library with other values in the place of a trick's."""
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        yield


def left_out(replaced, make):
    """A function without arguments, made by `make` and run each time without a trick."""
    with without(replaced):
        run = make()

    def run_without():
        with without(replaced):
            return run()

    return run_without


def encoders(world, device, precision, threads):
    """{name of what is left out: function}: the stage encodes all passages."""
    make = partial(stage_encode, world, device, precision)
    variants = {name: left_out(replaced, make) for name, replaced in ENCODING.items()}
    return variants | ({BATCHES: stage_encode(world, device, precision, shared=True)} if threads > 1 else {})


def steps(world, data, device, precision):
    """{name of what is left out: function}: a training step, of an encoder of its own."""

    def make():
        return partial(stage_step(make_trainer(world, data, device, precision)), 0)

    return {name: left_out(replaced, make) for name, replaced in TRAINING.items()}


def gains(seconds):
    """{sentence: how many times as long it takes without a trick}; seconds: as `interleaved` gives."""
    slower = {name: 1 / ratio for name, ratio in ratios(seconds, ALL).items() if name != ALL}
    return {f"times as long without {name}": round(value, 2) for name, value in slower.items()}


def main(arguments=None):
    parser = texts.parser("What each trick of cpu/ gains.", passages=512, queries=8, negatives=7)
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="default: as `precision: auto` has it")
    arguments = parser.parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    device, precision = pick_device(), arguments.precision or "auto"
    if device.type != "cpu":
        sys.exit("cpu/ runs on a CPU alone. Hide the GPU: CUDA_VISIBLE_DEVICES= python bench/tricks.py")
    print(f"in {resolve_precision(precision, device) or torch.float32}, on {arguments.threads} threads")
    with TemporaryDirectory() as folder:
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, max(QUERIES, arguments.passages), QUERIES)
        encode = interleaved(encoders(world, device, precision, arguments.threads), arguments.rounds)
        step = interleaved(steps(world, training_set(arguments), device, precision), STEP_ROUNDS * arguments.rounds)
    seconds, figures = {}, {}
    for kind, of_kind in (("encode", encode), ("step", step)):
        seconds |= {f"stage, {kind} without {name}": times for name, times in of_kind.items()}
        figures |= {f"{kind}: {sentence}": times for sentence, times in gains(of_kind).items()}
    report("tricks", seconds, (), 1, "runs", arguments, **figures)


if __name__ == "__main__":
    main()
