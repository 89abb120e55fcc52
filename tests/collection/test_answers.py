"""Answer matching: literal cases, random text, and the official NQ questions, against a plain implementation."""

import gzip
import json
import time
import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plain_answers import plain_holds, plain_parts, plain_tokens
from teleport.answers import find_answers
from teleport.reader import read_passages

CASES = {
    "a part of the tokens": ("December 1972", "on 14 December 1972 UTC", True),
    "any case": ("BOB russell", "Written by Bob Russell.", True),
    "a part of a word": ("one", "someone", False),
    "with something between": ("Bob Russell", "Bob Scott Russell", False),
    "longer than the passage": ("Bob Russell", "Bob", False),
    "the whole passage": ("Bob Russell", "Bob Russell", True),
    "punctuation marks are tokens": ("U.S.", "the U.S. army", True),
    "and do not vanish": ("US", "the U.S. army", False),
    "white space around them does not count": ("3,000", "about 3 , 000 men", True),
    "hyphen": ("well known", "a well-known man", False),
    "symbols are tokens one by one": ("$5", "it cost $5, not €5", True),
    "emoji and its modifier are two tokens": ("\N{THUMBS UP SIGN}", "\N{THUMBS UP SIGN}\U0001f3fd!", True),
    "accents, composed or not": ("Beyonc\u00e9", "by Beyonce\u0301 Knowles", True),
    "accents count": ("Beyonce", "by Beyonc\u00e9 Knowles", False),
    "marks in another order": ("a\u0323\u0307", "x a\u0307\u0323 y", True),
    "a mark joins what it follows": ("a", "a\u0301", False),
    "a mark alone is a token": ("\u0301", "a - \u0301 b", True),
    "upper-case accents": ("ÉCOLE", "une école", True),
    "Greek in capitals, final sigma": ("ΟΔΟΣ", "η οδος αυτη", True),
    "a sigma that is not final": ("ΟΔΟΣ", "η οδοσ αυτη", False),
    "final in the token, not in the text": ("οδος", "ΟΔΟΣ'Α", True),
    "final sigma before letters after an apostrophe": ("ΟΔΟΣ'Α", "οδος ' α", True),
    "sigma alone": ("Σ", "the sum σ of", True),
    "Greek accents": ("ΟΔΟΣ", "η οδός", False),
    "sharp s is no ss": ("STRASSE", "Straße", False),
    "capital sharp s": ("STRAẞE", "Straße", True),
    "dotted capital i": ("İstanbul", "in i\u0307stanbul", True),
    "dotted capital i is no i": ("İstanbul", "in istanbul", False),
    "Arabic": ("القاهرة", "تقع القاهرة، عاصمة مصر", True),
    "Arabic vowel marks count": ("القاهرة", "القَاهِرة", False),
    "Chinese characters are letters of one run": ("東京", "東京都", False),
    "Chinese between punctuation": ("東京", "「東京」、日本", True),
    "Hangul in syllables and in jamo": (unicodedata.normalize("NFD", "서울"), "수도는 서울 이다", True),
    "Devanagari with vowel signs": ("हिन्दी", "भाषा हिन्दी है", True),
    "compatibility forms differ: full width": ("1972", "１９７２", False),
    "compatibility forms differ: ligature": ("fi", "ﬁ", False),
    "the ohm sign is omega": ("\u2126", "\u03c9", True),
    "no-break space": ("New York", "New\u00a0York", True),
    "soft hyphen and zero width space separate": ("co op er", "co\u00adop\u200ber", True),
    "line break": ("New York", "New\nYork", True),
    "roman numeral": ("Ⅳ", "Henry ⅳ", True),
    "an answer of white space is in everything": (" \t", "anything", True),
    "and in nothing": ("", "\u200b", True),
}


def write_corpus(path, texts, titles=None, **options):
    columns = {"doc_id": list(map(str, range(len(texts)))), "title": titles or [""] * len(texts), "text": texts}
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize(("answer", "text", "expected"), CASES.values(), ids=CASES)
def test_literal_cases(tmp_path, answer, text, expected):
    corpus = write_corpus(tmp_path / "corpus.parquet", [text])
    assert find_answers(corpus, np.array([[0]], np.int32), [[answer]]).tolist() == [[expected]]
    tokens, wanted = plain_tokens(text), plain_tokens(answer)
    assert plain_holds(tokens, wanted) is expected, "the plain implementation is wrong"
    assert (tuple(wanted) in plain_parts(tokens, len(wanted))) is expected, "the plain implementation is wrong"


