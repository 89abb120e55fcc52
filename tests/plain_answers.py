"""DPR's answer matching once more, as plainly as it can be said: character by character, no regular expression."""

import unicodedata


def plain_tokens(text):
    """Runs of letters, numbers and marks, and every other character but separators and controls; lower-cased."""
    tokens, run = [], ""
    for character in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(character)[0]
        if kind in "LNM":
            run += character
            continue
        if run:
            tokens.append(run)
            run = ""
        if kind not in "ZC":
            tokens.append(character)
    if run:
        tokens.append(run)
    return [token.lower() for token in tokens]


def plain_holds(tokens, answer_tokens):
    """Whether `answer_tokens` is a contiguous part of `tokens`."""
    size = len(answer_tokens)
    return any(tokens[start : start + size] == answer_tokens for start in range(len(tokens) - size + 1))


def plain_parts(tokens, size):
    """All contiguous parts of `size` tokens, as a set of tuples: for asking about many answers at once."""
    return {tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)}
