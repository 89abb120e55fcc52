"""Question answering through the real workflow: positives found by answers, negatives without, coverage, two encoders.

Every answer is looked up once more by the plain implementation of the unit tests.
"""

import csv
import gzip
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from toy import SPLITS, World

from plain_answers import plain_holds, plain_tokens

pytestmark = pytest.mark.slow

CONFIG = {
    "negatives": {"mode": "released_code", "per_source": 8, "remove": "answers"},
    "episodes": [{"training": {"stop_after_steps": 3}}, {}],
}


def make_questions(folder):
    """Answers of one word for all questions; judgments for three of four in train, and for none in test.

    Question 3 of train has an answer that is nowhere, and no judgment.
    """
    texts = [line.split("\t")[2] for line in (folder / "corpus.tsv").read_text().splitlines()]
    for split, numbers in SPLITS.items():
        answers = {i: ["nowhere"] if i == 3 else [texts[i].split()[1].upper(), "or else"] for i in numbers}
        lines = [json.dumps({"id": f"q{i}", "answers": answers[i]}) for i in numbers]
        (folder / f"answers.{split}.jsonl").write_text("\n".join(lines) + "\n")
    qrels = folder / "qrels.train.tsv"
    kept = [line for number, line in enumerate(qrels.read_text().splitlines()) if number % 4 != 3]
    qrels.write_text("\n".join(kept) + "\n")
    (folder / "qrels.test.tsv").unlink()


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The finished workflow over questions with answers."""
    world = World.create(tmp_path_factory.mktemp("openqa") / "world")
    make_questions(world.folder / "data/toy")
    world.config |= CONFIG
    world.config["collection"] |= {"positives": "answers"}
    world.config["encoder"] |= {"tied": False}
    world.config["training"] |= {"positive": "first"}
    world.config["evaluation"] |= {"measures": ["Cov@1", "Cov@5", "Cov@20"]}
    world.snakemake()
    return world


def artefact(world, link, name):
    return world.folder / "results/experiments/tele" / link / name


def facts(world, link):
    return json.loads(artefact(world, link, "manifest.json").read_text())["facts"]


def load(world, link, *names):
    return [np.load(artefact(world, link, f"{name}.npy")) for name in names]


def lists_of(offsets, values):
    return [part.tolist() for part in np.split(values, offsets[1:-1])]


def read_split(world, split):
    """The passages' tokens, and the tokens of the answers of all questions of a split."""
    corpus = pq.read_table(artefact(world, "corpus", "corpus.parquet"))["text"].to_pylist()
    answers = pq.read_table(artefact(world, f"split-{split}", f"answers.{split}.parquet"))["answers"].to_pylist()
    return [plain_tokens(text) for text in corpus], [[plain_tokens(a) for a in some] for some in answers]


def test_positives_are_given_or_found_in_every_episode(asked):
    passages, answers = read_split(asked, "train")
    found = []
    for episode in ("episode-1", "episode-2"):
        ids = load(asked, f"{episode}/retrieve-queries", "ids")[0].tolist()
        positives = lists_of(*load(asked, f"{episode}/positives", "offsets", "passages"))
        for query in range(80):
            first = (p for p in ids[query] if any(plain_holds(passages[p], answer) for answer in answers[query]))
            expected = [query] if query % 4 != 3 else [next(first, None)]
            assert positives[query] == [p for p in expected if p is not None]
        counted = facts(asked, f"{episode}/positives")
        assert counted["given"] == 60 and counted["found"] + counted["without"] == 20
        assert positives[3] == [] and counted["found"] > 3 and counted["without"] >= 1
        anchors, rows = load(asked, f"{episode}/retrieve-positives", "ids", "rows")
        assert rows.tolist() == [query for query in range(80) if positives[query]]
        assert anchors[:, 0].tolist() == [positives[query][0] for query in rows], "a passage is its own neighbour"
        assert facts(asked, f"{episode}/train")["queries_without_positives"] == counted["without"]
        found.append([some for query, some in enumerate(positives) if query % 4 == 3])
    assert found[0] != found[1], "another checkpoint finds other passages"


def test_no_negative_has_an_answer_and_episodes_are_concatenated(asked):
    passages, answers = read_split(asked, "train")
    pools = [lists_of(*load(asked, f"episode-{n}/merge", "offsets", "passages")) for n in (1, 2)]
    removed = 0
    for query in range(80):
        for pool in (pools[0][query], pools[1][query]):
            assert not [p for p in pool if any(plain_holds(passages[p], answer) for answer in answers[query])]
        assert len(pools[0][query]) == (8 if query % 4 == 3 and len(pools[0][query]) == 8 else 16)
        assert pools[1][query][-len(pools[0][query]) :] == pools[0][query], "momentum: the whole last pool"
        ids = load(asked, "episode-1/retrieve-queries", "ids")[0][query].tolist()
        removed += sum(any(plain_holds(passages[p], answer) for answer in answers[query]) for p in ids)
    assert removed > 80


def test_coverage_of_every_system_is_that_of_its_run(asked):
    passages, answers = read_split(asked, "test")
    doc_ids = pq.read_table(artefact(asked, "corpus", "corpus.parquet"))["doc_id"].to_pylist()
    rows = {doc_id: row for row, doc_id in enumerate(doc_ids)}
    table = list(csv.DictReader((asked.folder / "results/tables/main.csv").open()))
    assert [(row["system"], row["episode"]) for row in table] == [
        ("BM25", "0"), ("Zero-shot", "0"), ("ANCE-Tele", "1"), ("ANCE-Tele", "2")
    ]  # fmt: skip
    links = ("evaluate-test", "episode-1/evaluate-test", "episode-2/evaluate-test")
    for row, link in zip(table[1:], links, strict=True):
        ranks = {}
        for line in gzip.decompress(artefact(asked, link, "test.run.gz").read_bytes()).decode().splitlines():
            query, _, doc_id, rank, *_ = line.split()
            tokens = passages[rows[doc_id]]
            if any(plain_holds(tokens, answer) for answer in answers[int(query[1:]) - 100]):
                ranks[query] = min(int(rank), ranks.get(query, 1000))
        for k in (1, 5, 20):
            expected = sum(rank <= k for rank in ranks.values()) / 20
            assert float(row[f"Cov@{k}"]) == pytest.approx(expected)
        assert 0 < float(row["Cov@20"]) <= 1
        assert facts(asked, link)["num_questions"] == 20


def test_both_encoders_are_trained(asked):
    checkpoint = artefact(asked, "episode-2/train", "checkpoint")
    weights = [(checkpoint / side / "model.safetensors").read_bytes() for side in ("query", "passage")]
    assert weights[0] != weights[1]


def test_the_rule_of_the_negatives_decides_from_the_first_merge(asked):
    assert asked.would_run()[0] == {}
    asked.config["negatives"] = asked.config["negatives"] | {"remove": "judged"}
    counts, messages = asked.would_run()
    # Episode 1's positives and retrievals stay; Episode 2's follow its new checkpoint.
    assert {kind: counts[kind] for kind in ("check", "merge", "train", "positives", "encode", "evaluate")} == {
        "check": 1, "merge": 2, "train": 2, "positives": 1, "encode": 6, "evaluate": 2
    }  # fmt: skip
    assert not [message for message in messages if message.startswith("retrieve") and "episode 1" in message]
    asked.config["negatives"]["remove"] = "answers"
