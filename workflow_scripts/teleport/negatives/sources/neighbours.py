"""Negatives from the neighbours of the query by several miners: a list of each, in the roles `neighbours.MINER`."""

import numpy as np
from pydantic import Field

from teleport.negatives.candidates import CandidateBlock
from teleport.negatives.retrieved import Retrieval, read_run
from teleport.settings.section import Judge, Section, Unique


class Settings(Section):
    """The neighbours of the query by other checkpoints."""

    by: Unique[Judge] = Field(
        min_length=1,
        description="Whose neighbours: miner (the checkpoint that mines) or names in `teachers`. A passage that "
        "several find is a candidate several times.",
    )


def open_source(job, name, known):
    """The `United` lists of all miners."""
    miners = job.settings.sources[name].by
    return United([Retrieval(read_run(job, f"{name}.{whose}"), known) for whose in miners])


class United:
    """Retrievals of equal depth with a line for each query, laid end to end. They have no scores: those of one
    checkpoint cannot be compared with those of another. lists: of `Retrieval`"""

    def __init__(self, lists):
        self.lists = lists
        self.widths_Q = sum(each.widths_Q for each in lists)

    def block(self, first, last):
        every = [each.block(first, last) for each in self.lists]
        passages_QS, there_QS = (np.hstack([each[place] for each in every]) for place in range(2))
        return CandidateBlock(passages_QS, there_QS, every[0].depth)
