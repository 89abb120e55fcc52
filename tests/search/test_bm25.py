"""Stage `bm25` against Lucene's formula written out."""

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import Stemmer

from collection_world import make_collection
from teleport.search import bm25

SETTINGS = {
    "k1": 0.9,
    "b": 0.4,
    "stemmer": "english",
    "stopwords": "english",
    "depth": 4,
    "split": "test",
    "title": "sep",
}
PASSAGES = [
    ("Cats", "The cat sat on the mat; cats sit."),
    ("", "A dog chased the cat."),
    ("Dogs", "Dogs and dogs and more dogs chase."),
    ("", "Nothing to see here."),
    ("", "A dog chased the cat."),
    ("", "A dog chased the cat."),
    ("Sitting", "The mat"),
]
QUERIES = {"test": ["cat chasing", "the of and", "zebra", "dogs dogs cat", "sitting"]}
STOPWORDS = {"the", "on", "and", "to", "of"}  # those of Lucene's English list that occur here


def run(stages, queries=QUERIES, **changes):
    passages = [(f"d{i}", title, text) for i, (title, text) in enumerate(PASSAGES)]
    texts = [(f"q{i}", text) for i, text in enumerate(queries["test"])]
    collection = make_collection(stages, passages, {"test": texts})
    return stages.run(bm25.run, "bm25", SETTINGS | changes, {"collection": collection})


def loaded(job):
    return [np.load(job.folder / f"{name}.npy") for name in ("ids", "scores", "rows")]


def terms(text, stemmer):
    words = [word for word in re.findall(r"\w\w+", text.lower()) if word not in STOPWORDS]
    return stemmer.stemWords(words) if stemmer else words


def lucene(k1, b, stemmer, with_title):
    """Scores of every query and passage by the formula."""
    passages = [Counter(terms(f"{t} {text}" if with_title else text, stemmer)) for t, text in PASSAGES]
    average = sum(p.total() for p in passages) / len(passages)
    scores = np.zeros((len(QUERIES["test"]), len(passages)))
    for row, query in enumerate(QUERIES["test"]):
        for term in terms(query, stemmer):
            containing = sum(term in p for p in passages)
            idf = math.log(1 + (len(passages) - containing + 0.5) / (containing + 0.5))
            for column, passage in enumerate(passages):
                length = k1 * (1 - b + b * passage.total() / average)
                scores[row, column] += idf * passage[term] / (passage[term] + length)
    return scores


@pytest.mark.parametrize("k1, b", [(0.9, 0.4), (1.2, 0.75)])
@pytest.mark.parametrize("stemmer", ["english", None])
@pytest.mark.parametrize("title", ["sep", "space", "none"])
def test_scores_are_those_of_the_formula(stages, k1, b, stemmer, title):
    job = run(stages, k1=k1, b=b, stemmer=stemmer, title=title, depth=7)
    expected = lucene(k1, b, stemmer and Stemmer.Stemmer(stemmer), title != "none")
    ids, scores, rows = loaded(job)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert (ids.dtype, scores.dtype, rows.dtype) == (np.int32, np.float32, np.int32)
    for row, line in enumerate(expected.astype(np.float32)):
        order = sorted(np.flatnonzero(line), key=lambda passage: (-round(float(line[passage]), 5), passage))
        assert ids[row].tolist() == order + [-1] * (7 - len(order))
        np.testing.assert_allclose(scores[row, : len(order)], line[order], rtol=1e-5)
        assert not scores[row, len(order) :].any()


def test_ties_go_to_the_smaller_number_and_queries_without_terms_find_nothing(stages):
    ids, scores, _ = loaded(run(stages, title="none", depth=2, queries={"test": ["chased cat", "the", "zebra"]}))
    assert ids.tolist() == [[1, 4], [-1, -1], [-1, -1]]
    assert scores[0, 0] == scores[0, 1] > 0 and not scores[1:].any()


def test_facts(stages):
    job = run(stages, queries={"test": ["mat", "zebra"]})
    facts = json.loads((job.folder / "manifest.json").read_text())["facts"]
    assert (facts["num_queries"], facts["depth"], facts["mean_retrieved"]) == (2, 4, 1.0)


def test_unknown_stemmer(stages):
    with pytest.raises(
        ValueError, match="bm25.stemmer is 'klingon'; Snowball has .*german.* Choose one of them, or null"
    ):
        run(stages, stemmer="klingon")


def test_the_order_of_sets_does_not_matter(tmp_path):
    """bm25s numbers terms in the order of a set, which changes from process to process: the files must not."""
    code = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2], sys.argv[3]]
from stages import Stages
from test_bm25 import run
run(Stages(Path(sys.argv[4])), depth=7)
"""
    here = Path(__file__).resolve()
    folders = [str(here.parent), str(here.parents[1]), str(Path(bm25.__file__).parents[2])]
    written = []
    for seed in ("1", "2"):
        root = tmp_path / seed
        root.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, *folders, str(root)], env=environment, check=True)
        written.append({path.name: path.read_bytes() for path in root.glob("results/stages/bm25/*/*.npy")})
    assert set(written[0]) == {"ids.npy", "scores.npy", "rows.npy"} and written[0] == written[1]
