"""Negatives from a file made elsewhere, with the origins and scores that the file gives."""

import json
from pathlib import Path

import numpy as np

from teleport.arrays import in_slots
from teleport.negatives.pool import NAMES
from teleport.negatives.retrieved import Retrieval, read_run


def open_source(job, name, known):
    """The `Retrieval` in the role `name`, a `FromFile` if its file has origins or scores."""
    run = read_run(job, name)
    if NAMES not in job.inputs[name].manifest["files"]:
        return Retrieval(run, known)
    paths = (job.input(name, f"{field}.npy") for field in ("sources", "first_episodes", "ranks"))
    names = json.loads(Path(job.input(name, NAMES)).read_text(encoding="utf-8"))
    given = job.facts(name)["scored"] > 0
    return FromFile(
        run, known, name, job.settings.episode, names, given, *(np.load(path, mmap_mode="r") for path in paths)
    )


class FromFile(Retrieval):
    """A `Retrieval` from a file whose negatives have origins. A missing origin becomes this source, `episode` and the
    place in the list. names: of the file's sources; given: whether it has scores"""

    def __init__(self, run, known, name, episode, names, given, sources, first_episodes, ranks):
        super().__init__(run, known)
        self.names = list(dict.fromkeys([*names, name]))
        self.own_bit, self.episode, self.given = 1 << self.names.index(name), episode, given
        self.origins = sources, first_episodes, ranks

    def block(self, first, last):
        block, lines_L, widths_Q = super().block(first, last), self.lines_of(first, last), self.widths_Q[first:last]
        sources_QS, first_episodes_QS, ranks_QS = (in_slots(widths_Q, origin[lines_L]) for origin in self.origins)
        places_QS = block.positions(np.arange(block.passages_QS.shape[1]))
        return block._replace(
            sources_QS=np.where(sources_QS == 0, np.uint16(self.own_bit), sources_QS),
            first_episodes_QS=np.where(first_episodes_QS == 0, np.uint8(self.episode), first_episodes_QS),
            ranks_QS=np.where(ranks_QS < 0, places_QS, ranks_QS),
            given_QS=in_slots(widths_Q, self.scores[lines_L], empty=np.nan) if self.given else None,
        )
