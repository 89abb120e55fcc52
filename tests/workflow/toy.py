"""The real workflow at toy size: a copy of the repository in a temporary folder, random text, a tiny random BERT."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import yaml

from collection_world import WORDS, random_passages, write_folder
from paths import REPOSITORY
from untouched import untouched

NUM_PASSAGES, NUM_QUERIES = 240, 120
SPLITS = {"train": range(0, 80), "dev": range(80, 100), "test": range(100, 120)}
CONFIG = {
    "collection": {"source": "folder", "path": "data/toy"},
    "encoder": {
        "checkpoint": {"folder": "data/bert"},
        "pooling": "mean",
        "normalize": True,
        "scale": 20.0,
        "max_query_tokens": 12,
        "max_passage_tokens": 24,
    },
    "mining": {"depth": 20},
    "negatives": {"alpha": 0.5, "beta": 0.5, "pool": 12},
    "training": {"negatives_per_query": 3, "batch_queries": 4, "learning_rate": 1e-3, "steps": 6, "precision": "fp32"},
    "episodes": [{"training": {"stop_after_steps": 4}}, {"training": {"stop_after_steps": 4}}, {}],
    "experiments": {"tele": {"label": "ANCE-Tele"}},
    "evaluation": {"splits": ["test"], "depth": 50, "measures": ["RR@10", "R@50"], "significance": {"resamples": 99}},
    "report": None,
}


def make_data(folder):
    """Passages of random words; a query is a few words of its positive. Written in the folder form."""
    rng = np.random.default_rng(0)
    texts = random_passages(rng, NUM_PASSAGES, 5, 30)
    passages = [(f"d{i}", f"title{i}", " ".join(words)) for i, words in enumerate(texts)]
    queries = {
        split: [(f"q{i}", " ".join(rng.choice(texts[i], 4))) for i in numbers] for split, numbers in SPLITS.items()
    }
    judgments = {split: [(row, i, 1) for row, i in enumerate(numbers)] for split, numbers in SPLITS.items()}
    write_folder(folder, passages, queries, judgments)


def make_checkpoint(folder, words):
    """A BERT of two layers and 32 dimensions with random weights, in transformers' form."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes))
    model.save_pretrained(folder)
    BertTokenizer(vocab={word: i for i, word in enumerate(vocabulary)}).save_pretrained(folder)


def short_rocketqa():
    """The experiments of config/methods/rocketqa.yaml (dict) at toy size."""
    experiments = yaml.safe_load((REPOSITORY / "config/methods/rocketqa.yaml").read_text())["experiments"]
    short = {"steps": 4, "batch_queries": 4, "precision": "fp32"}
    for experiment in experiments.values():
        experiment["training"] |= short
    experiments["rocketqa-raw"]["mining"]["depth"] = 60
    ranker = experiments["rocketqa"]["teachers"]["ranker"]["cross_encoder"]
    ranker["training"] |= short | {
        "learning_rate": 1e-3,
        "evaluate_every": 2,
        "dev": {"depth": 10},
        "precision": "fp32",
    }
    ranker["max_tokens"] = 48
    # No score of so few steps is below 0.1, so the positive's is the threshold.
    experiments["rocketqa"]["episodes"][1]["negatives"]["filters"] = {"absolute_margin": 0.0, "scores": "ranker"}
    return experiments


class World:
    """A copy of the repository with data; runs Snakemake in it, with `environment` on top of this process's."""

    def __init__(self, folder):
        self.folder, self.environment = folder, {"HF_HUB_OFFLINE": "1"}
        self.config = json.loads(json.dumps(CONFIG))

    @staticmethod
    def copy_repository(folder):
        for name in ("rules", "workflow_scripts", "config", "profiles"):
            shutil.copytree(REPOSITORY / name, folder / name)  # with Python's bytecode: times of files are kept
        shutil.copy(REPOSITORY / "Snakefile", folder)
        shutil.copy(REPOSITORY / "environment.yml", folder)

    @classmethod
    def create(cls, folder):
        cls.copy_repository(folder)
        make_data(folder / "data/toy")
        make_checkpoint(folder / "data/bert", WORDS)
        return cls(folder)

    def forget(self, episode):
        """Remove what the stages of an episode and all tables say is finished: they are made again. Returns the stages'
        names (set)."""
        links = (self.folder / f"results/experiments/tele/episode-{episode}").iterdir()
        manifests = {link.resolve() / "manifest.json" for link in links}
        for manifest in manifests:
            manifest.unlink()
            manifest.with_name("finished.json").unlink()  # else what is unchanged is taken
        for folder in ("experiments", "tables"):
            shutil.rmtree(self.folder / "results" / folder)
        return {f"{manifest.parent.parent.name}/{manifest.parent.name}" for manifest in manifests}

    def copy(self, folder):
        """The same world with its results in another folder; times of files are kept, as `cp -a` does."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return World(folder)

    def command(self, *arguments, configfiles=()):
        (self.folder / "toy.yaml").write_text(yaml.safe_dump(self.config))
        files = ["toy.yaml", *configfiles]
        return [sys.executable, "-m", "snakemake", *arguments, "--cores", "2", "--configfile", *files]

    def snakemake(self, *arguments, configfiles=(), check=True):
        """Run Snakemake; returns its standard output and error as one text. Raises AssertionError when it fails."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")} | self.environment
        result = subprocess.run(
            self.command(*arguments, configfiles=configfiles),
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if check and result.returncode:
            raise AssertionError(f"snakemake {arguments} ended with {result.returncode}:\n{result.stdout[-4000:]}")
        return result.stdout

    def would_run(self, configfiles=(), arguments=()):
        """What a dry run with these arguments announces: (Counter of rules, list of messages)."""
        text = self.snakemake("-n", *arguments, configfiles=configfiles)
        stats = re.search(r"Job stats:\n.*?\n-+\s+-+\n(.*?)\ntotal", text, re.S)
        counts = Counter()
        for line in stats.group(1).splitlines() if stats else []:
            rule, count = line.split()
            counts[rule] = int(count)
        assert stats or "Nothing to be done" in text, text
        return counts, re.findall(r"Job \d+: (.*)", text)

    def manifests(self):
        """{kind/key: manifest} of all finished stages."""
        found = sorted((self.folder / "results/stages").glob("*/*/manifest.json"))
        return {f"{p.parent.parent.name}/{p.parent.name}": json.loads(p.read_text()) for p in found}

    def digests(self):
        """{kind/key/file: SHA-256} of all artefacts, as their manifests record them."""
        stages = self.manifests().items()
        return {f"{name}/{file}": entry["sha256"] for name, m in stages for file, entry in m["files"].items()}


@pytest.fixture(scope="session")
def finished(tmp_path_factory, worker_id):
    """A world whose workflow has run to the end, once for all test processes. Do not change it: `.copy` it."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    world = World(shared / "finished")
    world.config["report"] = {}
    with open(shared / "finished.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        log = shared / "finished.log"
        if not log.exists():
            World.create(world.folder)
            with untouched(world.folder / "data"):
                made = world.snakemake()
            log.write_text(made)
    world = world.copy(tmp_path_factory.mktemp("own") / "world")  # a dry run writes its configuration, too
    world.config["report"] = {}
    world.log = log.read_text()
    return world
