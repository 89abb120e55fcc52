"""Stage `train`: one episode's training of the dual encoder."""

import copy
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from teleport.arrays import open_passages
from teleport.encoder import lora
from teleport.encoder.checkpoint import PASSAGE, QUERY, sides, write_lower_case, write_prompts
from teleport.encoder.load import load_backbone, load_encoders, save_encoders
from teleport.encoder.model import compile_layers
from teleport.encoder.precision import compiles, computed_in, dtype_name, pick_device, resolve_precision
from teleport.encoder.side import Frozen, Side, open_side
from teleport.maxp import chunk_rows
from teleport.refusal import Refusal
from teleport.running.devices import LARGER, out_of_memory
from teleport.running.log import PROGRESS_SECONDS, log
from teleport.seed import derive_seed
from teleport.settings.encoder import TokensSettings, with_title
from teleport.settings.training import TrainSettings as Settings  # noqa: F401
from teleport.training.clusters import cluster_facts
from teleport.training.data import read_training_set
from teleport.training.dual_encoder import Trainer
from teleport.training.model_card import write_model_cards
from teleport.training.objective import open_objective
from teleport.training.parallel import ALONE, joined
from teleport.training.resume import load_moments, load_state, save_moments, save_state, sigterm
from teleport.training.schedule import end_of_segment, schedule_steps
from teleport.training.selection import Selection, is_exhausted
from teleport.training.several import JobOf, Part
from teleport.training.step_metrics import tracked, write_curves

SIDES = QUERY, PASSAGE


@out_of_memory(LARGER["train"])
def run(job):
    """Train from the checkpoint in `job`, or from its resume state, and write `checkpoint/` and the curves. With
    training.continues: true the stage is one segment of a training that several stages share. Steps then count from the
    beginning of the training, also for learning rate, batches and dropout. The next stage continues from
    `optimizer.safetensors` (role `continued`), on a CPU with the bits of one long stage. With `moments`, steps count
    from the beginning of this stage, which takes over the moments of the one before. Raises SystemExit(143) after
    saving on SIGTERM."""
    torch.set_num_threads(job.threads)
    with joined() as processes:
        return train_together(job, processes)


def train_together(job, processes):
    """Train in each of the `parallel.Processes`; the first one writes the files. Returns the facts: `facts`,
    resumed_from (a step), earlier_seconds (of steps and dev evaluations before this process), gap."""
    training, first = job.settings.training, 0
    seed = derive_seed(job.settings.seed, "train", job.settings.run_episode)
    data = read_training_set(job, seed)
    trainer = make_trainer(job, data, schedule_steps(training, data), seed, processes)
    trained = trainer.encoders, trainer.optimizer
    if processes.rank == 0:
        require_room(job, trainer)
    selection = Selection(trainer, job.load("dev").open_dev(job, trainer) if job.settings.dev else None)
    if "continued" in job.inputs:
        steps = load_moments(job.input("continued", "optimizer.safetensors"), *trained)
        first = steps if training.continues is True else 0
    stop = end_of_segment(training, trainer.total, first)
    counted = job.load("unmasked").count(trainer, first, stop) if "unmasked" in job.loads else {}
    computed = computed_in(dtype_name(trainer.trained[0].dtype), trainer.device.type, trainer.trained[0].compiled)
    state = load_state(job.resume, *trained, computed, first)
    resumed_from, earlier = state.step if state.curves else 0, state.seconds + state.dev_seconds
    state.attempts += 1
    if trainer.memory:
        trainer.memory.restore(state.memory, trainer.device)
    if state.step:
        log.info("continuing at step %d of %d (attempt %d)", state.step, stop, state.attempts)
    train(job, trainer, state, stop, selection)
    trainer.take(0)
    selection.publish(state)
    made = facts(trainer, state) | selection.facts(state) | counted
    if processes.rank == 0:
        if training.continues:
            save_moments(job.output("optimizer.safetensors"), *trained, stop)
        write_checkpoint(job, trainer, made)
        write_curves(job, trainer, state)
        selection.log_cost(state)
    return made | {"resumed_from": resumed_from, "earlier_seconds": earlier}


