"""Stage `bm25` against Lucene's formula written out."""

import logging
import math
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import bm25s
import numpy as np
import pyarrow.parquet as pq
import pytest
import Stemmer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from collection_world import WORDS, make_collection
from stages import facts_of
from teleport.arrays import Ragged
from teleport.collection.forms import apidocs
from teleport.collection.forms.apidocs import package_version
from teleport.encoder import tokens
from teleport.running.files import read_saved
from teleport.search import bm25, lexical_index

INDEX = {"k1": 0.9, "b": 0.4, "stemmer": "english", "stopwords": "english", "title": "sep"}
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


def run(stages, queries=QUERIES, depth=4, threads=1, passages=PASSAGES, **changes):
    """The finished stage `bm25`, after the index and the collection that it reads."""
    passages = [(f"d{i}", title, text) for i, (title, text) in enumerate(passages)]
    texts = [(f"q{i}", text) for i, text in enumerate(queries["test"])]
    collection = make_collection(stages, passages, {"test": texts})
    index = stages.run(lexical_index.run, "lexical_index", INDEX | changes, {"collection": collection})
    inputs = {"collection": collection, "index": index}
    return stages.run(bm25.run, "bm25", {"split": "test", "depth": depth}, inputs, threads)


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
    facts = facts_of(job)
    assert (facts["num_queries"], facts["depth"], facts["mean_retrieved"]) == (2, 4, 1.0)


def test_unknown_stemmer(stages):
    with pytest.raises(ValueError, match="bm25.stemmer is 'klingon'.*german"):
        run(stages, stemmer="klingon")


@pytest.mark.ci(0)
def test_the_order_of_sets_does_not_matter(tmp_path):
    """A set has another order in every process: the files must not."""
    code = """
import sys
from pathlib import Path
from stages import Stages
from test_bm25 import run
run(Stages(Path(sys.argv[1])), depth=7)
"""
    found = os.pathsep.join([os.environ["PYTHONPATH"], str(Path(__file__).parent)])
    written = []
    for seed in ("1", "2"):
        root = tmp_path / seed
        root.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": found}
        subprocess.run([sys.executable, "-c", code, str(root)], env=environment, check=True)
        written.append({path.name: path.read_bytes() for path in root.glob("results/stages/bm25/*/*.npy")})
    assert set(written[0]) == {"ids.npy", "scores.npy", "rows.npy"} and written[0] == written[1]


def peer(passages, queries, depth, k1=0.9, b=0.4):
    """(ids, scores) of bm25s with its own tokenizer, the independent implementation; ties by the smaller number."""
    stemmer = Stemmer.Stemmer("english")
    texts = [" ".join(passage) for passage in passages]
    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    index.index(bm25s.tokenize(texts, stopwords="english", stemmer=stemmer, show_progress=False), show_progress=False)
    ids, scores = np.full((len(queries), depth), -1, np.int32), np.zeros((len(queries), depth), np.float32)
    split = bm25s.tokenize(queries, stopwords="english", stemmer=stemmer, return_ids=False, show_progress=False)
    for row, query in enumerate(split):
        if query:
            of_passages = index.get_scores(query)
            matches = np.flatnonzero(of_passages)
            best = matches[np.lexsort((matches, -of_passages[matches]))][:depth]
            ids[row, : len(best)], scores[row, : len(best)] = best, of_passages[best]
    return ids, scores


@pytest.fixture
def small_steps(monkeypatch):
    """Blocks and batches so small that a few passages and queries go through several of each."""
    monkeypatch.setattr(lexical_index, "BATCH_TEXTS", 4)
    monkeypatch.setattr(bm25, "TASK_QUERIES", 3)
    monkeypatch.setattr(bm25, "BLOCK_QUERIES", 7)


@pytest.mark.parametrize("seed", range(6))
def test_bits_are_those_of_bm25s_on_random_collections(stages, small_steps, seed):
    """Few words, so that scores tie; empty and one-word passages, empty queries, repeats, and more asked than match."""
    rng = np.random.default_rng(seed)
    words = [*WORDS[: rng.integers(3, 40)], "the", "of", "ties", "tied", "Größe", "x"]
    passages = [
        (" ".join(rng.choice(words, rng.integers(0, 3))), " ".join(rng.choice(words, rng.integers(0, 12))))
        for _ in range(rng.integers(20, 90))
    ]
    queries = [" ".join(rng.choice([*words, "unknown"], rng.integers(0, 9))) for _ in range(40)]
    depth = int(rng.choice([1, 5, 120]))
    ids, scores, _ = loaded(run(stages, {"test": queries}, depth, threads=2, passages=passages))
    expected_ids, expected_scores = peer(passages, queries, depth)
    assert ids.tolist() == expected_ids.tolist() and scores.tobytes() == expected_scores.tobytes()
    assert depth == 1 or any(len(set(line[line > 0])) < (line > 0).sum() for line in scores), "no scores tie"


