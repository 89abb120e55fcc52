"""Miniature official files, served on the loopback interface, and config/NAME.yaml run on them with a size override."""

import csv
import gzip
import hashlib
import io
import json
import sys
import tarfile

import numpy as np
import yaml
from toy import World, make_checkpoint

from collection_world import WORDS, random_passages
from hub import Hub
from loopback import Server
from paths import REPOSITORY
from released_world import ance, bert, distilbert, dpr

NUM_PASSAGES = 1000  # what MS MARCO's measures look at
SIDES = ("checkpoint", "query_checkpoint")
SMALL = {
    "encoder": {
        "checkpoint": {"hub": None, "revision": None, "folder": "data/bert"},
        "max_query_tokens": 12,
        "max_passage_tokens": 24,
    },
    "mining": {"depth": 20},
    "negatives": {"per_source": 5},
    "training": {"batch_queries": 4, "learning_rate": 1e-3, "epochs": None, "steps": 6, "precision": "fp32"},
    "evaluation": {"depth": NUM_PASSAGES, "significance": {"resamples": 99}},
}
EPISODES = [
    {"training": {"negatives_per_query": 3, "stop_after_steps": 4}},
    {"training": {"negatives_per_query": 5, "stop_after_steps": 4}},
    {"training": {"negatives_per_query": 5}},
]


def passages():
    """Lists of words, one per passage."""
    return random_passages(np.random.default_rng(0), NUM_PASSAGES, 6, 20)


