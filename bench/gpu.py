"""For a GPU machine that is lent for minutes: ours and every peer in one process, each figure at once a line of JSON.

    python bench/gpu.py OUT [--small] [SECTION ...]      # tests ceilings search step-8 encode step-1 cached live

OUT: the folder for lines.jsonl and tests.txt. It needs torch, transformers and what docs/gpu.md installs, but no
network and no Snakemake. Weights are random, so no figure is one of accuracy. A section that fails writes its error as
a line, and the next one follows. Predictions of bench/gpu_predictions.yaml are in the same lines. --small: sizes that
run on a processor in two minutes, to see that it works. Another script compares negatives on such a machine: python
bench/arms.py --start whole --here.
"""

import argparse
import copy
import gc
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import torch
import yaml

import encode as bench_encode
import live as bench_live
import texts
import train as bench_train
from padding import padded
from rounds import REPOSITORY, median_seconds, wait_for_device
from teleport.encoder.batches import Chunks, in_order, length_buckets
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.side import Side
from teleport.search.exact import Exact
from teleport.settings.training import Live
from teleport.training.live import SharedExact
from teleport.training.parallel import ALONE
from vectors import make_vectors

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
BF16 = torch.bfloat16
SECTIONS = ("tests", "ceilings", "search", "step-8", "encode", "step-1", "cached", "live")
MARCO = {"passages": 8_841_823, "dim": 768, "searched": 2 * 502_939}  # training queries, and the first positive of each
DEPTH = 200
TEST_SECONDS = 80
STARTED = time.time()


class Lines:
    """Writes what was measured, line by line, beside what was predicted."""

    def __init__(self, folder):
        self.file = folder / "lines.jsonl"
        self.predictions = yaml.safe_load((REPOSITORY / "bench/gpu_predictions.yaml").read_text())

    def say(self, name, **figures):
        predicted = {f"predicted_{key}": value for key, value in self.predictions.get(name, {}).items()}
        line = {"t": round(time.time() - STARTED, 1), "what": name} | figures | predicted
        print(json.dumps(line), flush=True)
        with open(self.file, "a") as file:
            file.write(json.dumps(line) + "\n")

    def attempt(self, name, function):
        """Call `function`; an error becomes a line."""
        try:
            function()
        except Exception as error:  # whatever it is, the next section is worth its time
            traceback.print_exc()
            self.say(name, error=f"{type(error).__name__}: {str(error)[:300]}")
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()


def tests(lines, small, folder, out):
    """Run the tests that need a CUDA device in six processes, for at most TEST_SECONDS in all."""
    os.chdir(REPOSITORY)
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "xdist.plugin", "-n", "6", "--dist", "loadfile"]
    command += ["-p", "no:cacheprovider", "--tb=short", "-v", "-rfE", "--continue-on-collection-errors"]
    command += sorted({str(path) for path in Path("tests").rglob("test_*.py") if "mark.gpu" in path.read_text()})
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with open(out / "tests.txt", "w") as file:
        done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT,
                              timeout=TEST_SECONDS)  # fmt: skip
    failed = [line for line in (out / "tests.txt").read_text().splitlines() if line.startswith(("FAILED", "ERROR"))]
    lines.say("tests", status=done.returncode, failed=failed[:10])


def ceilings(lines, small, folder, out):
    """The rates of products of BERT's shapes and of a copy, which bound all other rates."""
    shapes = [(64, 64, 64)] if small else [(8192, 8192, 8192), (65536, 3072, 768), (17888, 768, 768)]
    for m, n, k in shapes:
        a, b = (torch.randn(rows, k, device=DEVICE, dtype=BF16) for rows in (m, n))
        taken = median_seconds(lambda a=a, b=b: torch.nn.functional.linear(a, b), 10)
        lines.say(f"product {m} x {n} x {k}", tflops=round(2 * m * n * k / taken / 1e12, 1))
    given = torch.randn(2 ** (16 if small else 29), device=DEVICE)
    made = torch.empty_like(given)
    lines.say("copy", tb_per_s=round(2 * given.nbytes / median_seconds(lambda: made.copy_(given), 10) / 1e12, 3))


