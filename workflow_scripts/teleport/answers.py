"""Tests whether passages hold an answer to a question, by DPR's exact rule.

Question answering has few judged passages, so a passage counts when its body holds one of the answer strings: the
tokens of the answer are a contiguous part of the tokens of the passage. Tokens are those of DPR's SimpleTokenizer: in
the text's NFD, a token is a run of Unicode letters, numbers and marks, or any other single character that is neither
separator nor control. Tokens are lower-cased, not case-folded as it is often described: `ß` and `ss` differ, and a
final sigma `ς` differs from `σ`. Titles are not searched. An answer without any token is part of every text.
"""

import unicodedata
from itertools import islice

import numpy as np
import pyarrow.parquet as pq
import regex

from teleport.budget import ANSWER_PASSAGES
from teleport.reader import read_passages, row_group_bounds
from teleport.running.launch import processes_apart

TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def phrase(text):
    """The tokens of a text, lower-cased, with a space before, between and after them: no token has a space.

    So one phrase is a substring of another exactly when its tokens are a contiguous part of the other's tokens. With
    the spaces, whether a sigma becomes final depends on its token alone, as when tokens are lower-cased one by one.
    """
    return " ".join(["", *TOKEN.findall(unicodedata.normalize("NFD", text)), ""]).lower()


def folded(text):
    """A text in NFD, lower-cased, without final sigmas. It contains every token of the text, folded in the same way.

    Lower-casing works character by character, except for the final sigma. So a match needs the folded token in the
    folded text, and this test is far cheaper than finding the tokens.
    """
    return unicodedata.normalize("NFD", text).lower().replace("ς", "σ")


def prepare(answers):
    """Each answer of a question as (its longest token folded, its phrase)."""
    phrases = [phrase(answer) for answer in answers]
    return [(folded(max(words.split(" "), key=len)), words) for words in phrases]


def find_answers(corpus, ids_QK, answers_Q, processes=1, progress=lambda *_: None):
    """Return which retrieved passages hold an answer of their question: bool [Q, K].

    `corpus` is the path of corpus.parquet, `ids_QK` int32 passage rows (-1, an empty slot, and passages that a run
    numbers after the corpus hold nothing), `answers_Q` a list of answers per question. Every passage is read and
    tokenised at most once, in the order of the corpus. The corpus is never in memory as a whole. If there are many
    passages, up to `processes` processes share its row groups. `progress` is called like a job's.
    """
    prepared_Q = [prepare(answers) for answers in answers_Q]
    ids, depth = ids_QK.ravel(), ids_QK.shape[1]
    holds_answer = np.zeros(len(ids), dtype=bool)
    slots = np.argsort(ids, kind="stable")
    bounds = row_group_bounds(pq.ParquetFile(corpus))
    # Leave out the first part, the empty slots, and the last, the passages after the corpus.
    groups = [slots for slots in np.split(slots, np.searchsorted(ids[slots], bounds))[1:-1] if len(slots)]
    tasks = [(*np.unique(ids[slots], return_counts=True), (slots // depth).astype(np.int32)) for slots in groups]
    done, total = 0, sum(len(passages) for passages, *_ in tasks)
    progress(done, total, "passages")
    processes = max(1, min(processes, len(tasks), total // ANSWER_PASSAGES))
    with processes_apart(processes, (corpus, prepared_Q)) as parallel_map:
        for slots, (passages, *_), results in zip(groups, tasks, parallel_map(look_through, tasks), strict=True):
            holds_answer[slots[results]] = True
            done += len(passages)
            progress(done, total, "passages")
    return holds_answer.reshape(ids_QK.shape)


def look_through(shared, task):
    """Whether passages hold an answer to their questions: bool [n], passage by passage, one value per question.

    shared: (path of corpus.parquet, `prepare`'s result for each question); task: (passages, ascending, number of
    questions of each, rows of all these questions)
    """
    (corpus, prepared_Q), (passages, counts, rows) = shared, task
    questions = (prepared_Q[row] for row in rows.tolist())
    texts = zip(read_passages(corpus, passages, ["text"]), counts.tolist(), strict=True)
    results = (one for (text,), count in texts for one in holds(text, islice(questions, count)))
    return np.fromiter(results, bool, len(rows))


def holds(text, questions):
    """Whether a text holds an answer to each question, list of bool; questions: results of `prepare`."""
    cheap, words, results = folded(text), None, []
    for answers in questions:
        likely = [answer for token, answer in answers if token in cheap]
        words = phrase(text) if likely and words is None else words
        results.append(any(answer in words for answer in likely))
    return results
