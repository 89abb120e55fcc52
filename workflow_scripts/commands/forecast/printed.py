"""The text of `teleport forecast`, and the warnings before the workflow starts if this machine is too small."""

import textwrap
from collections import Counter
from functools import lru_cache

from commands.edited import edited_sentence
from commands.forecast.counts import encoder_shape, of_kind, token_maps
from commands.forecast.forecast import Forecast, total
from commands.forecast.hardware import UNMEASURED, is_unmeasured, read_hardware
from commands.status import columns
from teleport.refusal import Refusal
from teleport.report.words import duration, number
from teleport.running.artefact import STAGES, is_finished
from teleport.running.devices import CACHING
from teleport.running.files import PRUNE, free_bytes

GB, WIDTH = 1e9, 100
REMEDIES = {"retrieve": "Vectors that do not fit are read from the disk again for every block of queries, slowly."}


def this_machine():
    """(name, Hardware) of the machine at hand; ("unmeasured", None) if nobody has measured its GPU."""
    return ("unmeasured", None) if is_unmeasured() else read_hardware()


def shortages(plan):
    """Return what is too small for a plan on this machine, before it runs here: one sentence each (list of str).

    [] if the size of the collection is not known yet; only on the disk if the GPU here is unmeasured; a sentence on
    this machine's measurement if it is not usable.
    """
    try:
        hardware = this_machine()[1]
    except Refusal as error:
        return [str(error)]
    try:
        return warnings_of(foreseen(plan, hardware))
    except Refusal:
        return []


@lru_cache(maxsize=1)
def foreseen(plan, hardware):
    """A `Forecast`, as of the start of this process: what a dry run warns of first and sums up last."""
    return Forecast(plan, hardware)


def cost_sentence(plan, hardware, names):
    """Return what making the stages `names` of a plan takes by the forecast on a line of hardware (by name; None: this
    machine's), and how many stages are finished already (text)."""
    names = names & plan.stages.keys()
    there = sum(is_finished(name) for name in plan.stages.keys() - names)  # stages not asked for may be unfinished
    again = f"finished already: {there} of {number(len(plan.stages), 'stage')}"
    try:
        name, line = read_hardware(hardware) if hardware else this_machine()
        stages = [foreseen(plan, line).stages[each] for each in names]
    except Refusal as error:
        return f"{again}; no forecast, because {error}"
    disk = f"{in_gb(total('bytes', stages))} GB of disk"
    if line is None:
        return f"forecast: {disk}; the time is {UNMEASURED}; {again}"
    time = duration(total("seconds", stages))
    return f"forecast: about {time} on {name}, one job after another, and {disk}; {again}"


def warnings_of(forecast):
    """Return what is too small for a `Forecast` on its hardware: one sentence each (list of str)."""
    return disk_shortage(forecast.bytes_to_come) + (memory_shortages(forecast) if forecast.hardware else [])


def disk_shortage(needed):
    """A sentence, in a list, if the disk of STAGES, where artefacts are written, has less than `needed` bytes."""
    if needed <= (free := free_bytes(STAGES)):
        return []
    return [
        f"disk: {needed / GB:.1f} GB are needed below {STAGES}, {free / GB:.1f} GB are free. Free some space "
        f"({PRUNE}), move `results`, or keep fewer vectors (`keep_vectors: none`, `encoder.vectors: fp16`)."
    ]


def memory_shortages(forecast):
    """Return what memory is too small for the stages that are still to do: one sentence each (list of str)."""
    sentences, hardware = [], forecast.hardware
    for what, has in (("memory", hardware.room["memory"]), ("device_memory", hardware.device_memory)):
        for kind, stages in forecast.by_kind.items():
            needed = total(what, [each for each in stages if not each.done])
            if has is not None and needed > has:
                sentences.append(
                    f"{what.replace('_', ' ')}: {kind} needs about {needed / GB:.1f} GB, there are {has / GB:.1f} GB. "
                    f"{remedy(forecast, kind, what)}"
                )
    return sentences


def remedy(forecast, kind, what):
    """What helps the stage of a kind that needs most memory (`what`) of those that are still to do, as text."""
    if kind != "train":
        return REMEDIES.get(kind, "Use a larger machine.")
    to_do = {name: each for name, each in forecast.stages.items() if each.kind == kind and not each.done}
    settings = forecast.plan.stages[max(to_do, key=lambda name: getattr(to_do[name], what))].settings
    training = settings.training
    if not training.gradient_caching:
        return f"{CACHING} A lower training.batch_queries or training.negatives_per_query changes the result."
    ways = {"training.gradient_checkpointing": training.gradient_checkpointing, "encoder.lora": settings.lora}
    ways |= {"training.precision: bf16": training.precision != "fp32"}
    unset = [name for name, given in ways.items() if not given]
    return f"training.gradient_caching is set: use {' or '.join([*unset, 'a device with more memory'])}."


