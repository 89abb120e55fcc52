"""Rehearse a paper's workflow at its counts, or a part of them, with drawn texts and a miniature encoder.

    python bench/rehearse.py marco [--scale 0.01] [--questions 1.0] [--cores 2] [--configs config/variants/….yaml]

Writes the paper's official files in their official forms (`rehearsal/official.py`), a checkpoint of one layer with 32
dimensions in the place of every checkpoint, and a configuration that says so; then runs the paper's own configuration
with it: every episode, table and page. At the end a line per stage of ten seconds or more, and one per kind: time,
memory and disk as measured, beside the forecast by `results/hardware.json` (`python bench/calibrate.py --checkpoint`
measures one with the miniature) or else the first line of config/hardware.yaml. What it proves is that every stage
works at those counts, in how much memory, and how it grows; it says nothing of the quality of a system, and nothing of
the speed of a real encoder.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import yaml
from bm25s.stopwords import STOPWORDS_EN

import texts
from commands.forecast.counts import SPECIAL_TOKENS
from rehearsal.miniature import write_miniature
from rehearsal.official import PAPERS, WRITERS, Corpus
from rehearsal.report import LONG_SECONDS, by_kind, compare, render
from rehearsal.words import Words
from rounds import REPOSITORY
from teleport.encoder.source import folder_in_package
from teleport.encoder.tokens import load_tokenizer
from teleport.refusal import Refusal
from teleport.running.files import write_json

SIDES = ("checkpoint", "query_checkpoint")
STEPS = ("steps", "stop_after_steps", "warmup_steps")  # stated as numbers, where most papers have epochs
LEAST_STEPS = 20
# Of a paper's learning rate. There is nothing to learn from drawn questions: at the full rate 18,858 steps bring the 32
# dimensions together, and a search then measures ties.
RATE_SHARE = 0.1
VOCABULARY, HALF = 300_000, 3  # words; letters of those that make a rare one: a text is as long as a real one
SHORT = 6  # letters of a word that is more frequent than longer ones, as in English


def prepare(paper, scale, questions, folder):
    """Write files, checkpoint and the configuration beside the paper's; returns the path of that configuration."""
    counts = PAPERS[paper].scaled(scale, questions)
    files, checkpoint, override = folder / "files", folder / "checkpoint", folder / "rehearsal.yaml"
    wanted = json.dumps({"paper": paper, "counts": counts.__dict__})
    note = folder / "made.json"
    source = folder_in_package(texts.PACKAGE)
    tokenizer, special = load_tokenizer(source, None)
    words = Words(vocabulary(tokenizer), seed=42)
    frequency = token_frequency(tokenizer, words)
    if not (note.is_file() and json.loads(note.read_text()) == json.loads(wanted)):
        files.mkdir(parents=True, exist_ok=True)
        every_text = dict.fromkeys([*special["before"], *special["after"]], 1.0)
        write_miniature(checkpoint, source, every_text | frequency, special["vocab_size"])
        started = time.monotonic()
        WRITERS[paper](files, Corpus(words, counts))
        size = sum(path.stat().st_size for path in files.iterdir())
        print(f"{counts.passages:,} passages, {counts.queries}: {size / 1e9:.2f} GB of files in "
              f"{time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
        write_json(note, json.loads(wanted))
    # Every time, as config/PAPER.yaml may have changed since the files were drawn.
    written = overrides(paper, counts, sum(frequency.values()), files, checkpoint)
    override.write_text(yaml.safe_dump(written, sort_keys=False))
    return override


def vocabulary(tokenizer):
    """Words from the most frequent one on: those that are a token, and then as many as a collection has, of two."""
    whole = by_frequency(texts.whole_words(tokenizer))
    return texts.with_pairs(whole, [word for word in whole if len(word) <= HALF], VOCABULARY)


def token_frequency(tokenizer, words):
    """{token id: how often it comes for a word of a text}; the sum is the tokens of a word."""
    encoded = tokenizer.encode_batch(words.vocabulary.tolist(), add_special_tokens=False)
    frequency = Counter()
    for tokens, share in zip(encoded, words.shares.tolist(), strict=True):
        for token in tokens.ids:
            frequency[token] += share
    return dict(frequency)


def by_frequency(words):
    """The words from the most frequent one on: stop words, short words, long words, these not by the alphabet."""

    def rank(word):
        return word not in STOPWORDS_EN, len(word) > SHORT, hashlib.sha256(word.encode()).digest()

    return sorted(words, key=rank)


def overrides(paper, counts, word_tokens, files, checkpoint):
    """What differs from config/PAPER.yaml: files, checkpoints, counts, steps and their rates (dict)."""
    given = yaml.safe_load((REPOSITORY / "config" / f"{paper}.yaml").read_text(encoding="utf-8"))
    miniature = {"hub": None, "revision": None, "folder": str(checkpoint)}
    sizes = {}
    for name in given["collection"]["files"]:
        sizes[name] = {"bytes": (files / name).stat().st_size, "md5": None, "sha256": None}
    external = {
        name: {"encoder": {side: miniature for side in SIDES if side in entry["encoder"]} | {"projection": None}}
        for name, entry in given.get("external", {}).items()
    }
    tokens = round(word_tokens * (counts.words + counts.title_words)) + SPECIAL_TOKENS
    return {
        "collection": {"local": str(files), "files": sizes},
        "counts": {"passages": counts.passages, "queries": counts.queries, "download_bytes": None}
        | {"passage_tokens": tokens, "query_tokens": round(word_tokens * counts.question_words) + SPECIAL_TOKENS}
        | ({"positives": {"train": counts.positives}} if counts.positives else {}),
        "encoder": {"checkpoint": miniature} | ({"projection": None} if given["encoder"].get("projection") else {}),
        "external": external,
    } | with_steps(given, counts.queries["train"] / PAPERS[paper].queries["train"])


def with_steps(given, share):
    """The blocks of a configuration (dict) that train, with `share` of the steps that they state, at least
    `LEAST_STEPS`, and `RATE_SHARE` of their learning rates."""

    def scaled(node, key=None):
        if isinstance(node, dict):
            return {name: scaled(value, name) for name, value in node.items()}
        if isinstance(node, list):
            return [scaled(value) for value in node]
        if key == "learning_rate":
            return RATE_SHARE * float(node)  # YAML reads 5e-6 as a text
        return max(LEAST_STEPS, round(node * share)) if key in STEPS and node else node

    blocks = {name: given[name] for name in ("training", "episodes", "experiments") if name in given}
    return {name: scaled(block) for name, block in blocks.items()}


def configurations(paper, override, more):
    """The files of a rehearsal: the paper's, the override, and others after them (list of Paths)."""
    return [REPOSITORY / "config" / f"{paper}.yaml", override, *more]


def run(files, cores, arguments):
    """The workflow of these configurations; returns (its status, bytes by which the disk's use grew at most)."""
    command = [sys.executable, "-m", "snakemake", "--cores", str(cores), "--configfile", *map(str, files), *arguments]
    before = most = shutil.disk_usage(".").used
    with subprocess.Popen(command) as workflow:
        while workflow.poll() is None:
            time.sleep(1)
            most = max(most, shutil.disk_usage(".").used)
    return workflow.returncode, most - before


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paper", choices=sorted(PAPERS))
    parser.add_argument("--scale", type=float, default=0.001, help="share of the passages and questions (1: all)")
    parser.add_argument("--questions", type=float, default=1.0, help="further share of the training questions")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("data/rehearsal"))
    parser.add_argument("--configs", type=Path, nargs="*", default=[], help="configurations after the paper's")
    parser.add_argument("--json", type=Path, help="write the comparison there too, a line per stage")
    parser.add_argument("--compare", action="store_true", help="run nothing: only compare what is finished")
    arguments, passed_on = parser.parse_known_args(arguments)
    if not (arguments.scale > 0 and arguments.questions > 0):
        parser.error("--scale and --questions are shares above 0.")
    folder = (arguments.folder / f"{arguments.paper}-{arguments.scale:g}-{arguments.questions:g}").resolve()
    override = prepare(arguments.paper, arguments.scale, arguments.questions, folder)
    files, status = configurations(arguments.paper, override, arguments.configs), 0
    if not arguments.compare:
        status, grown = run(files, arguments.cores, passed_on)
        print(f"the disk's use grew by {grown / 1e9:.1f} GB at most")
    lines = compare(files)
    print(render([line for line in lines if line["seconds"] >= LONG_SECONDS]), render(by_kind(lines)), sep="\n\n")
    if arguments.json:
        write_json(arguments.json, lines)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refusal as error:
        sys.exit(f"error: {error}")
