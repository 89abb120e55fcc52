"""How encoders read texts, if the checkpoint decides it and not the configuration: printed before the first job."""

import re
from itertools import islice

import numpy as np

from commands.forecast.counts import SPECIAL_TOKENS, token_maps
from teleport.encoder.completed import PREFIXES
from teleport.encoder.source import locate
from teleport.refusal import Refusal
from teleport.report.words import number
from teleport.running.artefact import STAGES, Artefact, is_finished

LEFT_OUT = ("pooling", "normalize", *PREFIXES, "max_query_tokens", "max_passage_tokens")
SAMPLE = 1000  # passages that are tokenised to count the cut ones, unless the stage `tokens` has done it
LONGEST_TOKEN = 100  # characters
# Tokens that begin inside a word, per word, from which on the text is hardly of the tokenizer's language. With the
# vocabulary of BERT: English .13 to .16, Python code .36, German 1.25.
MANY_PIECES = 0.75
UNKNOWN, MANY_UNKNOWN = ("[UNK]", "<unk>"), 0.05  # names, and share of tokens: with BERT's vocabulary Japanese has .26
MOST_LINES = 3


def encoding_sentences(experiments, plan):
    """Sentences (list) on the encoders for which `experiments`, as configured, leave a setting to the checkpoint, or
    replace its prompt.

    plan: of the same experiments, with all settings filled in. At most MOST_LINES, and one on how many more there are.
    """
    sentences = []
    for name, experiment in experiments.items():
        prompts = {key: own.value for key, own in plan.replaced[name].items() if key in PREFIXES}
        if prompts or any(getattr(experiment.encoder, key) is None for key in LEFT_OUT):
            encoder = plan.experiments[name].encoder
            chosen = experiment.encoder.max_passage_tokens is not None  # then the cut is meant
            cut = "" if chosen else cut_of_tokens(encoder, plan, name)
            sentences.append(f"{encoder.checkpoint.place}: {sentence(encoder, prompts)}{cut}.")
    sentences = list(dict.fromkeys(sentences))
    left = number(len(sentences) - MOST_LINES, "more encoder")
    more = [f"{left}: plan.tsv below results/experiments leads to the settings."]
    return sentences[:MOST_LINES] + (more if len(sentences) > MOST_LINES else [])


def sentence(encoder, prompts=None):
    """Return a sentence, without its full stop, on how a complete settings.Encoder encodes texts. prompts: {prefix: the
    checkpoint's prompt that it replaces}"""
    lengths = f"queries of at most {encoder.max_query_tokens} tokens, passages of at most {encoder.max_passage_tokens}"
    text = f"{encoder.pooling} pooling, {'vectors normalised to length 1, ' * encoder.normalize}{lengths}"
    prefixes = [prefix for prefix in (encoder.query_prefix, encoder.passage_prefix) if prefix]
    text = f"{text}, after {' and '.join(map(repr, prefixes))}" if prefixes else text
    replaced = (
        f"{key} {getattr(encoder, key)!r} replaces the checkpoint's prompt {prompt!r}"
        for key, prompt in (prompts or {}).items()
    )
    return "; ".join([text, *replaced])


def cut_of_tokens(encoder, plan, name):
    """How many passages are cut (text), by the finished stage `tokens` of an experiment. "" if it is not finished, or
    is damaged: whoever reads it reports that, and the run that makes it again starts here."""
    for stage in token_maps(plan):
        if name in plan.users[stage.name] and is_finished(stage.name):
            try:
                offsets = np.load(Artefact(STAGES / stage.name).path("passages.offsets.npy"), mmap_mode="r")
            except Refusal:
                return ""
            lengths = np.diff(offsets)
            cut = np.mean(lengths + SPECIAL_TOKENS > encoder.chunks * encoder.max_passage_tokens)
            return cut_text(cut, f"{len(lengths):,}")
    return ""


def cut_text(share, which):
    """The text on the share of `which` passages (text) that are cut, with a remedy if there are any."""
    remedy = ": encoder.chunks reads more of them, or give shorter passages" if share else ""
    return f"; {share:.0%} of the {which} passages are longer and are cut{remedy}"


def cut_of_first(encoder, texts, encodings):
    """The text on how many of the first passages (`first_encodings`) are cut; "" without a tokenizer."""
    most = encoder.chunks * encoder.max_passage_tokens
    cut = sum(len(encoding.ids) > most for encoding in encodings)
    return cut_text(cut / len(texts), f"first {len(texts)}") if encodings else ""


def split_words(texts, encodings):
    """A warning (list of one str) if the checkpoint's tokenizer splits most words of the first passages
    (`first_encodings`), as an English one does with German; [] otherwise. For scripts without spaces between words see
    `unknown_tokens`."""
    words = sum(len(re.findall(r"\w+", text)) for text in texts)
    inside = sum(
        start > 0 and text[start - 1].isalnum() and text[start].isalnum()
        for text, encoding in zip(texts, encodings, strict=True)
        for start, end in encoding.offsets
        if start < end
    )
    if inside <= MANY_PIECES * words:
        return []
    return [f"warning: the checkpoint's tokenizer cuts a word of these passages into {1 + inside / words:.1f} tokens on"
            " average, so it may not know their language: name a multilingual one with --encoder. BM25's stemmer and "
            "stop words are English: for German, write bm25: {stemmer: german, stopwords: german}."]  # fmt: skip


def unknown_tokens(encodings):
    """A warning (list of one str) if the checkpoint's tokenizer has no token for much of the first passages
    (`first_encodings`), as an English one for Japanese; [] otherwise."""
    pairs = (pair for each in encodings for pair in zip(each.tokens, each.offsets, strict=True))
    tokens = [token for token, (start, end) in pairs if start < end]  # without those that the tokenizer adds
    unknown = sum(token in UNKNOWN for token in tokens)
    if unknown <= MANY_UNKNOWN * len(tokens):
        return []
    return [f"warning: the checkpoint's tokenizer does not know {unknown / len(tokens):.0%} of the tokens of these "
            "passages, so it hardly knows their language: name a multilingual one with --encoder."]  # fmt: skip


def first_encodings(encoder, rows):
    """(texts, encodings) of the first passages of `rows` (line, id, title, text) by the checkpoint's tokenizer; empty
    if it has none in one file."""
    from tokenizers import Tokenizer

    if not (file := locate(encoder.checkpoint, ("tokenizer.json",)) / "tokenizer.json").is_file():
        return [], []
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    most = encoder.chunks * encoder.max_passage_tokens * LONGEST_TOKEN
    texts = [f"{encoder.passage_prefix}{title} {text}" for _, _, title, text in islice(rows, SAMPLE)]
    texts = [text[:most] for text in texts]  # a passage of megabytes takes minutes, and is cut anyway
    return texts, tokenizer.encode_batch(texts)
