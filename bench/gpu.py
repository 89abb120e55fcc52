"""For a GPU machine that is lent for minutes: ours and every peer in one process, each figure at once a line of JSON.

    python bench/gpu.py OUT [--small] [SECTION ...]

OUT: the folder of what it writes: lines.jsonl and, of the section `tests`, tests.txt. It needs torch, transformers and
what bench/README.md installs, but no network, checkpoint or Snakemake; `tests` needs pytest too, `compare` the whole
environment. Weights are random, so only `compare` has figures of accuracy. A section that fails writes its error as a
line, one that exceeds its limit (SECTIONS) ends there, and the next one follows. Predictions of
bench/gpu_predictions.yaml are in the same lines. --small: sizes that run on a processor in two minutes.
"""

import argparse
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from contextlib import chdir, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import SimpleNamespace

import numpy as np
import torch
import yaml
from transformers import BertConfig

import encode as bench_encode
import live as bench_live
import peers
import search as bench_search
import texts
import train as bench_train
from peers import product_and_topk
from rounds import REPOSITORY, median_seconds, wait_for_device
from teleport.arrays import Ragged
from teleport.encoder.budget import TOKEN_BUDGET
from teleport.encoder.side import Side
from teleport.running.artefact import STAGES, Artefact
from teleport.search.exact import Exact
from teleport.settings.training import Live
from teleport.training.live import SharedExact
from teleport.training.parallel import ALONE
from vectors import LENGTHS, make_vectors

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
BF16 = torch.bfloat16
PEER_STEP, PARTS = "peer, transformers sdpa padded, autocast", 4  # batches of each side, sorted by length
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
TINY = {  # of `compare`: one package, and three steps of each training
    "collection": {"packages": ["networkx"]},
    "counts": None,
    "mining": {"depth": 10},
    "training": {"steps": 3, "evaluate_every": 3, "dev": {"passages": 100, "random": 20, "queries": 20}},
    "experiments": {"warm-up": {"training": {"steps": 3, "evaluate_every": 3}}},
    "evaluation": {"depth": 10, "measures": ["RR@10"]},
    "negatives": {"counts": {"query": 5}},
}
MARCO = {"passages": 8_841_823, "dim": 768, "searched": 2 * 502_939}  # training queries, and the first positive of each
DEPTH = 200
BACK_TO_BACK = 20  # products that are timed together: a launch takes longer than the smallest one
COMPARED = 2048  # passages whose vectors are compared with float32's
SHARED_MEMORY = Path("/dev/shm")
STARTED = time.time()


class Lines:
    """Writes what was measured, line by line, beside what was predicted."""

    def __init__(self, folder, small):
        self.file, self.device = folder / "lines.jsonl", torch.cuda.get_device_name(0) if CUDA else "no GPU"
        predictions = yaml.safe_load((REPOSITORY / "bench/gpu_predictions.yaml").read_text())
        of_device = next((own for card, own in predictions.items() if card in self.device), {})
        self.predictions = {} if small else of_device

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
        free_memory()


def free_memory():
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()


class TooLong(BaseException):
    """A section has reached its limit; no `attempt` inside it takes this for an error of its own."""


@contextmanager
def at_most(seconds):
    """Within this context TooLong is raised after so many seconds."""

    def stop(number, frame):
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tests(lines, small, folder, out):
    """Run the tests that need a CUDA device, in six processes, or in one if `small`. At the section's limit they are
    killed: they would slow the next sections."""
    workers, files = "1" if small else "6", (REPOSITORY / "tests").rglob("test_*.py")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "xdist.plugin", "-n", workers, "--dist", "loadfile"]
    command += ["-p", "no:cacheprovider", "--tb=short", "-vv", "-rfE", "--continue-on-collection-errors"]
    command += sorted(str(path) for path in files if "mark.gpu" in path.read_text())
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with open(out / "tests.txt", "w") as file:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        process.wait()
    finally:
        status = process.poll()  # None at the limit
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        written = (out / "tests.txt").read_text().splitlines() or [""]
        of_all = [line for line in written if re.match(r"(\[gw\d+\] \[.*?\] )?(FAILED|ERROR) ", line)]
        failed = [line for line in of_all if not line.startswith("[")] or of_all  # the summary, if it came to that
        lines.say("tests", status=status, said=written[-1][:200], failed=failed[:10])


