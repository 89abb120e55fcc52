"""Exact search on a CPU: faiss, or products of int8 numbers where the processor has them and a probe says so."""

import time
from pathlib import Path

import numpy as np

from teleport.running.log import log
from teleport.search.engines import free_bytes
from teleport.search.flat import Exact

INT8_FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}
PROBE_SCORES = 2**30  # from so many on: for fewer, loading torch and probing would take as long as either search
PROBE_QUERIES, PROBE_BLOCKS, PROBE_ROWS = 1024, 8, 8192  # of a probe, and the rows of each of its blocks of passages
ROOM_SHARE = 0.5  # of the free memory that reduced vectors of a part may take


def fastest(open_faiss, vectors, threads, queries_QD, lines, depth):
    """How to open the engine of a part (see `flat.Exact`) that searches fastest; both give the same bits. open_faiss:
    opens faiss's; the rest is as `engines.open_exact` takes it"""
    if lines * len(vectors) < PROBE_SCORES or not computes_in_int8():
        return open_faiss
    from teleport.cpu.int8 import Int8Flat  # it loads torch

    kinds = {"FaissFlat": open_faiss}
    kinds["Int8Flat"] = lambda _, part, most: Int8Flat(part, threads, ROOM_SHARE * free_bytes(), most)
    seconds = {name: probe(vectors, kind, threads, queries_QD, lines, depth) for name, kind in kinds.items()}
    name = min(seconds, key=seconds.get)
    foreseen = ", ".join(f"{name} {estimate:.0f} s" for name, estimate in seconds.items())
    text = "searching with %s: %d lines at depth %d take by a probe, in processor time, %s"
    log.info(text, name, lines, depth, foreseen)
    return kinds[name]


def probe(vectors, open_part, threads, queries_QD, lines, depth):
    """Seconds of processor time that `lines` searches at a depth would take with an engine, from some in a few blocks.

    A sample of the passages at as small a share of the depth (and of what is proposed beyond it) has its last rank at
    the same score, so it has as large a share of the candidates that an engine cannot tell apart. What counts is how
    much longer a search takes with more passages: what it takes in any case is next to nothing among all of them.
    """
    blocks = min(PROBE_BLOCKS, max(1, len(vectors) // PROBE_ROWS))
    firsts = np.linspace(0, max(0, len(vectors) - PROBE_ROWS), blocks).astype(np.int64)
    sample, queries_QD = np.concatenate([vectors[at : at + PROBE_ROWS] for at in firsts]), queries_QD[:PROBE_QUERIES]
    few, seconds = len(sample) // PROBE_BLOCKS, []
    for passages in (sample[:few], sample[:few], sample):  # the first is not counted: libraries start and fill caches
        share, started = len(passages) / len(vectors), time.process_time()
        index = Exact(passages, 1, open_part, threads)
        opening = time.process_time() - started
        index.part(0).margin = max(1, round(share * index.part(0).margin))
        index.search(queries_QD[:1], 1)  # threads start, and buffers are made
        started = time.process_time()
        index.search(queries_QD, max(1, round(share * depth)))
        seconds.append(opening + (time.process_time() - started) * lines / len(queries_QD))
    return max(0.0, seconds[2] - seconds[1]) * len(vectors) / (len(sample) - few)


def computes_in_int8(cpu_info=Path("/proc/cpuinfo")):
    """Whether the processor has instructions for sums of int8 products."""
    return cpu_info.is_file() and not INT8_FLAGS.isdisjoint(cpu_info.read_text().split())
