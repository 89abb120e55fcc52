"""Constants of trainings that decide time and memory, for stages and for the forecast, which loads no torch."""

ITERATIONS = 25  # of k-means: faiss's own number
STEP_RESERVE = 8e9  # bytes of a GPU that a live search leaves to the training