def heading(forecast, name):
    """Return what the figures rest on (list of str): collection, tokens, encoder, hardware."""
    plan, counts = forecast.plan, forecast.counts
    text = [f"{name}: {sizes_text(each)}" for name, each in {"collection": counts, **forecast.others}.items()]
    if tokens := token_maps(plan):
        limit = (plan.encoder.chunks if plan.encoder else 1) * counts.limit("passage")
        mean = counts.tokens_per_text(tokens[0], "passages", limit)
        text.append(f"tokens: {mean:.1f} a passage, cut at {limit}")
    shapes = [encoder_shape(stage) for stage in of_kind(plan, "pretrained")]
    text += dict.fromkeys(
        f"encoder: {shape.parameters / 1e6:.1f} M parameters (from {source})" for shape, source in shapes
    )
    source = forecast.hardware.source.strip() if forecast.hardware else UNMEASURED.partition(": ")[2]
    return [*text, f"hardware: {name} ({source})"]


def sizes_text(counts):
    """The sizes of a collection by its `Counts`, and where they are from."""
    queries = ", ".join(f"{count:,} {split}" for split, count in counts.queries.items())
    return f"{counts.passages:,} passages; queries: {queries} (from {counts.source})"


def render(forecast):
    """A line per kind as text, and one of all; sizes in GB (1e9 bytes), times as if one job ran after another."""
    head = ("stage", "count", "done", "disk GB", "memory GB", "GPU GB", "time", "left", "done took")
    kinds = forecast.by_kind | {"total": [*forecast.stages.values()]}
    text = columns([head, *(cells(kind, stages) for kind, stages in kinds.items())], str.rjust)
    rule = "-" * max(map(len, text))
    return "\n".join([text[0], rule, *text[1:-1], rule, text[-1]])


def cells(kind, stages):
    """The stages of a kind as text cells, in the order of the heads of `render`."""
    left = [each for each in stages if not each.done]
    memory = [in_gb(size) if (size := total(what, stages)) else "" for what in ("memory", "device_memory")]
    took = duration(total("took", stages)) if len(left) < len(stages) else ""
    times = [duration(total("seconds", each)) for each in (stages, left)]
    return (kind, str(len(stages)), str(len(stages) - len(left)), in_gb(total("bytes", stages)), *memory, *times, took)


def in_gb(size):
    """Bytes as text in GB (1e9 bytes), without the unit."""
    return f"{size / GB:.3f}" if size < GB else f"{size / GB:.1f}"


def timing(forecast):
    """The wall clock and the critical path, as lines of text; [] if nothing is left, or no time is known."""
    if not forecast.left or forecast.hardware is None:
        return []
    room, (longest, path) = forecast.hardware.room, forecast.critical_path
    seconds = Counter()
    for name in path:
        seconds[name.split("/")[0]] += forecast.stages[name].seconds if name in forecast.left else 0.0
    gpus = f", {room['gpu']} GPU{'s' * (room['gpu'] > 1)}" if forecast.hardware.device_memory else ""
    parts = ", ".join(f"{kind} {duration(spent)}" for kind, spent in seconds.most_common() if spent)
    return [
        f"wall clock: {duration(forecast.wall_seconds)} on {room['cores']} cores{gpus}, {room['memory'] / GB:.0f} GB",
        f"critical path: {duration(longest)}, the shortest possible with any number of cores and GPUs: {parts}",
    ]


def print_forecast(plan, name=None, gpus=None, shards=None, machine=None):
    """Print the forecast of a plan on the hardware called `name`, or this machine.

    gpus, shards: as `Forecast` takes them; machine: {cores, gpus, memory in bytes}, each instead of the hardware line's
    """
    name, hardware = read_hardware(name) if name else this_machine()
    hardware = hardware and hardware.model_copy(update=machine or {})
    most = max((gpus or {}).values(), default=1)
    if hardware and hardware.device_memory and most > hardware.gpus:
        raise Refusal(f"--set-resources requests {most} GPUs, but {name} has {hardware.gpus}. Add --gpus {most}.")
    forecast = Forecast(plan, hardware, gpus, shards)
    notes = []
    if plan.deleted_vectors:
        gone = sum(forecast.stages[name].cost.bytes for name in plan.deleted_vectors) / GB
        most = f"the disk needs at most about {forecast.bytes_to_come / GB:.1f} GB more at a time"
        notes.append(f"keep_vectors: {gone:.1f} GB of vectors are deleted once they are read; {most}")
    notes += dict.fromkeys(f"not included: {each.cost.lacks}" for each in forecast.left.values() if each.cost.lacks)
    notes += [*edited_sentence(plan), *(f"warning: {text}" for text in warnings_of(forecast))]
    print(wrapped(heading(forecast, name)), render(forecast), wrapped(timing(forecast) + notes), sep="\n\n")


def wrapped(lines):
    """Lines of text, folded for a terminal (str)."""
    filled = (textwrap.fill(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for line in lines)
    return "\n".join(filled)
