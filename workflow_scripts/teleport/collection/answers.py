"""Does a passage hold an answer of a question? DPR's rule, to the letter, over many passages.

Question answering has few judged passages, so a passage counts when its body holds one of the answer strings: the
tokens of the answer are a contiguous part of the tokens of the passage. Tokens are those of DPR's SimpleTokenizer:
of the text in NFD, the runs of Unicode letters, numbers and marks, and every other single character that is neither
separator nor control, each lower-cased. Lower-cased, not case-folded as it is often described: `ß` and `ss` differ,
and a final sigma `ς` differs from `σ`. Titles are not looked at. An answer without any token is part of every text.
"""

import unicodedata

import numpy as np
import pyarrow.parquet as pq
import regex

TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def phrase(text):
    """The tokens of a text, lower-cased, with a space before, between and after them: no token has a space.

    So one phrase is in another, as text, exactly when its tokens are a contiguous part of the other's tokens. Between
    spaces, whether a sigma becomes a final one depends on its token alone, as where tokens are lower-cased one by one.
    """
    return " ".join(["", *TOKEN.findall(unicodedata.normalize("NFD", text)), ""]).lower()


def folded(text):
    """A text in NFD, lower-cased, without final sigmas: it holds every token of the text that is folded likewise.

    All of lower-casing but the final sigma goes character by character, so this is a necessary condition for a match,
    and far cheaper than finding the tokens.
    """
    return unicodedata.normalize("NFD", text).lower().replace("ς", "σ")


def prepare(answers):
    """Each answer of a question as (its longest token folded, its phrase)."""
    phrases = [phrase(answer) for answer in answers]
    return [(folded(max(words.split(" "), key=len)), words) for words in phrases]


def find_answers(corpus, ids_QK, answers_Q):
    """Which retrieved passages hold an answer of their question: bool [Q, K].

    `corpus` is the path of corpus.parquet, `ids_QK` int32 passage rows (-1: an empty slot, which holds nothing),
    `answers_Q` a list of answers per question. Every passage is read and tokenised at most once, in the order of the
    corpus, which is never in memory as a whole.
    """
    prepared_Q = [prepare(answers) for answers in answers_Q]
    found_QK = np.zeros(ids_QK.shape, dtype=bool)
    ids, found, depth = ids_QK.ravel(), found_QK.ravel(), ids_QK.shape[1]
    slots = np.argsort(ids, kind="stable")
    slots = slots[np.searchsorted(ids[slots], 0) :]
    passages, starts = np.unique(ids[slots], return_index=True)
    stops = np.append(starts[1:], len(slots))
    for number, text in enumerate(read_texts(corpus, passages)):
        places = slots[starts[number] : stops[number]]
        held = holds(text, [prepared_Q[row] for row in (places // depth).tolist()])
        found[places[held]] = True
    return found_QK


def holds(text, questions):
    """Whether a text holds an answer of each question, bool list; a question is what `prepare` returned."""
    cheap, words, held = folded(text), None, []
    for answers in questions:
        likely = [answer for token, answer in answers if token in cheap]
        words = phrase(text) if likely and words is None else words
        held.append(any(answer in words for answer in likely))
    return held


def read_texts(corpus, passages):
    """The bodies of passages (ascending row numbers), one by one, of the path of a corpus.parquet."""
    file, first = pq.ParquetFile(corpus), 0
    for group in range(file.num_row_groups):
        last = first + file.metadata.row_group(group).num_rows
        wanted = passages[np.searchsorted(passages, first) : np.searchsorted(passages, last)]
        if len(wanted):
            yield from file.read_row_group(group, columns=["text"])["text"].take(wanted - first).to_pylist()
        first = last
