"""How much is searched at once, for stages and for the forecast, which loads no torch."""

QUERIES = {"cpu": 512, "cuda": 16384}  # of an exact search, together at most
BLOCK_ROWS = 4096  # queries of a call of a search on a CPU; a killed run loses one
ROOM, LEAST_ROOM = 4, 1024  # passages that a query keeps at most: ROOM * depth + LEAST_ROOM
LEAST_QUERIES = 2000  # of BM25 for each process, which takes a second to start
TRAIN_PER_LIST = 256  # vectors that the k-means of an index reads per centroid, also faiss's maximum
# Of `analyses.errors`: (query, positive) at a time; each block reads the passages once, and a killed run loses a block.
ERROR_PAIRS = 8192
ERROR_ROWS = 16384  # passage vectors at a time: products of 0.5 GB with ERROR_PAIRS queries
