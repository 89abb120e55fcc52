"""Equal texts under other ids, against comparing every pair."""

import json

import numpy as np
import pyarrow.parquet as pq
from teleport.collection.build import run

from collection_world import WORDS
from teleport.collection.equal import SameText, digest_of
from teleport.collection.overlap import trained_too
from teleport.running.artefact import Artefact


def test_the_normal_form_has_no_case_no_width_and_single_spaces():
    same = ["Größe  of\tx", "GRÖSSE of x", " grösse of ｘ ", "gro\u0308sse OF X"]
    assert len({digest_of(text) for text in same}) == 1
    assert len({digest_of(text) for text in ["ab c", "a bc", "abc", "ab, c", ""]}) == 5


def test_groups_and_pairs_equal_a_comparison_of_all(tmp_path):
    rng = np.random.default_rng(3)
    titles = [" ".join(rng.choice(WORDS[:2], rng.integers(0, 2))) for _ in range(200)]
    texts = [" ".join(rng.choice(WORDS[:3], rng.integers(1, 4))) for _ in titles]
    queries = [" ".join(rng.choice(WORDS[:3], rng.integers(1, 5))) for _ in range(60)]
    same = SameText()
    for half in (slice(0, 90), slice(90, None)):
        same.add_passages(titles[half], texts[half])
    whole = [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]
    assert same.groups().tolist() == [whole.index(text) for text in whole] and same.groups().dtype == np.int32
    same.add_queries("train", queries[:30], tmp_path / "train.parquet")
    same.add_queries("test", queries[30:], tmp_path / "test.parquet")
    for split, own in (("train", queries[:30]), ("test", queries[30:])):
        expected = [
            (query, row) for query, text in enumerate(own) for row in range(200) if text in (whole[row], texts[row])
        ]
        found = pq.read_table(tmp_path / f"{split}.parquet").to_pydict()
        assert list(zip(found["query"], found["passage"], strict=True)) == expected and expected
    facts = same.facts()
    assert facts["copies"] == 200 - len(set(whole)) > 0
    assert facts["trained"] == {"test": sum(text in queries[:30] for text in queries[30:])} != {"test": 0}
    assert facts["queries"] == {
        split: sum(text in {*whole, *texts} for text in own)
        for split, own in (("train", queries[:30]), ("test", queries[30:]))
    }


def test_a_collection_tells_what_is_the_same_under_other_ids(stages, tmp_path, caplog):
    files = {
        "corpus.tsv": "a\t\tx y\nb\tT\tother\nc\tt\tOther\n",
        "queries.train.tsv": "q\twhat is it\n",
        "qrels.train.tsv": "q 0 b 1\n",
        "queries.test.tsv": "a\tX y\nr\tWhat is it\n",
        "qrels.test.tsv": "a 0 b 1\nr 0 b 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    job = stages.run(run, "collection", {"source": {"source": "folder", "path": str(tmp_path)}})
    facts = Artefact(job.folder).facts
    assert json.loads(json.dumps(facts["same_text"])) == {
        "copies": 1, "queries": {"train": 0, "test": 1}, "trained": {"test": 1}
    }  # fmt: skip
    assert np.load(job.folder / "same_text.npy").tolist() == [0, 1, 1]
    for said in ("1 of 3 passages have", "1 queries of test have the text of a passage", "1 of 2 queries of test are"):
        assert said in caplog.text
    paths = {split: job.folder / f"queries.{split}.parquet" for split in ("train", "test")}
    assert trained_too(paths) == ["Of the test queries 1 are training queries, too."]
