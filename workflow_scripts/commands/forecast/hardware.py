"""Hardware lines: how much of each kind of work a machine does in a second."""

import os
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError

from teleport.refusal import Refusal
from teleport.settings.section import Section

LINES = Path(__file__).parents[3] / "config" / "hardware.yaml"
MEASURED = Path("results/hardware.json")  # written by bench/calibrate.py on the machine at hand
THIS = "this-machine"
# Beside a GPU the processor scores the candidates of one block of queries while the GPU multiplies the next; without
# one both are work of the same cores.
AT_ONCE = ("search_flop", "rescored")

Rate = Annotated[float, Field(gt=0)]


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
    bm25_tokens: Rate = Field(description="Tokens/s that the index of BM25 splits, stems and inverts.")
    bm25_scores: Rate = Field(description="Passages times queries/s of BM25, though it adds only what has a term.")
    run_rows: Rate = Field(description="Lines/s of a run that are scored and written.")
    disk: Rate = Field(description="Bytes/s written and hashed.")
    startup: float = Field(ge=0, description="Seconds per job: process, libraries, scheduler.")
    load: float = Field(ge=0, description="Seconds more per job that loads torch and a checkpoint.")
    answers: Rate = Field(4e4, description="Passages/s, each of one question, that are looked through for answers.")
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

    def seconds(self, cost):
        """Estimated seconds of a job of a `costs.Cost`: all work one after another, but what a GPU does `AT_ONCE`."""
        taken = {rate: amount / getattr(self, rate) for rate, amount in cost.work.items()}
        at_once = self.device_memory is not None and not cost.in_turn
        hidden = min(taken.get(rate, 0.0) for rate in AT_ONCE) if at_once else 0.0
        working = sum(taken.values()) - hidden
        return self.startup + (self.load if cost.model else 0.0) + working + cost.bytes / self.disk


def read_hardware(name=None, measured=MEASURED, lines=LINES):
    """(name, Hardware): the line `name`; without one, the measured line of this machine, or else the first line.

    Raises Refusal when there is no such line or one is not complete.
    """
    entries = yaml.safe_load(Path(lines).read_text(encoding="utf-8"))
    if Path(measured).is_file():
        entries = {THIS: yaml.safe_load(Path(measured).read_text(encoding="utf-8"))} | entries
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
