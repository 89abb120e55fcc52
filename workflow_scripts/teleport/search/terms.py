"""The terms of texts, as bm25s splits them: lower-cased words of two letters or more, without stop words, stemmed."""

import Stemmer
from bm25s.tokenization import Tokenizer

NO_TERM = -1  # of a stop word, and of a term that the index does not have


class Terms:
    """Splits texts into the numbers of their terms; a new term gets the next number.

    numbers: {term: its number}. Raises ValueError for an unknown stemmer or stop word list.
    """

    def __init__(self, settings):
        splitter = tokenizer(settings)
        self.split, self.numbers = splitter.splitter, {}
        self.words = Words(splitter.stemmer, frozenset(splitter.stopwords), self.numbers)

    def of(self, text):
        """The numbers of the terms of a text, in order and with repeats (list of int)."""
        words = self.words
        return [number for word in self.split(text.lower()) if (number := words[word]) >= 0]

    def forget_words(self):
        """Forget which word has which term, but no term: words are the larger part of a vocabulary's memory."""
        self.words.clear()


class Words(dict):
    """{word: the number of its term}, filled when a word is looked up; `NO_TERM` for a stop word."""

    def __init__(self, stem, stopwords, numbers):
        self.stem, self.stopwords, self.numbers = stem, stopwords, numbers

    def __missing__(self, word):
        if word in self.stopwords:
            number = NO_TERM
        else:
            term = self.stem(word) if self.stem else word
            number = self.numbers.setdefault(term, len(self.numbers))
        self[word] = number
        return number


def tokenizer(settings):
    """bm25s's tokenizer of these settings (`Bm25`). Raises ValueError for a stemmer or stop words that it lacks."""
    if settings.stemmer and settings.stemmer not in Stemmer.algorithms():
        names = ", ".join(Stemmer.algorithms())
        raise ValueError(f"bm25.stemmer is {settings.stemmer!r}; Snowball has {names}. Choose one of them, or null.")
    stemmer = Stemmer.Stemmer(settings.stemmer) if settings.stemmer else None
    try:
        return Tokenizer(stopwords=settings.stopwords or [], stemmer=stemmer)
    except ValueError as error:
        rule = f"bm25.stopwords is {settings.stopwords!r}, a list that bm25s does not have"
        raise ValueError(f"{rule} ({error}). Choose the name of one, such as english or german, or null.") from None
