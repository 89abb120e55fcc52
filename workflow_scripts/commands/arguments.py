"""Arguments of `teleport`'s commands: their checks, as argparse's `type` takes them, choices and defaults.

It imports no large library, because every command imports it.
"""

import argparse
import os
from pathlib import Path

# The names in teleport/negatives/forms.py, which takes long to import.
NEGATIVES_FORMS = ("tevatron", "pos-neg", "nemo", "n-tuple", "triplet", "labeled-pair", "labeled-list", "triples")
FAULTS = ("empty", "repeated", "dangling")  # the names in teleport/records.py
# Of `audit`:
MARGIN = 0.05  # suspected false: a score above s+ - MARGIN * |s+|, sentence-transformers' usual relative_margin
LIKE = 0.9  # nearly a positive: a cosine with one of the query's positives above it


def configuration(text):
    """A file of a configuration; NAME stands for config/NAME.yaml."""
    named = f"config/{text}.yaml"
    return named if not os.path.exists(text) and os.path.exists(named) else text


def name_of_configuration(text):
    """NAME, given as NAME or as config/NAME.yaml."""
    return text.removeprefix("config/").removesuffix(".yaml")


def number_or_all(text):
    """A whole number from 1 on, or "all"."""
    return text if text == "all" else at_least_one(text)


def at_least_one(text):
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def at_most_one(text):
    """A number from -1 to 1."""
    from teleport.records import float_of

    if not -1 <= (number := float_of(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from -1 to 1")
    return number


def comma_separated(text):
    """The words of WORD,WORD (list)."""
    return [word for word in text.split(",") if word]


def kinds_of_faults(text):
    """The kinds of faults in KIND,KIND (list)."""
    kinds = dict.fromkeys(comma_separated(text))
    if unknown := [kind for kind in kinds if kind not in FAULTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(FAULTS)}")
    return list(kinds)


def gpus_of_training(text):
    """{"train": number} of train:gpu=NUMBER."""
    kind, _, number = text.partition(":gpu=")
    if kind != "train":
        raise argparse.ArgumentTypeError(f"{text} is not train:gpu=NUMBER; a job of another kind computes on one GPU")
    return {kind: at_least_one(number)}


def shards(text):
    """(kind, number) of encode=NUMBER or retrieve=NUMBER."""
    kind, _, number = text.partition("=")
    if kind not in ("encode", "retrieve"):
        raise argparse.ArgumentTypeError(f"{text} is neither encode=NUMBER nor retrieve=NUMBER")
    return kind, at_least_one(number)


def folder(text):
    """The Path of a folder that exists or can be made."""
    from teleport.refusal import Refusal
    from teleport.running.files import require_output

    path = Path(text)
    for taken in (each for each in (path, *path.parents) if each.exists() and not each.is_dir()):
        raise argparse.ArgumentTypeError(f"{taken} is not a folder")
    try:
        require_output(path / "new")  # /proc, for example, takes no new folder
    except Refusal as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def there(text):
    """The Path of a file or folder that exists."""
    if not os.path.exists(text):
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return Path(text)


def file(text):
    """The Path of a file."""
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder")
    return Path(text)