def ceilings(lines, small, folder, out):
    """The rates of products of BERT's shapes and of a copy, which bound all other rates."""
    shapes = [(64, 64, 64)] if small else [(8192, 8192, 8192), (65536, 3072, 768), (17888, 768, 768)]
    for m, n, k in shapes:
        a, b = (torch.randn(rows, k, device=DEVICE, dtype=BF16) for rows in (m, n))
        taken = median_seconds(lambda a=a, b=b: [torch.nn.functional.linear(a, b) for _ in range(BACK_TO_BACK)])
        lines.say(f"product {m} x {n} x {k}", tflops=round(2 * m * n * k * BACK_TO_BACK / taken / 1e12, 1))
    given = torch.randn(2 ** (16 if small else 29), device=DEVICE)
    made = torch.empty_like(given)
    lines.say(
        "copy",
        gb=round(given.nbytes / 1e9, 3),
        tb_per_s=round(2 * given.nbytes / median_seconds(lambda: made.copy_(given), 10) / 1e12, 3),
    )


def world_of(small, passages):
    """`RandomTexts` for BERT-base on the device, or for a miniature if `small`."""
    world = texts.RandomTexts(BertConfig(vocab_size=30_522, **(SMALL if small else {})), passages, 64)
    for model in (world.encoder, world.reference):
        model.to(DEVICE)
    return world


def encode(lines, small, folder, out):
    """Passages per second of the stage and of transformers with sdpa, both in bfloat16, plain and compiled."""
    world = world_of(small, 64 if small else 32_768)
    dtype, precision = (torch.float32, "fp32") if small else (BF16, "bf16")
    sizes = {"passages": len(world.passage_map), "tokens": int(world.passage_map.lengths.sum())}
    offsets, values = world.passage_map.offsets[: COMPARED + 1], world.passage_map.values
    few = SimpleNamespace(encoder=world.encoder, special=world.special, passage_map=Ragged(offsets, values))
    exact = bench_encode.stage_encode(few, DEVICE, "fp32")()  # of all passages it would take 8 s on an H100
    kinds = {
        "stage, bf16": lambda: bench_encode.stage_encode(world, DEVICE, precision),
        "peer, transformers sdpa, bf16, padded, sorted": lambda: peers.encode(world, DEVICE, dtype),
    }
    if CUDA:
        kinds["stage, bf16, compiled"] = lambda: bench_encode.stage_encode(world, DEVICE, "bf16", True)
        kinds["peer, transformers sdpa, bf16, padded, sorted, compiled"] = lambda: peers.encode(
            world, DEVICE, dtype, True
        )
    runs = {}
    for name, make in kinds.items():

        def measure(name=name, make=make):
            run, started = make(), time.perf_counter()
            runs[name] = run
            cosine, first = bench_encode.smallest_cosine(run()[: len(exact)], exact), time.perf_counter() - started
            rate = sizes["passages"] / median_seconds(run)
            measured = {"passages_per_s": round(rate, 1), "first_s": round(first, 1), "cosine": round(cosine, 6)}
            lines.say(f"encode, {name}", **sizes, **measured)

        lines.attempt(f"encode, {name}", measure)
    traced, trace = next(name for name in reversed(kinds) if name.startswith("stage")), "encode, kernels"
    lines.attempt(trace, lambda: lines.say(trace, **sizes, of=traced, **kernels(runs[traced])))