def test_any_answer_counts_titles_and_empty_slots_do_not(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.parquet", ["red", "green", "blue"], ["green", "blue", "red"])
    ids = np.array([[0, 1, 2], [2, -1, 1], [-1, -1, 0]], np.int32)
    answers = [["green"], ["x", "green", "blue"], [""]]
    expected = [[False, True, False], [True, False, True], [False, False, True]]
    assert find_answers(corpus, ids, answers).tolist() == expected
    assert not find_answers(corpus, ids, [[], [], []]).any()
    assert find_answers(corpus, np.array([[3, 0, -1]], np.int32), [["red"]]).tolist() == [[False, True, False]]
    assert find_answers(corpus, np.zeros((0, 3), np.int32), []).shape == (0, 3)


def test_passages_are_read_from_all_row_groups(tmp_path):
    corpus = write_corpus(tmp_path / "corpus.parquet", [f"text {n}" for n in range(10)], row_group_size=3)
    rows = np.array([0, 2, 3, 5, 9])
    assert list(read_passages(corpus, rows, ["text"])) == [(f"text {n}",) for n in rows]
    ids = np.array([[9, 3, 0], [4, 9, 8]], np.int32)
    expected = [[True, False, False], [False, True, False]]
    assert find_answers(corpus, ids, [["text 9"], ["text 9"]]).tolist() == expected


def test_several_processes_find_what_one_finds(tmp_path, monkeypatch):
    rng, reported = np.random.default_rng(3), []
    words = [f"w{n}" for n in range(50)]
    texts = [" ".join(rng.choice(words, 6)) for _ in range(40)]
    corpus = write_corpus(tmp_path / "corpus.parquet", texts, row_group_size=7)
    ids = rng.integers(-1, 40, (30, 9)).astype(np.int32)
    ids[ids // 7 == 2] = -1  # of one row group nothing is wanted
    answers = [list(rng.choice(words, 2)) for _ in range(30)]
    one = find_answers(corpus, ids, answers, 2)
    assert 0.1 < one.mean() < 0.5
    monkeypatch.setattr("teleport.answers.ANSWER_PASSAGES", 10)
    two = find_answers(corpus, ids, answers, 2, lambda *done: reported.append(done))
    assert (one == two).all()
    wanted = len(np.unique(ids[ids >= 0]))
    assert len(reported) == 6 and reported[-1] == (wanted, wanted, "passages")


def check_against_plain(corpus, texts, ids_QK, answers_Q):
    """Assert that every pair is judged the same; returns how many hold an answer."""
    tokens = {row: plain_tokens(texts[row]) for row in np.unique(ids_QK[ids_QK >= 0]).tolist()}
    expected = np.zeros(ids_QK.shape, bool)
    for query, (ids, answers) in enumerate(zip(ids_QK.tolist(), answers_Q, strict=True)):
        wanted = [plain_tokens(answer) for answer in answers]
        expected[query] = [i >= 0 and any(plain_holds(tokens[i], answer) for answer in wanted) for i in ids]
    found = find_answers(corpus, ids_QK, answers_Q)
    wrong = np.argwhere(found != expected)
    assert [(answers_Q[q], texts[ids_QK[q, k]]) for q, k in wrong[:3]] == []
    return int(expected.sum())


def test_random_text_of_difficult_characters(tmp_path):
    alphabet = [*"aAbΣσςΑİIiıßẞ1Ⅳ東서é'.,-$ \n", *"\u0301\u0307\u0323\u0345\u00a0\u00ad\u200d\u064e\u0627\u2126"]
    rng = np.random.default_rng(11)

    def word(longest):
        return "".join(rng.choice(alphabet, rng.integers(1, longest)))

    texts = [word(30) for _ in range(400)]
    answers = [[word(4) for _ in range(rng.integers(1, 3))] for _ in range(300)]
    corpus = write_corpus(tmp_path / "corpus.parquet", texts)
    ids = np.stack([rng.choice(400, 100, replace=False) for _ in answers]).astype(np.int32)
    held = check_against_plain(corpus, texts, ids, answers)
    assert 2000 < held < 15000, "neither nearly all nor nearly none"


@pytest.fixture(scope="module")
def official(shared):
    """The passages of openqa-wiki, the 3,610 NQ questions with answers, and the gold passages of a question."""
    wiki = shared / "collections/openqa-wiki"
    with gzip.open(wiki / "corpus.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        corpus = [line.rstrip("\n").split("\t") for line in file]
    rows = {doc_id: row for row, (doc_id, _, _) in enumerate(corpus)}
    lines = (shared / "judgments/openqa/NQ-open.dev.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    texts, gold = {}, {}
    for split in ("train", "dev", "test"):
        for line in (wiki / f"nq/queries.{split}.tsv").read_text(encoding="utf-8").splitlines():
            query_id, text = line.split("\t")
            texts[query_id] = text
        for line in (wiki / f"nq/qrels.{split}.tsv").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            gold.setdefault(texts[fields[0]], []).append(rows[fields[-2]])
    return [text for _, _, text in corpus], questions, gold


def near_misses(texts, answers, limit=8):
    """Passages in which the letters of an answer occur, as a word, in a word or across words."""
    small = [answer.lower() for answer in answers]
    return [row for row, text in texts if any(answer in text for answer in small)][:limit]


@pytest.mark.slow
def test_all_official_nq_questions(official, tmp_path):
    """Every question with all its gold passages, with passages that have the letters of an answer, and a sample."""
    texts, questions, gold = official
    assert (len(questions), len(texts)) == (3610, 13306)
    rng, some = np.random.default_rng(3), [(row, texts[row].lower()) for row in range(0, len(texts), 40)]
    lists, answers, num_gold = [], [], 0
    for question in questions:
        known = gold.get(question["question"], [])
        num_gold += len(known)
        answers.append(question["answer"])
        rows = [*known, *near_misses(some, question["answer"]), *rng.choice(len(texts), 12, replace=False).tolist()]
        lists.append(list(dict.fromkeys(rows)))
    ids = np.full((len(lists), max(map(len, lists))), -1, np.int32)
    for query, rows in enumerate(lists):
        ids[query, : len(rows)] = rows
    corpus = write_corpus(tmp_path / "corpus.parquet", texts, row_group_size=5000)
    held = check_against_plain(corpus, texts, ids, answers)
    assert num_gold > 5000 and held > num_gold * 0.9
    assert np.count_nonzero(ids >= 0) - held > 30000


def plain_matrix(texts, answers_Q):
    """bool [Q, passages]: which passage holds an answer of which question; every text is cut into tokens once."""
    asking = {}  # answer, as tokens: the questions that have it
    for query, answers in enumerate(answers_Q):
        for answer in answers:
            asking.setdefault(tuple(plain_tokens(answer)), []).append(query)
    by_size = {}
    for wanted in asking:
        by_size.setdefault(len(wanted), set()).add(wanted)
    held = np.zeros((len(answers_Q), len(texts)), bool)
    for row, text in enumerate(texts):
        tokens = plain_tokens(text)
        for size, wanted in by_size.items():
            for answer in wanted & plain_parts(tokens, size):
                held[asking[answer], row] = True
    return held


@pytest.mark.slow
def test_all_official_nq_questions_against_all_passages(official, tmp_path):
    """All 3,610 x 13,306 pairs through both implementations; the times are printed (pytest -s)."""
    texts, questions, _ = official
    answers = [question["answer"] for question in questions]
    started = time.process_time()
    expected = plain_matrix(texts, answers)
    plain_seconds = time.process_time() - started
    corpus = write_corpus(tmp_path / "corpus.parquet", texts, row_group_size=5000)
    found, started = np.zeros_like(expected), time.process_time()
    for first in range(0, len(answers), 361):  # ids of all pairs at once would take 0.8 GB
        some = answers[first : first + 361]
        ids = np.tile(np.arange(len(texts), dtype=np.int32), (len(some), 1))
        found[first : first + 361] = find_answers(corpus, ids, some)
    seconds = time.process_time() - started
    print(f"\n{expected.size:,} pairs, {expected.sum():,} of them hold an answer, {(found != expected).sum()} differ; ")
    print(f"processor seconds: {seconds:.1f}, plain implementation {plain_seconds:.1f}")
    assert expected.shape == (3610, 13306) and expected.sum() > 100_000
    assert (found == expected).all(), [(answers[q], texts[row]) for q, row in np.argwhere(found != expected)[:3]]
