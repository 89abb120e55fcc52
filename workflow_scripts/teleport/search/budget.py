"""How much is searched at once, for stages and for the forecast, which loads no torch."""

QUERIES = {"cpu": 512, "cuda": 16384}  # of an exact search, together at most
SCORES = {"cpu": 2**23, "cuda": 2**30}  # products at a time: a CPU's cache; large kernels on a GPU
HITS = {"cpu": 2**20, "cuda": 2**24}  # products compared one by one, at a time
PAIRS = {"cpu": 512, "cuda": 2**17}  # scored exactly at a time
BLOCK = 65536  # passages read at a time if they do not stay on the device
WORKERS = 2  # groups of queries at a time on a GPU: one computes while the other waits for the host
BLOCK_ROWS = 4096  # queries of a call of a search on a CPU; a killed run loses one
ROOM, LEAST_ROOM = 4, 1024  # passages that a query keeps at most: ROOM * depth + LEAST_ROOM
LEAST_QUERIES = 2000  # of BM25 for each process, which takes a second to start
SAMPLE_QUERIES = 200  # searched exactly too, for the recall of an index
TRAIN_PER_LIST = 256  # vectors that the k-means of an index reads per centroid, also faiss's maximum


def workspace(dim):
    """Bytes of device memory that an exact search needs besides its vectors: per worker its products, those compared
    one by one, and the pairs it scores; and blocks while they are read and reduced."""
    return WORKERS * (4 * SCORES["cuda"] + 48 * HITS["cuda"] + 24 * PAIRS["cuda"] * dim) + 24 * BLOCK * dim
