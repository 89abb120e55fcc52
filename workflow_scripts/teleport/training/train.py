"""Stage `train`: one episode's training of the dual encoder."""

import copy
import shutil
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
from teleport.running.log import log
from teleport.seed import derive_seed
from teleport.settings.encoder import TokensSettings, with_title
from teleport.settings.training import TrainSettings as Settings  # noqa: F401
from teleport.training.data import read_training_set
from teleport.training.dual_encoder import Trainer
from teleport.training.loop import facts, train
from teleport.training.model_card import write_model_cards
from teleport.training.objective import open_objective
from teleport.training.parallel import ALONE, joined
from teleport.training.resume import load_moments, load_state, save_moments
from teleport.training.schedule import end_of_segment, schedule_steps
from teleport.training.selection import Selection
from teleport.training.several import JobOf, Part
from teleport.training.step_metrics import write_curves

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
    """How many encoded tokens gain as much from compiling as `steps` steps do: six for each token of a step. On an H100
    a step of 18,780 tokens gained 13 ms, and compiling it takes twice as long."""
    batch = data.batch(0)
    rows = (queries, batch.queries_Q), (passages, batch.passages_P)
    return 6 * steps * sum(side.count_tokens(chunk_rows(own, side.offsets)) for side, own in rows)


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
