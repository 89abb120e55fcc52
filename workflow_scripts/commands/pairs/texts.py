"""A folder of texts (.txt, .md), cut into passages, with a table of questions beside them.

A line of the table has a question and the name of a file. If it has an answer too, only the passages that hold the
answer count, else all of the file's. The table is in any of the other forms.
"""

import re
import unicodedata
from collections import defaultdict
from itertools import pairwise

from commands.pairs.columns import PASSAGES, QUESTION_IDS, QUESTIONS, Example, Passage, Problem, own_id, picked, text_of
from teleport.collection.equal import normal_form
from teleport.refusal import Refusal

NAME = "a folder of texts"
SUFFIXES = (".txt", ".md")
# Most words of a passage: about 200 tokens, which the usual encoders take whole. A character of a script without
# spaces between words counts as a word.
WORDS = 150
FILES = ("file", "filename", "file_name", "path", "source", "document", "doc")
NAMES = FILES[:4]  # those that mean nothing else
ANSWERS = ("answer", "quote", "span", "text")
REMEDY = "Put questions.jsonl beside them, with lines such as"
FORM = '{"question": "…", "file": "NAME.txt"}, and "answer" where only passages that hold it count'


def texts_below(folder):
    """The files of texts below a folder, sorted, without hidden ones."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def names_text(record, folder):
    """Whether a record of a table is about a text of the folder that the table is in: it names one, or its only passage
    is an answer in a file, whose name may be misspelt."""
    key = picked(record, FILES)
    name = record.get(key)
    # Texts are looked for last: the folder may have millions of files.
    if not isinstance(name, str) or not name.lower().endswith(SUFFIXES) or not (texts := texts_below(folder)):
        return False
    known = {composed(each) for path in texts for each in (path.name, str(path.relative_to(folder)))}
    others = [each for each in PASSAGES if each not in ANSWERS]
    return composed(name) in known or key in NAMES and picked(record, others) is None


def composed(name):
    """The name of a file with each accent in its letter. macOS may write the letter and the accent apart, which looks
    the same."""
    return unicodedata.normalize("NFC", name)


def passages_below(folder):
    """{path below the folder: its `Passage`s}; the title of a passage is the path without its ending."""
    passages = {}
    for path in texts_below(folder):
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refusal(f"{path}: byte {error.start} is not UTF-8. Convert the file with iconv.") from None
        name = path.relative_to(folder)
        passages[str(name)] = [Passage(None, str(name.with_suffix("")), chunk) for chunk in chunks(text)]
    return passages


def chunks(text):
    """The passages of a text (list of str): whole paragraphs, as many as fit into WORDS words; a longer paragraph is
    cut between words."""
    from teleport.search.lexical_index import UNSPACED  # here: bm25s takes a while to load

    word = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
    passages, paragraphs, words = [], [], 0
    for paragraph in filter(str.strip, text.replace("\r\n", "\n").split("\n\n")):
        starts = [match.start() for match in word.finditer(paragraph)]
        length = len(starts)
        if paragraphs and words + length > WORDS:
            passages.append("\n\n".join(paragraphs))
            paragraphs, words = [], 0
        if length > WORDS:
            cuts = pairwise([*starts[::WORDS], len(paragraph)])
            passages += [" ".join(paragraph[start:end].split()) for start, end in cuts]
        else:
            paragraphs.append(paragraph.strip())
            words += length
    return passages + (["\n\n".join(paragraphs)] if paragraphs else [])


def examples(path, rows, passages, wrong):
    """Yield the `Example`s of a table's rows (place, record) about `passages` (`passages_below`)."""
    named, paths = defaultdict(list), defaultdict(list)  # by name alone, too
    for name in passages:
        named[composed(name.rpartition("/")[2])].append(name)
        paths[composed(name)].append(name)
    named |= paths
    for place, record in rows:
        try:
            question, file, answer = (picked(record, each) for each in (QUESTIONS, FILES, ANSWERS))
            if not question or not file:
                keys = ", ".join(map(repr, record))
                raise Problem(f"the keys {keys} have no question and file. Write lines such as {FORM}")
            matches = named.get(composed(text_of(record[file], file)), ())
            if not matches:
                problem = f"{file!r} is {record[file]!r}, and no such file is below {path.parent}. Correct it"
                raise Problem(problem, "dangling")
            if len(matches) > 1:
                raise Problem(
                    f"{file!r} is {record[file]!r}, and {matches[0]} and {matches[1]} have this name. Give the path"
                )
            (name,) = matches
            chosen = passages[name]
            if answer and record[answer] not in (None, ""):
                chosen = holding(chosen, text_of(record[answer], answer))
            if not passages[name]:
                raise Problem(f"{name} has no text. Remove the line", "empty")
            if not chosen:
                raise Problem(f"{answer!r} is not in {name}. Write the answer as the file has it")
            positives = [each._replace(grade=1) for each in chosen]
            query_id = own_id(record, picked(record, QUESTION_IDS))
            yield Example(place, text_of(record[question], question), positives, [], query_id=query_id)
        except Problem as problem:
            wrong(place, problem)


def holding(passages, answer):
    """The passages that hold an answer, by their normal forms; if none does, the first two neighbours that hold it
    together."""
    wanted, texts = normal_form(answer), [normal_form(each.text) for each in passages]
    if alone := [each for each, text in zip(passages, texts, strict=True) if wanted in text]:
        return alone
    pairs = zip(passages, passages[1:], texts, texts[1:], strict=False)
    return next(([one, other] for one, other, *both in pairs if any(wanted in gap.join(both) for gap in (" ", ""))), [])
