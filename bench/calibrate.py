"""Measure this machine for `make forecast`: a few seconds of every kind of work, written to results/hardware.json.

    python bench/calibrate.py [--scale 1] [--shared] [--bert-base] [--checkpoint FOLDER] [--tokens 76]

Runs the stages themselves on random texts with the embedded checkpoint, in a temporary folder, and divides the work
that `commands.forecast.costs` counts for each by the time it took. --bert-base takes that architecture, and steps of 31
negatives a query, as in the paper: arithmetic goes faster in larger matrices, most of all on a GPU. --checkpoint takes
another one in its place, and searches vectors of its width. --tokens is the mean length of a passage, which is MS
MARCO's unless said: a small encoder makes more of long ones in a second, as it takes time for each. --scale multiplies
the texts and the passages searched: on a GPU more of them (the default there is 20) let the arithmetic outweigh the
start of its kernels; BM25, which computes on the processor, has there no more. --shared is for a machine that others
use at the same time: it times by the processor seconds of this process, divided by its threads.
"""

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import yaml

import texts
from commands.forecast.costs import stage_cost
from commands.forecast.counts import Counts, artefact_of
from commands.forecast.hardware import MEASURED, Hardware, read_hardware
from rates import (
    answer_rate,
    clock,
    disk_rate,
    lexical_rates,
    merge_rate,
    process_seconds,
    product_rate,
    read_rate,
    search_rates,
    text_rates,
)
from rounds import REPOSITORY
from teleport.encoder.precision import pick_device
from teleport.encoder.tokens import load_tokenizer
from teleport.plan.plan import Plan
from teleport.running.files import write_json
from teleport.running.job import Job
from teleport.running.provenance import hardware
from teleport.running.run import run
from teleport.settings.read import load

# The rate that the time of a stage gives; the others are in rates.py.
RATES = {
    "encode": "encode_flop",
    "train": "train_flop",
    "evaluate": "run_rows",
}
COMPUTING = {"encode": "encode_seconds", "train": "train_seconds"}  # facts: without loading, which is a rate of its own
PASSAGES, TRAIN, TEST, STEPS, DEPTH = 600, 100, 100, 4, 500
MOST_TOKENS = 512  # that an encoder takes
# Of encoding and of training at least: the first batches prepare what all others take. And how many times the texts, or
# steps, it may take.
LEAST_SECONDS, MOST_TIMES = 5.0, 50