def make_trainer(job, data, total, seed, processes=ALONE):
    """The `Trainer` of a job: encoders from its checkpoint, texts from its token maps, vectors of a frozen side."""
    settings, device = job.settings, pick_device()
    encoders = load_encoders(job.input("checkpoint", "checkpoint"))
    if encoders[0] is encoders[1] and len(settings.training.trains) == 1:
        encoders = copy.deepcopy(encoders[0]), encoders[1]  # from here on the two sides differ
    if settings.lora:
        adapt(job, encoders)
    others = [JobOf(job, number) for number in range(1, len(settings.also) + 1)]
    pairs = [[make_side(each, *side, device) for side in zip(SIDES, encoders, strict=True)] for each in (job, *others)]
    queries, passages = pairs[0]
    trained = dict.fromkeys(side.encoder for side in (queries, passages) if isinstance(side, Side))
    if settings.training.gradient_checkpointing:
        for encoder in trained:
            keep_less(encoder.backbone)
    if compiles(job.compile, device, tokens_of(queries, passages, data, total)):
        for encoder in trained:
            compile_layers(encoder)
        pairs = [[replace(side, compiled=True) if isinstance(side, Side) else side for side in pair] for pair in pairs]
        queries, passages = pairs[0]
    require_widths(settings.training.widths, passages.encoder.dim)
    live = job.load("live").open_search(job, data, passages, processes) if settings.live else None
    objective = open_objective(job, data, passages)
    parts = [
        open_part(of, *pair, derive_seed(seed, "collection", number))
        for number, (of, pair) in enumerate(zip(others, pairs[1:], strict=True), 1)
    ]
    return Trainer(queries, passages, data, objective, settings, total, seed, device, processes, live, parts)


def open_part(job, queries, passages, seed):
    """The `Part` of another collection, from its `JobOf`."""
    data = read_training_set(job, seed)
    try:
        schedule_steps(job.settings.training, data)  # refuses too few queries
    except Refusal as error:
        raise Refusal(f"`also`, collection {job.number}: {error}") from None
    return Part(queries, passages, data, open_objective(job, data, passages))


def adapt(job, encoders):
    """Add adapters to the encoders (query, passage) that are trained. If the starting checkpoint has adapters, training
    continues with them, on the pretrained weights that they were trained on."""
    settings, found = job.settings, sides(job.input("checkpoint", "checkpoint"))
    bases = sides(job.input("pretrained", "checkpoint"))
    trained = {encoder: place for place, encoder in enumerate(encoders) if SIDES[place] in settings.training.trains}
    for encoder, place in trained.items():
        goes_on = (found[place] / lora.FOLDER).is_dir()
        if goes_on:
            encoder.backbone.load_state_dict(load_backbone(bases[place]).state_dict())
        lora.add_adapters(encoder, settings.lora, derive_seed(settings.seed, "adapters", SIDES[place]))
        if goes_on:
            lora.load_adapters(encoder, found[place], bases[place])


def keep_less(backbone):
    """Make the layers of a transformers model recompute themselves in the backward pass."""
    if not backbone.supports_gradient_checkpointing:
        model_type = backbone.config.model_type
        raise Refusal(
            f"training.gradient_checkpointing: transformers has none for {model_type}. Set it to false; "
            "training.gradient_caching saves memory too."
        )
    backbone.activation_checkpointing_enable({"use_reentrant": False})


def require_widths(widths, dim):
    """Raise Refusal if a width of `training.widths` exceeds that of the vectors."""
    if widths and widths[-1] > dim:
        raise Refusal(f"training.widths has {widths[-1]}, and the vectors of the checkpoint have {dim}. Lower it.")


def tokens_of(queries, passages, data, steps):
    """About how many tokens pass through encoders in `steps` steps, forwards and backwards."""
    batch = data.batch(0)
    rows = (queries, batch.queries_Q), (passages, batch.passages_P)
    return 3 * steps * sum(side.count_tokens(chunk_rows(own, side.offsets)) for side, own in rows)


