"""The grammar of bad inputs: sound files, damaged once to three times, and what may come of reading them."""

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


def taken_or_refused(function, campaign, reader, case):
    """Call it; an error must be a Refusal with a remedy in its message."""
    try:
        function()
    except ValueError as error:
        sentence = isinstance(error, Refusal) and re.search(r"\S.*[.?]", str(error))
        wrong = None if sentence else f"not a sentence of ours: {type(error).__name__}: {error}"
        campaign.note("a bad input, refused by a sentence", reader, wrong, case)
    except Exception as error:
        campaign.note("a bad input, refused by a sentence", reader, f"{type(error).__name__}: {error}", case)
        raise
    else:
        campaign.note("a bad input that can be read", reader, None, case)
