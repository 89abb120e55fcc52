"""The grammar of bad inputs: sound files, damaged once to three times, and what may come of reading them.

Every reader first gets its sound files, which it has to take; of the damaged ones it has to take some, too: where all
are refused, one mistake of ours may hide what the reader does with the others.
"""

import json
import os
import random
import re
import shutil
import signal
import time
import traceback
from pathlib import Path

import pytest
from campaign import CASES, SLICE

from teleport.refusal import Refusal
from untouched import content_of

PATIENCE_SECONDS = 120  # of a case, whose reading takes less than one on an idle machine
LARGER = 20  # one case of so many has files of thousands of lines, where a reader has any
WORDS = [b"", b" ", b"\t", b"\0", b"\xe9", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b'"', b"'", b"\\ud83d", b"|"]
WORDS += [b"$(id)", b"[" * 5000, b"{" * 5000, b"9" * 5000, b"1_0", b"-1", b"1e400", b".inf", b"nan", b"null", b"true"]
WORDS += [b"[]", b"{}", b"5", b"2026-13-45", b"*a", b"&a", b"<<: {}", b"!!python/object/apply:os.abort []", b"? [a]"]
WORDS += [b"---", "\u2028é١".encode()]
ODD = [None, True, -1, 0, 2, 5, 0.5, 1e30, 10**40, float("nan"), "", "x", "512", "../x", "/etc", "\0", "{x}"]
ODD += [[], [5], {}]


class Hung(BaseException):
    """A case is not read within PATIENCE_SECONDS. No `except Exception` of a reader takes it for a bad file."""


class Case:
    """One reading by a `reader` (str) of files below `folder`, which is empty; `draw`: its random.Random.

    number: None for the sound files; `large`: whether they have thousands of lines; `taken`: whether they were taken
    """

    def __init__(self, reader, number, folder, campaign):
        self.reader, self.number, self.folder, self.campaign = reader, number, folder, campaign
        self.draw, self.sound, self.taken = random.Random(f"{reader} {number}"), number is None, False
        self.large = not self.sound and number % LARGER == LARGER - 1

    def damages(self):
        return () if self.sound else range(self.draw.randint(1, 3))

    def damaged(self, content):
        """`content` (bytes) with one to three damages."""
        for _ in self.damages():
            content = damaged(self.draw, content)
        return content

    def mutated(self, value):
        """A JSON value with one to three of its parts, at any depth, replaced or removed."""
        for _ in self.damages():
            value = mutated(self.draw, value)
        return value

    def write(self, files, change=None):
        """Write {name: bytes} below the folder, one of them damaged, or as `change(content)` makes it."""
        broken = self.draw.choice(sorted(files))
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((change or self.damaged)(content) if name == broken else content)

    def read(self, function, misread, writes=False):
        """Call it; an error must be a Refusal with a remedy in its message, and all files and links stay as they were.

        misread: of what it returns, what is wrong with it (falsy: nothing) by another reading of the same bytes;
        writes: whether it may write over files below the folder
        """
        before, started = {} if writes else self.files(), time.monotonic()
        try:
            found = within_patience(function)
        except Refusal as error:
            self.taken, wrong = False, None if re.search(r"\S.*[.?]", str(error)) else f"no sentence: {error}"
            if self.sound:
                wrong = f"the sound files are refused: {error}"
            self.campaign.note("a bad input, refused by a sentence", self.reader, wrong, self.number)
        except (Exception, Hung) as error:
            seconds, place = time.monotonic() - started, traceback.extract_tb(error.__traceback__)[-1]
            wrong = f"after {seconds:.1f} s {type(error).__name__}: {error} ({place.filename}:{place.lineno})"
            self.campaign.note("a bad input, refused by a sentence", self.reader, wrong, self.number)
        else:
            self.taken, fault = True, "a bad input that can be read, read as by another reader"
            fault = "a sound input, read as by another reader" if self.sound else fault
            self.campaign.note(fault, self.reader, misread(found), self.number)
        after = {} if writes else self.files()
        wrong = [path for path, content in before.items() if after.get(path) != content]
        self.campaign.note("what was there is as it was", self.reader, wrong, self.number, bool(before))

    def files(self):
        """{path: content} of all regular files and links below the folder."""
        paths = [path for path in self.folder.rglob("*") if path.is_symlink() or path.is_file()]
        return {str(path): content_of(path) for path in paths}


