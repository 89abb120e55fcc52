"""What a job costs, where it computes, and hardware lines: how much of each kind of work a machine does in a second."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from teleport.refusal import Refusal
from teleport.settings.section import Section
from teleport.settings.yaml_mapping import read_mapping

LINES = Path(__file__).parents[3] / "config" / "hardware.yaml"
MEASURED = Path("results/hardware.json")  # written by bench/calibrate.py on the machine at hand
THIS = "this-machine"
SHARED = {"encode_flop", "train_flop", "search_flop"}  # what the GPUs of a job share

BASE, TORCH_BASE = 0.15e9, 0.65e9  # memory of a process that has loaded numpy and pyarrow, and torch besides
Rate = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class Place:
    """Where a job computes. gpus: how many it has; with 0 all is done by the processor, in memory."""

    threads: int = 1
    gpus: int = 1


@dataclass(frozen=True)
class Cost:
    """What a job costs; sizes in bytes. `Hardware.seconds` makes a time of its work."""

    bytes: float = 0.0  # of the artefacts
    scratch: float = 0.0  # more while it runs
    memory: float = BASE  # at the peak, of what has to stay
    mapped: float = 0.0  # besides, of files that are read or written once: in memory until the system wants it back
    device_memory: float = 0.0  # besides, on each of its GPUs
    work: dict = field(default_factory=dict)  # {rate of the hardware line: amount}
    at_once: tuple = ()  # pairs of kinds of work, of which a GPU does one while the processor does the other
    model: bool = False  # whether the job loads torch and a checkpoint
    lacks: str = ""  # what is not counted

    @property
    def resident(self):
        """What the system counts as the memory of the process: `peak_memory_bytes` of a manifest, Slurm's MaxRSS."""
        return self.memory + self.mapped


class Hardware(Section):
    """One line. Rates are amounts a second, of work as `commands.forecast.costs` counts it."""

    source: str = Field(description="Where each figure was measured, or that it is an estimate and of what.")
    encode_flop: Rate = Field(description="FLOP/s of encoding, of real tokens, so that padding lowers it.")
    train_flop: Rate = Field(description="FLOP/s of training steps, of real tokens, optimiser included.")
    search_flop: Rate = Field(description="FLOP/s of inner products with selection of the best.")
    rescored: Rate = Field(description="Numbers/s of candidates' vectors that are scored again in float64.")
    merge_rows: Rate = Field(description="Candidates/s that are drawn from and joined.")
    texts: Rate = Field(description="Passages/s read from a file, checked and written.")
    tokens: Rate = Field(description="Tokens/s of the tokenizer.")
    bm25_tokens: Rate = Field(description="Tokens/s that a process splits, stems and inverts for the index of BM25.")
    bm25_scores: Rate = Field(description="Passages times queries/s of BM25, though it adds only what has a term.")
    run_rows: Rate = Field(description="Lines/s of a run that are scored and written.")
    disk: Rate = Field(description="Bytes/s written and hashed.")
    read: Rate | None = Field(None, description="Bytes/s of vectors read, which are not hashed then; null: as `disk`.")
    startup: float = Field(ge=0, description="Seconds per job: process, libraries, scheduler.")
    load: float = Field(ge=0, description="Seconds more per job that loads torch and a checkpoint.")
    answers: Rate = Field(4e4, description="Passages/s, each of one question, that are looked through for answers.")
    host_flop: Rate = Field(1.4e11, description="FLOP/s of float32 products on the processor, also beside a GPU.")
    looked: Rate = Field(3e4, description="Blocks of a query's products/s in which `errors` looks for higher scores.")
    sorted: Rate = Field(2e6, description="Candidates/s that a search on the processor keeps and sorts.")
    launches: Rate = Field(1e5, description="Operations/s that torch hands out in a training step.")
    listed: Rate = Field(8e6, description="Places/s of ranked lists that live search labels and measures.")
    exchanged: Rate = Field(1e11, description="Bytes/s between the GPUs of a training; an assumption.")
    network: Rate = Field(12.5e6, description="Bytes/s of downloads; the default, 100 Mbit/s, is an assumption.")
    cores: int | None = Field(None, ge=1, description="Cores, as after --cores; null: this machine's.")
    gpus: int = Field(1, ge=1, description="Jobs at once that ask for a GPU, as in profiles/; without GPUs too.")
    memory: Rate | None = Field(None, description="Bytes of memory; null: this machine's.")
    device_memory: Rate | None = Field(None, description="Bytes of GPU memory; null: there is no GPU.")

    @property
    def room(self):
        """What the jobs that run at once share: {"cores", "gpu", "memory": bytes}."""
        memory = self.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {"cores": self.cores or len(os.sched_getaffinity(0)), "gpu": self.gpus, "memory": memory}

    def seconds(self, cost, gpus=0):
        """Estimated seconds of a job of a `Cost` on so many GPUs, or on the processor alone: all work one after
        another, but what GPU and processor do at once."""
        taken = {
            rate: amount / (getattr(self, rate) or self.disk) / (max(gpus, 1) if rate in SHARED else 1)
            for rate, amount in cost.work.items()
        }
        hidden = sum(min(taken.get(rate, 0.0) for rate in pair) for pair in cost.at_once) if gpus else 0.0
        working = sum(taken.values()) - hidden
        return self.startup + (self.load if cost.model else 0.0) + working + cost.bytes / self.disk


def read_hardware(name=None, measured=MEASURED, lines=LINES):
    """(name, Hardware): the line `name`; without one, the measured line of this machine, or else the first line."""
    entries = read_mapping(lines)
    if Path(measured).is_file():
        entries = {THIS: read_mapping(measured)} | entries
    name = name or next(iter(entries))
    if name not in entries:
        raise Refusal(
            f"there is no hardware line {name!r}: {lines} has {', '.join(entries)}. Choose one of them, add one, or "
            "measure this machine with `python bench/calibrate.py`."
        )
    try:
        return name, Hardware.model_validate(entries[name])
    except ValidationError as error:
        mistake, place = error.errors()[0], measured if name == THIS else lines
        raise Refusal(
            f"{place}: hardware line {name!r}, {'.'.join(map(str, mistake['loc']))}: {mistake['msg']}. Correct it, or "
            "measure again with `python bench/calibrate.py`."
        ) from None
