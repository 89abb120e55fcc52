"""How many passages a process searches for answers, for stages and for the forecast, which loads no pyarrow."""

ANSWER_PASSAGES = 50_000  # at least: starting a process takes as long as searching most of these
