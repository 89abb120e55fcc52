"""What `make forecast` prints, and what the workflow says before it starts where this machine is too small."""

import glob
import shutil
import textwrap

from commands.forecast.costs import stage_cost
from commands.forecast.costs.data import missing_files
from commands.forecast.costs.models import live_cost, train_steps
from commands.forecast.counts import encoder_shape, finished, of_kind
from commands.forecast.hardware import MEASURED, read_hardware
from commands.forecast.schedule import bytes_to_come, timing
from commands.forecast.table import GB, forecast, render, total_line
from commands.status import duration
from teleport.refusal import Refusal
from teleport.running.artefact import STAGES
from teleport.running.devices import DEVICE_FILES
from teleport.running.files import PRUNE

WIDTH = 100
REMEDIES = {
    "retrieve": "Vectors that do not fit are read from the disk again for every block of queries, slowly.",
    "train": "Set training.gradient_caching: true, which gives the same gradients, or share the training among GPUs "
    "(--set-resources train:gpu=4); where it is set already, training.precision: bf16 or a device with more memory is "
    "left. A lower training.batch_queries or training.negatives_per_query changes the result.",
}


def shortages(plan):
    """What is too small for a plan on this machine, before it runs here: one sentence each (list of str).

    None where the size of the collection is not known yet, nor where there are GPUs and nobody has measured them; a
    sentence on a measurement of this machine that is not usable.
    """
    if glob.glob(DEVICE_FILES) and not MEASURED.is_file():
        return []
    try:
        hardware = read_hardware()[1]
    except Refusal as error:
        return [str(error)]
    try:
        lines, _, costs = forecast(plan, hardware)
    except Refusal:
        return []
    return disk_shortage(bytes_to_come(plan, costs, hardware)) + memory_shortages(lines, hardware)


def disk_shortage(needed, folder=STAGES):
    """A sentence, in a list, where the disk of `folder`, where artefacts are written, has less than `needed` bytes."""
    existing = next(path for path in [folder.resolve(), *folder.resolve().parents] if path.exists())
    free = shutil.disk_usage(existing).free
    if needed <= free:
        return []
    return [
        f"disk: {needed / GB:.1f} GB are needed below {folder}, {free / GB:.1f} GB are free. Free some space "
        f"({PRUNE}), move `results`, or keep fewer vectors (`keep_vectors: none`, `encoder.vectors: fp16`)."
    ]


def memory_shortages(lines, hardware):
    """What is too small for the stages that are still to do: one sentence each (list of str)."""
    sentences = []
    for what, has in (("memory", hardware.room["memory"]), ("device_memory", hardware.device_memory)):
        for line in lines:
            needed = getattr(line, f"{what}_left")
            if has is not None and needed > has:
                sentences.append(
                    f"{what.replace('_', ' ')}: {line.kind} needs about {needed / GB:.1f} GB, there are "
                    f"{has / GB:.1f} GB. {REMEDIES.get(line.kind, 'Use a larger machine.')}"
                )
    return sentences


def heading(plan, counts, name, hardware):
    """What the figures rest on (list of str): collection, tokens, encoder, hardware."""
    queries = ", ".join(f"{num:,} {split}" for split, num in counts.queries.items())
    text = [f"collection: {counts.passages:,} passages; queries: {queries} (from {counts.source})"]
    if tokens := of_kind(plan, "tokens"):
        limit = plan.encoder.chunks * plan.encoder.max_passage_tokens
        mean = counts.tokens_per_text(tokens[0], "passages", limit)
        text.append(f"tokens: {mean:.1f} a passage, cut at {limit}")
    shapes = [encoder_shape(stage) for stage in of_kind(plan, "pretrained")]
    text += dict.fromkeys(
        f"encoder: {shape.parameters / 1e6:.1f} M parameters (from {source})" for shape, source in shapes
    )
    return [*text, f"hardware: {name} ({hardware.source.strip()})"]


def live_search(plan, counts, hardware):
    """A sentence on what searching at every step costs, for each train stage that does so (list of str)."""
    sentences = []
    for stage in of_kind(plan, "train"):
        if stage.settings.live:
            first, last = train_steps(stage, counts.queries["train"])
            live, whole = map(hardware.seconds, (live_cost(stage, counts), stage_cost(stage, counts)))
            each = f"{1e3 * live / (last - first):.1f} ms a step"
            sentences.append(f"{stage.name}: live search takes {duration(live)} of {duration(whole)}, {each}")
    return sentences


def unknown(plan, counts, lines):
    """A sentence on each thing that is in no figure (list of str)."""
    kinds = [line.kind for line in lines if not line.has_estimate]
    sentences = [f"in no sum, because there is no estimate: {', '.join(kinds)}"] if kinds else []
    for stage in [] if counts.download_bytes else of_kind(plan, "download"):
        if unsized := ", ".join(name for name in missing_files(stage) if not stage.settings.files[name].bytes):
            sentences.append(f"in no sum, because their sizes are unknown: {unsized} (counts.download_bytes)")
    if any(stage.settings.index.kind != "flat" for stage in of_kind(plan, "index")):
        sentences.append("in no sum: training the indexes that are not flat, and adding the passages")
    if plan.config.collection.source == "ir_datasets" and finished(plan.collection) is None:
        sentences.append("in no sum: what ir_datasets downloads")
    return sentences


def print_forecast(plan, name=None, **machine):
    """Print the forecast of a plan on the hardware called `name`, or this machine; returns its warnings (list).

    machine: cores, gpus, memory (bytes), each instead of the hardware line's
    """
    name, hardware = read_hardware(name)
    hardware = hardware.model_copy(update=machine)
    lines, counts, costs = forecast(plan, hardware)
    total, to_come = total_line(lines), bytes_to_come(plan, costs, hardware)
    warnings = disk_shortage(to_come) + memory_shortages(lines, hardware)
    done = "; of done stages disk and memory are those measured" if total.done else ""
    said = live_search(plan, counts, hardware)
    if plan.deleted_vectors:
        gone = sum(costs[name][0].bytes for name in plan.deleted_vectors) / GB
        most = (total.bytes - total.bytes_left + to_come) / GB
        text = f"{gone:.1f} GB of vectors go once they are read; at most about {most:.1f} GB are there at a time"
        said.append(f"keep_vectors: {text}")
    if total.measured:
        times = f"{total.estimated / total.measured:.2f} times"
        said.append(f"done stages took {total.measured:.0f} s, forecast {total.estimated:.0f} s: {times}")
    said += [*unknown(plan, counts, lines), *(f"warning: {text}" for text in warnings)]
    print(wrapped(heading(plan, counts, name, hardware)), render(lines), sep="\n\n", end="\n\n")
    print(f"time: of all jobs one after another{done}", wrapped(timing(plan, costs, hardware)), sep="\n\n")
    if said:
        print("", wrapped(said), sep="\n")
    return warnings


def wrapped(lines):
    """Lines of text for a terminal (str)."""
    filled = (textwrap.fill(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for line in lines)
    return "\n".join(filled)
