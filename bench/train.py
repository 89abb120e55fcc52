"""Training steps per second: the step of the stage `train` against one batch of queries and one of passages, each
padded to its longest text, and against four of each, sorted by length, by transformers' model with sdpa; in fp32, or by
autocast in bf16 where the stage is.

Also prints how long a step takes, alone and as one of --steps back to back, and which share of the rate of matrix
products it reaches on real tokens.

python bench/train.py [--queries 4] [--negatives 7] [--steps 60] [--checkpoint FOLDER | --bert-base]
"""

import copy
import time
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import torch

import peers
import texts
from commands.doctor import compiler_problem
from rounds import interleaved, report, wait_for_device
from teleport.arrays import Ragged
from teleport.encoder.batches import Chunks
from teleport.encoder.model import compile_layers
from teleport.encoder.precision import pick_device, resolve_precision
from teleport.encoder.side import Side
from teleport.settings.training import Training
from teleport.training.data import TrainingSet
from teleport.training.dual_encoder import Trainer
from teleport.training.losses import softmax
from teleport.training.objective import Objective, Term

PEER = "padded to the longest"  # and in bf16, with that at the end
SORTED, PARTS = "sorted by length, padded in four batches", 4  # of each side
QUERIES, STEPS = 64, 10**6


def training_set(arguments):
    """Random pools of passages for 64 queries, whose positives are the passages of their row numbers."""
    rng = np.random.default_rng(0)
    pool, passages = 4 * arguments.negatives, max(QUERIES, arguments.passages)
    pools = Ragged(np.arange(QUERIES + 1) * pool, rng.integers(passages, size=QUERIES * pool).astype(np.int32))
    positives = Ragged(np.arange(QUERIES + 1), np.arange(QUERIES, dtype=np.int32))
    training = Training(
        batch_queries=arguments.queries, negatives_per_query=arguments.negatives, learning_rate=peers.RATE,
        warmup_ratio=0, positive="first", steps=STEPS, loss={"kind": "softmax"},
    )  # fmt: skip
    return TrainingSet([f"q{i}" for i in range(QUERIES)], positives, pools, training, 0)


def make_trainer(world, data, device, precision, compiled=False, **changes):
    """The `Trainer` of the stage, on a copy of the checkpoint's encoder. changes: of the settings of the training."""
    encoder, dtype = copy.deepcopy(world.encoder), resolve_precision(precision, device)
    sides = [
        Side(encoder, tokens, limit, world.special, dtype, compiled)
        for tokens, limit in ((world.query_map, texts.MAX_QUERY_TOKENS), (world.passage_map, texts.MAX_PASSAGE_TOKENS))
    ]
    if compiled:
        compile_layers(encoder)
    settings = SimpleNamespace(training=data.training.model_copy(update=changes), scale=peers.SCALE)
    return Trainer(*sides, data, Objective([Term(softmax.loss)]), settings, STEPS, 0, device)


def stage_step(trainer):
    """A function that takes a step of the stage and waits for its loss."""
    return lambda number: trainer.finish(trainer.step(number))


def back_to_back(trainer, number):
    """Milliseconds a step, over `number` steps back to back, as in the stage: a loss is read after the next step was
    given to the device, so the device never waits for the processor."""
    wait_for_device()
    started, unread = time.perf_counter(), trainer.step(0)
    for step in range(1, number):
        before, unread = unread, trainer.step(step)
        trainer.finish(before)
    trainer.finish(unread)
    return 1e3 * (time.perf_counter() - started) / number


def that_fit(steps, device):
    """{name: function that takes step 0} of the steps (functions of a step number) that fit into the GPU's memory."""
    fitting = {}
    for name in list(steps):
        step = steps.pop(name)
        try:
            step(0)
            fitting[name] = partial(step, 0)
        except torch.OutOfMemoryError:
            print(f"{name}: left out, the {device} has too little memory for it. Take fewer --queries or --negatives.")
    return fitting


def step_figures(world, data, device, seconds, rounds):
    """Milliseconds of a step of the stage, and `shares` of its real tokens."""
    batch = data.batch(0)
    lengths = [
        Chunks(world.query_map, texts.MAX_QUERY_TOKENS, world.special).lengths[batch.queries_Q],
        Chunks(world.passage_map, texts.MAX_PASSAGE_TOKENS, world.special).lengths[batch.passages_P],
    ]
    rates = peers.product_rates(peers.shape_of(world.encoder), device, 4 * rounds)
    found = {f"milliseconds a step, {name}": round(1e3 * median(times), 2) for name, times in seconds.items()}
    return found | peers.shares(world.encoder, np.concatenate(lengths), 3, seconds, rates)


def main(arguments=None):
    sizes = {"queries": 4, "negatives": 7, "passages": 256, "steps": 60}
    arguments = texts.parser("A training step against its peer.", **sizes).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    device = pick_device()
    with TemporaryDirectory() as folder:
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, max(QUERIES, arguments.passages), QUERIES)
        data = training_set(arguments)
        steps, trainers = {}, {"stage, fp32": make_trainer(world, data, device, "fp32")}
        if device.type == "cpu" or resolve_precision("auto", device) is None:
            steps[PEER] = peers.step(world, data, device)
            steps[SORTED] = peers.step(world, data, device, parts=PARTS)
        if (dtype := resolve_precision("auto", device)) is not None:
            steps[f"{PEER}, bf16"] = peers.step(world, data, device, dtype)
            steps[f"{SORTED}, bf16"] = peers.step(world, data, device, dtype, parts=PARTS)
            trainers["stage, bf16"] = make_trainer(world, data, device, "bf16")
            if device.type == "cuda" and (lack := compiler_problem(device)):
                print(f"stage, bf16, compiled: left out. {lack}")
            elif device.type == "cuda":
                trainers["stage, bf16, compiled"] = make_trainer(world, data, device, "bf16", True)
        compared = list(steps)
        steps |= {name: stage_step(trainer) for name, trainer in trainers.items()}
        seconds = interleaved(that_fit(steps, device), arguments.rounds)
        figures = step_figures(world, data, device, seconds, arguments.rounds)
        for name in (name for name in trainers if name in seconds):
            taken = round(back_to_back(trainers[name], arguments.steps), 2)
            figures[f"milliseconds a step, {arguments.steps} back to back, {name}"] = taken
        passages = arguments.queries * (1 + arguments.negatives)
        report(
            "train", seconds, [name for name in compared if name in seconds], passages, "passages", arguments, **figures
        )


if __name__ == "__main__":
    main()