def each_case(campaign, folder, reader, one, few=CASES, share=1):
    """Call `one` with the `Case` of the sound files, and with those of CASES drawn ones: one in fifty must be taken.
    few: cases of the slice that runs with all tests; share: of a long campaign one case in so many, where it is long"""
    taken, cases = 0, few if SLICE else max(1, CASES // share)
    for number in (None, *range(cases)):
        below = folder / f"case {number}"
        below.mkdir()
        case = Case(reader, number, below, campaign)
        one(case)
        taken += case.taken and not case.sound
        shutil.rmtree(below)
    wrong = f"only {taken} of {cases}" if taken < max(cases >= LARGER, cases // 50) else None
    campaign.note("some damaged inputs can be read", reader, wrong, f"{taken} of {cases}")


def slow_but(fast, names):
    """Values of a parameter (list), of which those in `fast` run with all tests."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def within_patience(function):
    """What the function returns. Raises Hung when that takes too long."""

    def give_up(*_):
        raise Hung(f"not read within {PATIENCE_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_SECONDS)
    try:
        return function()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def damaged(draw, content):
    """`content` (bytes) with one damage: bytes flipped, cut or repeated, lines dropped, doubled or in another order,
    a field replaced, also by another one of the file, other ends of lines, another encoding."""
    at, to = sorted(draw.choices(range(len(content) + 1), k=2))
    fields = [match.span() for match in re.finditer(rb"[^\s,:{}\[\]\"]+", content)] or [(at, to)]
    lines = content.splitlines(keepends=True) or [b""]
    one = draw.randrange(len(lines))
    start, end = draw.choice(fields)
    other = slice(*draw.choice(fields))
    return draw.choice(
        [
            content[:at],
            content[:at] + content[min(to, at + 9) :],
            content[:at] + draw.choice(WORDS) + content[at:],
            content[:start] + draw.choice(WORDS) + content[end:],
            content[:start] + draw.choice(WORDS) + content[end:],
            content[:start] + content[other] + content[end:],
            content[:start] + content[other] + content[end:],
            content.replace(b"\n", b"\r\n"),
            content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :],
            b"".join(lines[:one] + lines[one + 1 :]),
            b"".join(lines[:one] + [lines[one]] * 2 + lines[one + 1 :]),
            b"".join(draw.sample(lines, len(lines))),
            content.decode("utf-8", "replace").encode(draw.choice(["utf-16", "utf-8-sig"])),
        ]
    )


def mutated(draw, value):
    """A JSON value with one of its parts, at any depth, replaced or removed."""
    value, node = json.loads(json.dumps(value)), None
    below = [value]
    while below and isinstance(below[0], dict | list) and below[0] and (node is None or draw.random() < 0.8):
        node = below[0]
        key = draw.choice(sorted(node) if isinstance(node, dict) else range(len(node)))
        below = [node[key]]
    if node is None:
        return draw.choice(ODD)
    if draw.random() < 0.2:
        del node[key]
    else:
        node[key] = draw.choice(ODD)
    return value


def json_lines(change, content):
    """A file of JSON lines (bytes) whose records, a list, are changed by `change`, such as `Case.mutated`."""
    records = change([json.loads(line) for line in content.splitlines()])
    return "".join(
        json.dumps(record) + "\n" for record in (records if isinstance(records, list) else [records])
    ).encode()


def put_shape(path, shape, content):
    """Put at a free path what is no regular file, by its `shape`, or a link to one with `content`; nothing for another
    shape."""
    if shape == "a folder":
        path.mkdir()
    elif shape == "a pipe":
        os.mkfifo(path)
    elif shape in ("a dangling link", "a device"):
        path.symlink_to("/dev/zero" if shape == "a device" else "nowhere")
    elif shape == "a link to it":
        Path("elsewhere").write_bytes(content)
        path.symlink_to(Path("elsewhere").absolute())
