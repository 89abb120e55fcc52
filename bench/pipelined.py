"""Training steps behind one another as in the stage, in every format: what they take, hold, wait for, and save.

    python bench/pipelined.py [--queries 8] [--negatives 31] [--steps 60] [--checkpoint FOLDER | --bert-base]

On CUDA torch raises an error at every wait for the device within a step that it knows of
(torch.cuda.set_sync_debug_mode); where it does, the sentence and the line are among the figures and the steps are taken
without. A trace of three steps lies beside the JSON file (open it at ui.perfetto.dev), its longest operators are among
the figures. Saving is copying the state, during which training stands still, and writing it, during which it goes on.
"""

import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.profiler import ProfilerActivity, profile

import texts
from commands.doctor import lack_of_compiler
from rounds import REPOSITORY, report, wait_for_device
from teleport.encoder.precision import pick_device, resolve_precision
from teleport.training.resume import TrainingState, save_state
from train import QUERIES, back_to_back, make_trainer, training_set

TRACED, LONGEST = 3, 12


def formats(device):
    """({name: arguments of `make_trainer`}, the likeliest to be taken first; figures that say what is left out)."""
    named, figures = {"fp32": ("fp32",)}, {}
    if resolve_precision("auto", device) is not None:
        compiled = {}
        if device.type == "cuda":
            if lack := lack_of_compiler(device):
                figures["left out, bf16, compiled"] = lack
            else:
                compiled["bf16, compiled"] = "bf16", True
        named = {"bf16": ("bf16",)} | compiled | named
    return named, figures


def without_waits(trainer, steps):
    """(milliseconds a step, where torch says that a step waits for the device, or None)."""
    back_to_back(trainer, 3)  # sets up the optimiser, compiles
    if trainer.device.type != "cuda":
        return back_to_back(trainer, steps), None
    torch.cuda.set_sync_debug_mode("error")
    try:
        return back_to_back(trainer, steps), None
    except RuntimeError as error:
        if "synchroniz" not in str(error):
            raise
        ours = [f for f in traceback.extract_tb(error.__traceback__) if str(REPOSITORY) in f.filename]
        waits = f"{str(error).partition(chr(10))[0]} at {Path(ours[-1].filename).name}:{ours[-1].lineno}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return back_to_back(trainer, steps), waits


def trace(trainer, path):
    """{operator: milliseconds a step} of those that take longest, on the device where there is one."""
    on_cuda = trainer.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    with profile(activities=activities) as profiled:
        back_to_back(trainer, TRACED)
        wait_for_device()
    profiled.export_chrome_trace(str(path))
    name = "self_device_time_total" if on_cuda else "self_cpu_time_total"  # in microseconds
    taken = {event.key: getattr(event, name) / 1e3 / TRACED for event in profiled.key_averages()}
    return {key: round(taken[key], 3) for key in sorted(taken, key=taken.get, reverse=True)[:LONGEST]}


def saving(trainer, folder):
    """(seconds in which training stands still, seconds until the state is on the disk)."""
    wait_for_device()
    started = time.perf_counter()
    with ThreadPoolExecutor(1) as thread:
        written = save_state(folder, TrainingState("timed"), trainer.encoders, trainer.optimizer, thread)
        copied = time.perf_counter() - started
        written.result()
    return copied, time.perf_counter() - started


def measure(name, trainer, steps, folder, traces):
    """(seconds of a step, figures) of a format."""
    on_cuda = trainer.device.type == "cuda"
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    milliseconds, waits = without_waits(trainer, steps)
    figures = {f"milliseconds a step, {name}": round(milliseconds, 2), f"waits, {name}": waits or "none"}
    if on_cuda:
        figures[f"peak bytes, {name}"] = torch.cuda.max_memory_allocated()
    copied, written = saving(trainer, folder)
    figures |= {f"seconds of saving, {name}": round(copied, 3), f"seconds until it is saved, {name}": round(written, 3)}
    figures[f"milliseconds of operators, {name}"] = trace(trainer, traces / f"trace {name}.json.gz".replace(" ", "-"))
    return milliseconds / 1e3, figures


def main(arguments=None):
    sizes = {"queries": 8, "negatives": 31, "passages": 4096, "steps": 60}
    arguments = texts.parser("Training steps behind one another.", **sizes).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    device, seconds = pick_device(), {}
    chosen, figures = formats(device)
    traces = arguments.json.parent if arguments.json else Path("results/bench")
    traces.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, max(QUERIES, arguments.passages), QUERIES)
        data = training_set(arguments)
        for name, options in chosen.items():
            try:
                trainer = make_trainer(world, data, device, *options)
                taken, found = measure(name, trainer, arguments.steps, Path(folder), traces)
            except torch.OutOfMemoryError as error:
                taken, found = None, {f"left out, {name}": str(error).partition("\n")[0]}
            seconds |= {name: [taken]} if taken else {}
            figures |= found
            trainer = None  # its memory is the next one's
    report("pipelined", seconds, (), arguments.queries * (1 + arguments.negatives), "passages", arguments, **figures)


if __name__ == "__main__":
    main()
