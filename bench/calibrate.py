"""Measure this machine for `teleport forecast`: its stages on random texts, written to results/hardware.json.

    python bench/calibrate.py [--scale 1] [--bert-base] [--checkpoint FOLDER] [--tokens 76]

Runs the stages themselves on random texts with the embedded checkpoint, in a temporary folder. A rate is the work that
a package's `costs.py` counts for a stage, divided by the time it took. Products, the disk and the start of a process
are timed alone. Rates that are not measured here come from the first line of config/hardware.yaml. --bert-base takes
that architecture, and steps of 31 negatives a query, as in the paper: arithmetic is faster in larger matrices, most of
all on a GPU. --checkpoint takes another encoder instead. --tokens is the mean length of a passage, by default MS
MARCO's. --scale multiplies the texts and steps: on a GPU the default is 20, so that the arithmetic outweighs the launch
of kernels.
"""

import argparse
import contextlib
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import yaml

import texts
from commands.forecast.counts import Counts, artefact_of
from commands.forecast.forecast import stage_cost
from commands.forecast.hardware import LINES, MEASURED, Hardware, read_hardware
from rounds import REPOSITORY, median_seconds
from teleport.costs import search_flop
from teleport.encoder.precision import pick_device
from teleport.encoder.tokens import load_tokenizer
from teleport.plan.plan import Plan
from teleport.running.files import sha256_file, write_json
from teleport.running.job import Job, spec_of
from teleport.running.provenance import hardware
from teleport.running.run import run
from teleport.search.exact import Exact
from teleport.settings.read import load
from teleport.settings.yaml_mapping import read_mapping

# The rate that the time of each kind of stage measures.
RATES = {"corpus": "texts", "tokens": "tokens", "lexical_index": "bm25_tokens"}
RATES |= {"encode": "encode_flop", "train": "train_flop", "evaluate": "rows"}
COMPUTING = {"encode": "encode_seconds", "train": "train_seconds"}  # facts: without loading, which is a rate of its own
PASSAGES, TRAIN, TEST, STEPS, DEPTH = 600, 100, 100, 4, 500
DIM = 768  # of the products that are timed alone
MOST_TOKENS = 512  # that an encoder takes
# The least seconds of encoding and of training, because the first batches set up what all others use; and how many
# times as many texts or steps may be used to reach them.
LEAST_SECONDS, MOST_TIMES = 5.0, 50


def configuration(scale, checkpoint, tokens, collection="collection"):
    """One episode of a few steps on the collection of `write_collection`, with the settings of the embedded default.

    checkpoint: a folder to take instead of the embedded one, with the paper's batches; or None
    tokens: of a passage, in the mean; collection: its folder
    """
    raw = yaml.safe_load((REPOSITORY / "config" / "config.yaml").read_text(encoding="utf-8"))
    raw |= {"collection": {"source": "folder", "path": collection}, "episodes": [{}], "bm25": {}}
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
    tokenizer, _ = load_tokenizer(texts.folder_in_package(texts.PACKAGE))
    words = texts.whole_words(tokenizer)
    folder.mkdir()
    passages = texts.make_texts(words, texts.lengths(PASSAGES * scale, 1, mean), 2)
    (folder / "corpus.tsv").write_text("".join(f"d{i}\t\t{text}\n" for i, text in enumerate(passages)))
    for split, count, seed in (("train", TRAIN * scale, 3), ("test", TEST, 5)):
        queries = texts.make_texts(words, texts.lengths(count, seed, mean=8), seed + 1)
        (folder / f"queries.{split}.tsv").write_text("".join(f"{split}{i}\t{q}\n" for i, q in enumerate(queries)))
        (folder / f"qrels.{split}.tsv").write_text("".join(f"{split}{i}\t0\td{i}\t1\n" for i in range(count)))


def run_stages(plan, threads):
    """Run the stages up to the first training; returns {kind: (Stage, seconds)} of the last stage of each kind, and of
    the passages' stage if a kind reads texts.

    Stages run twice, so that the time of loading libraries is not counted, except those that are slow on a CPU.
    """
    done, seconds, passages, on_cpu = set(), {}, {}, pick_device().type == "cpu"
    for stage in plan.stages.values():
        if stage.kind == "bm25":  # the search of so few passages is no rate
            continue
        if any(source.kind == "train" or source.name not in done for source in stage.inputs.values()):
            continue
        for _ in range(1 if stage.kind in COMPUTING and on_cpu else 2):
            started = time.perf_counter()
            run(Job(spec_of(stage) | {"code": "calibration"}, threads=threads))
            seconds[stage.kind] = stage, time.perf_counter() - started
        if stage.kind in COMPUTING:
            seconds[stage.kind] = stage, artefact_of(stage).facts[COMPUTING[stage.kind]]
        done.add(stage.name)
        if getattr(stage.settings, "of", None) == "passages":
            passages[stage.kind] = seconds[stage.kind]
    return seconds | passages