def configuration(scale, checkpoint, tokens, collection="collection"):
    """One episode of a few steps on the collection of `write_collection`, with the settings of the embedded default.

    checkpoint: a folder to take instead of the embedded one, with the paper's batches; or None
    tokens: of a passage, in the mean; collection: its folder
    """
    raw = yaml.safe_load((REPOSITORY / "config" / "config.yaml").read_text(encoding="utf-8"))
    raw |= {"collection": {"source": "folder", "path": collection}, "episodes": [{}], "bm25": None}
    raw["encoder"]["max_passage_tokens"] = min(MOST_TOKENS, texts.MAX_PASSAGE_TOKENS * tokens // texts.MEAN_TOKENS)
    raw["training"] |= {"steps": STEPS * scale}
    if checkpoint:
        raw["encoder"] |= {"checkpoint": {"folder": checkpoint}, "pooling": "cls", "normalize": False, "scale": 1.0}
        raw["training"] |= {"batch_queries": 8, "negatives_per_query": 31}
    measures = ["RR@10", "nDCG@10", "R@100", f"R@{DEPTH}"]
    raw["evaluation"] |= {"depth": DEPTH, "splits": ["test"], "measures": measures}
    return raw


def write_collection(folder, scale, mean):
    """Random texts in the folder form, passages of `mean` tokens; every query has one positive."""
    tokenizer, _ = load_tokenizer(texts.folder_in_package(texts.PACKAGE), None)
    words = texts.whole_words(tokenizer)
    folder.mkdir()
    passages = texts.make_texts(words, texts.lengths(PASSAGES * scale, 1, mean), 2)
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t\t{text}\n" for i, text in enumerate(passages)))
    for split, count in (("train", TRAIN * scale), ("test", TEST)):
        queries = texts.make_texts(words, texts.lengths(count, 3, mean=8), 4)
        (folder / f"queries.{split}.tsv").write_text("".join(f"{split}{i}\t{q}\n" for i, q in enumerate(queries)))
        (folder / f"qrels.{split}.tsv").write_text("".join(f"{split}{i}\t0\td{i}\t1\n" for i in range(count)))


def run_stages(plan, threads):
    """Run the stages up to the first training; returns {kind: (Stage, seconds)} of the last stage of each kind.

    All but those that are dear on a CPU run twice, so that the time of loading libraries is not in it.
    """
    done, seconds, on_cpu = set(), {}, pick_device().type == "cpu"
    for stage in plan.stages.values():
        if any(source.kind == "train" or source.name not in done for source in stage.inputs.values()):
            continue
        for _ in range(1 if stage.kind in COMPUTING and on_cpu else 2):
            used = threads if stage.kind in COMPUTING else 1
            started = clock(used)
            run(Job(stage.spec() | {"code": "calibration"}, threads=threads))
            seconds[stage.kind] = stage, clock(used) - started
        if stage.kind in COMPUTING and not clock.shared:
            seconds[stage.kind] = stage, artefact_of(stage).facts[COMPUTING[stage.kind]]
        done.add(stage.name)
    return seconds


def stage_rates(scale, checkpoint, tokens, threads):
    """{rate: amount per second} of the stages that give one: where they compute for less than LEAST_SECONDS, as with a
    small encoder or on a GPU, those of a second run, of more texts and steps."""
    times, rates = dict.fromkeys(COMPUTING, 1), {}
    for number in range(2):
        folder = f"collection-{number}"
        write_collection(Path(folder), scale * times["encode"], tokens)
        plan = Plan(*load(configuration(scale * times["train"], checkpoint, tokens, folder)))
        seconds, counts = run_stages(plan, threads), Counts(plan)
        for kind, rate in RATES.items():
            stage, taken = seconds[kind]
            rates[rate] = stage_cost(stage, counts).work[rate] / taken
        times = {kind: min(MOST_TIMES, math.ceil(LEAST_SECONDS / seconds[kind][1])) for kind in COMPUTING}
        if max(times.values()) == 1:
            break
    return rates


def bert_base_checkpoint(folder, layers):
    """BERT-base with random weights in a folder below `folder`; returns its path (str)."""
    embedded = str(texts.folder_in_package(texts.PACKAGE))
    asked = SimpleNamespace(checkpoint=embedded, bert_base=True, pooling=None, layers=layers)
    return texts.checkpoint(asked, folder)


def taken_over(rates):
    """{rate: amount} of what a complete line needs and was not measured, as BM25 where numba is not installed."""
    first = read_hardware(measured="")[1]
    needed = [name for name, field in Hardware.model_fields.items() if field.is_required() and name != "source"]
    return {name: getattr(first, name) for name in needed if name not in rates}


def calibrate(scale, threads, bert_base=False, layers=12, checkpoint=None, tokens=texts.MEAN_TOKENS):
    """The hardware line of this machine (dict), checked to be complete; checkpoint: a folder, or None; tokens: of a
    passage, in the mean."""
    dim = json.loads((checkpoint / "config.json").read_text())["hidden_size"] if checkpoint else None
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        given = bert_base_checkpoint(folder, layers) if bert_base else checkpoint and str(checkpoint)
        rates = stage_rates(scale, given, tokens, threads)
        rates |= text_rates(Path(folder), threads) | {"disk": disk_rate(Path(folder)), "read": read_rate(Path(folder))}
        rates |= search_rates(Path(folder), scale, threads, dim) | lexical_rates(Path(folder), scale, threads)
        rates |= {"answers": answer_rate(Path(folder), threads)}
    rates |= {"merge_rows": merge_rate(), "host_flop": product_rate()} | process_seconds()
    machine = hardware()
    where = ", ".join([machine["processor"], f"{threads} threads", *([machine["gpu"]] if "gpu" in machine else [])])
    how = "in processor seconds" if clock.shared else "by the wall clock"
    encoder = f"{checkpoint.name}, width {dim}" if checkpoint else "MiniLM"
    if bert_base:
        encoder = f"BERT-base{'' if layers == 12 else f' cut to {layers} layers'}"
    encoder += f", {tokens} tokens a passage" * (tokens != texts.MEAN_TOKENS)
    line = {"source": f"measured by bench/calibrate.py {how} on {where}, {encoder}"}
    if lacking := taken_over(rates):
        line["source"] += f"; of the first line of config/hardware.yaml: {', '.join(lacking)}"
    rates |= lacking
    line |= {name: float(f"{rate:.3g}") for name, rate in rates.items()}
    if pick_device().type == "cuda":
        line["device_memory"] = torch.cuda.get_device_properties(0).total_memory
    return Hardware.model_validate(line).model_dump(exclude_unset=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Measure this machine for the forecast.")
    parser.add_argument(
        "--scale", type=int, default=20 if pick_device().type == "cuda" else 1, help="times the texts and passages"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of the stages")
    parser.add_argument("--json", type=Path, default=MEASURED, metavar="FILE", help="the file to write")
    parser.add_argument("--bert-base", action="store_true", help="that architecture instead of the embedded MiniLM")
    parser.add_argument("--checkpoint", type=lambda name: Path(name).resolve(), help="a folder with another encoder")
    parser.add_argument("--tokens", type=int, default=texts.MEAN_TOKENS, help="of a passage, in the mean")
    parser.add_argument("--layers", type=int, default=12, help="of BERT-base; fewer only to try the command")
    parser.add_argument("--shared", action="store_true", help="others use this machine: time by processor seconds")
    arguments = parser.parse_args(arguments)
    if arguments.shared and pick_device().type == "cuda":
        parser.error("--shared counts processor seconds, and the work of a GPU takes none: leave it out.")
    clock.shared = arguments.shared
    if not arguments.shared and os.getloadavg()[0] > arguments.threads / 2:
        print("warning: this machine is busy, so the figures will be too low: wait, or use --shared", file=sys.stderr)
    output = arguments.json.resolve()
    started = time.perf_counter()
    asked = arguments.bert_base, arguments.layers, arguments.checkpoint, arguments.tokens
    line = calibrate(arguments.scale, arguments.threads, *asked)
    write_json(output, line)
    for name, value in line.items():
        print(f"{name}: {value if isinstance(value, str) else format(value, '.3g')}")
    print(f"measured in {time.perf_counter() - started:.0f} s, written to {output}")


if __name__ == "__main__":
    main()
