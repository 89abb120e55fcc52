"""Rules of the page's JavaScript, CSS and HTML; `make lint` has the syntax of JavaScript checked by Node.js."""

import re

import pytest

from teleport.report.page.site import ASSETS

SCRIPTS = sorted(ASSETS.glob("*.js"))
FORBIDDEN = {
    r"\bvar\b": "let or const",
    r"[^=!]==[^=]|!=[^=]": "=== or !==",
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write": "elements and textContent: a passage may hold markup",
    r"\beval\b|new Function": "no code from text",
    r"\bconsole\.|\bdebugger\b|\balert\(": "nothing left over",
    r"\bfetch\(|XMLHttpRequest|WebSocket|https?:": "nothing from elsewhere: the page is read from the disk",
    r"\t| $": "spaces, none at the end of a line",
}


def code_of(path):
    """A script without comments and the content of its strings, in which the rules do not hold."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', path.read_text(encoding="utf-8"))
    return re.sub(r"(?m)[ \t]*//.*$", "", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_javascript_keeps_the_rules(path):
    text, code = path.read_text(encoding="utf-8"), code_of(path)
    assert '"use strict";' in text
    found = {rule: re.findall(f".*(?:{pattern}).*", code, re.M) for pattern, rule in FORBIDDEN.items()}
    assert {rule: lines for rule, lines in found.items() if lines} == {}


@pytest.mark.parametrize("path", sorted(ASSETS.iterdir()), ids=lambda path: path.name)
def test_lines_have_at_most_120_characters(path):
    """Of JavaScript, CSS and templates of HTML."""
    assert [line for line in path.read_text(encoding="utf-8").splitlines() if len(line) > 120] == []


def test_each_rule_finds_what_it_is_about():
    bad = ["var a", "a == b", "a.innerHTML", "eval(a)", "console.log(a)", "fetch(a)", "a "]
    for line, pattern in zip(bad, FORBIDDEN, strict=True):
        assert re.search(pattern, line, re.M), line


def test_the_page_has_at_most_twenty_kilobytes_of_javascript_of_its_own():
    assert SCRIPTS and sum(path.stat().st_size for path in SCRIPTS) <= 20_000
