"""Equal texts under other ids, against comparing every pair."""

import numpy as np

from collection_world import WORDS
from teleport.collection import equal
from teleport.collection.equal import SameText, digest_of, digests_of, equal_pairs
from teleport.reader import trained_too


def test_the_normal_form_has_no_case_no_width_and_single_spaces():
    same = ["Größe  of\tx", "GRÖSSE of x", " grösse of ｘ ", "gro\u0308sse OF X"]
    assert len({digest_of(text) for text in same}) == 1
    assert len({digest_of(text) for text in ["ab c", "a bc", "abc", "ab, c", ""]}) == 5


def test_groups_and_pairs_equal_a_comparison_of_all(monkeypatch):
    monkeypatch.setattr(equal, "BLOCK", 64)
    rng = np.random.default_rng(3)
    titles = [" ".join(rng.choice(WORDS[:2], rng.integers(0, 2))) for _ in range(200)]
    texts = [" ".join(rng.choice(WORDS[:3], rng.integers(1, 4))) for _ in titles]
    queries = [" ".join(rng.choice(WORDS[:3], rng.integers(1, 5))) for _ in range(60)]
    same = SameText()
    for half in (slice(0, 90), slice(90, None)):
        same.add(titles[half], texts[half])
    whole = [f"{title} {text}".strip() for title, text in zip(titles, texts, strict=True)]
    assert same.firsts().tolist() == [whole.index(text) for text in whole] and same.firsts().dtype == np.int32
    expected = [
        (query, row) for query, text in enumerate(queries) for row in range(200) if text in (whole[row], texts[row])
    ]
    found = equal_pairs(digests_of(queries), same.digests())
    assert list(zip(*found.tolist(), strict=True)) == expected and expected and found.dtype == np.int32
    assert equal_pairs(digests_of([]), same.digests()).shape == (2, 0)


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
    made = stages.collection({"source": "folder", "path": str(tmp_path)})
    splits = {name: made.split(name) for name in made.names}
    assert made.facts["copies"] == 1
    assert {name: split.facts["same_text"] for name, split in splits.items()} == {"train": 0, "test": 1}
    assert np.load(made.files["same_text.npy"]).tolist() == [0, 1, 1]
    assert "1 of 3 passages have" in caplog.text
    assert "text of a passage" not in caplog.text, "the evaluation decides whether they find it"
    assert trained_too(splits) == ["Training reads 1 of the test queries, too."]
    assert trained_too({"test": splits["test"]}) == []
