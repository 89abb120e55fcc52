"""Measure this machine for `make forecast`: a few seconds of every kind of work, written to results/hardware.json.

    python bench/calibrate.py [--scale 1] [--shared]

Runs the stages themselves on random texts with the embedded checkpoint, in a temporary folder, and divides the work
that `teleport.forecast.costs` counts for each by the time it took. --scale multiplies the texts: on a GPU a larger
one (the default there is 20) lets the arithmetic outweigh the start of its kernels. --shared is for a machine that
others use at the same time: it times by the processor seconds of this process, divided by its threads.
"""

import argparse
import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import bm25s
import numpy as np
import torch
import yaml

import merge
import texts
from rounds import REPOSITORY
from run_stage import run
from search import unit_vectors
from teleport.config import load
from teleport.encoder.precision import pick_device
from teleport.encoder.tokens import load_tokenizer
from teleport.forecast.costs import MARGIN, stage_cost
from teleport.forecast.counts import Counts
from teleport.forecast.flops import search_flop
from teleport.forecast.hardware import MEASURED, Hardware
from teleport.plan import Plan
from teleport.provenance import hardware
from teleport.search.bm25 import best, tokeniser
from teleport.search.engines import open_exact
from teleport.stage import Job, write_json

# The rate that the time of a stage gives; the others are timed by themselves, at sizes that they need.
RATES = {
    "collection": "texts",
    "encode": "encode_flop",
    "train": "train_flop",
    "evaluate": "run_rows",
}
PASSAGES, TRAIN, TEST, STEPS, DEPTH = 600, 100, 100, 4, 500
SEARCH_PASSAGES, SEARCH_QUERIES, SEARCH_DIM, SEARCH_DEPTH = (2_000, 60_000), 1024, 384, 200
TEXTS, BM25_QUERIES = 12_000, 50  # tokenised; searched by BM25
ROUNDS = 3


class Clock:
    """Seconds: of the wall, or, where others use the machine too, of this process's processors over its threads."""

    shared = False

    def __call__(self, threads=1):
        return time.process_time() / threads if self.shared else time.perf_counter()


clock = Clock()


def configuration(scale):
    """One episode of a few steps on the collection of `write_collection`, with the settings of the embedded default."""
    raw = yaml.safe_load((REPOSITORY / "config" / "config.yaml").read_text(encoding="utf-8"))
    raw |= {"collection": {"source": "folder", "path": "collection"}, "episodes": [{}], "bm25": None}
    raw["encoder"]["max_passage_tokens"] = texts.MAX_PASSAGE_TOKENS
    raw["training"] |= {"steps": STEPS * scale}
    measures = ["RR@10", "nDCG@10", "R@100", f"R@{DEPTH}"]
    raw["evaluation"] |= {"depth": DEPTH, "splits": ["test"], "measures": measures}
    return raw


def write_collection(folder, scale):
    """Random texts in the folder form; every query has one positive."""
    tokenizer, _ = load_tokenizer(texts.folder_in_package(texts.PACKAGE), None)
    words = texts.whole_words(tokenizer)
    folder.mkdir()
    passages = texts.make_texts(words, texts.lengths(PASSAGES * scale, 1), 2)
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t\t{text}\n" for i, text in enumerate(passages)))
    for split, count in (("train", TRAIN * scale), ("test", TEST)):
        queries = texts.make_texts(words, texts.lengths(count, 3, mean=8), 4)
        (folder / f"queries.{split}.tsv").write_text("".join(f"{split}{i}\t{q}\n" for i, q in enumerate(queries)))
        (folder / f"qrels.{split}.tsv").write_text("".join(f"{split}{i}\t0\td{i}\t1\n" for i in range(count)))


def run_stages(plan, threads):
    """Run the stages up to the first training; returns {kind: (Stage, seconds)} of the last stage of each kind.

    All but the dear ones run twice, so that the time of loading libraries is not in it.
    """
    done, seconds = set(), {}
    for stage in plan.stages.values():
        if any(source.kind == "train" or source.name not in done for source in stage.inputs.values()):
            continue
        for _ in range(1 if stage.kind in ("encode", "train") else 2):
            used = threads if stage.kind in ("encode", "train") else 1
            started = clock(used)
            run(Job(json.loads(stage.spec()) | {"code": "calibration"}, threads=threads))
            seconds[stage.kind] = stage, clock(used) - started
        done.add(stage.name)
    return seconds


def stage_rates(plan, threads):
    """{rate: amount per second} of the stages that give one."""
    seconds, counts, rates = run_stages(plan, threads), Counts(plan), {}
    for kind, rate in RATES.items():
        stage, taken = seconds[kind]
        rates[rate] = stage_cost(stage, counts, plan).work[rate] / taken
    return rates


def timed(function, threads=1):
    """Median seconds of a function that computes with `threads`, after one call that is not counted."""
    function()
    seconds = []
    for _ in range(ROUNDS):
        started = clock(threads)
        function()
        seconds.append(clock(threads) - started)
    return median(seconds)


