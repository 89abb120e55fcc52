"""What `teleport forecast` prints, and what the workflow says before it starts where this machine is too small."""

import glob
import shutil
import textwrap
from collections import Counter
from functools import lru_cache
from itertools import groupby

from commands.edited import edited_said
from commands.forecast.costs.training import live, train_steps
from commands.forecast.counts import encoder_shape, of_kind
from commands.forecast.forecast import Forecast, total
from commands.forecast.hardware import MEASURED, read_hardware
from commands.forecast.schedule import critical_path, together
from commands.status import columns, duration
from teleport.refusal import Refusal
from teleport.running.artefact import STAGES, is_finished
from teleport.running.devices import DEVICE_FILES, LARGER
from teleport.running.files import PRUNE

GB, WIDTH = 1e9, 100
WORTH_SAYING = 0.003  # of the wall clock: what runs together for less is left out
REMEDIES = {
    "retrieve": "Vectors that do not fit are read from the disk again for every block of queries, slowly.",
    "train": f"{LARGER['train']} A lower training.batch_queries or training.negatives_per_query changes the result.",
}


def shortages(plan):
    """What is too small for a plan on this machine, before it runs here: one sentence each (list of str).

    None where the size of the collection is not known yet; of the disk alone where there are GPUs that nobody has
    measured; a sentence on a measurement of this machine that is not usable.
    """
    try:
        hardware = read_hardware()[1]
    except Refusal as error:
        return [str(error)]
    try:
        forecast = foreseen(plan, hardware)
    except Refusal:
        return []
    return disk_shortage(forecast.bytes_to_come) if has_unmeasured_gpus() else warnings_of(forecast)


@lru_cache(maxsize=1)
def foreseen(plan, hardware):
    """A `Forecast`, as of the start of this process: what a dry run warns of first and sums up last."""
    return Forecast(plan, hardware)


def has_unmeasured_gpus():
    """Whether there are GPUs whose rates nobody has measured (bench/calibrate.py), so that no forecast is of them."""
    return bool(glob.glob(DEVICE_FILES)) and not MEASURED.is_file()


def cost_sentence(plan, hardware, names):
    """What making the stages `names` of a plan takes by the forecast on a line of hardware (by name; None: this
    machine's), and how many are used again (text)."""
    names = names & plan.stages.keys()
    there = sum(is_finished(name) for name in plan.stages.keys() - names)  # of what was not asked for nothing may be
    again = f"{there} of {len(plan.stages)} stages are there already"
    try:
        name, line = read_hardware(hardware)
        stages = foreseen(plan, line).stages
    except Refusal as error:
        return f"{again}; no forecast, because {error}"
    time, size = (sum(getattr(stages[stage], what) for stage in names) for what in ("seconds", "bytes"))
    took = f"about {duration(time)} on {name}, one job after another, and {in_gb(size)} GB of disk"
    return f"by the forecast {took}; {again}"


def warnings_of(forecast):
    """What is too small for a `Forecast` on its hardware: one sentence each (list of str)."""
    return disk_shortage(forecast.bytes_to_come) + memory_shortages(forecast)


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


def memory_shortages(forecast):
    """What is too small for the stages that are still to do: one sentence each (list of str)."""
    sentences, hardware = [], forecast.hardware
    for what, has in (("memory", hardware.room["memory"]), ("device_memory", hardware.device_memory)):
        for line in forecast.lines[:-1]:
            needed = total(what, line.left)
            if has is not None and needed > has:
                sentences.append(
                    f"{what.replace('_', ' ')}: {line.kind} needs about {needed / GB:.1f} GB, there are "
                    f"{has / GB:.1f} GB. {REMEDIES.get(line.kind, 'Use a larger machine.')}"
                )
    return sentences


def heading(forecast, name):
    """What the figures rest on (list of str): collection, tokens, encoder, hardware."""
    plan, counts = forecast.plan, forecast.counts
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
    return [*text, f"hardware: {name} ({forecast.hardware.source.strip()})"]


def render(forecast):
    """A line per kind as text; sizes in GB (1e9 bytes), times as if one job ran after another."""
    head = ("stage", "count", "done", "disk GB", "memory GB", "GPU GB", "time", "left", "done took", "forecast")
    shown = len(head) if forecast.lines[-1].done else 7  # of what is done and what is left there is nothing to say yet
    text = columns([row[:shown] for row in (head, *map(cells, forecast.lines))], str.rjust)
    rule = "-" * max(map(len, text))
    return "\n".join([text[0], rule, *text[1:-1], rule, text[-1]])


def cells(line):
    """A `Line` as text cells, in the order of the heads of `render`."""
    memory = [in_gb(size) if (size := total(what, line.stages)) else "" for what in ("memory", "device_memory")]
    times = [duration(total("seconds", stages)) for stages in (line.stages, line.left)]
    compared = [duration(total("took", line.stages)), duration(line.forecast_of_done)] if line.done else ["", ""]
    counted = (line.kind, str(len(line.stages)), str(line.done))
    return (*counted, in_gb(total("bytes", line.stages)), *memory, *times, *compared)


