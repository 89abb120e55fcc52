"""A finished workflow with a stage of every kind, each of which can be made again, disturbed, within a second.

Its stages are planned as Snakemake's are, but run in children of `stage_server.py`, one after another.
"""

import contextlib
import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from toy import CONFIG, make_checkpoint

from collection_world import WORDS, random_passages, write_folder
from loopback import Server
from stages import spec_file
from teleport.plan.kinds import KINDS
from teleport.plan.plan import Plan
from teleport.running.code import files_digest, stage_code
from teleport.running.job import spec_of

PASSAGES = 60
# Names of facts that time and attempts change.
CHANGES = re.compile("seconds$|^attempts$|^resumed_from$|^share$|_per_second$")
SPLITS = {"train": range(0, 24), "test": range(24, 32), "dev": range(32, 40)}
NUMBERS = {"negatives_per_query": 2, "batch_queries": 4, "learning_rate": 1e-3, "steps": 3, "precision": "fp32"}
WATCHED = {"evaluate_every": 1, "select": "dev", "average_with_start": 0.2}
WATCHED |= {"dev": {"split": "dev", "passages": 20, "random": 5}}
LIVE = {"counts": None, "live": {"depth": 10, "index": "PQ4x4"}}
ON_QUERIES = {"loss": {"kind": "lambda", "metric_cut": 5}, "trains": ["query"], "negatives_per_query": 0}
COUNTS = {"query": 3, "lookahead": 3, "momentum": 3, "bm25": 2, "random": 1, "file": 1}
RANKED = {"steps": 3, "batch_queries": 4, "negatives_per_query": 2, "learning_rate": 1e-3, "precision": "fp32"}
RANKED |= {"pool": {"experiment": "tele", "episode": 1}, "evaluate_every": 1, "select": "dev", "dev": {"depth": 5}}
RANKER = {"checkpoint": {"folder": "data/ranker"}, "max_tokens": 32, "precision": "fp32", "training": RANKED}
TEACHERS = {"judge": {"file": "data/scores.tsv"}, "ranker": {"cross_encoder": RANKER}}
TAUGHT = {"counts": {"query": 3, "bm25": 2}, "draw": "top", "filters": {"max_score": 0.9, "scores": "judge"}}
TAUGHT |= {"relabel": "rlhn"}
BY_TEACHERS = {"loss": {"kind": "kl", "scores": "ranker"}, "masks": [{"kind": "guide", "scores": "miner"}]}
MINED = {
    "encoder": CONFIG["encoder"],
    "mining": {"depth": 10},
    "negatives": {"counts": COUNTS, "file": {"path": "data/negatives.jsonl"}},
    "training": NUMBERS,
    "evaluation": {
        "splits": ["test"],
        "depth": PASSAGES,
        "measures": ["RR@10", f"Errors@{PASSAGES}"],
        "significance": {"resamples": 99},
        "rerank": {"test": {"file": "data/candidates.tsv", "form": "tsv", "measures": ["RR@10"]}},
        "analyses": {"errors": "test", "against": {"run": "BM25"}, "negatives": True, "forgetting": True},
    },
    "collection": {"source": "folder", "path": "data/toy"},
    "episodes": [{}, {}],
    "experiments": {
        "tele": {"label": "ANCE-Tele"},
        "watched": {"training": NUMBERS | WATCHED, "episodes": [{}]},
        "adore": {"negatives": LIVE, "training": NUMBERS | ON_QUERIES, "episodes": [{}]},
        "taught": {"teachers": TEACHERS, "negatives": TAUGHT, "training": NUMBERS | BY_TEACHERS, "episodes": [{}]},
        "chunked": {"encoder": {"chunks": 2, "max_passage_tokens": 8, "vectors": "fp16"}, "episodes": []},
    },
}
# Stages that do more than the one of their kind: {name: (kind, what tells them)}.
VARIANTS = {
    "train, with a dev set": ("train", lambda stage: "dev" in stage.inputs),
    "train, live search": ("train", lambda stage: "index" in stage.inputs),
    "encode, chunks in fp16": ("encode", lambda stage: stage.settings.chunks == 2),
    "retrieve, chunks": ("retrieve", lambda stage: stage.inputs["passages"].settings.chunks == 2),
    "index, PQ": ("index", lambda stage: stage.settings.index.kind == "pq"),
}
DISTURBED = [*KINDS, *VARIANTS]
FORMS = {
    "corpus": {"form": "dpr", "file": "psgs.tsv.gz"},
    "splits": {"train": {"form": "dpr", "queries": "train.json"}, "test": {"form": "qa", "queries": "test.csv"}},
}
ASKED = {
    "encoder": CONFIG["encoder"],
    "mining": {"depth": 10},
    "negatives": {"mode": "released_code", "per_source": 3, "remove": "answers"},
    "training": NUMBERS | {"positive": "first"},
    "evaluation": {"splits": ["test"], "depth": PASSAGES, "measures": ["Cov@5"], "significance": {"resamples": 99}},
    "episodes": [{}],
    "experiments": {"asked": {}},
}


