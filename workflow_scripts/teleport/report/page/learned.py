"""What queries gain and lose from checkpoint to checkpoint. Lines are checkpoints, columns queries."""

import numpy as np

STATES = ("kept", "learned", "swung back", "forgotten", "missed")


def forgetting_rates(values_CQ):
    """Per step from one checkpoint to the next, the share of queries whose score drops (Figure 4, Table 9): list."""
    return [float(np.mean(after < before)) for before, after in zip(values_CQ, values_CQ[1:], strict=False)]


def states(found_CQ):
    """Per step, what becomes of each query: indices into STATES, int [C - 1, Q].

    found_CQ: bool, whether the checkpoint finds the query's positive. kept: found before and after the step; forgotten:
    found before only; learned: found after it, never earlier; swung back: found after, not just before, but earlier.
    """
    lines = np.full((len(found_CQ) - 1, found_CQ.shape[1]), STATES.index("missed"))
    for step in range(len(lines)):
        before, after, ever = found_CQ[step], found_CQ[step + 1], found_CQ[:step].any(axis=0)
        lines[step][before & after] = STATES.index("kept")
        lines[step][before & ~after] = STATES.index("forgotten")
        lines[step][~before & after] = STATES.index("learned")
        lines[step][~before & after & ever] = STATES.index("swung back")
    return lines


def count_states(found_CQ):
    """[{state: number of queries}], one per step."""
    counts = [np.bincount(line, minlength=len(STATES)).tolist() for line in states(found_CQ)]
    return [dict(zip(STATES, line, strict=True)) for line in counts]


def swing_sizes(values_CQ):
    """How far each query went and came back: the way that its score went, less the distance that it got (float [Q])."""
    way = np.abs(np.diff(values_CQ, axis=0)).sum(axis=0)
    return way - np.abs(values_CQ[-1] - values_CQ[0])