def world_of(folder, small, passages):
    """`Texts` with a random BERT-base, or with the embedded checkpoint if `small`."""
    asked = SimpleNamespace(
        checkpoint=str(texts.folder_in_package(texts.PACKAGE)), bert_base=not small, pooling="cls", layers=12
    )
    world = texts.Texts(texts.checkpoint(asked, folder), folder, passages, 64)
    for model in (world.encoder, world.reference):
        model.to(DEVICE)
    return world


def to_device(batch):
    return (tensor.pin_memory().to(DEVICE, non_blocking=True) if CUDA else tensor for tensor in batch)


def by_tokens(world, model):
    """A tuned peer: transformers' model on padded batches of as many tokens as ours, texts sorted by length."""
    lengths = Chunks(world.passage_map, texts.MAX_PASSAGE_TOKENS, world.special).lengths
    batches = length_buckets(lengths, TOKEN_BUDGET["encode"]["cuda"], padded=True)

    def run():
        with torch.inference_mode():
            found = [
                model(*to_device(padded(world.passage_map, rows, texts.MAX_PASSAGE_TOKENS, world.special)))
                for rows in batches
            ]
            return in_order(found, batches).float().cpu().numpy()

    return run


def encode(lines, small, folder, out):
    """Passages per second of the stage and of transformers with sdpa, both in bfloat16, plain and compiled."""
    world = world_of(folder, small, 64 if small else 32_768)
    half, precision = (world.reference, "fp32") if small else (copy.deepcopy(world.reference).to(BF16), "bf16")
    exact = bench_encode.stage_encode(world, DEVICE, "fp32")()
    kinds = {
        "stage, bf16": lambda: bench_encode.stage_encode(world, DEVICE, precision),
        "peer, transformers sdpa, bf16, padded, sorted": lambda: by_tokens(world, half),
    }
    if CUDA:
        kinds["stage, bf16, compiled"] = lambda: bench_encode.stage_encode(world, DEVICE, "bf16", True)
        kinds["peer, transformers sdpa, bf16, padded, sorted, compiled"] = lambda: by_tokens(
            world, torch.compile(copy.deepcopy(half), dynamic=True)
        )
    for name, make in kinds.items():

        def measure(name=name, make=make):
            run, started = make(), time.perf_counter()
            cosine, first = bench_encode.smallest_cosine(run(), exact), time.perf_counter() - started
            rate = len(world.passages) / median_seconds(run)
            lines.say(
                f"encode, {name}", passages_per_s=round(rate, 1), first_s=round(first, 1), cosine=round(cosine, 6)
            )

        lines.attempt(f"encode, {name}", measure)


