"""Lengths and room of trainings, for stages and for the forecast, which loads no torch."""

EPOCHS = 2  # of a cross-encoder, as in RocketQA's released code, if the settings give no length
ITERATIONS = 25  # of k-means: faiss's own number
STEP_RESERVE = 8e9  # bytes of a GPU that a live search leaves to the training
