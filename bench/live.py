"""Live search: its time in a training step, beside the encoding of the step's queries, which comes before it.

    python bench/live.py [--passages 5067] [--queries 16] [--depth 200] [--threads 2]

The peer encodes queries as long as MS MARCO's with the embedded checkpoint, dropout and graph included, in the
precision of the stage. The passages are random vectors, as wide as the checkpoint's. `lists` is all that a live step
adds before its loss: the search, the labels and the vectors of the passages that were found. The goal: at the demo's
size, at most the peer's time. With one thread the time is that of the process, which a busy machine disturbs less.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import torch

import texts
from rounds import interleaved, report
from teleport.arrays import Ragged
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.precision import pick_device, resolve_precision
from teleport.encoder.side import Side
from teleport.settings.index import Index
from teleport.settings.training import Live
from teleport.training.live import LiveSearch, SharedExact
from teleport.training.parallel import ALONE
from vectors import make_vectors

PEER = "encoding the queries"
REPEATED = 20  # steps of a round


def positives(queries, passages):
    """Return what a `LiveSearch` reads of a training set: each query's one positive is the passage of its number."""
    rows = Ragged(np.arange(queries + 1), np.arange(queries, dtype=np.int32) % passages)
    return SimpleNamespace(positives=rows, relevant=rows)


def live_step(index, compared, data, live, device, vectors_QD):
    """A function that searches `REPEATED` times for the queries."""
    searched, rows = LiveSearch(index, compared, data, live, device), np.arange(len(vectors_QD))

    def steps():
        for _ in range(REPEATED):
            searched.lists(rows, vectors_QD)
            searched.take_result()

    return steps


def encoding(side, queries, device):
    """A function that encodes the queries `REPEATED` times, as a step does."""
    rows = np.arange(queries)

    def steps():
        for _ in range(REPEATED):
            side.vectors(rows, TOKEN_BUDGET["train"][device.type])

    return steps


def indexes(passages, arguments, device):
    """{name: (index, settings.Live)}: exact search, and a PQ index of `parts` parts (0: none) if there are enough
    passages."""
    depth = min(arguments.depth, len(passages))
    found = {"flat": (SharedExact(passages, device, arguments.threads, ALONE), Live(depth=depth))}
    if arguments.parts and len(passages) >= 256:
        from teleport.search.index import Decoded, build  # here: exact search on a GPU needs no faiss

        pq = Index.model_validate(f"PQ{arguments.parts}")
        decoded = Decoded(build(pq, passages, arguments.threads, lambda *_: None))
        index = SharedExact(decoded, device, arguments.threads, ALONE)
        found[str(pq)] = index, Live(depth=depth, index=pq)
    return found


def main(arguments=None):
    from threadpoolctl import threadpool_limits  # here: bench/gpu.py may have none

    sizes = {"passages": 5067, "queries": 16, "depth": 200, "parts": 24}
    arguments = texts.parser("A live search against the encoding of its queries.", **sizes).parse_args(arguments)
    torch.set_num_threads(arguments.threads)
    device = pick_device()
    with TemporaryDirectory() as folder, threadpool_limits(arguments.threads):
        world = texts.Texts(texts.checkpoint(arguments, folder), folder, 1, arguments.queries)
        encoder = world.encoder.to(device).train()
        dtype = resolve_precision("auto", device)
        side = Side(encoder, world.query_map, texts.MAX_QUERY_TOKENS, world.special, dtype)
        vectors_QD = side.vectors(np.arange(arguments.queries), TOKEN_BUDGET["train"][device.type]).detach()
        path = Path(folder, "passages.npy")
        passages = np.asarray(make_vectors(path, arguments.passages, encoder.dim, 0, arguments.threads))
        data = positives(arguments.queries, arguments.passages)
        variants = {PEER: encoding(side, arguments.queries, device)}
        for name, (index, live) in indexes(passages, arguments, device).items():
            variants[f"stage, lists, {name}"] = live_step(index, passages, data, live, device, vectors_QD)
        on_processor = arguments.threads == 1 and device.type == "cpu"
        clock = time.process_time if on_processor else time.perf_counter
        seconds = interleaved(variants, arguments.rounds, clock)
        each = {f"milliseconds a step, {name}": round(1e3 * min(t) / REPEATED, 2) for name, t in seconds.items()}
        report("live", seconds, (PEER,), REPEATED * arguments.queries, "queries", arguments, **each)


if __name__ == "__main__":
    main()