def text_rates(folder, threads):
    """Tokens/s of the tokenizer and of BM25's index, scores/s of BM25."""
    tokenizer, special = load_tokenizer(texts.folder_in_package(texts.PACKAGE), None)
    sizes = texts.lengths(TEXTS, 1)
    passages = texts.make_texts(texts.whole_words(tokenizer), sizes, 2)
    tokenise = tokeniser(SimpleNamespace(stemmer="english", stopwords="english"))
    bm25 = bm25s.BM25(method="lucene")
    queries = tokenise(passages[:BM25_QUERIES], return_ids=False)
    seconds = {
        "tokens": timed(lambda: texts.write_map(folder, "timed", tokenizer, special, passages), threads),
        "bm25_tokens": timed(lambda: bm25.index(tokenise(passages), show_progress=False)),
        "bm25_scores": timed(lambda: [best(bm25.get_scores(query[:6]), SEARCH_DEPTH) for query in queries]),
    }
    amounts = {"tokens": sizes.sum(), "bm25_tokens": sizes.sum(), "bm25_scores": BM25_QUERIES * TEXTS}
    return {name: amounts[name] / taken for name, taken in seconds.items()}


def search_rates(threads):
    """FLOP/s of search and numbers/s of scoring again, from two sizes of the collection."""
    queries = unit_vectors(SEARCH_QUERIES, SEARCH_DIM, 1)
    seconds = []
    for count in SEARCH_PASSAGES:
        vectors = unit_vectors(count, SEARCH_DIM, 2)
        index = open_exact(vectors, threads, SEARCH_QUERIES)
        seconds.append(timed(lambda index=index: index.search(queries, SEARCH_DEPTH), threads))
    small, large = SEARCH_PASSAGES
    flops = search_flop(SEARCH_QUERIES, large - small, SEARCH_DIM) / (seconds[1] - seconds[0])
    rest = max(seconds[0] - search_flop(SEARCH_QUERIES, small, SEARCH_DIM) / flops, 0.1 * seconds[0])
    return {"search_flop": flops, "rescored": SEARCH_QUERIES * (SEARCH_DEPTH + MARGIN) * SEARCH_DIM / rest}


def merge_rate(queries=5000, depth=200):
    """Candidates/s of the merge."""
    ids = merge.retrievals(queries, depth)
    return 2 * queries * depth / timed(lambda: merge.merge_arrays(merge.make_merge(ids, 60), queries))


def disk_rate(folder, megabytes=256):
    """Bytes/s of writing a file through to the disk and hashing it."""
    block = np.random.default_rng(0).bytes(2**20)

    started = time.perf_counter()  # the disk's own time is no processor time
    with open(folder / "block", "wb") as file:
        for _ in range(megabytes):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    with open(folder / "block", "rb") as file:
        hashlib.file_digest(file, "sha256")
    return megabytes * 2**20 / (time.perf_counter() - started)


def subprocess_seconds(command, environment):
    """The shortest of a few runs; with --shared, in processor seconds of the child."""

    def child_clock():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime if clock.shared else time.perf_counter()

    seconds = []
    for _ in range(ROUNDS):
        started = child_clock()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        seconds.append(child_clock() - started)
    return min(seconds)


def process_seconds():
    """(startup, load): of a process that runs a stage, and what torch and a checkpoint add to it."""
    scripts = str(REPOSITORY / "workflow_scripts")
    folder = str(texts.folder_in_package(texts.PACKAGE))
    load_code = f"from teleport.encoder.model import load_encoder; load_encoder({folder!r})"
    commands = [f"{scripts}/run_stage.py", "--help"], ["-c", load_code]
    environment = os.environ | {"PYTHONPATH": scripts}
    startup, loaded = (subprocess_seconds([sys.executable, *command], environment) for command in commands)
    return {"startup": startup, "load": max(0.0, loaded - startup)}


def calibrate(scale, threads):
    """The hardware line of this machine (dict), checked to be complete."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_collection(Path("collection"), scale)
        rates = stage_rates(Plan(*load(configuration(scale))), threads)
        rates |= text_rates(folder, threads) | {"disk": disk_rate(Path(folder))}
    rates |= search_rates(threads) | {"merge_rows": merge_rate()} | process_seconds()
    machine = hardware()
    where = ", ".join([machine["processor"], f"{threads} threads", *([machine["gpu"]] if "gpu" in machine else [])])
    how = "in processor seconds" if clock.shared else "by the wall clock"
    line = {"source": f"measured by bench/calibrate.py {how} on {where}"}
    line |= {name: float(f"{rate:.3g}") for name, rate in rates.items()}
    if pick_device().type == "cuda":
        line["device_memory"] = torch.cuda.get_device_properties(0).total_memory
    return Hardware.model_validate(line).model_dump(exclude_none=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Measure this machine for the forecast.")
    parser.add_argument("--scale", type=int, default=20 if pick_device().type == "cuda" else 1, help="times the texts")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of the stages")
    parser.add_argument("--json", type=Path, default=MEASURED, metavar="FILE", help="the file to write")
    parser.add_argument("--shared", action="store_true", help="others use this machine: time by processor seconds")
    arguments = parser.parse_args(arguments)
    clock.shared = arguments.shared
    if not arguments.shared and os.getloadavg()[0] > arguments.threads / 2:
        print("warning: this machine is busy, so the figures will be too low: wait, or use --shared", file=sys.stderr)
    output = arguments.json.resolve()
    started = time.perf_counter()
    line = calibrate(arguments.scale, arguments.threads)
    write_json(output, line)
    for name, value in line.items():
        print(f"{name}: {value if isinstance(value, str) else format(value, '.3g')}")
    print(f"measured in {time.perf_counter() - started:.0f} s, written to {output}")


if __name__ == "__main__":
    main()
