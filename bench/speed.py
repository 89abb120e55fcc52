"""Every benchmark in one run: how many times as fast each stage is as its peers, on this machine.

    python bench/speed.py    half an hour on an idle machine; then writes docs/measured/speed.md

Each benchmark is a process of its own; the table has its command beside its figures. docs/measured/speed.json keeps the
figures by processor: a run replaces those of this processor and leaves the others.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from results import DATA, markdown, wrapped
from rounds import REPOSITORY
from teleport.encoder.precision import CPU_INFO
from teleport.running.files import read_saved, write_json, write_text
from teleport.running.provenance import git_commit

PAGE, FIGURES = DATA / "speed.md", DATA / "speed.json"
HEAD = """\
# How many times as fast as its peers each stage is
Made by `python bench/speed.py`: medians of interleaved rounds of one run. bench/README.md says what each benchmark
measures. A share is the rate on real tokens, divided by that of bare matrix products; two figures are float32 and
bfloat16. If 74 % of a peer's time is matrix products, no program can be more than 1/0.74 = 1.35 times faster.
"""
ONE_CORE = ["taskset", "-c", "0"]
MINI = "MiniLM, mean pooling"
# {what is measured: command}.
ENCODER = {
    f"encode, {MINI}, one core": [*ONE_CORE, "bench/encode.py", "--threads", "1", "--passages", "128"],
    f"encode, {MINI}, two cores": ["bench/encode.py", "--passages", "256"],
    "encode, MiniLM, the first token, two cores": ["bench/encode.py", "--pooling", "cls", "--passages", "128"],
    "a training step, MiniLM, 8 × (1+7), one core": [*ONE_CORE, "bench/train.py", "--threads", "1", "--queries", "8"],
    "a training step, MiniLM, 8 × (1+7), two cores": ["bench/train.py", "--queries", "8"],
}
OTHERS = {
    "search, 400,000 × 768, the first 200": ["bench/search.py"],
    "BM25, 60,000 passages, the first 200, one core": [*ONE_CORE, "bench/bm25.py", "--threads", "1"],
    "merge": ["bench/merge.py"],
    "measures, 6,980 × 1,000": ["bench/measures.py"],
    "a cross-encoder's scores": ["bench/cross.py"],
    "live search of a step, against the encoding of its queries": ["bench/live.py"],
}
BF16 = ", bf16"  # ends the name of a variant
KINDS = ("amx_bf16", "avx512_bf16")  # a processor's instructions for bfloat16, the best first


def measure(command):
    """Run a benchmark and return the figures that it wrote (dict), with its `command` (text). Its output goes to the
    terminal."""
    at = next(at for at, word in enumerate(command) if word.endswith(".py"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        run = [*command[:at], sys.executable, *command[at:], "--json", str(path)]
        subprocess.run(run, cwd=REPOSITORY, check=True)
        written = json.loads(path.read_text())
    return {name: written[name] for name in ("ratios", "figures", "medians", "hardware")} | {
        "command": " ".join([*command[:at], ".venv/bin/python", *command[at:]])
    }


def processor(hardware):
    """The name of a processor, its family, because generations share a name (ARM has none), and its instructions for
    bfloat16."""
    text = CPU_INFO.read_text()
    family = [f"family {number}" for number in re.findall(r"cpu family\s*: (\d+)", text)[:1]]
    words = text.split()
    return ", ".join([hardware["processor"], *family, next((k for k in KINDS if k in words), "without bfloat16")])


def times(value):
    """A ratio as text, – if it was not measured."""
    return "–" if value is None else f"{value:.2f} ×"


def encoder_rows(what, said):
    """A row per peer: how many times as fast the stage is in each format, and which share of the products each makes.

    In bfloat16 it is compared with that peer in bfloat16, if that was measured.
    """
    shares = {
        name.removeprefix("share of the products' rate, "): f"{value:.2f}"
        for name, value in said["figures"].items()
        if name.startswith("share of")
    }
    rows = []
    for peer in (name for name in said["ratios"] if not name.endswith(BF16)):
        in_bf16 = said["ratios"].get(peer + BF16, said["ratios"][peer])
        pairs = [(f"stage, {form}" for form in ("fp32", "bf16")), (peer, peer + BF16)]
        made = [", ".join(shares[name] for name in names if name in shares) for names in pairs]
        faster = times(said["ratios"][peer].get("stage, fp32")), times(in_bf16.get("stage, bf16"))
        rows.append([what, peer, *faster, *made, f"`{said['command']}`"])
    return rows


def other_rows(what, said):
    """A row per peer and variant of the stage: how many times as fast it is."""
    return [
        [what, variant, peer, times(ratio), f"`{said['command']}`"]
        for peer, ratios in said["ratios"].items()
        for variant, ratio in ratios.items()
        if variant.startswith("stage")
    ]


def once(rows):
    """Rows, with the first and the last cell empty if the row above has the same ones."""
    lines = rows[:1]
    for above, row in pairwise(rows):
        same = (above[0], above[-1]) == (row[0], row[-1])
        lines.append(["", *row[1:-1], ""] if same else row)
    return lines


def page(data):
    """The text of the page: the tables of each processor."""
    text = HEAD
    for name, part in data.items():
        encoder = [row for what, said in part["encoder"].items() for row in encoder_rows(what, said)]
        others = [row for what, said in part["others"].items() for row in other_rows(what, said)]
        text += f"\n## {name}\n" + wrapped(f"{part['cores']} cores, at commit {part['commit']}.") + "\n"
        heads = ["what", "against", "fp32", "bf16", "share, stage", "share, peer", "command"]
        text += markdown(heads, once(encoder)) + "\n"
        text += markdown(["what", "variant", "against", "times as fast", "command"], once(others)) + "\n"
    return text


def main():
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    if os.getloadavg()[0] > os.cpu_count() / 2:
        print("warning: this machine is busy; what the peers lose to it looks like speed", file=sys.stderr)
    groups = {"encoder": ENCODER, "others": OTHERS}
    part = {group: {what: measure(command) for what, command in of.items()} for group, of in groups.items()}
    hardware = next(iter(part["others"].values()))["hardware"]
    part |= {"cores": hardware["cores"], "commit": re.sub(r"^(.{7})[0-9a-f]*", r"\1", str(git_commit()))}
    data = read_saved(FIGURES) | {processor(hardware): part}
    write_json(FIGURES, data)
    write_text(PAGE, page(read_saved(FIGURES)))  # in the order of the file
    print(f"written: the tables of {PAGE}")


if __name__ == "__main__":
    main()