def make_side(job, side, encoder, device):
    """The `Side` of "query" or "passage", or a `Frozen` one if the settings do not train it."""
    training, name = job.settings.training, {"query": "queries.train", "passage": "passages"}[side]
    if side in training.trains:
        return open_side(job, name, encoder, resolve_precision(training.precision))
    if side == "passage":
        return Frozen(encoder, *open_passages(job), device)
    return Frozen(encoder, np.load(job.input("queries", f"{name}.npy"), mmap_mode="r"), None, device)


def require_room(job, trainer):
    """Raise Refusal if the disk has no room for the outputs and the resume state, which exists twice while replaced."""
    frozen = [side.encoder for side in (trainer.queries, trainer.passages) if side not in trainer.trained]
    copies = 8 if trainer.training.continues or trainer.training.select == "dev" else 6  # two moments per weight
    weights = [p for encoder in [trainer.encoders, *frozen] for p in encoder.parameters()]
    trained = [p for p in trainer.encoders.parameters() if p.requires_grad]
    remembered = trainer.training.memory * (trainer.most_chunks + trainer.training.memory_queries)
    remembered *= 2 * 4 * trainer.passages.encoder.dim
    job.require_room(sum(p.nbytes for p in weights + copies * trained) + remembered)


class Clock:
    """The seconds that steps take, which go on from those of earlier attempts."""

    def __init__(self, seconds):
        self.started = time.monotonic() - seconds

    def seconds(self):
        return time.monotonic() - self.started

    @contextmanager
    def paused(self):
        """The seconds of the block do not count."""
        seconds = self.seconds()
        yield
        self.started = time.monotonic() - seconds


class Unread:
    """Steps that the device may still compute: reading the values of one waits for it."""

    def __init__(self, trainer, state):
        self.trainer, self.state, self.steps = trainer, state, []

    def read(self, keep):
        """Note the values of all steps but the last `keep` in the state, so that a step can follow another at once."""
        while len(self.steps) > keep:
            metrics = self.steps.pop(0)
            self.state.curves.append(self.trainer.finish(metrics))
            if metrics.search:
                means, seconds = metrics.search
                self.state.search_means.append(means)
                self.state.search_seconds += seconds


def train(job, trainer, state, stop, selection):
    """Do the steps from `state.step` to `stop`; save the state every `job.save_every` seconds and on SIGTERM. The loss
    of a step is read after the next step was sent to the device, or when the state is saved or evaluated."""
    processes, clock, unread = trainer.processes, Clock(state.seconds), Unread(trainer, state)
    saved, logged, written = time.monotonic(), None, None
    with sigterm() as received, tracked(job, trainer, state) as track, ThreadPoolExecutor(1) as thread:
        if selection.dev and not state.dev:
            with clock.paused():
                selection.evaluate(state)
        if processes.rank == 0:  # the rate is measured from here on
            job.progress(state.step - state.first_step, stop - state.first_step, "steps")
        for step in range(state.step, stop):
            if is_exhausted(state.dev, trainer.training.patience):
                break
            unread.steps.append(trainer.step(step))
            # SIGTERM reaches the processes at different times: all stop after the step in which the first one has it.
            (stopping,) = processes.totals(bool(received))
            state.real_tokens += trainer.real_tokens(unread.steps[-1].batch)
            state.seconds, now = clock.seconds(), time.monotonic()
            saving, ending = stopping or now - saved >= job.save_every, step + 1 == stop
            evaluating = selection.is_due(step + 1 - state.first_step, stop - state.first_step)
            unread.read(keep=0 if saving or ending or evaluating else 1)
            if state.curves and (logged is None or now - logged >= PROGRESS_SECONDS or ending):
                logged, loss, rate = now, state.curves[-1][0], trainer.rate(state.step - 1)
                log.info("step %d: loss %.4f, learning rate %.3g", state.step, loss, rate)
            if evaluating:
                with clock.paused():
                    selection.evaluate(state)
            track()
            if processes.rank == 0:
                job.progress(step + 1 - state.first_step, stop - state.first_step, "steps")
                if saving and written:
                    written.result()  # raises the thread's exception
                if saving:
                    state.memory = trainer.memory.tensors() if trainer.memory else {}
                    written = save_state(job.resume, state, trainer.encoders, trainer.optimizer, thread)
            saved = time.monotonic() if saving else saved
            if stopping:
                if written:  # by the first process alone
                    written.result()
                log.info("SIGTERM: state saved after step %d; run again to continue there", step + 1)
                raise SystemExit(143)