def make_files(folder):
    """The toy collection, candidates, negatives of a file and a checkpoint below `folder`.

    Returns the same passages and queries as official files ({name: bytes}).
    """
    import numpy as np

    rng = np.random.default_rng(0)
    texts = random_passages(rng, PASSAGES, 5, 20)
    passages = [(f"d{i}", f"title{i}", " ".join(words)) for i, words in enumerate(texts)]
    queries = {split: [(f"q{i}", " ".join(texts[i][:4])) for i in numbers] for split, numbers in SPLITS.items()}
    judgments = {split: [(row, i, 1) for row, i in enumerate(numbers)] for split, numbers in SPLITS.items()}
    write_folder(folder / "toy", passages, queries, judgments)
    candidates = [f"q{n}\td{(n + k) % PASSAGES}\tquery\tpassage\n" for n in SPLITS["test"] for k in range(5)]
    (folder / "candidates.tsv").write_text("".join(candidates))
    negatives = [{"query_id": f"q{n}", "query": "", "negative_passages": [{"docid": "d59"}]} for n in SPLITS["train"]]
    (folder / "negatives.jsonl").write_text("".join(json.dumps(line) + "\n" for line in negatives))
    make_checkpoint(folder / "bert", WORDS)
    scores = [f"q{n}\td{i}\t{(n + 3 * i) % 10 / 10}\n" for n in SPLITS["train"] for i in range(PASSAGES)]
    (folder / "scores.tsv").write_text("".join(scores))
    make_ranker(folder / "bert", folder / "ranker")
    return {
        "psgs.tsv.gz": gzip.compress(b"id\ttext\ttitle\n" + "".join(
            f"{i + 1}\t{' '.join(words)}\ttitle{i}\n" for i, words in enumerate(texts)).encode(), mtime=0),
        "train.json": json.dumps([question(i, texts[i]) for i in SPLITS["train"]]).encode(),
        "test.csv": "".join(f"{' '.join(texts[i][:3])}\t['{texts[i][4]}']\n" for i in SPLITS["test"]).encode(),
    }  # fmt: skip


def make_ranker(bert, folder):
    """A cross-encoder of a checkpoint's backbone and tokenizer, with a head that is drawn."""
    from transformers import AutoModelForSequenceClassification

    shutil.copytree(bert, folder)
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_pretrained(bert, num_labels=1).save_pretrained(folder)


def question(number, words):
    """A record of DPR; every fourth one has no positive, so that it is found by the answer."""
    contexts = [{"title": "", "text": "", "passage_id": str(number + 1)}] if number % 4 else []
    return {"question": " ".join(words[:3]), "answers": [words[4]], "positive_ctxs": contexts}


