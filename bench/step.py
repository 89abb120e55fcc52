"""Ways to take a training step, against the plain one: gradient caching, micro-batches, LAMB, several processes.

python bench/step.py [--queries 4] [--negatives 7] [--checkpoint FOLDER | --bert-base]
python -m torch.distributed.run --standalone --nproc-per-node 2 bench/step.py --threads 1
"""

from tempfile import TemporaryDirectory

import torch

import texts
import train
from rounds import interleaved, report
from teleport.encoder.precision import pick_device
from teleport.training.parallel import ALONE, joined

PEER = "stage, plain"


def variants(world, data, device, processes):
    """{name: function that takes step 0 and waits for its loss}; all processes take part where the name says so."""

    def variant(together=False, **changes):
        made = train.make_trainer(world, data, device, "fp32", processes=processes if together else ALONE, **changes)
        return lambda: made.finish(made.step(0)) if together or processes.rank == 0 else None

    named = {
        PEER: variant(),
        "stage, gradient caching": variant(gradient_caching=True),
        "stage, 2 micro-batches": variant(accumulate=2),
        "stage, LAMB": variant(optimizer="lamb"),
    }
    if processes.size > 1:
        named[f"stage, {processes.size} processes"] = variant(together=True)
        named[f"stage, {processes.size} processes, gradient caching"] = variant(gradient_caching=True, together=True)
    return named


def main(arguments=None):
    sizes = {"queries": 4, "negatives": 7, "passages": 256}
    arguments = texts.parser("Ways to take a training step.", **sizes).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    with joined() as processes, TemporaryDirectory() as folder:
        passages = max(train.QUERIES, arguments.passages)
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, passages, train.QUERIES)
        steps = variants(world, train.training_set(arguments), pick_device(), processes)
        seconds = interleaved(steps, arguments.rounds)
        if processes.rank == 0:
            report("step", seconds, (PEER,), arguments.queries * (1 + arguments.negatives), "passages", arguments)


if __name__ == "__main__":
    main()
