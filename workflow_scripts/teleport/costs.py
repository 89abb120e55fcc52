"""The cost of a stage, as the `costs.py` of each package computes it: sizes in bytes, and work by the rate that times
it."""

from dataclasses import dataclass, field, replace

BASE, TORCH_BASE = 0.15e9, 0.65e9  # memory of a process that has loaded numpy and pyarrow, and torch besides
ID_BYTES = 150  # a passage's text id in memory: as a Python string in a table of rows
NEIGHBOUR_BYTES = 8  # an id and a score
SIZES = ("bytes", "memory", "mapped", "device_memory")  # of a Cost
PAIR_BYTES = 40  # a retrieved passage in memory: ids, scores and a sorted copy of the ids


@dataclass(frozen=True)
class Place:
    """The devices on which a job computes. gpus: how many it has; with 0 the CPU does all, in main memory"""

    threads: int = 1
    gpus: int = 1


@dataclass(frozen=True)
class Cost:
    """The cost of a job; sizes in bytes. commands/forecast/hardware.py turns its work into a time on a machine."""

    bytes: float = 0.0  # of the artefact
    memory: float = BASE  # at the peak, of what must stay resident
    mapped: float = 0.0  # also, of files read or written once: in memory until the system reclaims it
    device_memory: float = 0.0  # on each of its GPUs
    work: dict = field(default_factory=dict)  # {rate of a hardware line: amount}
    model: bool = False  # whether the job loads torch and a checkpoint
    lacks: str = ""  # what is not counted

    def __add__(self, other):
        """The cost of a job that does both; the memory of `other` must not count a process again."""
        sizes = {name: getattr(self, name) + getattr(other, name) for name in SIZES}
        work = {rate: self.work.get(rate, 0) + other.work.get(rate, 0) for rate in self.work | other.work}
        return replace(self, **sizes, work=work)


def run_bytes(lines, depth):
    """Bytes of a run of `lines` lists of `depth` passages."""
    return lines * (depth * NEIGHBOUR_BYTES + 4)


def vector_bytes(texts, dim, bytes_per_number=4):
    """Bytes of vectors on disk or in memory; fp32 by default."""
    return texts * dim * bytes_per_number


def search_flop(lines, passages, dim):
    """Inner products of `lines` vectors with those of all passages; a multiplication and an addition are two."""
    return 2 * lines * passages * dim