def peer_step(world, data, autocast, chunk=None):
    """A step as a user writes it: padded to the longest, autocast, sdpa, clipping, fused AdamW. chunk: with gradient
    caching, this many texts at a time, as sentence-transformers' cached losses do; dropout is drawn again, not
    repeated, which is no slower"""
    model = copy.deepcopy(world.reference).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=bench_train.RATE, fused=True)

    def vectors(tokens, rows, limit):
        with torch.autocast(DEVICE.type, dtype=BF16, enabled=autocast):
            return model(*to_device(padded(tokens, rows, limit, world.special))).float()

    def step(number):
        batch = data.batch(number)
        sides = [
            (world.query_map, batch.queries_Q, texts.MAX_QUERY_TOKENS),
            (world.passage_map, batch.passages_P, texts.MAX_PASSAGE_TOKENS),
        ]
        columns_Q = torch.from_numpy(batch.positive_columns_Q).to(DEVICE)
        chunks = [
            [
                (tokens, rows[first : first + (chunk or len(rows))], limit)
                for first in range(0, len(rows), chunk or len(rows))
            ]
            for tokens, rows, limit in sides
        ]
        with torch.set_grad_enabled(chunk is None):
            found = [torch.cat([vectors(*each) for each in of]) for of in chunks]
        if chunk:
            found = [each.requires_grad_() for each in found]
        queries_QD, passages_PD = found
        torch.nn.functional.cross_entropy(bench_train.SCALE * queries_QD @ passages_PD.T, columns_Q).backward()
        if chunk:
            for of, made in zip(chunks, found, strict=True):
                for each, gradient in zip(of, made.grad.split(chunk), strict=True):
                    vectors(*each).backward(gradient)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def step_of(queries, count=40, chunk=None, **changes):
    """The section that times `count` steps of `queries` queries with 1 + 31 passages each. chunk: texts at a time of
    the peer's gradient caching; changes: to the settings of the training"""

    def section(lines, small, folder, out):
        world = world_of(folder, small, 64 if small else 4096)
        sizes = SimpleNamespace(queries=2 if small else queries, negatives=1 if small else 31)
        sizes.passages, steps = len(world.passages), 2 if small else count
        data, what = bench_train.training_set(sizes), f"step {queries} x (1 + 31)" + (", cached" if chunk else "")
        kinds = {"stage, bf16": ("bf16",), "stage, bf16, compiled": ("bf16", True)} if CUDA else {"stage": ("fp32",)}
        for name, options in kinds.items():

            def measure(name=name, options=options):
                trainer, started = (
                    bench_train.make_trainer(world, data, DEVICE, *options, **changes),
                    time.perf_counter(),
                )
                bench_train.back_to_back(trainer, steps)  # compiles and captures graphs
                first = time.perf_counter() - started
                if CUDA:
                    torch.cuda.reset_peak_memory_stats()
                ms, cpu = bench_train.back_to_back(trainer, steps), time.process_time()
                bench_train.back_to_back(trainer, steps)
                cpu = 1e3 * (time.process_time() - cpu) / steps
                graphs = sum(len(each.captured) for each in trainer.graphs.values())
                lines.say(f"{what}, {name}", ms=round(ms, 2), cpu_ms=round(cpu, 2), first_s=round(first, 1),
                          graphs=graphs, peak_gb=peak_gb())  # fmt: skip

            lines.attempt(f"{what}, {name}", measure)
        peer = peer_step(world, data, CUDA, chunk and (2 if small else chunk))
        for number in range(2):
            peer(number)
        if CUDA:
            torch.cuda.reset_peak_memory_stats()
        taken = median_seconds(lambda: [peer(number) for number in range(steps // 2)], 1)
        name = f"{what}, peer, transformers sdpa padded, autocast"
        lines.say(name, ms=round(2e3 * taken / steps, 2), peak_gb=peak_gb())

    return section


def threads_of(small):
    return 1 if small else os.cpu_count()


def peak_gb():
    return round(torch.cuda.max_memory_allocated() / 1e9, 2) if CUDA else 0.0


def live(lines, small, folder, out):
    """The time of a live step's search of MS MARCO's passages for 32 queries, beside that of encoding them and of the
    peer's search, which is not exact."""
    passages, queries, threads = 3000 if small else MARCO["passages"], 32, threads_of(small)
    world = world_of(folder, small, 1)
    encoder = world.encoder.train()
    side = Side(encoder, world.query_map, texts.MAX_QUERY_TOKENS, world.special, None if small else BF16)
    vectors_QD = side.vectors(np.arange(queries), TOKEN_BUDGET["train"][DEVICE.type]).detach()
    vectors = np.asarray(make_vectors(Path(folder, "passages.npy"), passages, encoder.dim, 0, threads))
    index, data = SharedExact(vectors, DEVICE, threads, ALONE), bench_live.positives(queries, passages)
    kinds = {
        "encoding": bench_live.encoding(side, queries, DEVICE),
        "stage, lists": bench_live.live_step(index, vectors, data, Live(depth=DEPTH), DEVICE, vectors_QD),
    }
    if CUDA:
        kept_PD, queries_QD = index.index.reduced, vectors_QD.to(torch.float16)
        kinds["peer, product of float16 and topk"] = lambda: [
            product_and_topk(kept_PD, queries_QD, DEPTH, 2**20) for _ in range(bench_live.REPEATED)
        ]
    for name, run in kinds.items():

        def measure(name=name, run=run):
            ms = 1e3 * median_seconds(run) / bench_live.REPEATED
            lines.say(f"live 32, {name}", passages=passages, ms=round(ms, 2))

        lines.attempt(f"live 32, {name}", measure)


def product_and_topk(kept_PD, queries_QD, depth, block):
    """The peer of a search: a product and torch.topk, block by block, with the lists merged."""
    best = None
    for first in range(0, len(kept_PD), block):
        scores, ids = (queries_QD @ kept_PD[first : first + block].T).topk(depth, 1)
        ids = ids + first
        if best is not None:
            scores, ids = torch.cat([best[0], scores], 1), torch.cat([best[1], ids], 1)
            scores, order = scores.topk(depth, 1)
            ids = ids.gather(1, order)
        best = scores, ids
    return best


def search(lines, small, folder, out):
    """MS MARCO's searches: opening the vectors, exact lists, and the peer's, which are not exact."""
    passages, dim = (3000, 64) if small else (MARCO["passages"], MARCO["dim"])
    queries, threads = 50 if small else 32_768, threads_of(small)
    started = time.perf_counter()
    vectors = make_vectors(Path(folder, "passages.npy"), passages, dim, 0, threads)
    asked = np.array(make_vectors(Path(folder, "queries.npy"), queries, dim, 1, threads))
    lines.say("search, vectors made", passages=passages, seconds=round(time.perf_counter() - started, 1))
    started = time.perf_counter()
    index = Exact(vectors, DEVICE, threads)
    wait_for_device()
    opened = time.perf_counter() - started
    lines.say("search, opened", seconds=round(opened, 2), gb=round(vectors.nbytes / 1e9, 1), kept=bool(index.kept))
    index.search(asked[:64], min(DEPTH, passages))
    for count in sorted({min(6980, queries), queries}):

        def measure(count=count):
            started = time.perf_counter()
            index.search(asked[:count], DEPTH)
            taken = time.perf_counter() - started
            both = taken * MARCO["searched"] / count
            lines.say("search, stage", queries=count, seconds=round(taken, 3), both_marco_searches_s=round(both, 1))

        lines.attempt("search, stage", measure)
    if CUDA:
        kept_PD = index.reduced if index.reduced is not None else torch.from_numpy(vectors).to(DEVICE, torch.float16)
        queries_QD = torch.from_numpy(asked[:4096]).to(DEVICE, torch.float16)
        taken = median_seconds(lambda: product_and_topk(kept_PD, queries_QD, DEPTH, 65_536), 1)
        both = taken * MARCO["searched"] / len(queries_QD)
        lines.say("search, peer, product of float16 and topk", queries=len(queries_QD), seconds=round(taken, 3),
                  both_marco_searches_s=round(both, 1))  # fmt: skip


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="the folder of what it writes")
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--small", action="store_true", help="sizes for a processor")
    asked = parser.parse_intermixed_args(arguments)
    if unknown := set(asked.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    asked.out = asked.out.absolute()
    asked.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(threads_of(asked.small))
    lines = Lines(asked.out)
    cached = step_of(128, count=4, chunk=512, gradient_caching=True)
    functions = (tests, ceilings, search, step_of(8), encode, step_of(1), cached, live)
    functions = dict(zip(SECTIONS, functions, strict=True))
    name = torch.cuda.get_device_name(0) if CUDA else "no GPU"
    lines.say("machine", device=name, torch=torch.__version__, cores=os.cpu_count())
    for section in [each for each in SECTIONS if each in (asked.sections or SECTIONS)]:
        shared = Path("/dev/shm")  # vectors of 27 GB stay in memory
        with TemporaryDirectory(dir=shared if CUDA and shared.is_dir() else None) as folder:
            lines.attempt(section, lambda folder=folder, section=section: functions[section](
                lines, asked.small, folder, asked.out))  # fmt: skip


if __name__ == "__main__":
    main()