def stage_rates(scale, checkpoint, tokens, threads):
    """{rate: amount per second} of the stages that measure one. If encoding or training takes less than LEAST_SECONDS,
    as with a small encoder or on a GPU, the rates are those of a second run with more texts and steps."""
    times, rates = dict.fromkeys(COMPUTING, 1), {}
    for number in range(2):
        folder = f"collection-{number}"
        write_collection(Path(folder), scale * times["encode"], tokens)
        plan = Plan(*load(configuration(scale * times["train"], checkpoint, tokens, folder)))
        seconds, counts = run_stages(plan, threads), Counts(plan)
        for kind, rate in [each for each in RATES.items() if each[0] in seconds]:
            stage, taken = seconds[kind]
            rates[rate] = stage_cost(stage, counts).work[rate] / taken
        times = {kind: min(MOST_TIMES, math.ceil(LEAST_SECONDS / seconds[kind][1])) for kind in COMPUTING}
        if max(times.values()) == 1:
            break
    return rates


def bert_base_checkpoint(folder):
    """BERT-base with random weights in a folder below `folder`; returns its path (str)."""
    embedded = str(texts.folder_in_package(texts.PACKAGE))
    asked = SimpleNamespace(checkpoint=embedded, bert_base=True, pooling=None)
    return texts.checkpoint(asked, folder)


def product_rates():
    """FLOP/s of inner products with the selection of the best, on the device that stages search on and on the
    processor."""

    def rate(lines, passages, search):
        return search_flop(lines, passages, DIM) / median_seconds(search)

    few, many = torch.randn(128, DIM), torch.randn(32_768, DIM)
    host = rate(128, 32_768, lambda: (few @ many.T).topk(DEPTH))
    if pick_device().type == "cuda":  # several blocks of passages, as in a large search
        few, many = torch.randn(16_384, DIM), torch.randn(2**20, DIM)
    index = Exact(many.numpy(), threads=torch.get_num_threads())
    searched = rate(len(few), len(many), lambda: index.search(few.numpy(), DEPTH))
    return {"host_flop": host, "search_flop": searched}


def disk_rate(folder):
    """Bytes/s of a file that is written, synced to the disk and hashed."""
    block, path = os.urandom(2**26), folder / "block"

    def write():
        with open(path, "wb") as file:
            file.write(block)
            os.fsync(file.fileno())
        sha256_file(path)

    return len(block) / median_seconds(write)


def process_seconds():
    """Seconds to start a process with the library, and further seconds to load what a training does."""

    def start(code):
        return median_seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    startup = start("import numpy, pyarrow, teleport.running.run")
    loaded = start("import teleport.training.train; from transformers import BertModel")  # it loads most by itself
    return {"startup": startup, "load": max(0.0, loaded - startup)}


def taken_over(rates):
    """{rate: amount} that a complete line needs and was not measured, from the first line of config/hardware.yaml."""
    first = read_hardware(next(iter(read_mapping(LINES))))[1]
    needed = [name for name, field in Hardware.model_fields.items() if field.is_required() and name != "source"]
    return {name: getattr(first, name) for name in needed if name not in rates}


def calibrate(scale, threads, bert_base=False, checkpoint=None, tokens=texts.MEAN_TOKENS):
    """The hardware line of this machine (dict), checked to be complete; checkpoint: a folder, or None; tokens: of a
    passage, in the mean."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        given = bert_base_checkpoint(folder) if bert_base else checkpoint and str(checkpoint)
        rates = stage_rates(scale, given, tokens, threads) | {"disk": disk_rate(Path(folder))}
    rates |= product_rates() | process_seconds()
    machine = hardware()
    where = ", ".join([machine["processor"], f"{threads} threads", *([machine["gpu"]] if "gpu" in machine else [])])
    encoder = "BERT-base" if bert_base else checkpoint.name if checkpoint else "MiniLM"
    encoder += f", {tokens} tokens a passage" * (tokens != texts.MEAN_TOKENS)
    line = {"source": f"measured by bench/calibrate.py on {where}, {encoder}"}
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
    arguments = parser.parse_args(arguments)
    if os.getloadavg()[0] > arguments.threads / 2:
        print("warning: this machine is busy, so the figures will be too low: wait", file=sys.stderr)
    output = arguments.json.resolve()
    started = time.perf_counter()
    asked = arguments.bert_base, arguments.checkpoint, arguments.tokens
    line = calibrate(arguments.scale, arguments.threads, *asked)
    write_json(output, line)
    for name, value in line.items():
        print(f"{name}: {value if isinstance(value, str) else format(value, '.3g')}")
    print(f"measured in {time.perf_counter() - started:.0f} s, written to {output}")


if __name__ == "__main__":
    main()
