"""Stage `train`: one episode's training of the dual encoder on mined negatives."""

import json
import time

import torch

from teleport.encoder.lower_case import save_lower_case
from teleport.encoder.model import load_encoders, save_encoders
from teleport.encoder.precision import compiles, manner, pick_device, resolve_precision
from teleport.encoder.tokens import TokenMap, padded_lengths
from teleport.runtime.device_memory import out_of_memory
from teleport.runtime.files import require_free_space
from teleport.runtime.log import PROGRESS_SECONDS, log
from teleport.runtime.seed import derive_seed
from teleport.training.data import read_training_set
from teleport.training.forward import Side
from teleport.training.model_card import write_model_cards
from teleport.training.parallel import ALONE, joined
from teleport.training.resume import load_state, save_state, sigterm, system_errors
from teleport.training.schedule import schedule_steps
from teleport.training.trainer import Trainer

TOO_LARGE = (
    "Set training.gradient_caching: true (the memory of one chunk, with the same gradients), or let several GPUs share "
    "the step with --set-resources train:gpu=N. Where it is set already, training.precision: bf16 or a device with "
    "more memory is left."
)


@out_of_memory(TOO_LARGE)
def run(job):
    """Train from the checkpoint in `job`, or from its resume state, and write `checkpoint/` and `losses.tsv`.

    Raises ValueError when there are too few queries for a batch, the loss is not finite, a device has too little memory
    or the resume state comes from another precision or kind of device, OSError when the disk is full, and
    SystemExit(143) after saving on SIGTERM.
    """
    torch.set_num_threads(job.threads)
    with joined() as processes:
        return train_together(job, processes)


def train_together(job, processes):
    """What each of the `parallel.Processes` does; the first one writes the files. Returns the facts."""
    training = job.settings.training
    seed = derive_seed(job.settings.seed, "train", job.settings.episode)
    data = read_training_set(job, seed)
    total = schedule_steps(training, data)
    stop = min(total, training.stop_after_steps or total)
    trainer = make_trainer(job, data, total, seed, processes)
    num_bytes = sum(p.numel() * p.element_size() for p in trainer.encoders.parameters())
    require_free_space(job.resume, 7 * num_bytes)  # weights and two moments, twice while replaced; and the checkpoint
    computed = manner(precision(trainer), trainer.device.type, trainer.passages.compiled)
    state = load_state(job.resume, trainer.encoders, trainer.optimizer, computed)
    resumed_from = state.step
    state.attempts += 1
    if resumed_from:
        log.info("continuing at step %d of %d (attempt %d)", resumed_from, stop, state.attempts)
    with system_errors():
        train(job, trainer, state, stop)
        if processes.rank == 0:
            write_checkpoint(job, trainer)
    if processes.rank == 0:
        write_losses(job.output("losses.tsv"), trainer, state.losses)
    return facts(trainer, state, stop) | {"resumed_from": resumed_from}


def make_trainer(job, data, total, seed, processes=ALONE):
    """The `Trainer` of a job: encoders from its checkpoint, texts from its token maps."""
    settings, device = job.settings, pick_device()
    query_encoder, passage_encoder = load_encoders(job.input("checkpoint", "checkpoint"))
    queries = make_side(job, query_encoder, "queries.train", settings.max_query_tokens)
    passages = make_side(job, passage_encoder, "passages", settings.max_passage_tokens)
    return Trainer(queries, passages, data, settings, total, seed, device, processes)


def make_side(job, encoder, name, max_tokens):
    """The `Side` of the token map `name`: "queries.train" or "passages"."""
    tokens = TokenMap(job.input("tokens", f"{name}.ids.npy"), job.input("tokens", f"{name}.offsets.npy"))
    special = json.loads(job.input("tokens", "special.json").read_text())
    dtype, compiled = resolve_precision(job.settings.training.precision), compiles(job.compile, pick_device())
    return Side(encoder, tokens, padded_lengths(tokens, max_tokens), max_tokens, special, dtype, compiled)


def train(job, trainer, state, stop):
    """Do the steps from `state.step` to `stop`, saving the state every `job.save_every` seconds and on SIGTERM.

    The loss of a step is read after the next one was handed to the device, or when the state is saved.
    """
    started = saved = time.monotonic()
    processes, logged, seconds_before, unread = trainer.processes, None, state.seconds, []
    with sigterm() as received:
        for step in range(state.step, stop):
            unread.append(trainer.step(step))
            # SIGTERM reaches the processes at different moments: all stop after the step in which one of them has it.
            stopping, padded_tokens = processes.totals(bool(received), unread[-1].padded_tokens)
            state.padded_tokens += padded_tokens
            state.real_tokens += trainer.real_tokens(unread[-1].batch)
            now = time.monotonic()
            state.seconds = seconds_before + now - started
            saving, ending = stopping or now - saved >= job.save_every, step + 1 == stop
            while len(unread) > (0 if saving or ending else 1):
                state.losses.append(trainer.finish(unread.pop(0)))
            if state.losses and (logged is None or now - logged >= PROGRESS_SECONDS or ending):
                logged = now
                log.info(
                    "step %d: loss %.4f, learning rate %.3g", state.step, state.losses[-1], trainer.rate(state.step - 1)
                )
            if processes.rank == 0:
                job.progress(step + 1, stop, "steps")
                if saving:
                    save_state(job.resume, state, trainer.encoders, trainer.optimizer)
            saved = time.monotonic() if saving else saved
            if stopping:
                log.info("SIGTERM: state saved after step %d; run again to continue there", step + 1)
                raise SystemExit(143)


def write_checkpoint(job, trainer):
    """Save the trained encoders with tokenizer files and model cards as the output `checkpoint`."""
    folder, source, settings = job.output("checkpoint"), job.input("checkpoint", "checkpoint"), job.settings
    encoders = trainer.queries.encoder, trainer.passages.encoder
    save_encoders(*encoders, folder, source, settings.max_query_tokens, settings.max_passage_tokens)
    if (lower_case := job.inputs["tokens"].manifest["settings"]["lower_case"]) is not None:
        save_lower_case(folder, lower_case)
    write_model_cards(job, folder)


def write_losses(path, trainer, losses):
    """One tab-separated line per step: step (from 1), learning rate, loss (as many digits as the numbers have)."""
    lines = [f"{step + 1}\t{trainer.rate(step)!r}\t{loss!r}\n" for step, loss in enumerate(losses)]
    path.write_text("step\tlearning_rate\tloss\n" + "".join(lines))


def precision(trainer):
    """The precision that a trainer computes in: "float32" or "bfloat16"."""
    return str(trainer.passages.dtype or torch.float32).removeprefix("torch.")


def facts(trainer, state, stop):
    """What the manifest keeps of the training (plain JSON)."""
    first, last = state.losses[:10], state.losses[-10:]
    return {
        "steps": stop,
        "schedule_steps": trainer.total,
        "stopped_early": stop < trainer.total,
        "first_loss": sum(first) / len(first),
        "last_loss": sum(last) / len(last),
        "queries": len(trainer.data.rows),
        "queries_without_negatives": trainer.data.without_negatives,
        "queries_without_positives": trainer.data.without_positives,
        "padded_tokens": state.padded_tokens,
        "real_tokens": state.real_tokens,
        "train_seconds": state.seconds,
        "attempts": state.attempts,
        "precision": precision(trainer),
        "device": str(trainer.device),
        "compiled": trainer.passages.compiled,
        "processes": trainer.processes.size,
    }
