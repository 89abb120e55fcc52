"""What `make forecast` prints."""

import textwrap

from commands.forecast.costs.collection import missing_files
from commands.forecast.costs.stages import stage_cost
from commands.forecast.costs.training import live_cost, train_steps
from commands.forecast.counts import encoder_shape, finished
from commands.forecast.hardware import read_hardware
from commands.forecast.shortages import disk_shortage, memory_shortages
from commands.forecast.table import GB, duration, forecast, render, total_line
from commands.forecast.timeline import bytes_to_come, timing

WIDTH = 100


def heading(plan, counts, name, hardware):
    """What the figures rest on (list of str): collection, tokens, encoder, hardware."""
    queries = ", ".join(f"{num:,} {split}" for split, num in counts.queries.items())
    text = [f"collection: {counts.passages:,} passages; queries: {queries} (from {counts.source})"]
    tokens = next((stage for stage in plan.stages.values() if stage.kind == "tokens"), None)
    if tokens is not None:
        limit = plan.encoder.chunks * plan.encoder.max_passage_tokens
        mean = counts.tokens_per_text(tokens, "passages", limit)
        text.append(f"tokens: {mean:.1f} a passage, cut at {limit}")
    shapes = [encoder_shape(stage) for stage in plan.stages.values() if stage.kind == "pretrained"]
    text += dict.fromkeys(
        f"encoder: {shape.parameters / 1e6:.1f} M parameters (from {source})" for shape, source in shapes
    )
    return [*text, f"hardware: {name} ({hardware.source.strip()})"]


def live_search(plan, counts, hardware):
    """A sentence on what searching at every step costs, for each train stage that does so (list of str)."""
    found = []
    for stage in plan.stages.values():
        if stage.kind == "train" and stage.settings.live:
            first, last = train_steps(stage, counts.queries.get("train", 0))
            costs = live_cost(stage, counts), stage_cost(stage, counts, plan)
            live, whole = map(hardware.seconds, costs)
            each = f"{1e3 * live / (last - first):.1f} ms a step"
            found.append(f"{stage.name}: live search takes {duration(live)} of {duration(whole)}, {each}")
    return found


def released(plan, costs, most):
    """A sentence on the vectors that do not stay (keep_vectors), in a list; [] where all do. most: bytes at a time"""
    if not plan.released:
        return []
    gone = f"{sum(costs[name][0].bytes for name in plan.released) / GB:.1f} GB of vectors go when they have been read"
    return [f"keep_vectors: {gone}; at most about {most / GB:.1f} GB are there at a time"]


def unknown(plan, counts, lines):
    """A sentence on each thing that is in no figure (list of str)."""
    kinds = [line.kind for line in lines if not line.has_estimate]
    found = [f"in no sum, because there is no estimate: {', '.join(kinds)}"] if kinds else []
    downloads = [stage for stage in plan.stages.values() if stage.kind == "download" and not counts.download_bytes]
    for stage in downloads:
        if unsized := [name for name in missing_files(stage) if not stage.settings.files[name].bytes]:
            found.append(f"in no sum, because their sizes are unknown: {', '.join(unsized)} (counts.download_bytes)")
    if any(stage.kind == "index" and stage.settings.index.kind != "flat" for stage in plan.stages.values()):
        found.append("in no sum: training the indexes that are not flat, and adding the passages")
    if plan.config.collection.source == "ir_datasets" and finished(plan.collection) is None:
        found.append("in no sum: what ir_datasets downloads")
    return found


def against_measured(total):
    """A sentence on what the done stages really took, in a list; [] where none is done."""
    if not total.measured:
        return []
    times = f"{total.estimated / total.measured:.2f} times"
    return [f"done stages took {total.measured:.0f} s, forecast {total.estimated:.0f} s: {times}"]


def print_forecast(plan, name=None, **machine):
    """Print the forecast of a plan on the hardware called `name`, or this machine; returns its warnings (list).

    machine: cores, gpus, memory (bytes), each instead of the hardware line's
    """
    name, hardware = read_hardware(name)
    hardware = hardware.model_copy(update=machine)
    lines, counts, costs = forecast(plan, hardware)
    total, to_come = total_line(lines), bytes_to_come(plan, costs, hardware)
    found = disk_shortage(to_come) + memory_shortages(lines, hardware)
    meaning = "time: of all jobs one after another" + (
        "; of done stages disk and memory are those measured" if total.done else ""
    )
    said = [*live_search(plan, counts, hardware), *released(plan, costs, total.bytes - total.bytes_left + to_come)]
    said += [*against_measured(total), *unknown(plan, counts, lines), *(f"warning: {text}" for text in found)]
    print(wrapped(heading(plan, counts, name, hardware)), render(lines), meaning, sep="\n\n", end="\n\n")
    print(wrapped(timing(plan, costs, hardware)))
    if said:
        print("", wrapped(said), sep="\n")
    return found


def wrapped(lines):
    """Lines of text for a terminal (str)."""
    parts = (textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for line in lines)
    return "\n".join(part for line in parts for part in line)
