"""Hardware lines: how much of each kind of work a machine does in a second."""

import glob
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from teleport.refusal import Refusal
from teleport.running.devices import DEVICE_FILES
from teleport.settings.section import Section
from teleport.settings.yaml_mapping import read_mapping

LINES = Path(__file__).parents[3] / "config" / "hardware.yaml"
MEASURED = Path("results/hardware.json")  # written by bench/calibrate.py on the machine at hand
THIS = "this-machine"
UNMEASURED = "unmeasured: nobody has measured the GPU here. `python bench/calibrate.py` does, in a minute"
SHARED = {"encode_flop", "train_flop", "search_flop"}  # what the GPUs of a job share
Rate = Annotated[float, Field(gt=0)]


class Hardware(Section):
    """One line. Rates are amounts a second, of work as the `costs.py` of each package counts it."""

    source: str = Field(description="Where each figure was measured, or that it is an estimate and of what.")
    encode_flop: Rate = Field(
        description="FLOP/s of encoding with a model as wide as BERT-base, of real tokens, so that padding lowers it."
    )
    train_flop: Rate = Field(description="FLOP/s of training steps, as `encode_flop`.")
    search_flop: Rate = Field(description="FLOP/s of inner products with selection of the best.")
    host_flop: Rate = Field(1.4e11, description="FLOP/s of float32 products on the processor, also beside a GPU.")
    texts: Rate = Field(description="Passages/s read from a file, checked and written.")
    tokens: Rate = Field(description="Tokens/s of the tokenizer.")
    rows: Rate = Field(description="Lines/s of a run that are scored and written.")
    answers: Rate = Field(4e4, description="Passages/s, each of one question, that are looked through for answers.")
    bm25_tokens: Rate = Field(description="Tokens/s that a process splits, stems and inverts for the index of BM25.")
    bm25_scores: Rate = Field(
        description="Passages times queries/s of BM25 (bench/bm25.py), though it adds only what has a term."
    )
    disk: Rate = Field(description="Bytes/s written and hashed.")
    read: Rate | None = Field(None, description="Bytes/s of vectors read, which are not hashed; null: as `disk`.")
    network: Rate = Field(12.5e6, description="Bytes/s of downloads; the default, 100 Mbit/s, is an assumption.")
    startup: float = Field(ge=0, description="Seconds per job: process, libraries, scheduler.")
    load: float = Field(ge=0, description="Seconds more per job that loads torch and a checkpoint.")
    cores: int | None = Field(None, ge=1, description="Cores, as after --cores; null: this machine's.")
    gpus: int = Field(1, ge=1, description="Jobs at once that ask for a GPU, as in profiles/; without GPUs too.")
    memory: Rate | None = Field(None, description="Bytes of memory; null: this machine's.")
    device_memory: Rate | None = Field(None, description="Bytes of GPU memory; null: there is no GPU.")

    @property
    def room(self):
        """Return what the jobs that run at once share: {"cores", "gpu", "memory": bytes}."""
        memory = self.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {"cores": self.cores or len(os.sched_getaffinity(0)), "gpu": self.gpus, "memory": memory}

    def seconds(self, cost, gpus=0):
        """Estimated seconds of a job with a `Cost` on `gpus` GPUs, or on the processor alone: the sum over its kinds of
        work."""
        rates = {
            rate: (getattr(self, rate) or self.disk) * (max(gpus, 1) if rate in SHARED else 1) for rate in cost.work
        }
        working = sum(amount / rates[rate] for rate, amount in cost.work.items())
        return self.startup + (self.load if cost.model else 0.0) + working + cost.bytes / self.disk


def is_unmeasured():
    """Whether there are GPUs here that nobody has measured, so that no line of hardware is this machine's."""
    return bool(glob.glob(DEVICE_FILES)) and not MEASURED.is_file()


def read_hardware(name=None):
    """(name, Hardware): the line `name`; without one, the measured line of this machine, or else the first line. Raises
    Refusal if there is no such line, or if without a name the GPU here is unmeasured."""
    if name is None and is_unmeasured():
        raise Refusal(UNMEASURED)
    entries = read_mapping(LINES)
    if MEASURED.is_file():
        entries = {THIS: read_mapping(MEASURED)} | entries
    name = name or next(iter(entries))
    if name not in entries:
        raise Refusal(
            f"there is no hardware line {name!r}: {LINES} has {', '.join(entries)}. Choose one of them, add one, or "
            "measure this machine with `python bench/calibrate.py`."
        )
    try:
        return name, Hardware.model_validate(entries[name])
    except ValidationError as error:
        mistake, place = error.errors()[0], MEASURED if name == THIS else LINES
        raise Refusal(
            f"{place}: hardware line {name!r}, {'.'.join(map(str, mistake['loc']))}: {mistake['msg']}. Correct it, or "
            "measure again with `python bench/calibrate.py`."
        ) from None