def write_checkpoint(job, trainer, made):
    """Save both encoders, trained or not, with tokenizer files and model cards as the output `checkpoint`; made: the
    facts of the training."""
    folder, source, settings = job.output("checkpoint"), job.input("checkpoint", "checkpoint"), job.settings
    lengths = settings.max_query_tokens, settings.max_passage_tokens
    if settings.lora:
        save_adapters(job, trainer, folder, source)
    save_encoders(trainer.queries.encoder, trainer.passages.encoder, folder, source, lengths)
    roles = ("tokens.queries.train", "tokens.passages")
    queries, passages = (TokensSettings(**job.inputs[role].manifest["settings"]) for role in roles)
    if passages.lower_case:
        write_lower_case(folder)
    if queries.prefix or passages.prefix:
        write_prompts(folder, queries.prefix, with_title(passages.prefix))
    write_model_cards(job, folder, made)


def save_adapters(job, trainer, folder, source):
    """Save the adapters of the trained encoders in a checkpoint `folder`, and merge them into their weights; those of
    a side that is not trained stay. source: the checkpoint that training started from"""
    encoders = trainer.queries.encoder, trainer.passages.encoder
    tied = encoders[0] is encoders[1]
    for place, encoder in enumerate(encoders[1:] if tied else encoders):
        if encoder in trainer.encoders:
            found, pretrained = sides(source)[place], sides(job.input("pretrained", "checkpoint"))[place]
            base = pretrained if (found / lora.FOLDER).is_dir() else found
            lora.save_adapters(encoder, folder if tied else folder / SIDES[place], base)
            lora.merge_adapters(encoder)
        elif (adapters := sides(source)[place] / lora.FOLDER).is_dir():  # of an earlier episode, which goes on later
            shutil.copytree(adapters, folder / SIDES[place] / lora.FOLDER)


def facts(trainer, state):
    """Return the facts of the training for the manifest (plain JSON). steps: of this stage; first_step, end_step: steps
    since the training began, before and after this stage"""
    losses = [loss for loss, *_ in state.curves]
    first, last = losses[:10], losses[-10:]
    searched = {"engine": trainer.live.engine, "search_seconds": state.search_seconds} if trainer.live else {}
    if (clusters := trainer.data.clusters) is not None:
        searched |= cluster_facts(clusters[trainer.data.rows], trainer.training.batch_queries)
    if others := range(1, len(trainer.parts)):
        searched |= {"also": [of_part(trainer, number, state) for number in others]}
    return searched | {
        "first_step": state.first_step,
        "end_step": state.step,
        "steps": len(state.curves),
        "schedule_steps": trainer.total,
        "stopped_early": state.step < trainer.total,
        "first_loss": sum(first) / len(first),
        "last_loss": sum(last) / len(last),
        "queries": len(trainer.data.rows),
        "queries_without_negatives": trainer.data.without_negatives,
        "queries_without_positives": trainer.data.without_positives,
        "real_tokens": state.real_tokens,
        "train_seconds": state.seconds,
        "attempts": state.attempts,
        "precision": dtype_name(trainer.trained[0].dtype),
        "device": str(trainer.device),
        "compiled": trainer.trained[0].compiled,
        "processes": trainer.processes.size,
    }


def of_part(trainer, number, state):
    """Return the facts of another collection for the manifest (plain JSON)."""
    data, numbers = trainer.parts[number].data, trainer.turns[0][state.first_step : state.step]
    counts = {"queries": len(data.rows), "queries_without_negatives": data.without_negatives}
    counts |= {"queries_without_positives": data.without_positives, "steps": int(np.count_nonzero(numbers == number))}
    return counts
