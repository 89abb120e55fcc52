"""Rehearse a paper's workflow at its counts, or a part of them, with drawn texts and a miniature encoder.

    python bench/rehearse.py marco [--scale 0.01] [--questions 1.0] [--cores 2] [--configs config/variants/….yaml]
    python bench/rehearse.py all [--here]    # every row of every paper configuration, at a thousandth
                                             # (`rehearsal/every_row.py`)

Writes the paper's official files in their official forms (`rehearsal/official.py`), an encoder of one layer with 32
dimensions instead of each checkpoint that a row names, and the paper's own configuration with both. Then it runs every
episode, table and page. At the end it prints a line per stage of ten seconds or more, and one per kind: time, memory
and disk, beside the forecast. The forecast is by `results/hardware.json` (`python bench/calibrate.py --checkpoint`
measures one with the miniature), or else by the first line of config/hardware.yaml. It proves that every stage works at
those counts, in how much memory, and how it grows. It says nothing about the quality of a system or the speed of a real
encoder.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import yaml
from bm25s.stopwords import STOPWORDS_EN

import texts
from commands.forecast.counts import SPECIAL_TOKENS
from rehearsal.miniature import HIDDEN, slug, token_frequency, tokenizer_of, write_bpe, write_miniature
from rehearsal.official import PAPERS, WRITERS, Corpus, query_id
from rehearsal.report import LONG_SECONDS, by_kind, compare, render
from rehearsal.words import Words
from rounds import REPOSITORY
from teleport.encoder.source import folder_in_package
from teleport.encoder.tokens import load_tokenizer
from teleport.refusal import Refusal
from teleport.running.files import write_json
from teleport.settings.read import merged_files

CONFIG = REPOSITORY / "config"
SIDES = ("checkpoint", "query_checkpoint")
# The least values of settings that count steps; most papers count epochs.
LEAST_STEPS = 20
LEAST = dict.fromkeys(("steps", "stop_after_steps", "cycle_steps"), LEAST_STEPS)
LEAST |= {"warmup_steps": LEAST_STEPS // 4, "evaluate_every": LEAST_STEPS // 2}
LEAST |= {"stop_after_steps": LEAST_STEPS // 3 - 1}  # leaves steps for a third episode that continues
# The share of a paper's learning rate. There is nothing to learn from drawn questions: at the full rate 18,858 steps
# bring the 32 dimensions together, and a search then measures ties.
RATE_SHARE = 0.1
VOCABULARY, HALF = 300_000, 3  # words; most letters of each half of a rare one, so that texts are as long as real ones
SHORT = 6  # letters of a word that is more frequent than longer ones, as in English


def prepare(paper, scale, questions, folder, more=(), segments=None):
    """Write the paper's files, a miniature of each checkpoint, and the configuration in one file; returns its path.

    more: configurations (Paths) after the paper's. Those below config/ are scaled like the paper's own; others come
    after it unchanged. segments: how many episodes of a long trajectory to keep; None: all.
    """
    counts = PAPERS[paper].scaled(scale, questions)
    files, written, note = folder / "files", folder / "rehearsal.yaml", folder / "made.json"
    tokenizer = load_tokenizer(source := folder_in_package(texts.PACKAGE))[0]
    words = Words(vocabulary(tokenizer), seed=42)
    wanted = json.dumps({"paper": paper, "counts": counts.__dict__})
    if not (note.is_file() and json.loads(note.read_text()) == json.loads(wanted)):
        files.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        WRITERS[paper](files, Corpus(words, counts))
        size = sum(path.stat().st_size for path in files.iterdir())
        print(f"{counts.passages:,} passages, {counts.queries}: {size / 1e9:.2f} GB of files in "
              f"{time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
        write_json(note, json.loads(wanted))
    # Every time, as config/PAPER.yaml may have changed since the files were drawn.
    own = [path for path in more if path.resolve().is_relative_to(CONFIG)]
    raw = merged_files([CONFIG / f"{paper}.yaml", *own])
    raw = scaled(raw, counts.queries["train"] / PAPERS[paper].queries["train"], segments)
    word_tokens = sum(token_frequency(tokenizer, words).values())
    raw |= sizes_of(raw, counts, word_tokens, files)
    with_miniatures(raw, folder / "checkpoints", source, words)
    with_drawn_queries(raw)
    written.write_text(yaml.safe_dump(raw, sort_keys=False))
    return written


def vocabulary(tokenizer):
    """VOCABULARY words, the most frequent first: those that are one token, then pairs of short ones joined into one."""
    whole = by_frequency(texts.whole_words(tokenizer))
    return texts.with_pairs(whole, [word for word in whole if len(word) <= HALF], VOCABULARY)


def by_frequency(words):
    """The words, the most frequent first: stop words, short words, long words; within each group by digest."""

    def rank(word):
        return word not in STOPWORDS_EN, len(word) > SHORT, hashlib.sha256(word.encode()).digest()

    return sorted(words, key=rank)


def sizes_of(raw, counts, word_tokens, files):
    """The blocks `collection` and `counts` of a configuration (dict) for the drawn files."""
    sizes = {
        name: entry | {"bytes": (files / name).stat().st_size, "md5": None, "sha256": None}
        for name, entry in raw["collection"]["files"].items()
    }
    tokens = round(word_tokens * (counts.words + counts.title_words)) + SPECIAL_TOKENS
    of_texts = {"passage_tokens": tokens, "query_tokens": round(word_tokens * counts.question_words) + SPECIAL_TOKENS}
    numbers = {"passages": counts.passages, "queries": counts.queries, "download_bytes": None}
    numbers |= {"positives": {"train": counts.positives}} if counts.positives else {}
    collection = raw["collection"] | {"local": str(files), "files": sizes}
    return {"collection": collection, "counts": raw.get("counts", {}) | numbers | of_texts}


def with_drawn_queries(raw):
    """Replace the queries that the figures of a configuration (dict) name by drawn ones, of TREC DL 2019 if they name
    no split."""
    for figure in (raw.get("figures") or {}).values():
        if isinstance(figure.get("queries"), list):  # of other figures it is a number
            split, count = figure.get("split", "dl19"), len(figure["queries"])
            figure["queries"] = [str(query_id(split, number)) for number in range(count)]


def scaled(node, share, segments=None, key=None):
    """A configuration, or a part of it under a `key`, with `share` of its steps, at least LEAST, and RATE_SHARE of its
    learning rates. With `segments`, an entry repeats at most `segments` - 1 times, and trainings have at most one
    epoch."""
    if isinstance(node, dict):
        if segments and node.get("epochs") and node.get("warmup_steps"):
            node = node | {"warmup_steps": 0}  # the one epoch that is left may be one step
        return {name: scaled(value, share, segments, name) for name, value in node.items()}
    if isinstance(node, list):
        return [scaled(value, share, segments) for value in node]
    if key == "learning_rate" and node is not None:
        return RATE_SHARE * float(node)  # YAML reads 5e-6 as a text
    if key in ("index", "search_index") and str(node).startswith("PQ"):  # its parts must divide the dimensions
        return f"PQ{max(part for part in range(1, HIDDEN + 1) if HIDDEN % part == 0 and part <= int(node[2:]))}"
    if key == "repeat" and segments:
        return min(node, segments - 1)  # another entry comes before it
    if key == "epochs" and segments:
        return min(node, 1) if node else node
    return max(LEAST[key], round(node * share)) if key in LEAST and node else node


def with_miniatures(raw, folder, source, words):
    """Replace each checkpoint that a configuration (dict) names by a miniature, and the width of each projection by
    HIDDEN. The miniature of a published checkpoint with a projection has that head. source: a folder with BERT's
    tokenizer"""
    published, others = list((raw.get("external") or {}).values()), [raw]
    shared = (raw.get("encoder") or {}).get("projection")
    heads = {slug(entry["encoder"][side]) for entry in published for side in SIDES
             if (entry.get("encoder") or {}).get(side) and entry["encoder"].get("projection", shared)}  # fmt: skip
    tokenizers = {}
    while others:
        node = others.pop()
        others += [
            value for value in (node.values() if isinstance(node, dict) else node) if isinstance(value, dict | list)
        ]
        for side in SIDES if isinstance(node, dict) else ():
            if node.get(side):
                made = folder / slug(node[side])
                if not made.is_dir():
                    if not tokenizers:
                        write_bpe(folder.parent / "bpe", words)
                        tokenizers = {
                            "bert": tokenizer_of(source, words),
                            "roberta": tokenizer_of(folder.parent / "bpe", words),
                        }
                    write_miniature(made, node[side], tokenizers, head=slug(node[side]) in heads)
                node[side] = {"folder": str(made)}
        if isinstance(node, dict) and node.get("projection"):
            node["projection"] = HIDDEN


def run(files, cores, arguments, folder=Path(".")):
    """Run the workflow of these configurations in a folder; returns (its status, most bytes by which the disk's use
    grew)."""
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", str(cores)]
    command += ["--configfile", *map(str, files), *arguments]
    before = most = shutil.disk_usage(folder).used
    with subprocess.Popen(command, cwd=folder) as workflow:
        while workflow.poll() is None:
            time.sleep(1)
            most = max(most, shutil.disk_usage(folder).used)
    return workflow.returncode, most - before


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paper", choices=[*sorted(PAPERS), "all"])
    parser.add_argument("--scale", type=float, default=0.001, help="share of the passages and questions (1: all)")
    parser.add_argument("--questions", type=float, default=1.0, help="further share of the training questions")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("data/rehearsal"))
    parser.add_argument("--configs", type=Path, nargs="*", default=[], help="configurations after the paper's")
    parser.add_argument("--segments", type=int, help="of a long trajectory, so many episodes; all: 3")
    parser.add_argument("--here", action="store_true", help="all: stages in this process, pages by Snakemake")
    parser.add_argument("--json", type=Path, help="write the comparison there too, a line per stage")
    parser.add_argument("--compare", action="store_true", help="run nothing: only compare what is finished")
    arguments, passed_on = parser.parse_known_args(arguments)
    if not (arguments.scale > 0 and arguments.questions > 0):
        parser.error("--scale and --questions are shares above 0.")
    if arguments.paper == "all":
        from rehearsal.every_row import rehearse_all

        return rehearse_all(arguments, passed_on)
    folder = (arguments.folder / f"{arguments.paper}-{arguments.scale:g}-{arguments.questions:g}").resolve()
    written = prepare(
        arguments.paper, arguments.scale, arguments.questions, folder, arguments.configs, arguments.segments
    )
    after = [path for path in arguments.configs if not path.resolve().is_relative_to(CONFIG)]
    files, status = [written, *after], 0
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