def test_bits_are_those_of_bm25s_on_the_embedded_collection(stages):
    """Its docstrings hold what made-up words do not: code, names, digits."""
    docs = apidocs.harvest({package: package_version(package) for package in ("networkx",)}, 60)
    passages, queries = [(doc.name, doc.body) for doc in docs], [doc.summary for doc in docs[::10]]
    assert len(passages) > 300
    ids, scores, _ = loaded(run(stages, {"test": queries}, 200, threads=2, passages=passages))
    expected_ids, expected_scores = peer(passages, queries, 200)
    assert ids.tolist() == expected_ids.tolist() and scores.tobytes() == expected_scores.tobytes()
    assert (ids[:, -1] >= 0).mean() > 0.5


def test_processes_that_share_the_queries_leave_no_trace(stages, small_steps, monkeypatch):
    asked, apart, queries = [], bm25.processes_apart, [f"{WORDS[row % 5]} {WORDS[row % 3]}" for row in range(20)]
    monkeypatch.setattr(bm25, "LEAST_QUERIES", 10)
    monkeypatch.setattr(bm25, "processes_apart", lambda n, shared: asked.append(n) or apart(n, shared))
    passages = [("", f"{WORDS[row % 7]} {WORDS[row % 11]}") for row in range(70)]
    alone, shared = (loaded(run(stages, {"test": queries}, 9, threads, passages)) for threads in (1, 3))
    assert asked == [1, 2] and all((one == two).all() for one, two in zip(alone, shared, strict=True))
    assert (alone[0] >= 0).any()


def test_the_cost_of_a_killed_search_has_the_earlier_attempts(stages, small_steps, monkeypatch):
    """The table adds these seconds to those of the last process."""
    job = run(stages, queries={"test": QUERIES["test"] * 5})
    assert facts_of(job)["earlier_seconds"] == 0
    killed, saved = type(job)(job.spec | {"key": "f" * 12}, root=stages.root, save_every=0.0), []

    def dying(stop, *_):
        saved.append(read_saved(killed.resume / "ids.npy.json").get("seconds", 0.0))
        if len(saved) == 3:
            raise KeyboardInterrupt

    killed.open_resume()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(killed, "progress", dying)
        bm25.run(killed)
    facts = bm25.run(killed)
    assert saved[2] > saved[1] > saved[0] == 0 and facts["earlier_seconds"] == round(saved[2], 3)
    assert all(map(np.array_equal, loaded(job), loaded(stages.finish(killed, facts))))


def test_queries_without_a_term_are_a_fact_and_a_warning_where_they_are_many(stages, caplog):
    """Chinese: what stands between its marks is one word that no other text has."""
    passages = [("", "我们在北京的图书馆读书。"), ("", "猫在桌子上睡觉。")]
    job = run(stages, {"test": ["北京的图书馆", "猫睡觉"]}, passages=passages)
    assert facts_of(job)["without_terms"] == 1
    assert "100 % of the test queries have no term that is in the index" in caplog.text
    assert "Set bm25.terms to characters" in caplog.text
    caplog.clear()
    few = run(stages, {"test": ["cat"] * 30 + ["zebra"]})
    assert facts_of(few)["without_terms"] == 1 / 31
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


CHINESE = [
    ("", text) for text in ("我们在北京的图书馆读书。", "猫在桌子上睡觉。", "上海的天气很好", "Python 3 图书 list")
]
CHINESE_QUERIES = {"test": ["北京的图书馆", "猫睡觉", "猫", "上海天气", "PYTHON lists", "雨"]}
ANSWERS = [0, 1, 1, 2, 3, -1]


def test_characters_find_what_is_asked_in_chinese(stages, caplog):
    job = run(stages, CHINESE_QUERIES, passages=CHINESE, terms="characters")
    ids, scores, _ = loaded(job)
    assert ids[:, 0].tolist() == ANSWERS and scores[0, 0] > scores[0, 1] > 0
    assert facts_of(job)["without_terms"] == 1 / 6
    assert "Are queries and passages in one language?" in caplog.text
    assert (loaded(run(stages, CHINESE_QUERIES, passages=CHINESE))[0][:4] == -1).all(), "words find it, too"


def test_characters_leave_words_as_they_are(stages):
    """In scripts with spaces the terms are those of words, to the bit."""
    words, characters = (loaded(run(stages, depth=7, terms=terms)) for terms in ("words", "characters"))
    assert all(one.tobytes() == two.tobytes() for one, two in zip(words, characters, strict=True))
    split = list(lexical_index.words_and_characters("x in_a 猫 ab北京cd ภาษา"))
    assert split == ["in_a", "猫", "ab", "北", "京", "北京", "cd", *"ภาษา", "ภา", "าษ", "ษา"]


