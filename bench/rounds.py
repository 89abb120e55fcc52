"""The parts that every benchmark shares: interleaved rounds, medians, ratios against a peer of the same run, and a JSON
file."""

import argparse
import os
import sys
import time
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # as run_stage.py does, before torch or faiss are loaded
from run_stage import keep_freed_memory  # noqa: E402

keep_freed_memory()


def parser(description, **sizes):
    """An argument parser with a flag for every size ({name: default}), --rounds, --threads and --json."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default in sizes.items():
        made.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=" ")
    made.add_argument("--rounds", type=int, default=3, help="rounds; every variant runs once in each")
    made.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of torch and faiss")
    made.add_argument(
        "--json", type=Path, metavar="FILE", help="where the figures go; default: results/bench/NAME.json"
    )
    return made


def interleaved(variants, rounds, clock=time.perf_counter):
    """Seconds of every variant in every round: {name: [seconds]}.

    variants: {name: function without arguments}. Each runs once untimed. The rounds are interleaved and every other one
    goes backwards, so that a passing load affects all variants equally. clock: the wall clock, or time.process_time for
    the work of one thread on a busy machine. A variant's time ends when its work on a CUDA device does.
    """
    for run in variants.values():
        run()
        wait_for_device()
    seconds = {name: [] for name in variants}
    for number in range(rounds):
        for name in list(variants)[:: -1 if number % 2 else 1]:
            started = clock()
            variants[name]()
            wait_for_device()
            seconds[name].append(clock() - started)
    return seconds


def median_seconds(run, number=3):
    """Median seconds of a call, after one that is not counted."""
    return median(interleaved({"": run}, number)[""])


def wait_for_device():
    """Wait for the work that this process gave to a CUDA device. Benchmarks without torch do not load it for this."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def ratios(seconds, peer):
    """{name: how many times as fast as `peer`}: the median over rounds of the ratio within a round."""
    return {
        name: median(theirs / ours for theirs, ours in zip(seconds[peer], times, strict=True))
        for name, times in seconds.items()
    }


def report(name, seconds, peers, amount, unit, arguments, **figures):
    """Print a Markdown table of the variants and write the JSON file; returns what was written (dict).

    peers: variants that the others are compared with, one column each, or none; amount: units of work that a run does;
    figures: other measurements, for example how much the results agree.
    """
    columns = {peer: ratios(seconds, peer) for peer in peers}
    medians = {variant: median(times) for variant, times in seconds.items()}
    rows = [["variant", "median s", f"{unit}/s", *(f"times as fast as {peer}" for peer in peers)]]
    rows.append(["---"] * len(rows[0]))
    for variant, taken in medians.items():
        compared = (f"{columns[peer][variant]:.2f}" for peer in peers)
        rows.append([variant, f"{taken:.4f}", f"{amount / taken:.1f}", *compared])
    print("\n".join(f"| {' | '.join(cells)} |" for cells in rows))
    for figure, value in figures.items():
        print(f"{figure.replace('_', ' ')}: {value}")
    written = {
        "name": name,
        "arguments": {key: str(v) if isinstance(v, Path) else v for key, v in vars(arguments).items()},
        "amount": amount,
        "unit": unit,
        "seconds": seconds,
        "medians": medians,
        "ratios": columns,
        "figures": figures,
    }
    return write_json(arguments.json or Path("results/bench", f"{name}.json"), written)


def write_json(path, figures):
    """Write `figures` (dict) with the versions and the hardware of this run; returns what was written."""
    from teleport.running.files import write_json as write
    from teleport.running.provenance import hardware, versions

    written = figures | {"hardware": hardware(), "versions": versions()}
    write(path, written)
    print(f"written to {path}")
    return written
