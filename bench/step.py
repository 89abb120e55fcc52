"""Ways to take a training step, against the plain one: gradient caching, micro-batches, LAMB.

python bench/step.py [--queries 4] [--negatives 7] [--checkpoint FOLDER | --bert-base]
"""

from tempfile import TemporaryDirectory

import torch

import texts
import train
from rounds import interleaved, report
from teleport.encoder.precision import pick_device

PEER = "stage, plain"


def variants(world, data, device):
    """{name: function that takes step 0 and waits for its loss}."""

    def variant(**changes):
        made = train.make_trainer(world, data, device, "fp32", **changes)
        return lambda: made.finish(made.step(0))

    return {
        PEER: variant(),
        "stage, gradient caching": variant(gradient_caching=True),
        "stage, 2 micro-batches": variant(accumulate=2),
        "stage, LAMB": variant(optimizer="lamb"),
    }


def main(arguments=None):
    sizes = {"queries": 4, "negatives": 7, "passages": 256}
    arguments = texts.parser("Ways to take a training step.", **sizes).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    with TemporaryDirectory() as folder:
        passages = max(train.QUERIES, arguments.passages)
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, passages, train.QUERIES)
        seconds = interleaved(variants(world, train.training_set(arguments), pick_device()), arguments.rounds)
    report("step", seconds, (PEER,), arguments.queries * (1 + arguments.negatives), "passages", arguments)


if __name__ == "__main__":
    main()
