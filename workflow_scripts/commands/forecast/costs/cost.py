"""What a stage costs: bytes on disk, memory, and work, in units that a hardware line turns into seconds.

The work of a stage is {rate: amount}; `hardware.Hardware.seconds` makes a time of it. `bench/calibrate.py` turns the
same amounts and measured times into rates.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

BASE, TORCH_BASE = 0.15e9, 0.65e9  # memory of a process that has loaded numpy and pyarrow, and torch besides
ID_BYTES = 150  # a passage's text id in memory: as a Python string in a table of rows
PAIR_BYTES = 40  # a retrieved passage in memory: ids, scores and a sorted copy of the ids


@dataclass(frozen=True)
class Cost:
    """bytes: size of the artefacts; scratch: more bytes while it runs; memory: bytes at the peak.

    device_memory: bytes besides, on the GPU, or in memory too where there is none, unless they are a copy of what is
    there (`copied`); thread_memory: bytes besides for each thread, where there is no GPU.
    work: {rate of the hardware line: amount}; model: whether the job loads torch and a checkpoint;
    in_turn: whether candidates are scored while nothing else is computed, as in a training step.
    """

    bytes: float = 0.0
    scratch: float = 0.0
    memory: float = BASE
    device_memory: float = 0.0
    copied: bool = False
    thread_memory: float = 0.0
    work: Counter = field(default_factory=Counter)
    model: bool = False
    in_turn: bool = False

    def on_processor(self, threads):
        """The same without a GPU: all is in memory."""
        besides = threads * self.thread_memory + (0.0 if self.copied else self.device_memory)
        return replace(self, memory=self.memory + besides, device_memory=0.0)