def step_of(queries, count=40, chunk=None, **changes):
    """The section that times `count` steps of `queries` queries with 1 + 31 passages each. chunk: texts at a time of
    the peer's gradient caching; changes: to the settings of the training"""

    def section(lines, small, folder, out):
        world = world_of(small, 64 if small else 4096)
        sizes = SimpleNamespace(queries=2 if small else queries, negatives=1 if small else 31)
        said = {"queries": sizes.queries, "passages": sizes.queries * (1 + sizes.negatives)}
        sizes.passages, steps = len(world.passage_map), 2 if small else count
        data, what = bench_train.training_set(sizes), f"step {queries} x (1 + 31)" + (", cached" if chunk else "")
        shared = {"dtype": BF16 if CUDA else None, "chunk": chunk and (2 if small else chunk)}

        def ours(name, *options):
            trainer, started = bench_train.make_trainer(world, data, DEVICE, *options, **changes), time.perf_counter()
            bench_train.back_to_back(trainer, steps)  # compiles and captures graphs
            first = time.perf_counter() - started
            forget_peak()
            ms, cpu = bench_train.back_to_back(trainer, steps), time.process_time()
            bench_train.back_to_back(trainer, steps)
            cpu = 1e3 * (time.process_time() - cpu) / steps
            graphs = sum(len(each.captured) for each in trainer.graphs.values())
            measured = {"ms": round(ms, 2), "cpu_ms": round(cpu, 2), "first_s": round(first, 1)}
            lines.say(f"{what}, {name}", **said, steps=steps, **measured, graphs=graphs, peak_gb=peak_gb())
            traced = kernels(lambda: bench_train.back_to_back(trainer, 2))
            lines.say(f"{what}, kernels", **said, steps=2, of=name, **traced)

        def theirs(name, **options):
            peer, started = peers.step(world, data, DEVICE, **shared, **options), time.perf_counter()
            for number in range(2):
                peer(number)
            first = time.perf_counter() - started
            forget_peak()
            ms = 1e3 * median_seconds(lambda: [peer(number) for number in range(steps // 2)], 1) / (steps // 2)
            measured = {"ms": round(ms, 2), "first_s": round(first, 1), "peak_gb": peak_gb()}
            lines.say(f"{what}, {name}", **said, steps=steps // 2, **measured)

        def attempt(measure, name, *options, **more):
            lines.attempt(f"{what}, {name}", lambda: measure(name, *options, **more))

        attempt(ours, *(("stage, bf16", "bf16") if CUDA else ("stage", "fp32")))
        attempt(theirs, PEER_STEP)
        if not chunk:
            attempt(theirs, f"{PEER_STEP}, sorted in {PARTS}", parts=PARTS)
        if CUDA:  # the last, as compiling may exceed the section's limit
            attempt(ours, "stage, bf16, compiled", "bf16", True)
            if not chunk:
                attempt(theirs, f"{PEER_STEP}, sorted in {PARTS}, compiled", parts=PARTS, compiled=True)

    return section


def kernels(run):
    """{"kernels": {kernel: milliseconds in a call of `run`, which ran before}} of the ten that take the most time of
    the device, on a processor of the ten operators that take most of its time."""
    device = "device" if CUDA else "cpu"
    activity = torch.profiler.ProfilerActivity.CUDA if CUDA else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as traced:
        run()
        wait_for_device()
    ms = {event.key: getattr(event, f"self_{device}_time_total") / 1e3 for event in traced.key_averages()}
    longest = sorted(ms, key=ms.get, reverse=True)[:10]
    return {"kernels": {name[:80]: round(ms[name], 3) for name in longest}}


def threads_of(small):
    return 1 if small else os.cpu_count()


def forget_peak():
    if CUDA:
        torch.cuda.reset_peak_memory_stats()


def peak_gb():
    return round(torch.cuda.max_memory_allocated() / 1e9, 2) if CUDA else 0.0


def live(lines, small, folder, out):
    """The time of a live step's search of MS MARCO's passages for 32 queries, beside that of encoding them and of the
    peer's search, which is not exact."""
    world, queries, threads = world_of(small, 1), 32, threads_of(small)
    passages = 3000 if small else that_fit(folder, world.encoder.dim)
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
            lines.say(f"live 32, {name}", passages=passages, queries=queries, ms=round(ms, 2))

        lines.attempt(f"live 32, {name}", measure)


def that_fit(folder, dim):
    """The number of MS MARCO's passages, or how many vectors in float32 fit into nine tenths of the room of `folder`,
    which a search then has in its lines."""
    return min(MARCO["passages"], int(0.9 * shutil.disk_usage(folder).free) // (4 * dim))


def search(lines, small, folder, out):
    """MS MARCO's searches: opening the vectors, exact lists, also of vectors of lognormal lengths, and the peers'."""
    dim, queries, threads = (64, 50, 1) if small else (MARCO["dim"], 32_768, threads_of(small))
    passages = 3000 if small else that_fit(folder, dim)
    asked = np.array(make_vectors(Path(folder, "queries.npy"), queries, dim, 1, threads))

    def opened(lengths):
        free_memory()  # the index looks how much is free
        started = time.perf_counter()
        vectors = make_vectors(Path(folder, "passages.npy"), passages, dim, 0, threads, LENGTHS[lengths])
        made, started = time.perf_counter() - started, time.perf_counter()
        index = Exact(vectors, DEVICE, threads)
        wait_for_device()
        taken = time.perf_counter() - started
        lines.say("search, opened", passages=passages, of=MARCO["passages"], lengths=lengths, made_s=round(made, 1),
                  seconds=round(taken, 2), gb=round(vectors.nbytes / 1e9, 1), kept=bool(index.kept))  # fmt: skip
        index.search(asked[:64], min(DEPTH, passages))
        return vectors, index

    def say(what, count, run):
        taken = median_seconds(run, 1)  # after one in which Triton compiles
        both = taken * MARCO["searched"] / count * MARCO["passages"] / passages
        lines.say(what, passages=passages, queries=count, seconds=round(taken, 3),
                  both_marco_searches_s=round(both, 1))  # fmt: skip

    def of_stage(index, what, counts):
        for count in counts:
            lines.attempt(what, lambda count=count: say(what, count, lambda: index.search(asked[:count], DEPTH)))

    vectors, index = opened("unit")
    of_stage(index, "search, stage", sorted({min(6980, queries), queries}))
    if CUDA:
        kept_PD = index.reduced if index.reduced is not None else torch.from_numpy(vectors).to(DEVICE, torch.float16)
        queries_QD = torch.from_numpy(asked[:4096]).to(DEVICE, torch.float16)
        taken = median_seconds(lambda: product_and_topk(kept_PD, queries_QD, DEPTH, 65_536), 1)
        both = taken * MARCO["searched"] / len(queries_QD) * MARCO["passages"] / passages
        lines.say("search, peer, product of float16 and topk", passages=passages, queries=len(queries_QD),
                  seconds=round(taken, 3), both_marco_searches_s=round(both, 1))  # fmt: skip
        del kept_PD
        if find_spec("faiss") and bench_search.faiss_has_gpu():
            what = f"search, peer, {bench_search.FAISS_GPU}"
            run = bench_search.faiss_search(vectors, asked[:4096], DEPTH, threads)
            lines.attempt(what, lambda: say(what, 4096, run))
            del run
    del index, vectors
    of_stage(opened("lognormal")[1], "search, stage, lognormal lengths", [min(6980, queries)])


def compare(lines, small, folder, out):
    """Two arms of bench/arms.py as small as its pilot, of which nothing can be concluded: that the whole comparison, by
    `python bench/arms.py --start whole --here`, would run on this machine."""
    import arms
    from teleport.plan.plan import Plan

    start = "layers-2" if small else "whole"
    with chdir(folder):
        base = arms.part("compare-pilot", arms.files("pilot", start), arms.PILOT)
        base = arms.part("compare-small", base, TINY) if small else base
        arms.run("compare", base, arms.FIRST_RATES[start][-1:], arms.here(1), [arms.BASELINE, "mined"])
        plan = Plan.of_files(json.loads((arms.PARTS / "compare.json").read_text())["files"])
        for arm, (trajectory, *_) in plan.trajectories.items():
            (stage,) = trajectory.episodes[-1].runs.values()
            facts = Artefact(STAGES / stage.name).facts
            lines.say(f"compare, {arm}", queries=facts["num_queries"], **facts["means"])


SECTIONS = {  # {name: (function, seconds that it may take)}; all but `compare` in the ten minutes of one command
    "ceilings": (ceilings, 20),
    "tests": (tests, 110),
    "search": (search, 90),
    "step-8": (step_of(8), 90),
    "encode": (encode, 100),
    "step-1": (step_of(1), 60),
    "cached": (step_of(64, count=4, chunk=512, gradient_caching=True), 50),
    "live": (live, 50),
    "compare": (compare, 80),
}


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
    lines = Lines(asked.out, asked.small)
    lines.say("machine", device=lines.device, torch=torch.__version__, cores=os.cpu_count())
    for section in [each for each in SECTIONS if each in (asked.sections or SECTIONS)]:
        run_section(lines, section, asked.small, asked.out)


def run_section(lines, section, small, out):
    """Run a section for as long as it may take, in a temporary folder: in memory, if that has room for the vectors.
    What an earlier section compiled, or left on the device when it reached its limit, is dropped first."""
    torch._dynamo.reset()  # it compiles one function eight times, and all layers share one
    free_memory()
    function, seconds = SECTIONS[section]
    needed = 0 if small else 1.1 * 4 * MARCO["passages"] * MARCO["dim"]
    fits = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > needed
    with TemporaryDirectory(dir=SHARED_MEMORY if fits else gettempdir()) as folder:
        try:
            with at_most(seconds):
                lines.attempt(section, lambda: function(lines, small, folder, out))
        except TooLong:
            lines.say(section, error=f"ended at its limit of {seconds} s")


if __name__ == "__main__":
    main()