@pytest.mark.parametrize(
    "text", ["भारत की राजधानी क्या है", "বাংলাদেশের রাজধানী কোথায়", "இந்தியாவின் தலைநகரம்", "שָׁלוֹם עוֹלָם", "e\u0301le\u0300ve"]
)
def test_characters_keep_the_marks_of_a_word(text):
    assert list(lexical_index.words_and_characters(text)) == text.split()
    assert list(lexical_index.words_and_characters(f"ab{text}北")) == [*f"ab{text}".split(), "北"]


def subword_tokens(stages, folder, of, collection):
    """A finished stage `tokens` by a WordPiece that has a few Chinese characters, all of Latin, and [UNK]."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "list", "##s", "python", *letters, *"我在北京图书馆猫睡觉上海天气"]
    words += [f"##{letter}" for letter in letters if letter != "s"]
    tokenizer = Tokenizer(WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    tokenizer.add_special_tokens(words[:4])
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    (folder / "checkpoint").mkdir(exist_ok=True)
    tokenizer.save(str(folder / "checkpoint/tokenizer.json"))
    (folder / "checkpoint/config.json").write_text('{"pad_token_id": 0}')
    pretrained = SimpleNamespace(input=lambda role, name: folder / "checkpoint")
    settings = {"of": of, "prefix": "", "title": "sep" if of == "passages" else "none"}
    job = stages.make("tokens", settings, {"collection": collection})
    job.input = lambda role, name, given=job.input: (pretrained.input if role == "pretrained" else given)(role, name)
    job.facts = lambda role, given=job.facts: {} if role == "pretrained" else given(role)
    return stages.finish(job, tokens.run(job))


def test_subwords_find_what_is_asked_where_the_tokenizer_has_the_script(stages, tmp_path):
    """The scores are those of bm25s over the same subwords, without [UNK] and [SEP]."""
    passages = [
        (f"d{number}", title, text) for number, (title, text) in enumerate([*CHINESE[:3], ("猫", CHINESE[3][1])])
    ]
    texts = [(f"q{number}", text) for number, text in enumerate(CHINESE_QUERIES["test"])]
    collection = make_collection(stages, passages, {"test": texts})
    of = {f"tokens.{name}": subword_tokens(stages, tmp_path, name, collection) for name in ("passages", "queries.test")}
    settings = INDEX | {"terms": "subwords", "stemmer": None, "stopwords": None}
    index = stages.run(lexical_index.run, "lexical_index", settings, {"collection": collection} | of)
    made = stages.run(bm25.run, "bm25", {"split": "test", "depth": 4}, {"collection": collection, "index": index} | of)
    ids, scores, _ = loaded(made)
    assert ids[:, 0].tolist() == ANSWERS
    ids_of = {
        name: Ragged.open(*(job.folder / f"{name[7:]}.{what}.npy" for what in ("offsets", "ids")))
        for name, job in of.items()
    }
    plain = {name: [[str(n) for n in line if n > 3] for line in lists] for name, lists in ids_of.items()}
    assert any(1 in line for line in ids_of["tokens.passages"]) and any(3 in line for line in ids_of["tokens.passages"])
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index(plain["tokens.passages"], show_progress=False)
    for row, query in enumerate(plain["tokens.queries.test"]):
        known = [term for term in query if term in peer.vocab_dict]
        expected = peer.get_scores(known) if known else np.zeros(4)
        found = dict(zip(ids[row].tolist(), scores[row].tolist(), strict=True))
        assert {n: pytest.approx(expected[n], rel=1e-6) for n in np.flatnonzero(expected)} == {
            n: s for n, s in found.items() if n >= 0
        }
    facts = facts_of(index)
    assert facts["vocabulary"] == len({term for line in plain["tokens.passages"] for term in line})


def test_facts_of_the_index(stages):
    job = run(stages)
    index = job.inputs["index"]
    found = pq.read_table(index.path("terms.parquet")).to_pydict()
    assert dict(zip(found["term"], found["passages"], strict=True))["dog"] == 4
    stems = [terms(f"{title} {text}", Stemmer.Stemmer("english")) for title, text in PASSAGES]
    counts = {"vocabulary": len({*chain(*stems)}), "postings": sum(len(set(words)) for words in stems)}
    assert index.facts == {"num_passages": 7, "mean_terms": sum(map(len, stems)) / 7} | counts


def test_passages_without_terms_are_no_error(stages):
    ids, _, _ = loaded(run(stages, passages=[("", "a"), ("", "")]))
    assert (ids == -1).all()


def test_unknown_stop_words(stages):
    with pytest.raises(ValueError, match="bm25.stopwords is 'klingon'"):
        run(stages, stopwords="klingon")
