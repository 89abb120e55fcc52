"""The grammar of bad inputs: sound files, damaged once to three times, and what may come of reading them."""

import json
import re

from campaign import CASES

from teleport.refusal import Refusal

DRAWN = range(CASES)
WORDS = [
    b"",
    b" ",
    b"\t",
    b"\0",
    b"\xe9",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n",
    b'"',
    b"'",
    b"\\ud83d",
    b"|",
    b"$(id)",
]
WORDS += [
    b"[" * 5000,
    b"{" * 5000,
    b"9" * 5000,
    b"1_0",
    b"-1",
    b"1e400",
    b".inf",
    b"nan",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"5",
]
WORDS += [
    b"2026-13-45",
    b"*a",
    b"&a",
    b"<<: {}",
    b"!!python/object/apply:os.abort []",
    b"? [a]",
    b"---",
    "\u2028é١".encode(),
]


def damaged(draw, content):
    """`content` (bytes) with one to three damages drawn from a random.Random."""
    for _ in range(draw.randint(1, 3)):
        at, to = sorted(draw.choices(range(len(content) + 1), k=2))
        fields = [match.span() for match in re.finditer(rb"[^\s,:{}\[\]\"]+", content)] or [(at, to)]
        lines = content.splitlines(keepends=True) or [b""]
        one = draw.randrange(len(lines))
        start, end = draw.choice(fields)
        content = draw.choice(
            [
                content[:at],
                content[:at] + content[min(to, at + 9) :],
                content[:at] + draw.choice(WORDS) + content[at:],
                content[:start] + draw.choice(WORDS) + content[end:],
                content[:start] + draw.choice(WORDS) + content[end:],
                content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :],
                b"".join(lines[:one] + lines[one + 1 :]),
                b"".join(lines[:one] + [lines[one]] * 2 + lines[one + 1 :]),
                b"".join(draw.sample(lines, len(lines))),
                content.decode("utf-8", "replace").encode(draw.choice(["utf-16", "utf-8-sig"])),
            ]
        )
    return content


ODD = [
    None,
    True,
    -1,
    0,
    2,
    5,
    0.5,
    1e30,
    10**40,
    float("nan"),
    "",
    "x",
    "512",
    "../x",
    "/etc",
    "\0",
    "{x}",
    [],
    [5],
    {},
]


def mutated(draw, value):
    """A JSON value with one to three of its parts, at any depth, replaced or removed; `draw`: a random.Random."""
    for _ in range(draw.randint(1, 3)):
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


def taken_or_refused(function, campaign, reader, case, misread=None):
    """Call it; an error must be a Refusal with a remedy in its message.

    misread: of what it returns, what is wrong with it (None: nothing) by another reading of the same bytes; without it
    the case is counted apart, because being read it cannot fail
    """
    try:
        found = function()
    except ValueError as error:
        sentence = isinstance(error, Refusal) and re.search(r"\S.*[.?]", str(error))
        wrong = None if sentence else f"not a sentence of ours: {type(error).__name__}: {error}"
        campaign.note("a bad input, refused by a sentence", reader, wrong, case)
    except Exception as error:
        campaign.note("a bad input, refused by a sentence", reader, f"{type(error).__name__}: {error}", case)
        raise
    else:
        if misread:
            campaign.note("a bad input that can be read, read as by another reader", reader, misread(found), case)
        else:
            campaign.note("a bad input that can be read", reader, None, case, could_fail=False)