def lines(rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()


def tar(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def marco_files():
    """{name: bytes} of the files of config/marco.yaml, in their published forms."""
    words = passages()
    rows = {"train": range(0, 40), "dev": range(40, 50), "dl": range(50, 60)}
    queries = {split: [(1000 + i, " ".join(words[i][:3])) for i in numbers] for split, numbers in rows.items()}
    judged = [(qid, 0, qid % 1000, 1) for qid, _ in queries["train"]]
    graded = [(qid, "Q0", qid % 1000 + 3 - grade, grade) for qid, _ in queries["dl"][:8] for grade in (3, 2, 1, 0)]
    trec = "".join(f"{a} {b} {c} {d}\n" for a, b, c, d in graded).encode()
    topics = gzip.compress(lines(queries["dl"]))
    return {
        "collectionandqueries.tar.gz": tar(
            {
                "collection.tsv": lines((i, " ".join(p)) for i, p in enumerate(words)),
                "queries.dev.small.tsv": lines(queries["dev"]),
                "qrels.dev.small.tsv": lines((qid, 0, qid % 1000, 1) for qid, _ in queries["dev"]),
            }
        ),
        "queries.tar.gz": tar({"queries.train.tsv": lines([*queries["train"], (9, "never judged")])}),
        "qrels.train.tsv": lines(judged),
        "msmarco-test2019-queries.tsv.gz": topics,
        "msmarco-test2020-queries.tsv.gz": topics,
        "2019qrels-pass.txt": trec,
        "2020qrels-pass.txt": trec.replace(b" Q0 ", b" 0 "),
        "marco.tar.gz": tar({"marco/para.title.txt": lines((i, words[i][0]) for i in range(0, NUM_PASSAGES, 2))}),
    }


def document_files():
    """{name: bytes} of the files of config/marco-doc.yaml; documents are 6 to 80 words long, and a query is three words
    of anywhere in its document."""
    rng = np.random.default_rng(0)
    words = random_passages(rng, NUM_PASSAGES, 6, 80)
    rows = {"train": range(0, 40), "dev": range(40, 50), "dl": range(50, 60)}
    places = {i: int(rng.integers(0, len(words[i]) - 3)) for i in range(60)}
    queries = {
        split: [(1000 + i, " ".join(words[i][places[i] : places[i] + 3])) for i in numbers]
        for split, numbers in rows.items()
    }
    graded = [(qid, "Q0", f"D{qid % 1000 + 3 - grade}", grade) for qid, _ in queries["dl"][:8] for grade in (3, 1, 0)]
    trec = "".join(f"{a} {b} {c} {d}\n" for a, b, c, d in graded).encode()
    documents = [(f"D{i}", f"https://{p[0]}.org/{i}", p[1] if i % 3 else "", " ".join(p)) for i, p in enumerate(words)]
    files = {"msmarco-docs.tsv.gz": gzip.compress(lines(documents))}
    for split in ("train", "dev"):
        judged = "".join(f"{qid} 0 D{qid % 1000} 1\n" for qid, _ in queries[split]).encode()
        files[f"msmarco-doc{split}-queries.tsv.gz"] = gzip.compress(lines(queries[split]))
        files[f"msmarco-doc{split}-qrels.tsv.gz"] = gzip.compress(judged)
    for year in (2019, 2020):
        files[f"msmarco-test{year}-queries.tsv.gz"] = gzip.compress(lines(queries["dl"]))
        files[f"{year}qrels-docs.txt"] = trec
    return files


def nq_files():
    """{name: bytes} of the files of config/nq.yaml, in their published forms; an answer is two words of a passage."""
    words = passages()
    corpus = io.StringIO()
    writer = csv.writer(corpus, delimiter="\t", lineterminator="\n")
    writer.writerow(["id", "text", "title"])
    for number, passage in enumerate(words, 1):
        writer.writerow([number, f'{" ".join(passage)} "quoted"', passage[0]])

    def question(i):
        return " ".join(words[i][:3]), [" ".join(words[i][3:5])]

    records = []
    for i in range(30):
        text, answers = question(i)
        context = {"title": words[i][0], "text": "", "score": 1000, "title_score": 1, "passage_id": str(i + 1)}
        records.append({"dataset": "nq_train_psgs_w100", "question": text, "answers": answers,
                        "positive_ctxs": [context], "negative_ctxs": [], "hard_negative_ctxs": []})  # fmt: skip
    return {
        "psgs_w100.tsv.gz": gzip.compress(corpus.getvalue().encode()),
        "biencoder-nq-train.json.gz": gzip.compress(json.dumps(records, indent=4).encode()),
        "nq-train.qa.csv": lines(question(i) for i in range(40)),
        "nq-test.qa.csv": lines(question(i) for i in range(40, 52)),
    }


def released(name):
    """{hub id: Released} of the checkpoints under `external` in config/NAME.yaml, in their file forms, and their
    commits {hub id: 40 hex digits} where the configuration names one.
    """
    forms = {
        "castorini/ance-msmarco-passage": ance,
        "castorini/ance-msmarco-doc-maxp": ance,
        "castorini/ance-dpr-question-multi": dpr,
        "castorini/ance-dpr-context-multi": dpr,
        "sebastian-hofstaetter/distilbert-dot-tas_b-b256-msmarco": distilbert,
    }
    encoders = [entry["encoder"] for entry in read_config(name)["external"].values()]
    sides = [encoder[side] for encoder in encoders for side in SIDES if side in encoder]
    made = {side["hub"]: forms.get(side["hub"], bert)(3 * number) for number, side in enumerate(sides)}
    return made, {side["hub"]: side["revision"] for side in sides if len(side["revision"]) == 40}


def read_config(name):
    return yaml.safe_load((REPOSITORY / "config" / f"{name}.yaml").read_text())


class OfficialWorld(World):
    """config/NAME.yaml with a size override, whose files come from a server and a hub of its own."""

    @classmethod
    def create(cls, folder, name, files, episodes):
        World.copy_repository(folder)
        make_checkpoint(folder / "data/bert", [*WORDS, "quoted", '"'])
        world = cls(folder)
        world.name, world.server = name, Server(files)
        world.released, commits = released(name)
        world.hub = Hub({hub_id: made.files for hub_id, made in world.released.items()}, commits)
        world.environment = world.hub.environment(folder / "hub")
        urls = {file: [world.server.url(f"gone/{file}"), world.server.url(file)] for file in files}
        listed = read_config(name)["collection"]["files"]
        sizes = {
            file: {
                "mirrors": urls[file],
                "bytes": len(files[file]),
                "md5": listed[file].get("md5") and hashlib.md5(files[file]).hexdigest(),
                "sha256": listed[file].get("sha256") and hashlib.sha256(files[file]).hexdigest(),
            }
            for file in listed
        }
        world.config = SMALL | {"collection": {"files": sizes}, "episodes": EPISODES[:episodes]}
        return world

    def close(self):
        self.server.close()
        self.hub.close()

    def command(self, *arguments, configfiles=()):
        (self.folder / "small.yaml").write_text(yaml.safe_dump(self.config))
        files = [f"config/{self.name}.yaml", "small.yaml", *configfiles]
        return [sys.executable, "-m", "snakemake", *arguments, "--cores", "2", "--configfile", *files]
