"""How much `analyses.errors` compares at once, for the stage and for the forecast, which loads no torch."""

ERROR_PAIRS = 8192  # (query, positive); each block of them reads the passages once, and a killed run loses a block
ERROR_ROWS = 16384  # passage vectors: products of 0.5 GB with ERROR_PAIRS queries
