"""What every benchmark shares: interleaved rounds, medians, ratios against a peer of the same run, and a JSON file."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "workflow_scripts"))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as run_stage.py does, before torch or faiss are loaded


def parser(description, **sizes):
    """An argument parser with a flag for every size ({name: default}), --rounds, --threads and --output."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default in sizes.items():
        made.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=" ")
    made.add_argument("--rounds", type=int, default=3, help="rounds; every variant runs once in each")
    made.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of torch and faiss")
    made.add_argument("--output", type=Path, default=Path("results/bench"), help="folder of the JSON file")
    return made


def interleaved(variants, rounds, clock=time.perf_counter):
    """Seconds of every variant in every round: {name: [seconds]}.

    variants: {name: function without arguments}. Each runs once untimed. The rounds are interleaved and every other
    one goes backwards, so that a load that comes and goes meets all variants alike.
    """
    for run in variants.values():
        run()
    seconds = {name: [] for name in variants}
    for number in range(rounds):
        for name in list(variants)[:: -1 if number % 2 else 1]:
            started = clock()
            variants[name]()
            seconds[name].append(clock() - started)
    return seconds


def ratios(seconds, peer):
    """{name: how many times as fast as `peer`}: the median over rounds of the ratio within a round."""
    return {
        name: median(theirs / ours for theirs, ours in zip(seconds[peer], times, strict=True))
        for name, times in seconds.items()
    }


def report(name, seconds, peers, amount, unit, arguments, **figures):
    """Print a Markdown table of the variants and write NAME.json; returns what was written (dict).

    peers: variants that the others are compared with, one column each; amount: units of work that a run does;
    figures: other measurements, for example how much the results agree.
    """
    from teleport.provenance import hardware, versions

    columns = {peer: ratios(seconds, peer) for peer in peers}
    print(f"| variant | median s | {unit}/s | {' | '.join(f'times as fast as {peer}' for peer in peers)} |")
    print(f"|---|---|---|{'---|' * len(peers)}")
    for variant, times in seconds.items():
        compared = " | ".join(f"{columns[peer][variant]:.2f}" for peer in peers)
        print(f"| {variant} | {median(times):.4f} | {amount / median(times):.1f} | {compared} |")
    for figure, value in figures.items():
        print(f"{figure.replace('_', ' ')}: {value}")
    written = {
        "seconds": seconds,
        "ratios": columns,
        "amount": amount,
        "unit": unit,
        "figures": figures,
        "arguments": {key: str(v) if isinstance(v, Path) else v for key, v in vars(arguments).items()},
        "hardware": hardware(),
        "versions": versions(),
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / f"{name}.json"
    path.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"written to {path}")
    return written