class FaultWorld:
    """`stages`: {name: Stage} in the order in which they can be made; `one_of`: {kind: the stage that is disturbed};
    `sound`: {name: files of its manifest}; `tree`: every path below results when all is finished; `calls`: {name: how
    many calls of a stage change a file}.
    """

    def __init__(self, folder):
        self.folder, self.numbers, self.answers, self.calls = folder, itertools.count(), {}, {}
        files = make_files(folder / "data")
        self.http = Server(files)
        official = {name: {"mirrors": [self.http.url(name)]} for name in files}
        collection = {"source": "downloads", "positives": "answers", "files": official, **FORMS}
        with contextlib.chdir(folder):
            mined, asked = (self.plan(c) for c in (MINED, ASKED | {"collection": collection}))
        last = [stage for stage in asked.stages.values() if stage.kind == "positives"][-1]
        self.stages = in_order([*mined.stages.values(), last])
        self.one_of = {}
        for stage in self.stages.values():  # the last of those that read most
            if len(stage.inputs) >= len(getattr(self.one_of.get(stage.kind), "inputs", ())):
                self.one_of[stage.kind] = stage
        for name, (kind, is_one) in VARIANTS.items():
            self.one_of[name] = next(s for s in self.stages.values() if s.kind == kind and is_one(s))
        assert set(self.one_of) == set(DISTURBED), "every kind of stage is disturbed: plan one of the new kind"
        self.files_digest = files_digest()
        command = [sys.executable, str(Path(__file__).parent / "stage_server.py"), str(folder)]
        plain = {"OMP_NUM_THREADS": "1", "NUMBA_DISABLE_JIT": "1", "HF_HUB_OFFLINE": "1"}  # to compile takes seconds
        self.server = subprocess.Popen(
            command, cwd=folder, env=os.environ | plain, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.sees_calls = self.answer("ready")["sees_calls"]
        self.mend(self.stages.values())
        self.sound = {name: self.told(stage) for name, stage in self.stages.items()}
        self.tree = self.paths()

    def plan(self, config):
        Path("config.yaml").write_text(yaml.safe_dump(config))
        return Plan.of_files(["config.yaml"])

    def close(self):
        self.server.stdin.close()
        self.server.wait()
        self.http.close()

    def place(self, stage):
        """The folder of a stage's artefact."""
        return self.folder / "results/stages" / stage.name

    def manifest(self, stage):
        return json.loads((self.place(stage) / "manifest.json").read_text())

    def told(self, stage):
        """What the manifest of a stage says of its files, and its facts but for times and attempts (dict)."""
        manifest = self.manifest(stage)
        return manifest["files"] | {"facts": steady(manifest["facts"])}

    def start(self, stage, *options, **disturbance):
        """Have a stage made, in another `folder` where one is named; `answer` takes the number that is returned, and
        waits for its end."""
        code, folder = stage_code(stage.kind, stage.loads), Path(disturbance.get("folder", self.folder))
        arguments = [spec_file(folder, spec_of(stage)), "--code", code, "--files", self.files_digest]
        arguments += ["--anew", str(time.time()), "--save-every", "0", *options]
        return self.ask(arguments=arguments, **disturbance)

    def ask(self, **request):
        """Send a request to stage_server.py; returns its number, for `answer`."""
        number = next(self.numbers)
        self.server.stdin.write(json.dumps({"id": number} | request) + "\n")
        self.server.stdin.flush()
        return number

    def answer(self, number):
        while number not in self.answers:
            answer = json.loads(self.server.stdout.readline())
            self.answers[answer["id"]] = answer
        return self.answers.pop(number)

    def run(self, stage, *options, **disturbance):
        """Make a stage; returns how that ended, see stage_server.py."""
        return self.answer(self.start(stage, *options, **disturbance))

    def number_of_calls(self, stage):
        """How many calls that change a file the stage makes; skips the test where they cannot be seen."""
        if not self.sees_calls:
            pytest.skip("this system hands no system calls to another process (seccomp's user notification, x86-64)")
        if stage.name not in self.calls:
            self.forget(stage)
            answer = self.run(stage, point=10**9)
            assert answer["status"] == 0 and answer["calls"] > 1, answer
            self.calls[stage.name] = answer["calls"]
        return self.calls[stage.name]

    def forget(self, stage, keep_files=False):
        """Nothing of a stage is there; with `keep_files` only its manifest is gone, as Snakemake deletes it."""
        if keep_files:
            (self.place(stage) / "manifest.json").unlink(missing_ok=True)
        else:
            shutil.rmtree(self.place(stage), ignore_errors=True)
        if stage.kind == "download":
            fetched, recorded = self.folder / "data/downloads", self.folder / "data/downloads/digests.json"
            for path in (path for name in stage.settings.files for path in fetched.glob(f"*{name}*")):
                path.unlink()
            if recorded.exists():  # others' digests stay
                digests = json.loads(recorded.read_text())
                own = [name for name in digests if Path(name).name in stage.settings.files]
                recorded.write_text(json.dumps({name: digests[name] for name in digests if name not in own}))

    def restore(self, stage):
        """Make a stage again, whatever a disturbance has left of it."""
        self.forget(stage)
        shutil.rmtree(self.folder / "results/resume" / stage.name, ignore_errors=True)
        self.mend([stage])

    def mend(self, stages):
        """Make those stages that are not finished."""
        for stage in stages:
            if not (self.place(stage) / "manifest.json").exists():
                answer = self.run(stage)
                assert answer["status"] == 0, answer["output"]

    def paths(self):
        """Every file and folder below results and the downloads (set); locks stay when they are free."""
        found = {path for root in ("results", "data/downloads") for path in (self.folder / root).rglob("*")}
        return {str(path.relative_to(self.folder)) for path in found} - {"results/resume", "results/locks"}

    def differences(self, stage):
        """What is not as it was before anything was disturbed (list of str); finish it first."""
        if not (self.place(stage) / "manifest.json").exists():
            return ["there is no manifest"]
        told, sound = self.told(stage), self.sound[stage.name]
        different = [f"{name} differs" for name in told.keys() | sound.keys() if told.get(name) != sound.get(name)]
        left = {path for path in self.paths() ^ self.tree if not path.startswith("results/locks/")}
        return different + sorted(left)


def steady(facts):
    """Facts (plain JSON) without those that another attempt, or another moment, changes."""
    if not isinstance(facts, dict):
        return facts
    return {name: steady(fact) for name, fact in facts.items() if not CHANGES.search(name)}


def in_order(stages):
    """{name: stage} of some stages and all that they read, each after what it reads."""
    found = {}

    def add(stage):
        if stage.name not in found:
            for read in stage.inputs.values():
                add(read)
            found[stage.name] = stage

    for stage in stages:
        add(stage)
    return found
