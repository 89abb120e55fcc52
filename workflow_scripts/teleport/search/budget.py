"""How much is searched at once, for stages and for the forecast, which loads no torch."""

QUERIES = {"cpu": 512, "cuda": 16384}  # of an exact search, together at most
BLOCK_ROWS = 4096  # queries of a call of a search on a CPU; a killed run loses one
ROOM, LEAST_ROOM = 4, 1024  # passages that a query keeps at most: ROOM * depth + LEAST_ROOM
LEAST_QUERIES = 2000  # of BM25 for each process, which takes a second to start
TRAIN_PER_LIST = 256  # vectors that the k-means of an index reads per centroid, also faiss's maximum