def in_gb(size):
    """Bytes as text in GB (1e9 bytes), without the unit."""
    return f"{size / GB:.3f}" if size < GB else f"{size / GB:.1f}"


def timing(forecast):
    """The wall clock, the critical path and what runs together, as lines of text; [] where nothing is left."""
    jobs, room, whole = forecast.jobs, forecast.hardware.room, forecast.wall_seconds
    if not jobs:
        return []
    path = critical_path(jobs)
    longest = sum(jobs[name].seconds for name in path)
    machine, shared = [], {"cores": "cores"}
    if forecast.hardware.device_memory:
        shared["gpu"] = "GPUs" if room["gpu"] > 1 else "GPU"
    for what, name in shared.items():
        taken = sum(job.seconds * min(job.needs[what], room[what]) for job in jobs.values())
        machine.append(f"{room[what]} {name} ({100 * taken / (whole * room[what]) if whole else 0:.0f} % in use)")
    return [
        f"wall clock: {duration(whole)} on {', '.join(machine)}, {room['memory'] / GB:.0f} GB of memory",
        f"critical path: {duration(longest)}, the least however many cores and GPUs there are",
        *path_lines(forecast.plan, jobs, path),
        *overlap_lines(jobs, forecast.times, WORTH_SAYING * whole),
    ]


def path_lines(plan, jobs, path):
    """The stages of a path by kind: a line for those of an experiment, one for those that several share."""

    def user(name):
        users = plan.users["/".join(name.split("/")[:2])]  # of a shard those of its stage
        return users[0] if len(users) == 1 else "shared"

    text = []
    for who, names in groupby(path, user):
        number, seconds = Counter(), Counter()
        for name in names:
            number[jobs[name].kind] += 1
            seconds[jobs[name].kind] += jobs[name].seconds
        parts = [f"{f'{n} ' if n > 1 else ''}{kind} {duration(seconds[kind])}" for kind, n in number.items()]
        text.append(f"  {who}: {', '.join(parts)}")
    return text


def overlap_lines(jobs, times, least):
    """Which kinds run at the same time for at least so many seconds, each pair with the kind that takes longer."""
    lasts, beside = Counter(), {}
    for job in jobs.values():
        lasts[job.kind] += job.seconds
    for pair, seconds in together(jobs, times).most_common():
        if seconds >= least:
            other, kind = sorted(pair, key=lasts.__getitem__)
            beside.setdefault(kind, []).append(f"{'another' if kind == other else other} {duration(seconds)}")
    text = ["at the same time:" if beside else "at the same time: hardly anything"]
    order = sorted(beside, key=lasts.__getitem__, reverse=True)
    return [*text, *(f"  {kind} beside {', '.join(beside[kind])}" for kind in order)]


def live_search(forecast):
    """A sentence on what searching at every step costs, for each train stage that does so (list of str)."""
    sentences, counts, hardware = [], forecast.counts, forecast.hardware
    for stage in of_kind(forecast.plan, "train"):
        if stage.settings.live:
            first, last = train_steps(stage, counts.queries["train"])
            place, whole = forecast.place(stage), forecast.stages[stage.name].seconds
            searching = hardware.seconds(live(stage, counts, place), place.gpus)
            each = f"{1e3 * searching / (last - first):.1f} of {1e3 * whole / (last - first):.1f} ms a step"
            sentences.append(f"{stage.name}: live search takes {duration(searching)} of {duration(whole)}, {each}")
    return sentences


def print_forecast(plan, name=None, gpus=None, shards=1, machine=None):
    """Print the forecast of a plan on the hardware called `name`, or this machine.

    gpus, shards: as `Forecast` takes them; machine: {cores, gpus, memory in bytes}, each instead of the hardware line's
    """
    name, hardware = read_hardware(name)
    forecast = Forecast(plan, hardware.model_copy(update=machine or {}), gpus, shards)
    whole, said = forecast.lines[-1], live_search(forecast)
    if plan.deleted_vectors:
        gone = sum(forecast.stages[name].cost.bytes for name in plan.deleted_vectors) / GB
        there = total("bytes", whole.stages) - total("bytes", whole.left)
        most = (there + forecast.bytes_to_come) / GB
        text = f"{gone:.1f} GB of vectors go once they are read; at most about {most:.1f} GB are there at a time"
        said.append(f"keep_vectors: {text}")
    if took := total("took", whole.stages):
        expected = whole.forecast_of_done
        said.append(f"done stages took {took:.0f} s, forecast {expected:.0f} s: {expected / took:.2f} times")
    said += dict.fromkeys(f"in no sum: {each.cost.lacks}" for each in whole.left if each.cost.lacks)
    said += edited_said(plan)
    said += [f"warning: {text}" for text in warnings_of(forecast)]
    done = "; of done stages disk and memory are those measured" if whole.done else ""
    print(wrapped(heading(forecast, name)), render(forecast), sep="\n\n", end="\n\n")
    print(f"time: of all jobs one after another{done}", wrapped(timing(forecast)), sep="\n\n")
    if said:
        print("", wrapped(said), sep="\n")


def wrapped(lines):
    """Lines of text, folded for a terminal (str)."""
    filled = (textwrap.fill(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for line in lines)
    return "\n".join(filled)
