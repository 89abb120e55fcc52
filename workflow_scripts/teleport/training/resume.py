"""The state from which a training continues, in safetensors files. An unfinished stage's state, replaced atomically, is
for a later attempt of that stage. A finished stage's moments, an artefact, are for the next stage of the same
training."""

import json
import os
import signal
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from teleport.refusal import Refusal
from teleport.running.files import sync

FILE = "state.safetensors"


@dataclass
class TrainingState:
    """The state of a stage after `len(curves)` of its steps, without weights and optimiser."""

    computed: str  # how the steps were computed, for example "bfloat16 on cuda, compiled"
    first_step: int = 0  # steps of this training done in earlier stages
    curves: list[list[float]] = field(default_factory=list)  # `step_metrics.columns_of` each step (float32)
    seconds: float = 0.0
    attempts: int = 0
    real_tokens: int = 0
    search_means: list[list[float]] = field(default_factory=list)  # measures of each step's live search
    search_seconds: float = 0.0
    dev: list[list[float]] = field(default_factory=list)  # [step, score] of each dev evaluation
    dev_seconds: float = 0.0
    best: dict[str, torch.Tensor] = field(default_factory=dict)  # weights at the best one, with select: dev
    memory: dict[str, torch.Tensor] = field(default_factory=dict)  # `Memory.tensors`, with training.memory

    @property
    def step(self):
        """How many steps of the training are done, including earlier stages."""
        return self.first_step + len(self.curves)


def save_state(folder, state, encoders, optimizer, thread):
    """Copy `state`, the trained weights of the module `encoders` and the optimiser's moments, and have a `thread` (of
    an executor) write them into `folder` while training continues; returns its Future. A kill at any moment leaves the
    previous file or the new one. There are no generator states, because all draws derive from the step number."""
    tensors = {f"weights/{name}": tensor for name, tensor in copied(encoders).items()}
    tensors |= {name: tensor.to("cpu", copy=True) for name, tensor in moments(encoders, optimizer).items()}
    tensors |= {f"best/{name}": tensor for name, tensor in state.best.items()} | {"curves": torch.tensor(state.curves)}
    tensors |= {f"memory/{name}": tensor for name, tensor in state.memory.items()}
    others = json.dumps(asdict(replace(state, curves=[], best={}, memory={})))

    def write():
        part = folder / f"{FILE}.part"
        save_file(tensors, part, metadata={"state": others})
        sync(part)  # the name must not reach the disk before the bytes
        os.replace(part, folder / FILE)

    return thread.submit(write)


def load_state(folder, encoders, optimizer, computed, first_step=0):
    """Load the state saved in `folder` into `encoders` and `optimizer`; returns it, or an empty one if there is none.
    Its steps must have been computed the way this process computes (`computed`)."""
    if not (folder / FILE).exists():
        return TrainingState(computed, first_step)
    tensors, metadata = read(folder / FILE)
    state = TrainingState(**json.loads(metadata["state"]))
    state.curves = tensors["curves"].tolist()
    if state.computed != computed:  # an error and not a fresh start: the state may hold days of training
        raise Refusal(
            f"{folder / FILE} has {len(state.curves)} steps computed in {state.computed}, this machine would go on in "
            f"{computed}. Run the workflow again on a machine like the first, with the same resource `compile`, or "
            f"delete the folder {folder} to start again here. For others, training.precision fp32 or bf16 in place of "
            "auto fixes the precision."
        )
    set_weights(encoders, named(tensors, "weights/"))
    state.best, state.memory = named(tensors, "best/"), named(tensors, "memory/")
    set_moments(tensors, encoders, optimizer)
    return state


def copied(encoders):
    """{name: tensor} of the trained weights, those with requires_grad, copied to the CPU."""
    trained = ((name, weight) for name, weight in encoders.named_parameters() if weight.requires_grad)
    return {name: weight.detach().to("cpu", copy=True) for name, weight in trained}


def set_weights(encoders, tensors):
    """Load the weights of `copied` into a module."""
    parameters = dict(encoders.named_parameters())
    for name, tensor in tensors.items():
        parameters[name].data.copy_(tensor)


def read(path):
    """({name: tensor}, the metadata) of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118 - not a dict


def named(tensors, prefix):
    """The tensors whose names begin with a prefix, without it (dict)."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def moments(encoders, optimizer):
    """The optimiser's moments by the parameters' names: {"exp_avg/NAME": tensor, ...}."""
    return {
        f"{moment}/{name}": tensor
        for name, parameter in encoders.named_parameters()
        for moment, tensor in optimizer.state.get(parameter, {}).items()
    }


def set_moments(tensors, encoders, optimizer):
    """Load the moments of `moments` into the optimiser."""
    for name, parameter in encoders.named_parameters():
        keys = {m: f"{m}/{name}" for m in ("step", "exp_avg", "exp_avg_sq")}  # LAMB (no correction) has no "step"
        if own := {m: tensors[key].to(parameter.device, copy=True) for m, key in keys.items() if key in tensors}:
            optimizer.state[parameter] = own


def save_moments(path, encoders, optimizer, steps):
    """Write the optimiser's moments, with the number of steps since the training began."""
    save_file(moments(encoders, optimizer), path, metadata={"steps": str(steps)})


def load_moments(path, encoders, optimizer):
    """Load moments that `save_moments` wrote into `optimizer`; returns the number of steps behind them (int)."""
    tensors, metadata = read(path)
    set_moments(tensors, encoders, optimizer)
    return int(metadata["steps"])


@contextmanager
def sigterm():
    """Within the block SIGTERM is only noted in the yielded list, so that the step ends before its state is saved. Once
    it has come, later ones have no effect: a cluster and the launcher send it to every process, and a second one must
    not kill a process that is saving, or one whose death would end another that is."""
    received = []
    previous = signal.signal(signal.SIGTERM, lambda *_: received.append(True))
    try:
        yield received
    finally:
        if not received:
            signal.signal(signal.SIGTERM, previous)
